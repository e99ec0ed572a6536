"""simple_one_for_one: many instances of one template (OTP §1.11 and its column of §1.9)."""

import pytest

from poe.actors import GenServer
from poe.errors import ChildRequestRefused, ChildStartFailed, InvalidChildSpec
from poe.supervision import (
    RESTARTING,
    AutoShutdown,
    ChildCounts,
    ChildSpec,
    CountChildren,
    DeleteChild,
    GetChildSpec,
    Restart,
    RestartChild,
    StartChild,
    StartDynamicChild,
    Strategy,
    TerminateChild,
    WhichChildren,
    start_dynamic_child,
)
from tests.supervision.workers import HANGS, Client, Worker

TRANSIENT, TEMPORARY = Restart.TRANSIENT, Restart.TEMPORARY


def template(world, restart=Restart.PERMANENT, **fields):
    return ChildSpec(id="template", actor=Worker, args=(world.journal,), restart=restart, **fields)


@pytest.fixture
def supervise(world):
    def start(restart=Restart.PERMANENT, flags=(), **fields):
        return world.supervise(
            [template(world, restart, **fields)], Strategy.SIMPLE_ONE_FOR_ONE, **dict(flags)
        )

    return start


def start(world, supervisor, label, **options):
    return world.ask(supervisor, StartDynamicChild((label,), options))


def refs(world, supervisor):
    return [child.ref for child in world.ask(supervisor, WhichChildren())]


# Ported from supervisor_SUITE: simple_one_for_one
def test_instances_start_with_their_own_arguments_and_restart_with_the_same(world, supervise):
    supervisor = supervise()
    first, second = start(world, supervisor, "x"), start(world, supervisor, "y")
    world.base.cast(first, ("stop", "boom"))
    assert [event[:2] for event in world.journal.take()] == [
        ("start", "x"),
        ("start", "y"),
        ("stop", "x"),
        ("start", "x"),
    ]
    assert first not in refs(world, supervisor)
    assert second in refs(world, supervisor)
    counts = ChildCounts(specs=1, active=2, supervisors=0, workers=2)
    assert world.ask(supervisor, CountChildren()) == counts


@pytest.mark.parametrize(("restart", "reason"), [(TEMPORARY, "boom"), (TRANSIENT, "normal")])
def test_instances_that_are_not_restarted_vanish(world, supervise, restart, reason):
    supervisor = supervise(restart)
    world.base.cast(start(world, supervisor, "x"), ("stop", reason))
    assert refs(world, supervisor) == []


def test_the_intensity_holds_for_all_instances_together(world, supervise):
    supervisor = supervise(flags={"intensity": 1})
    x, y, _z = (start(world, supervisor, label) for label in "xyz")
    world.base.cast(x, ("stop", "boom"))
    assert world.reason_of(supervisor) is None
    world.base.cast(y, ("stop", "boom"))
    assert world.reason_of(supervisor) == "shutdown"


# Ported from supervisor_SUITE: child_adm_simple
def test_requests_take_refs_and_refuse_ids(world, supervise):
    supervisor = supervise()
    ref = start(world, supervisor, "x")
    for request in (
        StartChild(world.spec("a")),
        TerminateChild("template"),
        RestartChild("template"),
        DeleteChild("template"),
    ):
        with pytest.raises(ChildRequestRefused, match="simple_one_for_one"):
            world.ask(supervisor, request)
    assert world.ask(supervisor, GetChildSpec(ref)).id == "template"
    assert world.ask(supervisor, GetChildSpec("template")).id == "template"
    assert world.ask(supervisor, TerminateChild(ref)) is None
    assert world.ask(supervisor, TerminateChild(ref)) is None
    assert refs(world, supervisor) == []
    with pytest.raises(ChildRequestRefused, match="not_found"):
        world.ask(supervisor, TerminateChild(world.coroner))
    assert world.ask(supervisor, GetChildSpec(ref)).id == "template"
    for stranger in (world.coroner, "x"):
        with pytest.raises(ChildRequestRefused, match="not_found"):
            world.ask(supervisor, GetChildSpec(stranger))


# Ported from supervisor_SUITE: sup_start_child_returns_error_simple
def test_an_instance_that_fails_or_ignores_is_not_kept(world, supervise):
    supervisor = supervise()
    world.journal.plans["x"] = ["broken", "ignore"]
    with pytest.raises(ChildStartFailed, match="broken"):
        start(world, supervisor, "x")
    assert start(world, supervisor, "x") is None
    assert refs(world, supervisor) == []


def test_keywords_that_cannot_start_an_actor_are_refused_at_the_caller():
    with pytest.raises(InvalidChildSpec, match="without 'name'"):
        StartDynamicChild(kwargs={"name": "x"})


# Ported from supervisor_SUITE: hanging_restart_loop_simple, count_restarting_children
def test_the_dead_ref_is_the_handle_of_a_restarting_instance(world, supervise):
    supervisor = supervise(flags={"intensity": 5})
    ref = start(world, supervisor, "x")
    world.journal.plans["x"] = ["broken"] * 10
    requests = [WhichChildren(), CountChildren(), GetChildSpec(ref), TerminateChild(ref)]
    world.journal.witness = client = world.base.start(Client, supervisor, requests)
    world.base.cast(ref, ("stop", "boom"))
    which, counts, spec, terminated = world.base.call(client, "answers")
    assert [child.ref for child in which] == [RESTARTING]
    assert counts == ChildCounts(specs=1, active=0, supervisors=0, workers=1)
    assert (spec.id, terminated) == ("template", None)
    assert world.journal.events.count(("fail", "x")) == 1
    assert refs(world, supervisor) == []


# Ported from supervisor_SUITE: simple_one_for_one_escalation
def test_an_instance_that_never_restarts_ends_the_supervisor(world, supervise):
    supervisor = supervise(flags={"intensity": 3})
    x, y = start(world, supervisor, "x"), world.watch(start(world, supervisor, "y"))
    world.journal.plans["x"] = ["broken"] * 10
    world.base.cast(x, ("stop", "boom"))
    assert world.journal.events.count(("fail", "x")) == 3
    assert (world.reason_of(supervisor), world.reason_of(y)) == ("shutdown", "shutdown")


def test_an_instance_is_retried_until_it_starts(world, supervise):
    supervisor = supervise(flags={"intensity": 3})
    world.base.cast(start(world, supervisor, "x"), ("stop", "boom"))
    world.journal.plans["x"] = ["broken", "broken"]
    world.base.advance(10)
    world.base.cast(refs(world, supervisor)[0], ("stop", "boom"))
    assert world.ask(supervisor, CountChildren()).active == 1
    assert world.journal.events.count(("fail", "x")) == 2


# erlang/otp #8215: OTP 25 keeps a phantom here and crashes at shutdown
def test_an_instance_whose_restart_ignores_is_dropped(world, supervise):
    supervisor = supervise()
    ref = start(world, supervisor, "x")
    world.journal.plans["x"] = ["ignore"]
    world.base.cast(ref, ("stop", "boom"))
    assert world.ask(supervisor, CountChildren()).workers == 0
    world.base.stop(supervisor, "shutdown")
    assert world.reason_of(supervisor) == "shutdown"


# Ported from supervisor_SUITE: simple_one_for_one_shutdown
def test_instances_clean_up_side_by_side(world, supervise):
    supervisor = supervise()
    for label in "xyz":
        start(world, supervisor, label, cleanup_s=2.0)
    world.base.exit(supervisor, "shutdown")
    world.base.advance(2.0)
    assert [event[0] for event in world.journal.take()][-3:] == ["clean"] * 3
    assert world.reason_of(supervisor) == "shutdown"


# Ported from supervisor_SUITE: sup_stop_timeout_dynamic
def test_instances_that_hang_are_killed_at_one_shared_deadline(world, supervise):
    supervisor = supervise(shutdown_s=3.0)
    hung = [world.watch(start(world, supervisor, each, cleanup_s=HANGS)) for each in "xyz"]
    quick = world.watch(start(world, supervisor, "q"))
    world.base.exit(supervisor, "shutdown")
    world.base.advance(2.9)
    assert (world.reason_of(quick), world.reason_of(hung[0])) == ("shutdown", None)
    world.base.advance(0.2)
    assert [world.reason_of(ref) for ref in hung] == ["killed"] * 3
    assert world.reason_of(supervisor) == "shutdown"


# Ported from supervisor_SUITE: sup_stop_brutal_kill_dynamic
def test_brutal_kill_kills_all_instances(world, supervise):
    supervisor = supervise(shutdown_s="brutal_kill")
    instances = [world.watch(start(world, supervisor, str(n))) for n in range(10)]
    world.journal.take()
    world.base.exit(supervisor, "shutdown")
    assert [world.reason_of(ref) for ref in instances] == ["killed"] * 10
    assert world.journal.take() == []


# Ported from supervisor_SUITE: significant_simple
@pytest.mark.parametrize(
    ("mode", "lives"),
    [(AutoShutdown.ANY_SIGNIFICANT, False), (AutoShutdown.ALL_SIGNIFICANT, True)],
)
def test_a_significant_template_ends_with_its_first_or_last_instance(world, supervise, mode, lives):
    supervisor = supervise(TEMPORARY, flags={"auto_shutdown": mode}, significant=True)
    x, y = start(world, supervisor, "x"), start(world, supervisor, "y")
    world.base.cast(x, ("stop", "normal"))
    assert (world.reason_of(supervisor) is None) is lives
    world.base.cast(y, ("stop", "normal"))
    assert world.reason_of(supervisor) == "shutdown"


class Starter(GenServer):
    async def handle_call(self, request, caller):
        del caller
        return await start_dynamic_child(self, request, "x", cleanup_s=0.0)


def test_an_actor_can_start_an_instance(world, supervise):
    supervisor = supervise()
    ref = world.base.call(world.base.start(Starter), supervisor)
    assert refs(world, supervisor) == [ref]


class Crowd(GenServer):
    """Starts many instances, then crashes every second one."""

    async def handle_call(self, request, caller):
        del caller
        supervisor, count = request
        refs = [await start_dynamic_child(self, supervisor, n) for n in range(count)]
        for ref in refs[::2]:
            assert ref is not None
            self.exit(ref, "boom")
        return len(set(refs))


class Quiet(GenServer):
    def init(self, number):
        self.number = number


# Ported from supervisor_SUITE: simple_one_for_one_scale_many_temporary_children, count_children
@pytest.mark.slow
def test_ten_thousand_instances_start_crash_and_stop(world):
    spec = ChildSpec(id="quiet", actor=Quiet, restart=TEMPORARY)
    supervisor = world.supervise([spec], Strategy.SIMPLE_ONE_FOR_ONE)
    crowd = world.base.start(Crowd)
    assert world.base.call(crowd, (supervisor, 10_000), timeout_s=60) == 10_000
    assert world.ask(supervisor, CountChildren()).active == 5_000
    last = world.watch(refs(world, supervisor)[-1])
    world.base.exit(supervisor, "shutdown")
    assert (world.reason_of(supervisor), world.reason_of(last)) == ("shutdown", "shutdown")


def test_one_instance_more_than_max_children_is_refused_and_told_the_way_out(world, supervise):
    supervisor = supervise(flags={"max_children": 2, "intensity": 10})
    x, _ = start(world, supervisor, "x"), start(world, supervisor, "y")
    with pytest.raises(ChildRequestRefused, match="max_children; terminate another one") as error:
        start(world, supervisor, "z")
    assert error.value.why == "max_children"
    world.base.cast(x, ("stop", "boom"))  # its restart is no second child
    assert world.ask(supervisor, CountChildren()).active == 2
    with pytest.raises(ChildRequestRefused, match="max_children"):
        start(world, supervisor, "z")
    world.ask(supervisor, TerminateChild(refs(world, supervisor)[0]))
    start(world, supervisor, "z")


def test_an_instance_that_fails_to_start_takes_no_place(world, supervise):
    supervisor = supervise(flags={"max_children": 1})
    world.journal.plans["x"] = ["broken", "ignore"]
    with pytest.raises(ChildStartFailed):
        start(world, supervisor, "x")
    assert start(world, supervisor, "x") is None
    assert start(world, supervisor, "x") is not None
