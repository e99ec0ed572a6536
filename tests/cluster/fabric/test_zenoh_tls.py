"""Nodes that show each other certificates."""

import json
import struct
from dataclasses import replace
from pathlib import Path

import pytest

from poe.cluster.fabric.interface import PeerUp, Published, Refused
from poe.cluster.fabric.token import encode_token
from poe.cluster.fabric.zenoh_config import key_of_token, key_to, key_to_all, settings_of
from poe.cluster.options import ClusterOptions
from poe.errors import FabricFailed, OptionError
from tests.cli.processes import poe_here
from tests.ports import free_port
from tests.tls import Certificates
from tests.waiting import wait_until

zenoh = pytest.importorskip("zenoh")
HEADER = struct.Struct(">B8sQ8sQ")
pytestmark = pytest.mark.slow


@pytest.fixture
def certificates(tmp_path):
    return Certificates.make(tmp_path)


def files_of(certificates: Certificates, name: str = "server") -> dict[str, Path]:
    return {
        "cluster_certificate": certificates.folder / f"{name}.pem",
        "cluster_key": certificates.folder / f"{name}.key",
        "cluster_ca": certificates.folder / "ca.pem",
    }


def test_nodes_with_certificates_of_one_authority_find_each_other(cluster, certificates):
    first = cluster.start(**files_of(certificates))
    second = cluster.start(**files_of(certificates))
    first.wait_for(lambda: first.is_up(second.me.ref))
    second.wait_for(lambda: second.is_up(first.me.ref))
    assert second.ask(first.me.ref, b"x" * 100_000) == b"X" * 100_000


def test_nodes_find_each_other_with_certificates_that_the_command_has_made(cluster, tmp_path):
    assert poe_here("certificates", tmp_path, "--node", "127.0.0.1").returncode == 0
    files = {
        "cluster_certificate": tmp_path / "127.0.0.1.pem",
        "cluster_key": tmp_path / "127.0.0.1.key",
        "cluster_ca": tmp_path / "ca.pem",
    }
    first, second = (cluster.start(**files) for _ in range(2))
    first.wait_for(lambda: first.is_up(second.me.ref))
    second.wait_for(lambda: second.is_up(first.me.ref))


@pytest.mark.parametrize("kind", ["of another authority", "without any"])
def test_a_node_with_a_certificate_that_is_none_of_the_cluster_stays_outside(
    cluster, certificates, tmp_path, kind
):
    """Nothing tells that somebody was refused; the third node, which is let in, says when."""
    first = cluster.start(**files_of(certificates))
    (tmp_path / "other").mkdir()
    other = Certificates.make(tmp_path / "other")
    stranger = (
        cluster.start(**files_of(other)) if kind == "of another authority" else cluster.start()
    )
    third = cluster.start(**files_of(certificates))
    first.wait_for(lambda: first.is_up(third.me.ref))
    assert [event.peer for event in first.events if isinstance(event, PeerUp)] == [third.me]
    assert stranger.events == []
    assert stranger.ask(first.me.ref, b"hello") is None


HOSTS = ("127.0.0.1", "127.0.0.2", "127.0.0.3")


@pytest.fixture
def start(cluster, tmp_path):
    """Starts nodes of three hosts, each with a certificate of its own."""
    hosts = [word for host in HOSTS for word in ("--node", host)]
    assert poe_here("certificates", tmp_path, *hosts).returncode == 0

    def start(host, certificate=None, **options):
        name = certificate or host
        return cluster.start(
            cluster_host=host,
            cluster_nodes=options.pop("cluster_nodes", HOSTS),
            cluster_certificate=tmp_path / f"{name}.pem",
            cluster_key=tmp_path / f"{name}.key",
            cluster_ca=tmp_path / "ca.pem",
            **options,
        )

    return start


def hostile_session(options):
    """Open one with the certificate of a node, which checks nothing of its own."""
    settings = settings_of(replace(options, cluster_port=free_port()))
    del settings["access_control"]
    return zenoh.open(zenoh.Config.from_json5(json.dumps(settings)))


def test_nodes_that_are_told_by_their_certificates_find_each_other(start):
    a, b, c = nodes = [start(host) for host in HOSTS]
    for node in nodes:
        node.wait_for_all(other.me.ref for other in nodes if other is not node)
    assert b.ask(c.me.ref, b"x" * 100_000) == b"X" * 100_000
    assert c.ask(a.me.ref, b"hello") == b"HELLO"
    c.fabric.publish(b"news")
    for node in (a, b):
        node.wait_for(lambda node=node: Published(c.me.ref, b"news") in node.events)
    assert [node.fabric.metrics()["forged"] for node in nodes] == [0, 0, 0]


def test_a_member_that_speaks_as_another_is_not_heard_and_counted(start):
    """By its own keys it is counted; what it puts onto those of the other one never arrives."""
    a, b = start(HOSTS[0]), start(HOSTS[1])
    a.wait_for_all([b.me.ref])
    to_a = key_to("c", HOSTS[0], f"{a.me.ref.id.hex()}.{a.me.incarnation.hex()}")
    header = HEADER.pack(1, *b.me.ref, b.me.incarnation, 1)
    with hostile_session(start(HOSTS[2]).options) as hostile:
        forged = b.me._replace(incarnation=b"hostile!")
        tokens = [
            hostile.liveliness().declare_token(key_of_token("c", host, encode_token(forged)))
            for host in HOSTS
        ]

        def put(host):
            hostile.put(to_a.replace("*", host), b"forged", attachment=header)
            return a.fabric.metrics()["forged"]

        wait_until(lambda: put(HOSTS[1]) or put(HOSTS[2]), 20)
        for _ in range(10):
            put(HOSTS[1])
        put(HOSTS[2])
        a.wait_for(lambda: any(isinstance(each, Refused) for each in a.events))
        assert b.ask(a.me.ref, b"hello") == b"HELLO"
        assert not [each for each in a.events if getattr(each, "payload", b"") == b"forged"]
        assert PeerUp(forged) not in a.events
        assert a.is_up(b.me.ref)
        del tokens
    (refused,) = [each for each in a.events if isinstance(each, Refused)]
    assert HOSTS[2] in str(refused.why)
    assert a.fabric.metrics()["refused"] == 1


def test_who_listens_on_the_keys_of_another_node_hears_nothing(start):
    a, b = start(HOSTS[0]), start(HOSTS[1])
    a.wait_for_all([b.me.ref])
    heard: list[bytes] = []
    with hostile_session(start(HOSTS[2]).options) as hostile:
        keys = [key_to("c", HOSTS[1]), key_to_all("c")]
        for key in keys:
            hostile.declare_subscriber(key, lambda each: heard.append(bytes(each.payload)))

        def is_heard():
            a.fabric.publish(b"news")  # which all may hear
            return b"news" in heard

        wait_until(is_heard, 20)
        for _ in range(10):
            assert a.ask(b.me.ref, b"hello") == b"HELLO"
        a.fabric.publish(b"last")
        wait_until(lambda: b"last" in heard, 20)
    assert set(heard) == {b"news", b"last"}


def test_a_node_whose_certificate_is_that_of_another_host_is_not_heard(start):
    a, b = start(HOSTS[0]), start(HOSTS[1])
    other = start(HOSTS[2], certificate=HOSTS[1])
    third = start(HOSTS[2])
    a.wait_for_all([b.me.ref, third.me.ref])
    assert not a.is_up(other.me.ref)
    assert other.ask(a.me.ref, b"hello", 0.5) is None


@pytest.mark.parametrize(
    ("wrong", "key"),
    [
        ({"cluster_nodes": HOSTS[1:]}, "cluster_nodes"),
        ({"cluster_nodes": ("127.0.0.1", "*")}, "cluster_nodes"),
        ({"cluster_mode": "router"}, "cluster_mode"),
        ({"cluster_certificate": None, "cluster_key": None, "cluster_ca": None}, "certificate"),
    ],
    ids=["without itself", "any", "router", "without certificates"],
)
def test_names_of_nodes_that_could_not_be_held_to_are_refused(wrong, key):
    given = {
        **dict.fromkeys(("cluster_certificate", "cluster_key", "cluster_ca"), Path("x.pem")),
        "cluster_nodes": HOSTS,
    }
    with pytest.raises(OptionError, match=key):
        ClusterOptions(cluster="c", **{**given, **wrong})


@pytest.mark.parametrize("key", ["cluster_certificate", "cluster_key", "cluster_ca"])
def test_a_file_of_a_certificate_that_is_not_there_is_named(cluster, certificates, key):
    path = certificates.folder / "nothing.pem"
    with pytest.raises(FabricFailed, match=rf"{key} {path} cannot be read"):
        cluster.start(**files_of(certificates) | {key: path})


def test_a_certificate_that_cannot_be_read_is_told(cluster, certificates):
    (certificates.folder / "server.pem").write_text("no certificate")
    with pytest.raises(FabricFailed, match=r"127\.0\.0\.1:\d+: ."):
        cluster.start(**files_of(certificates))
