"""Replicated topics of real nodes, each with a nats-server, on hosts of their own."""

import contextlib
import shutil
import time

import pytest

from poe import protocol
from poe.errors import CallTimeout, NoQuorum, PutUnconfirmed, TooFewNodes
from poe.protocol import PutId
from tests.cluster.log.log_witness import LogWitness
from tests.cluster.network import network
from tests.cluster.nodes import CALL_S, PORT, Nodes, nodes
from tests.waiting import wait_until

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(180)]


@pytest.fixture
def three(nats_program, tmp_path):
    del nats_program
    with nodes(tmp_path, 3, "--log-engine", "nats", "--put-timeout", "5") as made:
        make_topic(made)
        yield made


def make_topic(made, **properties):
    """Make a topic; a cluster that has just begun elects who leads it first."""
    with protocol.socket(made["a"].host.client_address, PORT, timeout_s=30) as socket:

        def is_made():
            try:
                socket.control("topic_create", topic=b"t", properties={"replicas": 3, **properties})
            except (NoQuorum, TooFewNodes):
                return False
            return True

        wait_until(is_made, 40)


def are_same(node):
    """Whether all copies are the same as those of a node, which could ask all."""
    [rows] = node.control("cluster_verify").values()
    assert not any(row["differing"] for row in rows), rows
    return len(rows) == 2 and not any("error" in row or row["behind"] for row in rows)


def leader(made):
    """The node whose engine leads the stream."""
    told = made["a"].control("cluster_logs")["topics"][b"t"]
    names = {each.control("cluster")["node"].partition(".")[0]: each for each in made}
    return names[told["leader"]]


def test_a_killed_leader_takes_nothing_with_it_and_others_go_on(three):
    with LogWitness(three) as witness:
        witness.wait_more()
        killed = leader(three)
        killed.kill()
        began_s = time.monotonic()
        witness.wait_more(30, 40)
        assert time.monotonic() - began_s < 30
        killed.start()
        killed.wait()
        witness.wait_more()
    witness.judge()
    wait_until(lambda: are_same(three["a"]), 30)


def test_a_cut_off_node_takes_no_puts_and_has_all_when_it_is_back(three):
    with LogWitness(three) as witness:
        witness.wait_more()
        three.net.cut_off(three["c"].host)
        witness.wait_more(30, 40)
        with protocol.socket(three["c"].host.client_address, PORT, timeout_s=CALL_S * 4) as socket:
            # One that is under way when it is cut off may be stored; the next ones are refused, and
            # this one too where its node knows by now.
            with contextlib.suppress(CallTimeout, PutUnconfirmed, NoQuorum):
                socket.write(b"t", [b"in doubt"], put_id=PutId(b"c" * 16, 0, 0))
            with pytest.raises(NoQuorum):
                socket.write(b"t", [b"refused"])
            assert socket.read(b"t", 0, 10), "reads go on"
        three.net.connect(three["c"].host)
        wait_until(lambda: three.sees(three["c"], set("abc")), 40)
        witness.wait_more()
    witness.judge()
    wait_until(lambda: are_same(three["a"]), 40)


def test_all_nodes_killed_at_once_lose_nothing_that_was_acknowledged(three):
    with LogWitness(three) as witness:
        witness.wait_more(60)
        for node in three:
            node.kill()
    for node in three:
        node.start()
    three.wait_until_whole()
    witness.judge()
    wait_until(lambda: are_same(three["b"]), 40)


def test_a_node_that_has_lost_its_folder_gets_all_back(three):
    with LogWitness(three) as witness:
        witness.wait_more(60)
        three["c"].kill()
        shutil.rmtree(three["c"].folder / "topics")
        witness.wait_more(20, 40)
        three["c"].start()
        three.wait_until_whole()
        witness.wait_more()
    witness.judge()
    wait_until(lambda: are_same(three["a"]), 40)


def test_a_frozen_node_costs_the_others_little_and_has_all_when_it_is_thawed(three):
    with LogWitness(three) as witness:
        witness.wait_more()
        frozen = next(each for each in three if each is not leader(three))
        frozen.process.freeze()
        witness.wait_more(60, 60)
        frozen.process.thaw()
        witness.wait_more()
    witness.judge()
    wait_until(lambda: are_same(three["a"]), 40)


def test_a_node_that_is_gone_for_good_is_replaced(nats_program, tmp_path):
    del nats_program
    with network(4) as net:
        made = Nodes.joined(net, tmp_path, ["--log-engine", "nats", "--put-timeout", "5"])
        for node in made:  # seeds of a first start are nodes that are there then
            at = node.options.index("--seeds") + 1
            fourth = made["d"].host.address
            seeds = node.options[at].split(",")
            node.options[at] = ",".join(each for each in seeds if not each.startswith(fourth))
        with made.running("abc"):
            make_topic(made)
            with LogWitness([made[name] for name in "abd"], count=2) as witness:
                witness.wait_more()
                made["c"].kill()
                made["d"].start()
                made["d"].wait()
                made.wait_until_seen(a="abd", b="abd", d="abd")
                witness.wait_more(20, 40)
                assert made["a"].control("cluster_forget", node="c")["name"] == "c"
                # What c had is d's now, so that another one may go.
                wait_until(lambda: is_led_by_three(made["a"]), 60)
                made["b"].kill()
                witness.wait_more(20, 60)
                made["b"].start()
                made["b"].wait()
                witness.wait_more(20, 60)
            witness.judge()
            wait_until(lambda: are_same(made["d"]), 40)


def is_led_by_three(node):
    told = node.control("cluster_logs")["topics"][b"t"]
    return len(told.get("behind", ())) == 3 and set(told["behind"].values()) == {0}
