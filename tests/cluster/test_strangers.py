"""Nodes that are none of the cluster, or are twice, are refused or fenced; nobody else cares."""

import shutil

import pytest

from poe.errors import PoeError
from tests.cluster.clusters import finish, go_on, set_going
from tests.cluster.network import network
from tests.cluster.nodes import Nodes
from tests.cluster.witness import Witness
from tests.waiting import wait_until

pytest.importorskip("zenoh")
pytestmark = [pytest.mark.cluster, pytest.mark.slow, pytest.mark.timeout(240)]


@pytest.fixture
def cluster(tmp_path):
    """Four nodes of which three run, as one cluster."""
    with network(4) as net:
        made = Nodes.joined(net, tmp_path, [])
        with made.running("abc"):
            yield made


def option(node, name, value):
    """Give a node another value of an option."""
    node.options[node.options.index(name) + 1] = value


def test_a_node_of_another_cluster_is_no_peer_and_both_are_told(cluster):
    d = cluster["d"]
    option(d, "--cluster", "others")
    d.start()
    d.wait()
    wait_until(lambda: "others" in cluster["a"].log.read_text(), 40)
    wait_until(lambda: "tests" in d.log.read_text(), 40)
    assert d.live() == {"d"}
    assert [cluster[name].live() for name in "abc"] == [set("abc")] * 3


def test_of_two_nodes_with_one_folder_the_first_is_fenced(cluster):
    c, d = cluster["c"], cluster["d"]
    assert c.control("cluster")["state"] == "joined"
    # What is written anew may be there for a moment only.
    shutil.copytree(c.folder, d.folder, ignore=shutil.ignore_patterns("*lock*", "*_new"))
    d.start()
    d.wait()
    wait_until(lambda: {fenced(c), fenced(d)} == {False, True}, 40)
    loser = c if fenced(c) else d
    winner = d if loser is c else c
    assert "copied" in loser.control("cluster")["why"]
    assert loser.control("topics") == []
    cluster.wait_until_seen(a="ab" + winner.name, b="ab" + winner.name)


def fenced(node):
    return node.control("cluster")["state"] == "fenced"


@pytest.mark.parametrize(("protocol", "protocol_min", "is_peer"), [(2, 1, True), (2, 2, False)])
def test_a_newer_node_is_a_peer_where_it_speaks_the_older_version(
    cluster, protocol, protocol_min, is_peer
):
    d = cluster["d"]
    newer(d, protocol, protocol_min)
    d.start()
    d.wait()
    if is_peer:
        cluster.wait_until_seen(a="abcd", b="abcd", c="abcd", d="abcd")
        for node in (cluster["a"], d):
            assert node.control("queue_put", topic="q", messages=[b"m"], copies=4)["copies"] == 4
    else:
        wait_until(lambda: "version" in d.log.read_text(), 40)
        assert d.live() == {"d"}
        assert [cluster[name].live() for name in "abc"] == [set("abc")] * 3


def newer(node, protocol, protocol_min):
    node.prefix = ["-m", "tests.cluster.newer_node"]
    node.variables["POE_TEST_PROTOCOL"] = str(protocol)
    node.variables["POE_TEST_PROTOCOL_MIN"] = str(protocol_min)


def test_nodes_are_updated_one_after_the_other_and_nothing_is_lost(make_witness):
    witness = make_witness(persist=True)
    set_going(witness)
    for node in witness.nodes:
        node.stop()
        witness.note("kill", node, state="kept")
        newer(node, 2, 1)
        witness.start(node)
        witness.nodes.wait_until_whole()
        go_on(witness, "abc")
    finish(witness)


def test_who_has_no_certificate_of_the_authority_is_no_peer(tmp_path, certificates):
    stranger = type(certificates).make(make_folder(tmp_path / "stranger"))
    with network(4) as net:
        made = Nodes.joined(net, tmp_path, [])
        for node in made:
            authority = stranger if node.name == "d" else certificates
            path = authority.issue(f"node-{node.name}", node.host.address)
            node.options += [
                *("--cluster-certificate", str(path)),
                *("--cluster-key", str(path.with_suffix(".key"))),
                *("--cluster-ca", str(authority.file("ca.pem"))),
            ]
        with made.running("abc"):
            d = made["d"]
            d.start()
            d.wait()
            witness = Witness(made)
            witness.make_queue(made["a"])
            assert witness.put(made["a"]) == "ok"
            with pytest.raises(PoeError):
                d.control("queue_put", topic="jobs", messages=[b"m"], copies=2)
            assert d.live() == {"d"}
            assert [made[name].live() for name in "abc"] == [set("abc")] * 3


def make_folder(path):
    path.mkdir()
    return path
