"""What a supervisor does, on each base; children tell a recorder of their starts and stops."""

import pytest

from poe.errors import ActorDead, ChildRequestRefused, ChildStartFailed, StartFailed
from poe.supervision import (
    AutoShutdown,
    ChildKind,
    ChildSpec,
    CountChildren,
    DeleteChild,
    GetChildSpec,
    Restart,
    RestartChild,
    StartChild,
    StartDynamicChild,
    Strategy,
    Supervisor,
    SupervisorFlags,
    TerminateChild,
)
from tests.bases.actors import Stage, spec, specs
from tests.waiting import wait_until


@pytest.fixture
def stage(system):
    return Stage(system)


def supervise(stage, children, strategy=Strategy.ONE_FOR_ONE, **flags):
    settings = SupervisorFlags(strategy=strategy, **{"intensity": 10, **flags})
    supervisor = stage.system.start(Supervisor, settings, children)
    stage.take()
    return supervisor


def starts(*labels):
    return [("start", label) for label in labels]


def stops(*labels):
    return [("stop", label, "shutdown") for label in labels]


@pytest.mark.parametrize(
    ("strategy", "after"),
    [
        (Strategy.ONE_FOR_ONE, starts("b")),
        (Strategy.REST_FOR_ONE, [*stops("d", "c"), *starts("b", "c", "d")]),
        (Strategy.ONE_FOR_ALL, [*stops("d", "c", "a"), *starts("a", "b", "c", "d")]),
    ],
)
def test_strategy_restarts_its_group_in_order(stage, strategy, after):
    supervisor = supervise(stage, specs("abcd"), strategy)
    before = stage.refs(supervisor)
    stage.end(supervisor, "b")
    stage.wait_for(("stop", "b", "boom"), *after)
    assert stage.refs(supervisor)["b"] is not before["b"]


def test_children_start_in_order_and_stop_in_reverse(stage):
    supervisor = stage.system.start(Supervisor, SupervisorFlags(), specs("abc"))
    assert stage.take() == starts("a", "b", "c")
    stage.system.stop(supervisor)
    assert stage.take() == stops("c", "b", "a")


def test_failing_start_stops_what_was_started(stage):
    stage.plan("c", "no room")
    with pytest.raises(StartFailed) as caught:
        stage.system.start(Supervisor, SupervisorFlags(), specs("abc"))
    reason = caught.value.reason
    assert isinstance(reason, tuple)
    word, failure = reason
    assert (word, type(failure), failure.reason) == ("shutdown", ChildStartFailed, "no room")
    assert stage.take() == [*starts("a", "b"), ("fail", "c"), *stops("b", "a")]


def test_only_a_crash_restarts_a_transient_child_and_nothing_a_temporary_one(stage):
    children = [spec("t", restart=Restart.TRANSIENT), spec("u", restart=Restart.TEMPORARY)]
    supervisor = supervise(stage, children)
    stage.end(supervisor, "t", "boom")
    stage.wait_for(("stop", "t", "boom"), ("start", "t"))
    stage.end(supervisor, "u", "boom")
    stage.wait_for(("stop", "u", "boom"))
    wait_until(lambda: "u" not in stage.refs(supervisor))
    stage.end(supervisor, "t", "normal")
    stage.wait_for(("stop", "t", "normal"))
    wait_until(lambda: stage.refs(supervisor) == {"t": None})


def test_failing_restart_is_tried_again(stage):
    supervisor = supervise(stage, specs("ab"))
    stage.plan("a", "no", "no")
    stage.end(supervisor, "a")
    stage.wait_for(("stop", "a", "boom"), ("fail", "a"), ("fail", "a"), ("start", "a"))


def test_supervisor_gives_up_after_its_intensity_and_the_outer_one_restarts_it(stage):
    inner = ChildSpec(
        id="inner",
        actor=Supervisor,
        args=(SupervisorFlags(intensity=1), specs("ab")),
        kind=ChildKind.SUPERVISOR,
    )
    outer = supervise(stage, [inner])
    first = stage.refs(outer)["inner"]
    stage.end(first, "a")
    stage.wait_for(("stop", "a", "boom"), ("start", "a"))
    stage.end(first, "a")
    stage.wait_for(("stop", "a", "boom"), *stops("b"), *starts("a", "b"))
    assert stage.refs(outer)["inner"] is not first
    assert not stage.system.is_alive(first)


def test_end_of_a_significant_child_ends_the_supervisor(stage):
    children = [spec("a"), spec("s", restart=Restart.TRANSIENT, significant=True)]
    flags = {"auto_shutdown": AutoShutdown.ANY_SIGNIFICANT}
    supervisor = supervise(stage, children, **flags)
    stage.end(supervisor, "s", "normal")
    stage.wait_for(("stop", "s", "normal"), *stops("a"))
    wait_until(lambda: not stage.system.is_alive(supervisor))


def test_child_that_hangs_in_its_clean_up_is_killed_when_its_time_is_up(stage):
    children = [spec("a"), spec("h", cleanup="hangs", shutdown_s=1.0)]
    supervisor = supervise(stage, children)
    hanging = stage.refs(supervisor)["h"]
    stage.system.stop(supervisor)
    assert stage.take() == stops("h", "a")
    assert not stage.system.is_alive(hanging)


def test_child_that_does_not_trap_exits_just_ends(stage):
    supervisor = supervise(stage, [spec("a", trap=False)])
    stage.system.stop(supervisor)
    assert stage.take() == []


def test_requests_about_children(stage):
    supervisor = supervise(stage, specs("ab"))
    ask = stage.ask
    started = ask(supervisor, StartChild(spec("c")))
    assert stage.refs(supervisor)["c"] is started
    with pytest.raises(ChildRequestRefused) as caught:
        ask(supervisor, StartChild(spec("c")))
    assert caught.value.ref is started
    ask(supervisor, TerminateChild("b"))
    assert stage.refs(supervisor)["b"] is None
    assert ask(supervisor, RestartChild("b")) is stage.refs(supervisor)["b"]
    ask(supervisor, TerminateChild("a"))
    ask(supervisor, DeleteChild("a"))
    assert list(stage.refs(supervisor)) == ["b", "c"]
    counts = ask(supervisor, CountChildren())
    assert (counts.specs, counts.active, counts.workers) == (2, 2, 2)
    assert ask(supervisor, GetChildSpec("c")) == spec("c")
    stage.plan("d", "no room")
    with pytest.raises(ChildStartFailed) as failed:
        ask(supervisor, StartChild(spec("d")))
    assert failed.value.reason == "no room"


def test_dynamic_children_start_restart_and_stop_together(stage):
    template = ChildSpec(id="worker", actor=spec("x").actor, restart=Restart.TRANSIENT)
    supervisor = supervise(stage, [template], Strategy.SIMPLE_ONE_FOR_ONE)
    refs = [stage.ask(supervisor, StartDynamicChild((label,))) for label in "xyz"]
    assert stage.take() == starts("x", "y", "z")
    stage.system.cast(refs[0], ("stop", "boom"))
    stage.wait_for(("stop", "x", "boom"), ("start", "x"))
    stage.ask(supervisor, TerminateChild(refs[1]))
    assert stage.take() == stops("y")
    stage.system.stop(supervisor)
    assert sorted(stage.take()) == stops("x", "z")


def test_named_child_keeps_its_name_over_a_restart(stage):
    child = ChildSpec(id="n", actor=spec("n").actor, args=("n",), name="the child")
    supervisor = supervise(stage, [child])
    first = stage.system.call("the child", "pid")
    assert isinstance(first, int)
    stage.system.cast("the child", ("stop", "boom"))
    stage.wait_for(("stop", "n", "boom"), ("start", "n"))
    assert stage.system.call("the child", "pid")
    stage.system.stop(supervisor)
    with pytest.raises(ActorDead):
        stage.system.call("the child", "pid")
