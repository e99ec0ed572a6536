"""Supervisors with a start order, on real actors: starts, stops, strategies (OTP §1.2 - 1.8)."""

import logging

import pytest

from poe.actors import IGNORE, StartFailed
from poe.errors import ActorDead, ChildStartFailed, InvalidChildSpec, UnknownRequest
from poe.supervision import (
    RESTARTING,
    CountChildren,
    Restart,
    Strategy,
    Supervisor,
    SupervisorFlags,
    TerminateChild,
)
from tests.supervision.workers import HANGS, World

ONE, REST, ALL = Strategy.ONE_FOR_ONE, Strategy.REST_FOR_ONE, Strategy.ONE_FOR_ALL
TRANSIENT, TEMPORARY = Restart.TRANSIENT, Restart.TEMPORARY


def starts(labels):
    return [("start", label) for label in labels]


def stops(labels, reason="shutdown"):
    return [("stop", label, reason) for label in labels]


# ---- starting, §1.2 ---------------------------------------------------------------------------


# Ported from supervisor_SUITE: order_of_children
def test_children_start_left_to_right_and_stop_right_to_left(world):
    supervisor = world.base.start(Supervisor, SupervisorFlags(), world.specs("abc"))
    assert world.journal.take() == starts("abc")
    world.base.stop(supervisor, "shutdown")
    assert world.journal.take() == stops("cba")


# Ported from supervisor_SUITE: sup_start_normal
def test_an_empty_supervisor_starts_and_ends(world):
    supervisor = world.supervise([])
    world.base.exit(supervisor, "shutdown")
    assert world.reason_of(supervisor) == "shutdown"


def test_a_failing_start_stops_those_before_it_and_names_the_child(world):
    world.journal.plans["c"] = ["broken"]
    with pytest.raises(StartFailed) as caught:
        world.base.start(Supervisor, SupervisorFlags(), world.specs("abcd"))
    assert isinstance(caught.value.reason, tuple)
    kind, failure = caught.value.reason
    assert (kind, type(failure)) == ("shutdown", ChildStartFailed)
    assert (failure.child_id, failure.reason) == ("c", "broken")
    assert world.journal.take() == [*starts("ab"), ("fail", "c"), *stops("ba")]


# Ported from supervisor_SUITE: sup_start_ignore_child, sup_start_ignore_temporary_child
def test_a_child_that_ignores_is_kept_without_an_actor_unless_temporary(world):
    world.journal.plans |= {"a": ["ignore"], "b": ["ignore"]}
    children = [world.spec("a"), world.spec("b", restart=TEMPORARY), world.spec("c")]
    supervisor = world.supervise(children)
    slots = world.slots(supervisor)
    assert list(slots) == ["a", "c"]
    assert slots["a"] is None
    counts = world.ask(supervisor, CountChildren())
    assert (counts.specs, counts.active) == (2, 1)


def test_bad_children_are_refused_before_anything_starts(world):
    with pytest.raises(StartFailed) as caught:
        world.base.start(Supervisor, SupervisorFlags(), world.specs("aa"))
    assert isinstance(caught.value.reason, InvalidChildSpec)
    assert world.journal.take() == []


class Pair(Supervisor):
    """Makes its children from an argument of its own."""

    def configure(self, world, label):
        if label is None:
            return IGNORE
        return SupervisorFlags(strategy=ALL), world.specs([f"{label}1", f"{label}2"])


def test_a_subclass_turns_its_arguments_into_children(world):
    pair = world.base.start(Pair, world, "x")
    assert list(world.slots(pair)) == ["x1", "x2"]


# Ported from supervisor_SUITE: sup_start_ignore_init
def test_a_subclass_may_ignore(world):
    assert world.base.start(Pair, world, None) is None


def test_a_named_child_keeps_its_name_over_a_restart(world):
    supervisor = world.supervise([world.spec("a", name="alpha")])
    first = world.base.whereis("alpha")
    world.end(supervisor, "a")
    assert world.base.whereis("alpha") == world.ref(supervisor, "a") != first


# ---- strategies, §1.5 -------------------------------------------------------------------------


# Ported from supervisor_SUITE: one_for_one, rest_for_one, one_for_all
@pytest.mark.parametrize(
    ("strategy", "stopped", "started"),
    [(ONE, "", "b"), (REST, "dc", "bcd"), (ALL, "dca", "abcd")],
)
def test_a_crash_stops_and_starts_the_group_in_order(world, strategy, stopped, started):
    supervisor = world.supervise(world.specs("abcd"), strategy)
    before = world.slots(supervisor)
    events = world.end(supervisor, "b")
    assert events == [*stops("b", "boom"), *stops(stopped), *starts(started)]
    after = world.slots(supervisor)
    assert list(after) == list("abcd")
    assert {label for label in "abcd" if before[label] != after[label]} == set(started)


# Ported from supervisor_SUITE: permanent_*, transient_*, temporary_*
@pytest.mark.parametrize(
    ("restart", "reason", "slot"),
    [
        (Restart.PERMANENT, "normal", "new"),
        (Restart.PERMANENT, ("shutdown", 1), "new"),
        (Restart.PERMANENT, "boom", "new"),
        (TRANSIENT, "normal", "idle"),
        (TRANSIENT, "shutdown", "idle"),
        (TRANSIENT, ("shutdown", 1), "idle"),
        (TRANSIENT, "boom", "new"),
        (TEMPORARY, "normal", "gone"),
        (TEMPORARY, "boom", "gone"),
    ],
)
def test_restart_type_and_reason_decide_on_real_actors(world, restart, reason, slot):
    supervisor = world.supervise([world.spec("a", restart=restart)])
    first = world.ref(supervisor, "a")
    world.end(supervisor, "a", reason)
    slots = world.slots(supervisor)
    if slot == "gone":
        assert slots == {}
    elif slot == "idle":
        assert slots == {"a": None}
    else:
        assert slots["a"] not in (None, RESTARTING, first)


def test_an_exception_restarts_and_a_kill_is_a_crash_for_a_transient_child(world):
    supervisor = world.supervise(world.specs("ab", restart=TRANSIENT), intensity=2)
    world.base.cast(world.ref(supervisor, "a"), "raise")
    assert world.journal.take() == [*stops("a", "raised"), *starts("a")]
    world.base.exit(world.ref(supervisor, "b"), "kill")
    assert world.journal.take() == starts("b")


# Ported from supervisor_SUITE: temporary_bystander
@pytest.mark.parametrize("strategy", [REST, ALL])
def test_a_group_restart_drops_temporary_and_revives_finished_siblings(world, strategy):
    children = [
        world.spec("a"),
        world.spec("t", restart=TEMPORARY),
        world.spec("f", restart=TRANSIENT),
        world.spec("h"),
    ]
    supervisor = world.supervise(children, strategy)
    assert world.end(supervisor, "f", "normal") == stops("f", "normal")
    world.ask(supervisor, TerminateChild("h"))
    world.journal.take()
    assert world.end(supervisor, "a") == [*stops("a", "boom"), *stops("t"), *starts("afh")]
    assert list(world.slots(supervisor)) == ["a", "f", "h"]


@pytest.mark.parametrize("strategy", [REST, ALL])
def test_a_temporary_crash_leaves_the_group_alone(world, strategy):
    supervisor = world.supervise([world.spec("t", restart=TEMPORARY), world.spec("b")], strategy)
    assert world.end(supervisor, "t") == stops("t", "boom")


# ---- intensity, §1.6 --------------------------------------------------------------------------


@pytest.mark.parametrize("strategy", [ONE, REST, ALL])
@pytest.mark.parametrize("intensity", [0, 1, 3])
def test_the_restart_after_intensity_ends_the_supervisor(world, strategy, intensity):
    supervisor = world.supervise(world.specs("abc"), strategy, intensity=intensity)
    for _ in range(intensity):
        world.end(supervisor, "b")
        assert world.reason_of(supervisor) is None
    assert world.end(supervisor, "b") == [*stops("b", "boom"), *stops("ca")]
    assert world.reason_of(supervisor) == "shutdown"


def test_one_budget_covers_all_children(world):
    supervisor = world.supervise(world.specs("abc"), intensity=2)
    for label in "abc":
        world.end(supervisor, label)
    assert world.reason_of(supervisor) == "shutdown"


# Ported from supervisor_SUITE: multiple_restarts; the phase of the second matters
@pytest.mark.parametrize(
    ("phase_s", "gap_s", "survives"),
    [(0.05, 1.85, False), (0.05, 2.0, True), (0.95, 1.02, False), (0.95, 1.10, True)],
)
def test_the_window_is_counted_in_whole_seconds(phase_s, gap_s, survives):
    world = World(start_s=100 + phase_s)
    supervisor = world.supervise(world.specs("a"), intensity=1, period_s=1)
    world.end(supervisor, "a")
    world.base.advance(gap_s)
    world.end(supervisor, "a")
    assert world.reason_of(supervisor) == (None if survives else "shutdown")
    world.base.shutdown()


def test_crashes_spread_out_in_time_are_survived_for_ever(world):
    supervisor = world.supervise(world.specs("a"), intensity=1, period_s=1)
    for _ in range(10):
        world.end(supervisor, "a")
        world.base.advance(2.1)
    assert world.reason_of(supervisor) is None


# ---- stopping, §1.8 ---------------------------------------------------------------------------


def test_each_child_is_gone_before_the_next_is_told(world):
    supervisor = world.supervise(world.specs("ab", cleanup_s=2.0))
    world.base.exit(supervisor, "shutdown")
    assert world.journal.take() == stops("b")
    world.base.advance(2.0)
    assert world.journal.take() == [("clean", "b"), *stops("a")]
    assert world.reason_of(supervisor) is None
    world.base.advance(2.0)
    assert world.reason_of(supervisor) == "shutdown"


# Ported from supervisor_SUITE: sup_stop_timeout
def test_a_child_that_hangs_is_killed_at_its_deadline(world):
    children = [world.spec("a"), world.spec("b", cleanup_s=HANGS, shutdown_s=3.0)]
    supervisor = world.supervise(children)
    hung, other = (world.watch(world.ref(supervisor, label)) for label in "ba")
    world.base.exit(supervisor, "shutdown")
    world.base.advance(2.9)
    assert world.reason_of(hung) is None
    world.base.advance(0.2)
    assert (world.reason_of(hung), world.reason_of(other)) == ("killed", "shutdown")
    assert world.reason_of(supervisor) == "shutdown"


# Ported from supervisor_SUITE: sup_stop_infinity
def test_infinity_waits_for_as_long_as_it_takes(world):
    supervisor = world.supervise(world.specs("a", cleanup_s=1e6, shutdown_s="infinity"))
    child = world.watch(world.ref(supervisor, "a"))
    world.base.exit(supervisor, "shutdown")
    world.base.advance(1e6 - 1)
    assert world.reason_of(child) is None
    world.base.advance(1)
    assert world.reason_of(child) == "shutdown"


# Ported from supervisor_SUITE: sup_stop_brutal_kill
def test_brutal_kill_gives_no_time_to_clean_up(world):
    supervisor = world.supervise(world.specs("a", shutdown_s="brutal_kill"))
    child = world.watch(world.ref(supervisor, "a"))
    world.base.exit(supervisor, "shutdown")
    assert (world.reason_of(child), world.journal.take()) == ("killed", [])


def test_a_child_that_does_not_trap_exits_ends_without_clean_up(world):
    supervisor = world.supervise(world.specs("a", trap=False, shutdown_s=0))
    child = world.watch(world.ref(supervisor, "a"))
    world.ask(supervisor, TerminateChild("a"))
    assert (world.reason_of(child), world.journal.take()) == ("shutdown", [])


# Ported from supervisor_SUITE: child_unlink
def test_a_child_that_unlinked_itself_can_still_be_stopped(world):
    supervisor = world.supervise(world.specs("a"))
    child = world.watch(world.ref(supervisor, "a"))
    world.base.cast(child, "unlink")
    world.ask(supervisor, TerminateChild("a"))
    assert world.reason_of(child) == "shutdown"
    assert world.slots(supervisor) == {"a": None}


def test_a_group_restart_waits_for_a_slow_sibling(world):
    children = [world.spec("a"), world.spec("b", cleanup_s=1.0)]
    supervisor = world.supervise(children, ALL)
    assert world.end(supervisor, "a") == [*stops("a", "boom"), *stops("b")]
    world.base.advance(1.0)
    assert world.journal.take() == [("clean", "b"), *starts("ab")]


# ---- signals and unknown messages, §1.13; escalation, §1.14 -----------------------------------


def test_the_parent_ends_it_with_any_reason(world):
    supervisor = world.supervise(world.specs("ab"))
    world.base.exit(supervisor, "normal")
    assert world.journal.take() == stops("ba")
    assert world.reason_of(supervisor) == "normal"


def test_a_killed_supervisor_takes_its_children_with_it(world):
    supervisor = world.supervise(world.specs("ab"))
    children = [world.watch(ref) for ref in world.slots(supervisor).values()]
    world.base.exit(supervisor, "kill")
    assert world.reason_of(supervisor) == "killed"
    assert [world.reason_of(child) for child in children] == ["killed", "killed"]


def test_unknown_messages_are_logged_and_unknown_calls_refused(world, caplog):
    supervisor = world.supervise(world.specs("a"))
    world.base.cast(supervisor, "secret payload")
    with pytest.raises(UnknownRequest, match="no request int"):
        world.base.call(supervisor, 42)
    assert [record.levelno for record in caplog.records] == [logging.ERROR, logging.ERROR]
    assert "secret" not in caplog.text
    assert world.slots(supervisor)["a"] is not None


# Ported from supervisor_SUITE: one_for_one_escalation, tree
@pytest.mark.parametrize(
    ("restart", "outer_ends"),
    [(Restart.PERMANENT, True), (TRANSIENT, False), (TEMPORARY, False)],
)
def test_a_supervisor_that_gives_up_is_a_child_that_ends_in_order(world, restart, outer_ends):
    inner = world.nested("inner", SupervisorFlags(intensity=0), world.specs("a"), restart=restart)
    outer = world.supervise([world.spec("x"), inner], intensity=2)
    for _ in range(3 if outer_ends else 1):
        world.end(world.ref(outer, "inner"), "a")
    if outer_ends:
        assert world.reason_of(outer) == "shutdown"
    else:
        expected = {"x", "inner"} if restart is TRANSIENT else {"x"}
        assert set(world.slots(outer)) == expected
        assert world.reason_of(outer) is None


def test_a_tree_stops_from_its_leaves_in_reverse_order(world):
    inner = world.nested("inner", SupervisorFlags(), world.specs("bc"))
    supervisor = world.supervise([world.spec("a"), inner, world.spec("d")])
    world.base.exit(supervisor, "shutdown")
    assert world.journal.take() == stops("dcba")


class StrictSupervisor(Supervisor):
    """Crashes at what it does not know."""

    strict = True


@pytest.mark.parametrize("way", ["call", "cast"])
def test_a_strict_supervisor_crashes_at_an_unknown_request_after_stopping_its_children(world, way):
    supervisor = world.base.start(StrictSupervisor, SupervisorFlags(), world.specs("ab"))
    world.watch(supervisor)
    world.journal.take()
    if way == "cast":
        world.base.cast(supervisor, 42)
    else:
        with pytest.raises(ActorDead) as error:
            world.base.call(supervisor, 42)
        assert isinstance(error.value.reason, UnknownRequest)
    assert world.journal.take() == stops("ba")
    assert isinstance(world.reason_of(supervisor), UnknownRequest)
