"""`poe serve --isolation process`: the node dies and comes back, and the service stays."""

import json
import os
import signal
import socket
import threading
import time
from functools import partial

import pytest

from poe import protocol
from poe.cli.isolated_node import RESTARTS_MAX
from poe.errors import OptionError, PoeError
from poe.node import Node
from tests.cli.processes import DEADLINE_S, Background, Server, complaint, poe
from tests.process_tree import descendants, is_running
from tests.waiting import wait_until

pytestmark = pytest.mark.slow

ISOLATED = ("--isolation", "process")


@pytest.fixture
def isolated(tmp_path):
    with Server(tmp_path / "data", *ISOLATED) as server:
        yield server


def node_pid(server):
    """The pid of the node's process, which must be there."""
    [pid] = descendants(server.process.pid)
    return pid


def kill_node(server):
    """Kill the node's process; return the pid of its successor, as soon as that exists."""
    killed = node_pid(server)
    os.kill(killed, signal.SIGKILL)
    wait_until(lambda: descendants(server.process.pid) not in ([], [killed]), DEADLINE_S)
    return node_pid(server)


def put_until_stopped(port, stop, acknowledged):
    """Put numbers, one at a time, over a new connection whenever the old one is lost."""
    number = 0
    while not stop.is_set():
        try:
            with protocol.socket(port=port, timeout_s=DEADLINE_S) as connection:
                while not stop.is_set():
                    connection.write("t", [b"%d" % number])
                    acknowledged.append(b"%d" % number)
                    number += 1
        except (PoeError, OSError):
            number += 1  # it may be stored


def reaches(items, count):
    return len(items) >= count


def test_what_was_acknowledged_survives_kills_and_clients_go_on_at_the_same_port(isolated):
    acknowledged: list[bytes] = []
    stop = threading.Event()
    producer = threading.Thread(target=put_until_stopped, args=(isolated.port, stop, acknowledged))
    producer.start()
    try:
        pids = {node_pid(isolated)}
        for kill in range(1, 4):
            wait_until(partial(reaches, acknowledged, kill * 300), DEADLINE_S)
            pids.add(kill_node(isolated))
        wait_until(partial(reaches, acknowledged, len(acknowledged) + 300), DEADLINE_S)
    finally:
        stop.set()
        producer.join()
    assert len(pids) == 4
    with protocol.socket(port=isolated.port) as connection:
        stored, pointer = [], 0
        while records := connection.read("t", pointer, 1000):
            pointer = records[-1][0]
            stored += [message for _, message in records]
    assert set(acknowledged) <= set(stored)
    assert len(stored) <= len(acknowledged) + 3, "one message was under way at each kill"
    assert stored == sorted(stored, key=int)


def test_a_client_that_connects_while_there_is_no_node_waits(isolated):
    pid = node_pid(isolated)
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: not is_running(pid), DEADLINE_S)
    with protocol.socket(port=isolated.port, timeout_s=DEADLINE_S) as connection:
        assert connection.topics() == []


def test_the_log_tells_the_pid_at_each_start(isolated):
    first, second = node_pid(isolated), kill_node(isolated)
    _, _, stderr = isolated.end()
    for pid in (first, second):
        assert f"node_process runs as process {pid}\n" in stderr.decode()
    assert "child_terminated of child 'node_process': ('signal', 'SIGKILL')" in stderr.decode()


def test_a_node_that_dies_too_often_ends_the_service_with_an_error(isolated):
    for _ in range(RESTARTS_MAX):
        kill_node(isolated)
    os.kill(node_pid(isolated), signal.SIGKILL)
    _, stderr = isolated.process.communicate(timeout=DEADLINE_S)
    assert isolated.process.returncode == 1
    assert b"child 'node_process': 5 restarts within 60 s" in stderr
    assert b"the supervision tree gave up" in stderr
    assert b"Traceback" not in stderr


def test_a_node_that_cannot_start_again_ends_the_service_with_an_error(isolated, tmp_path):
    pid = node_pid(isolated)
    (tmp_path / "data").rename(tmp_path / "moved")
    (tmp_path / "data").write_text("no folder")
    os.kill(pid, signal.SIGKILL)
    _, stderr = isolated.process.communicate(timeout=DEADLINE_S)
    assert isolated.process.returncode == 1
    assert b"start_error of child 'node_process'" in stderr
    assert b"use a folder" in stderr
    assert b"the supervision tree gave up" in stderr


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_service_and_node_in_good_order(isolated, tmp_path, number):
    pid = node_pid(isolated)
    with protocol.socket(port=isolated.port) as connection:
        connection.write("t", [b"x"])
    code, _, stderr = isolated.end(number)
    assert code == 0
    assert b"Traceback" not in stderr
    assert not is_running(pid)
    assert not list((tmp_path / "data").rglob("*_lock")), "every segment was closed"


def test_ctrl_c_at_a_terminal_reaches_the_service_alone(isolated):
    assert os.getpgid(node_pid(isolated)) != os.getpgid(isolated.process.pid)


def test_a_kill_of_the_service_ends_the_node(isolated):
    pid = node_pid(isolated)
    isolated.process.kill()
    wait_until(lambda: not is_running(pid), DEADLINE_S)


def slow_client(port):
    """A client that takes nothing of a reply of 32 MiB, so that the node has to wait for it."""
    with protocol.socket(port=port, timeout_s=DEADLINE_S) as connection:
        connection.write("t", [bytes(1 << 20)] * 32)
    slow = socket.create_connection(("127.0.0.1", port))
    slow.sendall(protocol.PointerRequest(b"t", 0, 32).encode() * 4)
    wait_until(lambda: slow.recv(1, socket.MSG_PEEK), DEADLINE_S)
    return slow


@pytest.mark.alone
def test_a_client_that_does_not_take_its_reply_is_cut_off_within_five_seconds(isolated):
    with slow_client(isolated.port):
        began_s = time.monotonic()
        code, _, stderr = isolated.end()
        assert time.monotonic() - began_s < 5
    assert code == 0
    assert b"clients were cut off" in stderr


@pytest.mark.alone
def test_a_node_that_hangs_is_killed_when_the_service_ends(isolated):
    pid = node_pid(isolated)
    os.kill(pid, signal.SIGSTOP)
    began_s = time.monotonic()
    code, _, _ = isolated.end()
    assert time.monotonic() - began_s < 5
    assert code == 0
    assert not is_running(pid)


def test_a_second_signal_ends_both_at_once(isolated):
    pid = node_pid(isolated)
    with slow_client(isolated.port):
        isolated.process.send_signal(signal.SIGTERM)
        isolated.read_until(b"SIGTERM: stopping", pipe=isolated.process.stderr)
        code, _, stderr = isolated.end()
    assert code == 128 + signal.SIGTERM
    assert b"leaving at once" in stderr
    wait_until(lambda: not is_running(pid), DEADLINE_S)


def test_systemd_hears_of_the_service_and_not_of_the_node(tmp_path):
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notified:
        notified.settimeout(DEADLINE_S)
        notified.bind(str(tmp_path / "notify"))
        address = str(tmp_path / "notify")
        with Server(tmp_path / "data", *ISOLATED, NOTIFY_SOCKET=address) as server:
            kill_node(server)
            with protocol.socket(port=server.port, timeout_s=DEADLINE_S) as connection:
                connection.topics()
            assert server.end()[0] == 0
        assert notified.recv(1000).startswith(b"READY=1\n")
        assert notified.recv(1000).startswith(b"STOPPING=1\n")
        notified.setblocking(False)
        with pytest.raises(BlockingIOError):
            notified.recv(1000)


@pytest.mark.parametrize("trouble", ["port", "folder", "locked folder", "host"])
def test_a_start_that_fails_is_told_as_without_isolation(tmp_path, isolated, trouble):
    folder = tmp_path / "data" if trouble == "locked folder" else tmp_path / "other"
    if trouble == "folder":
        folder.write_text("no folder")
    arguments = {
        "port": ("--port", isolated.port),
        "folder": ("--port", 0),
        "locked folder": ("--port", 0),
        "host": ("--host", "192.0.2.1", "--insecure"),
    }[trouble]
    plain = poe("serve", "--dir", folder, *arguments)
    run = poe("serve", "--dir", folder, *arguments, *ISOLATED, "--log-level", "critical")
    assert (run.returncode, complaint(run)) == (plain.returncode, complaint(plain))
    assert run.returncode == 2
    assert not folder.is_dir() or trouble == "locked folder", "nothing is left behind"


def test_options_are_told_with_where_they_came_from(isolated):
    run = poe("config", "--changed", "--format", "json", port=isolated.port)
    told = {name: row["from"] for name, row in json.loads(run.stdout).items()}
    assert told == {"dir": "argument", "port": "argument", "isolation": "argument"}


def test_the_option_may_stand_in_the_environment(tmp_path):
    with Background(
        "serve", "--dir", tmp_path / "data", "--port", 0, POE_ISOLATION="process"
    ) as server:
        server.read_until(b"ready on ")
        assert len(descendants(server.process.pid)) == 1


@pytest.mark.parametrize("option", [{"isolation": "process"}, {"thespian_port": 1900}])
def test_an_embedded_node_refuses_the_options_of_the_service(option):
    with pytest.raises(OptionError, match="run the node by `poe serve`"):
        Node(option)
