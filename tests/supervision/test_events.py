"""What the ring of events is told of a supervision tree, and whether its causes are true."""

from typing import Any

import pytest

from poe.errors import ChildStartFailed
from poe.protocol.node_event import NodeEvent, why
from poe.supervision import AutoShutdown, Restart, Strategy, SupervisorFlags
from poe.supervision.api import StartChild, StartDynamicChild
from poe.supervision.backoff import Backoff
from poe.supervision.chronicle import keep_events
from poe.supervision.event_ring import BYTES_MAX, EVENTS_MAX, TEXT_MAX, EventRing
from tests.supervision.workers import World


@pytest.fixture
def ring(world: World) -> EventRing:
    ring = EventRing(lambda: int(world.now_s * 1_000_000))
    keep_events(world.base.run_queue, ring)
    return ring


def told(ring: EventRing) -> list[NodeEvent]:
    return [NodeEvent.from_map(each) for each in ring.after(0, EVENTS_MAX)]


def reasons(ring: EventRing, child: str) -> list[tuple[str, str]]:
    """Return kind and child of the newest restart of a child, and of what led to it."""
    events = told(ring)
    newest = next(e for e in reversed(events) if e.kind == "restarted" and e.child == child)
    found = why(events, newest.seq)
    assert found is not None
    assert found.is_whole
    return [(each.kind, each.child) for each in found.chain]


def sentence(ring: EventRing, seq: int) -> str:
    found = why(told(ring), seq)
    assert found is not None
    return str(found).replace(" at 1970-01-01 00:01:40.000Z", "")


def test_a_tree_that_starts_well_tells_nothing(world, ring):
    world.supervise(world.specs("ab"))
    assert told(ring) == []


def test_one_for_one_restarts_one_because_of_itself(world, ring):
    supervisor = world.supervise(world.specs("abc"))
    world.end(supervisor, "b")
    ended, restarted = told(ring)
    assert (ended.kind, ended.child, ended.reason) == ("child_terminated", "b", "'boom'")
    assert (restarted.kind, restarted.cause_seq) == ("restarted", ended.seq)
    assert restarted.together == ("b",)
    assert (restarted.away_s, restarted.intensity) == (0.0, (1, 1, 5))
    assert restarted.ref == str(world.ref(supervisor, "b")) != ended.ref
    assert sentence(ring, restarted.seq) == (
        f"'b' of {supervisor} restarted (one_for_one) after 0.000 s, "
        f"because 'b' of {supervisor} ended with 'boom'"
    )


def test_rest_for_one_restarts_the_later_ones_because_of_the_one_that_ended(world, ring):
    supervisor = world.supervise(world.specs("abc"), Strategy.REST_FOR_ONE)
    world.end(supervisor, "b")
    assert [(each.kind, each.child) for each in told(ring)] == [
        ("child_terminated", "b"),
        ("restarted", "b"),
        ("restarted", "c"),
    ]
    assert reasons(ring, "c") == [("restarted", "c"), ("child_terminated", "b")]
    assert sentence(ring, 3).startswith(
        f"'c' of {supervisor} restarted (rest_for_one, together with 'b')"
    )


def test_one_for_all_restarts_all_and_tells_how_long_each_was_away(world, ring):
    specs = [world.spec("a", cleanup_s=2.0), world.spec("b"), world.spec("c")]
    supervisor = world.supervise(specs, Strategy.ONE_FOR_ALL)
    world.end(supervisor, "b")
    world.base.advance(2.0)
    restarts = {each.child: each for each in told(ring) if each.kind == "restarted"}
    assert {name: each.cause_seq for name, each in restarts.items()} == {"a": 1, "b": 1, "c": 1}
    assert {name: each.away_s for name, each in restarts.items()} == {"a": 0.0, "b": 2.0, "c": 2.0}
    assert all(each.together == ("a", "b", "c") for each in restarts.values())
    assert all(each.generation == 1 for each in restarts.values())


def test_a_second_crash_has_a_cause_of_its_own(world, ring):
    supervisor = world.supervise(world.specs("ab"), Strategy.ONE_FOR_ALL, intensity=5)
    world.end(supervisor, "a", "first")
    world.end(supervisor, "b", "second")
    assert reasons(ring, "a") == [("restarted", "a"), ("child_terminated", "b")]
    newest = told(ring)[-1]
    assert newest.cause_seq is not None
    assert told(ring)[newest.cause_seq - 1].reason == "'second'"
    assert newest.intensity == (2, 5, 5)


def test_a_restart_that_fails_at_first_has_the_failure_and_then_the_crash_as_its_cause(world, ring):
    supervisor = world.supervise(world.specs("a"), intensity=5)
    world.journal.plans["a"] = ["broken"]
    world.end(supervisor, "a")
    assert reasons(ring, "a") == [
        ("restarted", "a"),
        ("start_error", "a"),
        ("child_terminated", "a"),
    ]


def test_a_back_off_is_told_with_the_restart_that_it_put_off(world, ring):
    backoff = Backoff(first_s=3.0, jitter=0.0)
    supervisor = world.supervise([world.spec("a", backoff=backoff)])
    world.end(supervisor, "a")
    assert [each.kind for each in told(ring)] == ["child_terminated"]
    world.base.advance(3.0)
    restarted = told(ring)[-1]
    assert (restarted.kind, restarted.delay_s, restarted.away_s) == ("restarted", 3.0, 3.0)


def test_giving_up_goes_up_the_tree_to_its_root(world, ring):
    inner = world.nested("inner", SupervisorFlags(intensity=0), world.specs("ab"))
    middle = world.nested("middle", SupervisorFlags(intensity=0), [inner], name="middle")
    root = world.supervise([middle], intensity=0)
    inner_ref = world.ref(world.ref(root, "middle"), "inner")
    world.end(inner_ref, "b")
    events = told(ring)
    assert [(each.kind, each.child, each.cause_seq) for each in events] == [
        ("child_terminated", "b", None),
        ("gave_up", "b", 1),
        ("child_terminated", "inner", 2),
        ("gave_up", "inner", 3),
        ("child_terminated", "middle", 4),
        ("gave_up", "middle", 5),
    ]
    assert world.reason_of(root) == "shutdown"
    assert sentence(ring, 6) == (
        f"{root} gave up (restart 1 within 5 s, 0 allowed), "
        f"because 'middle' of {root} ended with 'shutdown', "
        "because middle gave up (restart 1 within 5 s, 0 allowed), "
        "because 'inner' of middle ended with 'shutdown', "
        f"because {inner_ref} gave up (restart 1 within 5 s, 0 allowed), "
        f"because 'b' of {inner_ref} ended with 'boom'"
    )


def test_what_starts_below_a_restarted_supervisor_has_the_same_cause(world, ring):
    inner = world.nested("inner", SupervisorFlags(intensity=0), world.specs("xy"), name="inner")
    root = world.supervise([world.spec("a"), inner], Strategy.REST_FOR_ONE, intensity=5)
    world.end(root, "a")
    assert reasons(ring, "y") == [("restarted", "y"), ("child_terminated", "a")]
    assert reasons(ring, "inner") == [("restarted", "inner"), ("child_terminated", "a")]
    newest = next(each for each in reversed(told(ring)) if each.child == "y")
    assert newest.supervisor == "inner"
    assert "(with its supervisor)" in sentence(ring, newest.seq)
    world.end(world.ref(root, "inner"), "x", "worse")
    assert reasons(ring, "x") == [
        ("restarted", "x"),
        ("child_terminated", "inner"),
        ("gave_up", "x"),
        ("child_terminated", "x"),
    ]


def test_a_start_that_fails_further_down_is_the_cause_of_the_failure_above(world, ring):
    inner = world.nested("inner", SupervisorFlags(), world.specs("xy"), name="inner")
    root = world.supervise([world.spec("a"), inner], Strategy.REST_FOR_ONE, intensity=5)
    world.journal.plans["y"] = ["broken"]
    world.end(root, "a")
    assert reasons(ring, "inner") == [
        ("restarted", "inner"),
        ("start_error", "inner"),
        ("start_error", "y"),
        ("child_terminated", "a"),
    ]


def test_a_start_that_was_asked_for_and_failed_is_no_cause_of_a_later_failure(world, ring):
    root = world.supervise([world.spec("a")], intensity=5)
    world.journal.plans["y"] = ["broken"]
    with pytest.raises(ChildStartFailed):
        world.ask(root, StartChild(world.nested("inner", SupervisorFlags(), world.specs("xy"))))
    world.journal.plans["a"] = ["broken"]
    world.end(root, "a")
    assert reasons(ring, "a") == [
        ("restarted", "a"),
        ("start_error", "a"),
        ("child_terminated", "a"),
    ]


def test_a_supervisor_that_is_killed_has_no_cause_below(world, ring):
    inner = world.nested("inner", SupervisorFlags(), world.specs("x"))
    root = world.supervise([inner])
    world.base.exit(world.ref(root, "inner"), "kill")
    assert reasons(ring, "inner") == [("restarted", "inner"), ("child_terminated", "inner")]


def test_a_child_that_does_not_stop_as_it_should_is_told(world, ring):
    specs = [world.spec("a", ends_as=ValueError("secret")), world.spec("b")]
    supervisor = world.supervise(specs, Strategy.ONE_FOR_ALL)
    world.end(supervisor, "b")
    kinds = [(each.kind, each.child, each.reason) for each in told(ring)]
    assert ("shutdown_error", "a", "ValueError") in kinds
    assert reasons(ring, "a") == [("restarted", "a"), ("child_terminated", "b")]


def test_dynamic_children_are_told_by_their_references(world, ring):
    supervisor = world.supervise([world.spec("w")], Strategy.SIMPLE_ONE_FOR_ONE)
    ref = world.ask(supervisor, StartDynamicChild())
    world.base.cast(ref, ("stop", "boom"))
    ended, restarted = told(ring)
    assert (ended.kind, ended.ref, restarted.cause_seq) == ("child_terminated", str(ref), 1)
    assert restarted.ref != str(ref)


def test_many_that_end_alike_are_one_event(world, ring):
    specs = [world.spec("w", restart=Restart.TEMPORARY)]
    supervisor = world.supervise(specs, Strategy.SIMPLE_ONE_FOR_ONE)
    refs = [world.ask(supervisor, StartDynamicChild()) for _ in range(100)]
    for ref in refs:
        world.base.cast(ref, ("stop", "boom"))
    (event,) = told(ring)
    assert event.count == 100
    assert all(ring.end_of(str(ref)) == event.seq for ref in refs)


def test_a_significant_child_is_the_cause_of_its_supervisors_end(world, ring):
    flags = SupervisorFlags(auto_shutdown=AutoShutdown.ANY_SIGNIFICANT)
    spec = world.spec("x", restart=Restart.TEMPORARY, significant=True)
    root = world.supervise([world.nested("inner", flags, [spec])])
    world.end(world.ref(root, "inner"), "x")
    assert reasons(ring, "inner") == [
        ("restarted", "inner"),
        ("child_terminated", "inner"),
        ("auto_shutdown", "x"),
        ("child_terminated", "x"),
    ]


@pytest.mark.slow
def test_the_ring_is_bounded_in_events_bytes_and_texts():
    ring = EventRing(lambda: 0)
    for number in range(EVENTS_MAX + 5):
        ring.add("k", child=str(number))
    assert [each["seq"] for each in ring.after(0, 2)] == [6, 7]
    assert ring.after(EVENTS_MAX + 3, 10)[-1]["seq"] == ring.newest_seq == EVENTS_MAX + 5
    assert ring.after(EVENTS_MAX + 5, 10) == []
    huge: dict[str, Any] = {"with": ["x" * 10_000] * 10_000}
    ring.add("k", reason="é" * 10_000, **huge)
    assert len(ring.after(EVENTS_MAX + 5, 1)[0]["reason"]) == TEXT_MAX
    for _ in range(EVENTS_MAX):
        ring.add("k", **huge)
    kept = ring.after(0, EVENTS_MAX)
    assert len(kept) * 50 * TEXT_MAX < BYTES_MAX


def test_a_cause_that_is_forgotten_is_told_as_such():
    ring = EventRing(lambda: 0)
    ring.add("k", cause_seq=None)
    seq = ring.add("restarted", cause_seq=1, child="a", supervisor="s")
    found = why(told(ring)[1:], seq)
    assert found is not None
    assert not found.is_whole
    assert str(found).endswith("because of event 1, which is forgotten")
    assert why(told(ring), 3) is None


def test_causes_that_go_round_end():
    events = [NodeEvent(seq=1, time_us=0, kind="k", cause_seq=2), NodeEvent(seq=2, time_us=0,
              kind="k", cause_seq=1)]  # fmt: skip
    found = why(events, 2)
    assert found is not None
    assert [each.seq for each in found.chain] == [2, 1]
