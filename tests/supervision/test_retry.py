"""Restarts that fail: the retry, its target, its cost, and what can cancel it (OTP §1.7)."""

import pytest

from poe.errors import ChildRequestRefused
from poe.supervision import (
    RESTARTING,
    CountChildren,
    DeleteChild,
    RestartChild,
    StartChild,
    Strategy,
    TerminateChild,
    WhichChildren,
)
from tests.supervision.workers import Client

ONE, REST, ALL = Strategy.ONE_FOR_ONE, Strategy.REST_FOR_ONE, Strategy.ONE_FOR_ALL


def client_at_failure(world, supervisor, *requests):
    """Send requests so that they wait when the restart fails."""
    world.journal.witness = world.base.start(Client, supervisor, requests)
    return world.journal.witness


def why(answer):
    assert isinstance(answer, ChildRequestRefused)
    return answer.why


# Ported from supervisor_SUITE: one_for_one_, rest_for_one_ and one_for_all_escalation
@pytest.mark.parametrize("strategy", [ONE, REST, ALL])
@pytest.mark.parametrize("intensity", [0, 1, 3])
def test_each_failing_try_costs_one_restart(world, strategy, intensity):
    supervisor = world.supervise(world.specs("ab"), strategy, intensity=intensity)
    world.journal.plans["a"] = ["broken"] * 10
    events = world.end(supervisor, "a")
    assert events.count(("fail", "a")) == intensity
    assert world.reason_of(supervisor) == "shutdown"


def test_a_start_that_fails_twice_is_retried_at_once(world):
    supervisor = world.supervise(world.specs("a"), intensity=3)
    world.journal.plans["a"] = ["broken", "broken"]
    assert world.end(supervisor, "a")[1:] == [("fail", "a"), ("fail", "a"), ("start", "a")]


# Ported from supervisor_SUITE: rest_for_one_other_child_fails_restart
def test_rest_for_one_retries_from_the_child_that_failed(world):
    supervisor = world.supervise(world.specs("abcd"), REST, intensity=3)
    world.journal.plans["c"] = ["broken"]
    assert [event[:2] for event in world.end(supervisor, "b")] == [
        ("stop", "b"),
        ("stop", "d"),
        ("stop", "c"),
        ("start", "b"),
        ("fail", "c"),
        ("start", "c"),
        ("start", "d"),
    ]


# Ported from supervisor_SUITE: one_for_all_other_child_fails_restart
def test_one_for_all_stops_what_the_failed_round_started_and_starts_all_again(world):
    supervisor = world.supervise(world.specs("abcd"), ALL, intensity=3)
    world.journal.plans["c"] = ["broken"]
    events = [event[:2] for event in world.end(supervisor, "b")]
    assert events == [
        *(("stop", label) for label in "bdca"),
        *(("start", label) for label in "ab"),
        ("fail", "c"),
        *(("stop", label) for label in "ba"),
        *(("start", label) for label in "abcd"),
    ]


def test_a_restart_that_ignores_is_not_retried_but_counted(world):
    supervisor = world.supervise(world.specs("a"), intensity=1)
    world.journal.plans["a"] = ["ignore"]
    world.end(supervisor, "a")
    assert world.slots(supervisor) == {"a": None}
    world.ask(supervisor, RestartChild("a"))
    world.end(supervisor, "a")
    assert world.reason_of(supervisor) == "shutdown"


# Ported from supervisor_SUITE: hanging_restart_loop, count_restarting_children
def test_requests_are_served_between_two_tries_and_see_the_restarting_child(world):
    supervisor = world.supervise(world.specs("ab"), intensity=3)
    world.journal.plans["a"] = ["broken"]
    client = client_at_failure(
        world,
        supervisor,
        WhichChildren(),
        CountChildren(),
        StartChild(world.spec("a")),
        RestartChild("a"),
        DeleteChild("a"),
    )
    world.end(supervisor, "a")
    which, counts, start, restart, delete = world.base.call(client, "answers")
    assert [child.ref for child in which if child.id == "a"] == [RESTARTING]
    assert (counts.specs, counts.active, counts.workers) == (2, 1, 2)
    assert why(start) == "already_present"
    assert why(restart) == why(delete) == "restarting"
    assert world.slots(supervisor)["a"] not in (None, RESTARTING)


# Ported from supervisor_SUITE: hanging_restart_loop, hanging_restart_loop_rest_for_one
@pytest.mark.parametrize("strategy", [ONE, REST, ALL])
def test_terminating_a_restarting_child_cancels_the_retry(world, strategy):
    supervisor = world.supervise(world.specs("abc"), strategy, intensity=3)
    world.journal.plans["b"] = ["broken"] * 10
    client = client_at_failure(world, supervisor, TerminateChild("b"), DeleteChild("b"))
    events = world.end(supervisor, "b")
    assert events.count(("fail", "b")) == 1
    assert world.base.call(client, "answers") == [None, None]
    assert set(world.slots(supervisor)) == {"a", "c"}


def test_a_sibling_after_the_failed_one_is_idle_until_the_retry(world):
    supervisor = world.supervise(world.specs("abc"), REST, intensity=3)
    world.journal.plans["b"] = ["broken"]
    client = client_at_failure(world, supervisor, WhichChildren())
    world.end(supervisor, "a")
    [which] = world.base.call(client, "answers")
    assert [child.ref for child in which[:2]] == [None, RESTARTING]
    assert which[2].ref == world.ref(supervisor, "a")


# Ported from supervisor_SUITE: hanging_restart_loop
def test_a_supervisor_in_a_restart_loop_can_be_stopped(world):
    supervisor = world.supervise(world.specs("ab"), intensity=1_000_000)

    class Stopper(Client):
        def handle_cast(self, message):
            del message
            self.exit(self.supervisor, "kill")

    world.journal.plans["a"] = ["broken"] * 100
    world.journal.witness = world.base.start(Stopper, supervisor, [])
    world.end(supervisor, "a")
    assert world.reason_of(supervisor) == "killed"
