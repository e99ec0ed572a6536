"""Significant children end their supervisor, but only when they end by themselves (OTP §1.12)."""

import pytest

from poe.supervision import AutoShutdown, Restart, Strategy, SupervisorFlags, TerminateChild

ANY, ALL = AutoShutdown.ANY_SIGNIFICANT, AutoShutdown.ALL_SIGNIFICANT
TRANSIENT, TEMPORARY = Restart.TRANSIENT, Restart.TEMPORARY


def supervise(world, mode, labels="ab", restart=TRANSIENT, strategy=Strategy.ONE_FOR_ONE):
    children = world.specs(labels, restart=restart, significant=True)
    return world.supervise([*children, world.spec("z")], strategy, auto_shutdown=mode, intensity=9)


# Ported from supervisor_SUITE: significant_transient, significant_temporary
@pytest.mark.parametrize(
    ("restart", "reason"), [(TRANSIENT, "normal"), (TEMPORARY, "normal"), (TEMPORARY, "boom")]
)
def test_any_mode_ends_with_the_first_significant_child(world, restart, reason):
    supervisor = supervise(world, ANY, restart=restart)
    events = world.end(supervisor, "a", reason)
    assert events[1:] == [("stop", "z", "shutdown"), ("stop", "b", "shutdown")]
    assert world.reason_of(supervisor) == "shutdown"


@pytest.mark.parametrize(
    ("restart", "reason"), [(TRANSIENT, "normal"), (TEMPORARY, "normal"), (TEMPORARY, "boom")]
)
def test_all_mode_ends_with_the_last_significant_child(world, restart, reason):
    supervisor = supervise(world, ALL, restart=restart)
    world.end(supervisor, "a", reason)
    assert world.reason_of(supervisor) is None
    world.end(supervisor, "b", reason)
    assert world.reason_of(supervisor) == "shutdown"


@pytest.mark.parametrize("mode", [ANY, ALL])
def test_a_crashed_transient_child_is_restarted_instead(world, mode):
    supervisor = supervise(world, mode, "a")
    assert world.end(supervisor, "a")[1:] == [("start", "a")]
    assert world.reason_of(supervisor) is None


@pytest.mark.parametrize("mode", [ANY, ALL])
@pytest.mark.parametrize("restart", [TRANSIENT, TEMPORARY])
def test_terminate_child_never_shuts_down(world, mode, restart):
    supervisor = supervise(world, mode, "a", restart)
    world.ask(supervisor, TerminateChild("a"))
    assert world.reason_of(supervisor) is None


# Ported from supervisor_SUITE: significant_bystander
@pytest.mark.parametrize("mode", [ANY, ALL])
@pytest.mark.parametrize("restart", [TRANSIENT, TEMPORARY])
def test_being_stopped_for_a_sibling_does_not_count(world, mode, restart):
    children = [world.spec("z"), world.spec("a", restart=restart, significant=True)]
    supervisor = world.supervise(children, Strategy.ONE_FOR_ALL, auto_shutdown=mode)
    world.end(supervisor, "z")
    assert world.reason_of(supervisor) is None
    assert ("a" in world.slots(supervisor)) is (restart is TRANSIENT)


@pytest.mark.parametrize("mode", [ANY, ALL])
def test_a_restart_that_ignores_does_not_shut_down_and_leaves_nothing_to_wait_for(world, mode):
    supervisor = supervise(world, mode)
    world.journal.plans["a"] = ["ignore"]
    world.end(supervisor, "a")
    assert world.reason_of(supervisor) is None
    world.end(supervisor, "b", "normal")
    assert world.reason_of(supervisor) == "shutdown"


# Ported from supervisor_SUITE: nonsignificant_temporary, nonsignificant_transient
@pytest.mark.parametrize("mode", list(AutoShutdown))
@pytest.mark.parametrize("restart", [TRANSIENT, TEMPORARY])
def test_other_children_never_shut_down(world, mode, restart):
    supervisor = world.supervise(world.specs("a", restart=restart), auto_shutdown=mode)
    world.end(supervisor, "a", "normal")
    assert world.reason_of(supervisor) is None


# Ported from supervisor_SUITE: significant_escalation
@pytest.mark.parametrize("significant", [True, False])
def test_an_automatic_shutdown_climbs_only_through_significant_supervisors(world, significant):
    flags = SupervisorFlags(auto_shutdown=ANY)
    worker = world.spec("a", restart=TRANSIENT, significant=True)
    inner = world.nested("i", flags, [worker], restart=TRANSIENT, significant=significant)
    outer = world.supervise([inner], auto_shutdown=ANY)
    world.end(world.ref(outer, "i"), "a", "normal")
    assert world.reason_of(outer) == ("shutdown" if significant else None)
