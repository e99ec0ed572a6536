"""Workers and consumers of a replicated topic, while nodes that coordinate their group are lost."""

import threading
import time
from collections import Counter
from contextlib import ExitStack

import pytest

from poe.client import Consumer, GroupWorker
from poe.cluster.identity import PROTOCOL
from tests.cluster.log.log_witness import LogWitness
from tests.cluster.log.test_log_faults import are_same, make_topic
from tests.cluster.nodes import nodes
from tests.waiting import wait_until

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(400)]
OPTIONS = {"group_options": {"session_s": 5, "lease_s": 5, "retry_s": 0}, "request_timeout_s": 5}


@pytest.fixture
def three(nats_program, tmp_path):
    del nats_program
    with nodes(tmp_path, 3, "--log-engine", "nats", "--put-timeout", "5") as made:
        make_topic(made)
        yield made


class Worked:
    """What became of messages: how often each was worked on."""

    def __init__(self):
        self.count: Counter[bytes] = Counter()
        self._lock = threading.Lock()

    def work(self, job):
        with self._lock:
            self.count[job.value] += 1

    def wait_for(self, witness, seconds=60):
        """Wait until all that was acknowledged by now is worked on, each message of it."""
        puts = [
            witness.value(producer, number)
            for producer, pointers in list(witness.acked.items())
            for number in range(len(pointers))
        ]
        wait_until(lambda: all(self.count[each] >= witness.batch for each in puts), seconds)


def coordinator(made, *names):
    """The node that coordinates, as the others say."""
    by_name = {each.control("cluster")["node"].partition(".")[0]: each for each in made}
    told = made[names[0] if names else "a"].control("cluster_logs", brief=True)
    return by_name[told["groups"]["node"]]


def others(made, node):
    return [each for each in made if each is not node]


def start_workers(made, stack, worked):
    for _ in range(2):
        stack.enter_context(
            GroupWorker(made.url, "t", worked.work, group="g", batch=100, **OPTIONS)
        )


def test_workers_go_on_when_the_node_that_coordinates_is_killed(three):
    worked = Worked()
    with LogWitness(three, count=1, batch=1) as witness:
        witness.wait_more()
        with ExitStack() as stack:
            start_workers(three, stack, worked)
            worked.wait_for(witness)
            killed = coordinator(three)
            killed.kill()
            witness.wait_more(30)
            worked.wait_for(witness)
            killed.start()
            killed.wait()
            witness.wait_more()
            worked.wait_for(witness)
            for node in three:
                assert [each["group"] for each in node.control("groups")] == ["g"]
    witness.judge()


def test_a_frozen_node_that_coordinates_changes_nothing_when_it_is_thawed(three):
    worked = Worked()
    with LogWitness(three, count=1, batch=1) as witness:
        witness.wait_more()
        with ExitStack() as stack:
            start_workers(three, stack, worked)
            worked.wait_for(witness)
            frozen = coordinator(three)
            rest = others(three, frozen)
            frozen.process.freeze()
            try:
                witness.wait_more(30, 60)
                began_s = time.monotonic()
                worked.wait_for(witness)
                assert time.monotonic() - began_s < 40
            finally:
                frozen.process.thaw()
            assert coordinator(three, rest[0].name) is not frozen
            witness.wait_more()
            worked.wait_for(witness)
            floors = rest[0].control("group_lag", group="g")
            later = frozen.control("group_lag", group="g")
            assert later[b"t"]["position"] >= floors[b"t"]["position"]
    witness.judge()


def test_a_consumer_goes_on_at_another_node_where_it_was(three):
    with LogWitness(three, count=1, batch=1) as witness:
        witness.wait_more(120)
    first = received(three["a"])
    killed = coordinator(three)
    with LogWitness(three, count=1, batch=1, first=3) as more:
        more.wait_more(90)
        killed.kill()
    rest = next(each for each in three if each.program is not None)
    second = received(rest)
    assert sorted({*first, *second}) == [*first, *second], "from where the first one was"


def test_nodes_are_restarted_one_by_one_as_the_next_release_while_a_group_works(three):
    worked = Worked()
    with LogWitness(three) as witness, ExitStack() as stack:
        start_workers(three, stack, worked)
        for node in three:
            worked.wait_for(witness)
            assert node.stop() == 0
            node.prefix = ["-m", "tests.cluster.newer_node"]
            node.variables |= {
                "POE_TEST_PROTOCOL": str(PROTOCOL + 1),
                "POE_TEST_PROTOCOL_MIN": str(PROTOCOL),
            }
            witness.wait_more(20)
            node.start()
            three.wait_until_whole()
            wait_until(lambda: witness.has_all(node), 40)  # noqa: B023 - at once
        witness.wait_more()
        worked.wait_for(witness)
    witness.judge()
    wait_until(lambda: are_same(three["a"]), 40)
    assert [each["group"] for each in three["a"].control("groups")] == ["g"]


def received(node):
    """The pointers of some messages, which are committed then."""
    pointers: list[int] = []
    with Consumer(node.url, "t", group="g", fetch_bytes=2048, **OPTIONS) as consumer:

        def has_enough():
            pointers.extend(each.pointer for each in consumer.receive(1))
            return len(pointers) >= 80

        wait_until(has_enough, 60)
    return pointers
