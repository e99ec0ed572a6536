"""A node whose clock is wrong, and what of replicated topics is too old by it."""

from functools import partial

import pytest

from poe.broker import control
from poe.cluster.log.clocks import middle_us
from poe.cluster.log.engine import EngineState
from poe.testing.simulated_log import SimulatedEngine
from tests.cluster.log.replicated import START_US, Replicated
from tests.cluster.log.scheduled import Nodes
from tests.waiting import wait_until

DAY_US = 86_400 * 10**6
TOO_OLD = {"replicas": 3, "max_age": 3}


class SetClock:
    """A clock that stands still where it is set, and counts how often it is read."""

    def __init__(self, ahead_us: int = 0) -> None:
        self.ahead_us = ahead_us
        self.reads_count = 0

    def now_us(self) -> int:
        self.reads_count += 1
        return START_US + self.ahead_us


@pytest.fixture
def clocks():
    return {name: SetClock() for name in "abc"}


@pytest.fixture
def clocked(tmp_path, clocks):
    """Three nodes with a topic, and clocks that are set to when it is put onto."""
    nodes = Replicated(tmp_path, "abc", clocks=clocks)
    nodes["a"].create_topic("t", **TOO_OLD)
    nodes["a"].put("t", b"young")
    nodes.wait_same()
    yield nodes
    nodes.close()


def wait_gone(nodes):
    """Wait until a trim has reached all nodes."""
    wait_until(lambda: not any(nodes.values(name) for name in "abc"), 60)


def test_a_node_whose_clock_is_ahead_deletes_nothing_at_the_others(clocked, clocks, caplog):
    clocked.stop("c")
    clocks["c"].ahead_us = 30 * DAY_US
    clocked.start("c")
    wait_until(lambda: "the clock of this node is 2592000 s ahead" in caplog.text, 60)
    wait_looks(clocks["c"])
    assert [clocked.values(name) for name in "abc"] == [[b"young"]] * 3


def test_what_is_too_old_by_most_clocks_goes_though_one_is_behind(clocked, clocks):
    clocks["a"].ahead_us = clocks["b"].ahead_us = DAY_US
    wait_gone(clocked)


def wait_looks(clock):
    """Wait until a node has looked at what is too old, more than once."""
    reads_count = clock.reads_count  # of which each look is one
    wait_until(lambda: clock.reads_count > reads_count + 10, 60)


def test_who_knows_no_others_time_deletes_nothing_for_its_age(clocked, clocks, monkeypatch):
    """Its engine takes what it says all the same, as when it is back before the others answer."""
    asked = []

    def ask(self, node, payload, deadline_s, told):
        asked.append(node)
        told(None)

    monkeypatch.setattr(SimulatedEngine, "ask", ask)
    for clock in clocks.values():
        clock.ahead_us = DAY_US
    wait_until(lambda: {"a", "b", "c"} <= set(asked), 60)
    wait_looks(clocks["c"])
    assert [clocked.values(name) for name in "abc"] == [[b"young"]] * 3


def test_who_is_led_by_nobody_does_not_take_itself_for_the_only_node(clocked, clocks, monkeypatch):
    """As long as nobody leads, an engine of its own tells of no others."""
    told_of = []

    def state(self, deadline_s, told):
        told_of.append(self.name)
        told(EngineState("", "", {self.name: True}, 0))

    monkeypatch.setattr(SimulatedEngine, "state", state)
    clocks["c"].ahead_us = DAY_US
    wait_until(lambda: "c" in told_of, 60)
    wait_looks(clocks["c"])
    assert [clocked.values(name) for name in "abc"] == [[b"young"]] * 3


@pytest.mark.slow
def test_what_is_kept_for_hours_goes_though_looks_are_minutes_apart():
    """By then it is not known any more what time it is at the others."""
    nodes = Nodes()
    arguments = {"topic": b"t", "properties": {"max_age": 7200}}
    nodes.asked("a", partial(control, op="topic_alter", arguments=arguments))
    nodes.put("a", b"old")
    nodes.pass_time(7000)
    assert [nodes.messages(name) for name in "abc"] == [[b"old"]] * 3
    nodes.pass_time(1000)
    assert [nodes.messages(name) for name in "abc"] == [[]] * 3


@pytest.mark.parametrize(
    ("others_us", "ahead"),
    [
        ([], 0),
        ([5], 5),
        ([-5], 0),
        ([5, 7], 5),
        ([5, -7], 0),
        ([-5, -7], 0),
        ([1, 2, 3], 2),
        ([-1, 2, 3], 2),
        ([-1, -2, 3], 0),
        ([1, 2, 3, 4], 2),
        ([-1, -2, 3, 4], 0),
    ],
)
def test_the_clock_in_the_middle_counts(others_us, ahead):
    assert middle_us(others_us) == ahead
