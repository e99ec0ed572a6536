"""Back-off between restarts: when a child comes back, and that counting is as without."""

import itertools

import pytest

from poe.errors import ChildRequestRefused, InvalidChildSpec
from poe.supervision import (
    RESTARTING,
    Backoff,
    ChildSpec,
    DeleteChild,
    Restart,
    RestartChild,
    StartChild,
    StartDynamicChild,
    Strategy,
    TerminateChild,
    WhichChildren,
)
from tests.supervision.workers import Worker

ONE, REST, ALL = Strategy.ONE_FOR_ONE, Strategy.REST_FOR_ONE, Strategy.ONE_FOR_ALL
BACKOFF = Backoff(first_s=1, factor=2, max_s=5, reset_after_s=30)


def starts(events):
    return [label for kind, label, *_ in events if kind == "start"]


def waits_until_restart(world, supervisor, label, count):
    """Crash a child again and again, and return how long it was away each time."""
    waits_s = []
    for _ in range(count):
        world.end(supervisor, label)
        began_s = world.now_s
        while world.slots(supervisor)[label] is RESTARTING:
            world.base.advance(0.5)
        waits_s.append(world.now_s - began_s)
    return waits_s


def test_each_restart_in_a_row_waits_longer_up_to_the_limit(world):
    supervisor = world.supervise(world.specs("ab"), intensity=100, backoff=BACKOFF)
    b = world.ref(supervisor, "b")
    assert waits_until_restart(world, supervisor, "a", 5) == [1, 2, 4, 5, 5]
    assert world.ref(supervisor, "b") == b


def test_a_child_that_ran_long_enough_begins_anew(world):
    supervisor = world.supervise(world.specs("a"), intensity=100, backoff=BACKOFF)
    assert waits_until_restart(world, supervisor, "a", 3) == [1, 2, 4]
    world.base.advance(29)
    assert waits_until_restart(world, supervisor, "a", 1) == [5]
    world.base.advance(30)
    assert waits_until_restart(world, supervisor, "a", 1) == [1]


def test_each_child_has_waits_of_its_own_and_its_own_back_off_comes_first(world):
    own = Backoff(first_s=3, max_s=3)
    specs = [world.spec("a"), world.spec("b"), world.spec("c", backoff=own)]
    supervisor = world.supervise(specs, intensity=100, backoff=BACKOFF)
    assert waits_until_restart(world, supervisor, "a", 2) == [1, 2]
    assert waits_until_restart(world, supervisor, "b", 1) == [1]
    assert waits_until_restart(world, supervisor, "c", 2) == [3, 3]


@pytest.mark.parametrize("backoff", [None, BACKOFF])
@pytest.mark.parametrize("strategy", [ONE, REST, ALL])
@pytest.mark.parametrize("intensity", [0, 1, 3])
def test_as_many_failing_tries_are_survived_as_without(world, strategy, intensity, backoff):
    specs = world.specs("ab")
    supervisor = world.supervise(
        specs, strategy, intensity=intensity, period_s=100, backoff=backoff
    )
    world.journal.plans["a"] = ["broken"] * 10
    events = world.end(supervisor, "a")
    world.base.advance(50)
    events += world.journal.take()
    assert events.count(("fail", "a")) == intensity
    assert world.reason_of(supervisor) == "shutdown"


def test_a_crash_beyond_the_intensity_ends_the_supervisor_without_a_wait(world):
    supervisor = world.supervise(world.specs("a"), intensity=1, period_s=10, backoff=BACKOFF)
    world.end(supervisor, "a")
    world.base.advance(1)
    world.end(supervisor, "a")
    assert world.reason_of(supervisor) == "shutdown"


@pytest.mark.parametrize(
    ("strategy", "stopped", "started"), [(ONE, "", "b"), (REST, "dc", "bcd"), (ALL, "dca", "abcd")]
)
def test_a_group_stops_at_once_and_starts_together(world, strategy, stopped, started):
    supervisor = world.supervise(world.specs("abcd"), strategy, intensity=100, backoff=BACKOFF)
    events = world.end(supervisor, "b")
    assert [label for kind, label, *_ in events if kind == "stop"] == ["b", *stopped]
    assert starts(events) == []
    slots = world.slots(supervisor)
    assert slots["b"] is RESTARTING
    assert [slots[label] for label in stopped] == [None] * len(stopped)
    world.base.advance(1)
    assert starts(world.journal.take()) == list(started)
    assert world.ask(supervisor, WhichChildren())[0].ref not in (None, RESTARTING)


def test_a_sibling_that_runs_again_by_request_is_part_of_the_group_when_its_time_comes(world):
    supervisor = world.supervise(world.specs("ab"), ALL, intensity=100, backoff=BACKOFF)
    world.end(supervisor, "b")
    world.ask(supervisor, RestartChild("a"))
    world.journal.take()
    world.base.advance(1)
    assert [event[:2] for event in world.journal.take()] == [
        ("stop", "a"),
        ("start", "a"),
        ("start", "b"),
    ]


def test_a_sibling_that_waits_comes_back_with_the_group_and_not_a_second_time(world):
    specs = [world.spec("a", backoff=Backoff(first_s=5, max_s=5)), world.spec("b")]
    supervisor = world.supervise(specs, REST, intensity=100)
    world.end(supervisor, "a")
    world.ask(supervisor, RestartChild("b"))
    world.base.advance(3)
    world.ask(supervisor, TerminateChild("a"))
    world.ask(supervisor, RestartChild("a"))
    world.end(supervisor, "a")
    world.base.advance(2.5)  # when the first wait would have ended
    assert world.slots(supervisor)["a"] is RESTARTING
    world.base.advance(2.5)
    assert starts(world.journal.take()) == ["a", "b"]


def test_terminate_cancels_the_wait_and_other_requests_see_a_restarting_child(world):
    supervisor = world.supervise(world.specs("a"), intensity=100, backoff=BACKOFF)
    world.end(supervisor, "a")
    for request in (RestartChild("a"), DeleteChild("a")):
        with pytest.raises(ChildRequestRefused, match="restarting"):
            world.ask(supervisor, request)
    world.ask(supervisor, TerminateChild("a"))
    assert world.base.run_queue.next_deadline_s() is None
    world.base.advance(10)
    assert world.slots(supervisor) == {"a": None}
    world.ask(supervisor, DeleteChild("a"))


def test_a_deleted_child_begins_anew_when_its_id_is_used_again(world):
    spec = world.spec("a", restart=Restart.TRANSIENT)
    supervisor = world.supervise([spec], intensity=100, backoff=BACKOFF)
    assert waits_until_restart(world, supervisor, "a", 2) == [1, 2]
    world.end(supervisor, "a", "normal")
    world.ask(supervisor, DeleteChild("a"))
    world.ask(supervisor, StartChild(spec))
    assert waits_until_restart(world, supervisor, "a", 1) == [1]


def test_a_supervisor_whose_children_wait_ends_at_once(world):
    supervisor = world.supervise(world.specs("ab"), intensity=100, backoff=BACKOFF)
    world.end(supervisor, "a")
    world.base.exit(supervisor, "kill")
    supervisor = world.supervise(world.specs("ab"), intensity=100, backoff=BACKOFF)
    world.end(supervisor, "a")
    world.base.stop(supervisor)
    assert not world.base.is_alive(supervisor)
    world.base.advance(10)
    assert starts(world.journal.take()) == []


def dynamic(world, **flags):
    template = ChildSpec(id="template", actor=Worker, args=(world.journal,))
    return world.supervise(
        [template], Strategy.SIMPLE_ONE_FOR_ONE, intensity=100, backoff=BACKOFF, **flags
    )


def test_a_dynamic_child_waits_and_keeps_its_row_of_waits_over_its_restarts(world):
    supervisor = dynamic(world)
    world.ask(supervisor, StartDynamicChild(("x",)))
    for wait_s in (1, 2, 4):
        [child] = world.ask(supervisor, WhichChildren())
        world.base.cast(child.ref, ("stop", "boom"))
        world.base.advance(wait_s - 0.5)
        assert [each.ref for each in world.ask(supervisor, WhichChildren())] == [RESTARTING]
        world.base.advance(0.5)
    [child] = world.ask(supervisor, WhichChildren())
    assert world.base.is_alive(child.ref)


def test_the_dead_ref_cancels_the_wait_of_a_dynamic_child(world):
    supervisor = dynamic(world)
    ref = world.ask(supervisor, StartDynamicChild(("x",)))
    world.base.cast(ref, ("stop", "boom"))
    world.ask(supervisor, TerminateChild(ref))
    world.base.advance(10)
    assert world.ask(supervisor, WhichChildren()) == []
    assert starts(world.journal.take()) == ["x"]


def test_a_dynamic_child_that_waits_counts_for_max_children(world):
    supervisor = dynamic(world, max_children=1)
    ref = world.ask(supervisor, StartDynamicChild(("x",)))
    world.base.cast(ref, ("stop", "boom"))
    with pytest.raises(ChildRequestRefused, match="max_children"):
        world.ask(supervisor, StartDynamicChild(("y",)))
    world.ask(supervisor, TerminateChild(ref))
    world.ask(supervisor, StartDynamicChild(("y",)))


def test_jitter_with_a_seed_is_the_same_again_and_differs_from_child_to_child():
    backoff = Backoff(first_s=1, jitter=0.5, seed=7)
    waits_s = [backoff.jittered(1, child) for child in ("a", "a", "b")]
    assert waits_s[0] == waits_s[1] != waits_s[2]
    assert all(0.5 <= wait_s <= 1.5 for wait_s in waits_s)
    assert Backoff(first_s=1, jitter=0.5, seed=8).jittered(1, "a") != waits_s[0]
    unseeded = {Backoff(first_s=1, jitter=0.5).jittered(1, "a") for _ in range(10)}
    assert len(unseeded) > 1


def test_waits_without_jitter_grow_up_to_the_limit_for_ever():
    waits_s = itertools.islice(Backoff(first_s=0.1, max_s=10).waits_s(), 2000)
    *_, last_s = waits_s
    assert last_s == 10


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("first_s", 0),
        ("factor", 0.5),
        ("max_s", 0.01),
        ("max_s", float("inf")),
        ("jitter", 1.1),
        ("reset_after_s", -1),
    ],
)
def test_a_wrong_field_is_named_with_its_value(field, value):
    with pytest.raises(InvalidChildSpec, match=f"{field} is {value}"):
        Backoff(**{field: value})
