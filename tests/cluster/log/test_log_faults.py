"""Replicated topics of real nodes, each with a nats-server, on hosts of their own."""

import contextlib
import random
import shutil
import sys
import tempfile
import time
from pathlib import Path

import pytest

from poe import protocol
from poe.errors import (
    CallTimeout,
    CopyNotReached,
    NoQuorum,
    PoeError,
    PutUnconfirmed,
    TooFewNodes,
    UnknownNode,
    UnknownTopic,
)
from poe.protocol import PutId
from tests.cluster.log.log_witness import LogWitness
from tests.cluster.network import network
from tests.cluster.nodes import CALL_S, PORT, Nodes, nodes
from tests.waiting import wait_until
from torture.disk import powered_disk
from torture.scenario import missing

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(400)]


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

        wait_until(is_made, 60)


def are_same(node):
    """Whether all copies are the same as those of a node, which could ask all."""
    with protocol.socket(node.host.client_address, PORT, timeout_s=CALL_S * 4) as socket:
        # One that has just begun anew may not know the topic yet.
        rows = socket.control("cluster_verify", topic=b"t").get(b"t", [])
    assert not any(row["differing"] for row in rows), rows
    return len(rows) == 2 and not any("error" in row or row["behind"] for row in rows)


def leader(made):
    """The node whose engine leads the stream; one that has just begun does not know it yet."""
    names = {each.control("cluster")["node"].partition(".")[0]: each for each in made}

    def led_by():
        with contextlib.suppress(PoeError):  # nobody leads yet, and it takes its time to say so
            told = made["a"].control("cluster_logs")["topics"].get(b"t", {})
            return names.get(told.get("leader"))
        return None

    wait_until(lambda: led_by() is not None, 60)
    return led_by() or leader(made)


def test_a_cut_off_node_takes_no_puts_and_has_all_when_it_is_back(three):
    with LogWitness(three) as witness:
        witness.wait_more()
        wait_until(lambda: witness.held(three["c"]), 60)
        three.net.cut_off(three["c"].host)
        witness.wait_more(30)
        with protocol.socket(three["c"].host.client_address, PORT, timeout_s=CALL_S * 4) as socket:
            # One that is under way when it is cut off may be stored; the next ones are refused, and
            # this one too where its node knows by now.
            with contextlib.suppress(CallTimeout, PutUnconfirmed, NoQuorum):
                socket.write(b"t", [b"in doubt"], put_id=PutId(b"c" * 16, 0, 0))
            with pytest.raises(NoQuorum):
                socket.write(b"t", [b"refused"])
            assert socket.read(b"t", 0, 10), "reads go on"
        three.net.connect(three["c"].host)
        wait_until(lambda: three.sees(three["c"], set("abc")), 60)
        witness.wait_more()
    witness.judge()
    wait_until(lambda: are_same(three["a"]), 60)


def test_all_nodes_killed_at_once_lose_nothing_that_was_acknowledged(three):
    with LogWitness(three) as witness:
        witness.wait_more(60)
        for node in three:
            node.kill()
    for node in three:
        node.start()
    three.wait_until_whole()
    witness.judge()
    wait_until(lambda: are_same(three["b"]), 60)


def test_a_node_that_has_lost_its_folder_gets_all_back(three):
    with LogWitness(three) as witness:
        witness.wait_more(60)
        three["c"].kill()
        shutil.rmtree(three["c"].folder / "topics")
        witness.wait_more(20)
        three["c"].start()
        three.wait_until_whole()
        witness.wait_more()
    witness.judge()
    wait_until(lambda: are_same(three["a"]), 60)


def test_a_frozen_node_costs_the_others_little_and_has_all_when_it_is_thawed(three):
    with LogWitness(three) as witness:
        witness.wait_more()
        frozen = next(each for each in three if each is not leader(three))
        frozen.process.freeze()
        witness.wait_more(60, 60)
        frozen.process.thaw()
        witness.wait_more()
    witness.judge()
    wait_until(lambda: are_same(three["a"]), 60)


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
                witness.wait_more(20)
                assert made["a"].control("cluster_forget", node="c")["name"] == "c"
                # What c had is d's now, so that another one may go.
                wait_until(lambda: is_led_by_three(made["a"]), 60)
                made["b"].kill()
                witness.wait_more(20, 60)
                made["b"].start()
                made["b"].wait()
                witness.wait_more(20, 60)
            witness.judge()
            wait_until(lambda: are_same(made["d"]), 60)


def is_led_by_three(node):
    try:
        told = node.control("cluster_logs")["topics"].get(b"t", {})
    except PoeError:  # nobody leads, and it takes its time to say so
        return False
    return len(told.get("behind", ())) == 3 and set(told["behind"].values()) == {0}


def test_where_two_nodes_cannot_see_each_other_all_go_on(three):
    one, other = three["a"].host, three["b"].host
    with LogWitness(three) as witness:
        witness.wait_more()
        three.net.cut_between(one, other)
        witness.wait_more(30, 60)
        three.net.connect_between(one, other)
        three.wait_until_whole()
        witness.wait_more()
    witness.judge()
    wait_until(lambda: are_same(three["c"]), 60)


def test_a_slow_link_holds_up_nobody_for_good(three):
    with LogWitness(three) as witness:
        witness.wait_more()
        three.net.slow_down(three["c"].host, "1mbit")
        witness.wait_more(1500, 60)
        three.net.speed_up(three["c"].host)
        witness.wait_more()
    witness.judge()
    wait_until(lambda: are_same(three["a"]), 60)


def test_bits_that_flip_in_files_of_one_engine_cost_nothing_that_was_acknowledged(three):
    check_flips(three, seed=1)


def check_flips(three, seed):
    """Flip a bit in each file of messages of one node's engine, and have another one lead."""
    dice = random.Random(seed)
    with LogWitness(three) as witness:
        witness.wait_more(60)
        damaged = three["c"]
        damaged.kill()
        files = [each for each in (damaged.folder / "log").rglob("*") if each.is_file()]
        flipped = [each for each in files if each.suffix == ".blk" and each.stat().st_size]
        assert flipped, files
        for path in flipped:
            content = bytearray(path.read_bytes())
            content[dice.randrange(len(content))] ^= 1 << dice.randrange(8)
            path.write_bytes(content)
        witness.wait_more(20)
        damaged.start()
        three.wait_until_whole()
        witness.wait_more(20)
        # Whoever leads goes, so that the damaged one may have to.
        killed = leader(three)
        killed.kill()
        witness.wait_more(20)
        killed.start()
        three.wait_until_whole()
        witness.wait_more(20)
    witness.judge()
    wait_until(lambda: are_same(three["a"]), 60)


def check_leader_kills(made, count):
    """Kill who leads so often under load; return how long no put was acknowledged each time."""
    took_s = []
    with LogWitness(made) as witness:
        for _ in range(count):
            witness.wait_more()
            killed = leader(made)
            killed.kill()
            began_s = time.monotonic()
            before = witness.count()
            wait_until(lambda: witness.count() > before + 3, 60)  # noqa: B023 - of this turn
            took_s.append(time.monotonic() - began_s)
            with protocol.socket(_other(made, killed), PORT, timeout_s=CALL_S) as socket:
                assert socket.read(b"t", 0, 10), "reads go on"
            killed.start()
            made.wait_until_whole()
    witness.judge()
    wait_until(lambda: are_same(made["a"]), 60)
    return took_s


def _other(made, node):
    return next(each for each in made if each is not node).host.client_address


@pytest.mark.skipif(missing("loop") is not None, reason=str(missing("loop")))
def test_a_node_whose_disk_was_full_is_a_replica_again_once_there_is_room(nats_program, tmp_path):
    del nats_program
    with network(3) as net, powered_disk(tmp_path / "disk", 128) as disk:
        options = ["--log-engine", "nats", "--put-timeout", "5", "--min-free", "0"]
        made = Nodes.joined(net, tmp_path, options)
        full = made["c"]
        full.folder = disk.folder / "node"
        with made.running():
            make_topic(made)
            with LogWitness(made) as witness:
                witness.wait_more(60)
                filler = disk.folder / "filler"
                with contextlib.suppress(OSError), filler.open("wb", buffering=0) as file:
                    while file.write(bytes(1 << 20)):
                        pass
                witness.wait_more(200, 60)
                wait_until(lambda: "stores nothing any more" in full.log.read_text(), 60)
                filler.unlink()
                witness.wait_more(60, 60)
            witness.judge()
            wait_until(lambda: is_led_by_three(made["a"]), 60)
            wait_until(lambda: are_same(made["a"]), 60)


def test_a_topic_is_moved_from_node_to_node_while_it_is_put_onto(three):
    with LogWitness(three) as witness:
        for name in "bca":
            witness.wait_more()
            three["a"].control("cluster_move", topic=b"t", node=name)
            assert leader(three).name == name
        witness.wait_more()
        with pytest.raises(UnknownNode):
            three["a"].control("cluster_move", topic=b"t", node="nobody")
        with pytest.raises(UnknownTopic):
            three["a"].control("cluster_move", topic=b"none", node="b")
    witness.judge()


def move(asked, node):
    """Ask a node to have another one lead; where one is elected first that takes its time."""
    with protocol.socket(asked.host.client_address, PORT, timeout_s=CALL_S * 4) as socket:
        socket.control("cluster_move", topic=b"t", node=node.name)


def is_moved(asked, node):
    """Whether it leads now; the engine of one that has just begun may not be reached yet."""
    with contextlib.suppress(CopyNotReached, NoQuorum):
        move(asked, node)
        return True
    return False


def test_a_topic_is_moved_while_a_node_is_down_but_not_to_that_one(three):
    with LogWitness(three) as witness:
        witness.wait_more()
        first = leader(three)
        second, third = (each for each in three if each is not first)
        third.kill()
        move(first, second)
        witness.wait_more()
        with pytest.raises(CopyNotReached, match=f"node '{third.name}' cannot lead"):
            move(second, third)
        first.process.freeze()  # its engine goes on
        third.start()
        third.wait()
        wait_until(lambda: is_moved(second, third), 60)
        first.process.thaw()
        three.wait_until_whole()
        assert leader(three) is third
        witness.wait_more()
    witness.judge()
    wait_until(lambda: are_same(three["b"]), 60)


def test_who_leads_is_killed_again_and_again(three):
    check_leader_kills(three, 2)


if __name__ == "__main__":
    # More than CI has time for: `python -m tests.cluster.log.test_log_faults kills 20`, `flips 20`.
    what, count = sys.argv[1], int(sys.argv[2])
    for seed in range(1 if what == "kills" else count):
        with (
            tempfile.TemporaryDirectory(prefix="poe-log-faults-") as folder,
            nodes(Path(folder), 3, "--log-engine", "nats", "--put-timeout", "5") as cluster,
        ):
            make_topic(cluster)
            if what == "flips":
                check_flips(cluster, seed)
            else:
                times = sorted(check_leader_kills(cluster, count))
                print("puts are back after", ", ".join(f"{each:.1f}" for each in times), "s")
    print("nothing that was acknowledged is missing")
