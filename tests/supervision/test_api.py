"""Requests to a supervisor with a start order, by the state of the child (OTP §1.9, §1.10)."""

import pytest

from poe.actors import ActorDead, GenServer
from poe.errors import ChildRequestRefused, ChildStartFailed, InvalidChildSpec
from poe.supervision import (
    ChildCounts,
    ChildInfo,
    ChildKind,
    CountChildren,
    DeleteChild,
    GetChildSpec,
    Restart,
    RestartChild,
    StartChild,
    StartDynamicChild,
    SupervisorFlags,
    TerminateChild,
    WhichChildren,
    count_children,
    delete_child,
    get_child_spec,
    restart_child,
    start_child,
    terminate_child,
    which_children,
)
from tests.supervision.workers import Journal

TEMPORARY = Restart.TEMPORARY


def refusal(world, supervisor, request):
    with pytest.raises(ChildRequestRefused) as caught:
        world.ask(supervisor, request)
    return caught.value


# Ported from supervisor_SUITE: child_adm
def test_a_running_child_is_neither_started_restarted_nor_deleted(world):
    supervisor = world.supervise(world.specs("a"))
    ref = world.ref(supervisor, "a")
    started = refusal(world, supervisor, StartChild(world.spec("a")))
    assert (started.why, started.ref) == ("already_started", ref)
    assert refusal(world, supervisor, RestartChild("a")).why == "running"
    assert refusal(world, supervisor, DeleteChild("a")).why == "running"
    assert world.ask(supervisor, GetChildSpec("a")) == world.spec("a")
    assert world.ref(supervisor, "a") == ref


def test_an_idle_child_can_be_restarted_and_deleted_but_not_started_anew(world):
    supervisor = world.supervise(world.specs("ab"))
    assert world.ask(supervisor, TerminateChild("a")) is None
    assert world.slots(supervisor)["a"] is None
    assert world.ask(supervisor, TerminateChild("a")) is None
    assert refusal(world, supervisor, StartChild(world.spec("a"))).why == "already_present"
    assert world.ask(supervisor, GetChildSpec("a")) == world.spec("a")
    ref = world.ask(supervisor, RestartChild("a"))
    assert world.slots(supervisor)["a"] == ref
    assert list(world.slots(supervisor)) == ["a", "b"]
    world.ask(supervisor, TerminateChild("a"))
    assert world.ask(supervisor, DeleteChild("a")) is None
    assert list(world.slots(supervisor)) == ["b"]


@pytest.mark.parametrize("request_type", [TerminateChild, RestartChild, DeleteChild, GetChildSpec])
def test_an_unknown_id_is_not_found_and_neither_is_a_ref(world, request_type):
    supervisor = world.supervise(world.specs("a"))
    assert refusal(world, supervisor, request_type("x")).why == "not_found"
    ref = world.ref(supervisor, "a")
    assert refusal(world, supervisor, request_type(ref)).why == "not_found"


def test_a_started_child_is_last_in_start_order(world):
    supervisor = world.supervise(world.specs("ab"))
    world.ask(supervisor, TerminateChild("a"))
    world.ask(supervisor, DeleteChild("a"))
    ref = world.ask(supervisor, StartChild(world.spec("a")))
    assert world.slots(supervisor)["a"] == ref
    assert list(world.slots(supervisor)) == ["b", "a"]


# Ported from supervisor_SUITE: sup_start_child_returns_error
def test_a_child_that_does_not_start_is_not_kept(world):
    supervisor = world.supervise([])
    world.journal.plans["a"] = ["broken"]
    with pytest.raises(ChildStartFailed) as caught:
        world.ask(supervisor, StartChild(world.spec("a")))
    assert (caught.value.child_id, caught.value.reason) == ("a", "broken")
    assert world.slots(supervisor) == {}


def test_a_taken_name_is_a_failed_start(world):
    supervisor = world.supervise([world.spec("a", name="alpha")])
    with pytest.raises(ChildStartFailed, match="alpha"):
        world.ask(supervisor, StartChild(world.spec("b", name="alpha")))
    assert list(world.slots(supervisor)) == ["a"]


# Ported from supervisor_SUITE: sup_start_restart_child_returns_error
def test_a_child_that_does_not_restart_stays_idle(world):
    supervisor = world.supervise(world.specs("a"))
    world.ask(supervisor, TerminateChild("a"))
    world.journal.plans["a"] = ["broken"]
    with pytest.raises(ChildStartFailed):
        world.ask(supervisor, RestartChild("a"))
    assert world.slots(supervisor) == {"a": None}
    assert world.reason_of(supervisor) is None


# Ported from supervisor_SUITE: sup_start_ignore_temporary_child_start_child
def test_a_started_child_that_ignores_is_kept_unless_temporary(world):
    supervisor = world.supervise([])
    world.journal.plans |= {"a": ["ignore"], "t": ["ignore"]}
    assert world.ask(supervisor, StartChild(world.spec("a"))) is None
    assert world.ask(supervisor, StartChild(world.spec("t", restart=TEMPORARY))) is None
    assert world.slots(supervisor) == {"a": None}


# Ported from supervisor_SUITE: do_not_save_child_specs_for_temporary_children
def test_a_terminated_temporary_child_frees_its_id(world):
    supervisor = world.supervise([world.spec("t", restart=TEMPORARY)])
    world.ask(supervisor, TerminateChild("t"))
    assert world.slots(supervisor) == {}
    assert world.ask(supervisor, StartChild(world.spec("t"))) is not None


# Ported from supervisor_SUITE: do_not_save_start_parameters_for_temporary_children
def test_the_arguments_of_a_started_temporary_child_are_not_kept(world):
    supervisor = world.supervise([world.spec("s", restart=TEMPORARY)])
    world.ask(supervisor, StartChild(world.spec("t", restart=TEMPORARY, cleanup_s=0.0)))
    kept = world.ask(supervisor, GetChildSpec("t"))
    assert (kept.args, kept.kwargs) == ((), {})
    assert isinstance(world.ask(supervisor, GetChildSpec("s")).args[0], Journal)


def test_a_significant_child_is_refused_where_nothing_shuts_down(world):
    supervisor = world.supervise([])
    with pytest.raises(InvalidChildSpec, match="auto_shutdown is NEVER"):
        world.ask(supervisor, StartChild(world.spec("a", restart=TEMPORARY, significant=True)))


def test_dynamic_children_are_refused(world):
    supervisor = world.supervise([])
    assert refusal(world, supervisor, StartDynamicChild()).why == "not_simple_one_for_one"


def test_which_children_lists_in_reverse_start_order_and_count_counts_by_kind(world):
    inner = world.nested("s", SupervisorFlags(), [])
    supervisor = world.supervise([world.spec("a"), inner, world.spec("b")])
    world.ask(supervisor, TerminateChild("a"))
    slots = world.slots(supervisor)
    assert world.ask(supervisor, WhichChildren()) == [
        ChildInfo("b", slots["b"], ChildKind.WORKER),
        ChildInfo("s", slots["s"], ChildKind.SUPERVISOR),
        ChildInfo("a", None, ChildKind.WORKER),
    ]
    counts = ChildCounts(specs=3, active=2, supervisors=1, workers=2)
    assert world.ask(supervisor, CountChildren()) == counts


class KillsThenCounts(GenServer):
    def init(self, supervisor, victim):
        self.supervisor, self.victim = supervisor, victim

    async def handle_call(self, request, caller):
        del request, caller
        # Both are on their way at once: the supervisor counts before it hears of the end.
        self.exit(self.victim, "kill")
        return await self.call(self.supervisor, CountChildren())


def test_a_child_that_has_just_died_is_not_active(world):
    supervisor = world.supervise(world.specs("ab"))
    client = world.base.start(KillsThenCounts, supervisor, world.ref(supervisor, "a"))
    assert world.base.call(client, "go").active == 1


class Administrator(GenServer):
    """Uses every function for callers inside actors once."""

    async def handle_call(self, request, caller):
        del caller
        supervisor, spec = request
        ref = await start_child(self, supervisor, spec)
        [info] = await which_children(self, supervisor)
        assert (info.ref, info.id) == (ref, spec.id)
        assert (await count_children(self, supervisor)).active == 1
        assert await get_child_spec(self, supervisor, spec.id) == spec
        await terminate_child(self, supervisor, spec.id)
        assert await restart_child(self, supervisor, spec.id) != ref
        await terminate_child(self, supervisor, spec.id)
        await delete_child(self, supervisor, spec.id)
        try:
            await delete_child(self, supervisor, spec.id)
        except ChildRequestRefused as refused:
            return refused.why


def test_an_actor_can_ask_for_everything(world):
    supervisor = world.supervise([])
    administrator = world.base.start(Administrator)
    assert world.base.call(administrator, (supervisor, world.spec("a"))) == "not_found"


def test_a_request_to_a_dead_supervisor_fails(world):
    supervisor = world.supervise([])
    world.base.stop(supervisor)
    with pytest.raises(ActorDead):
        world.ask(supervisor, WhichChildren())
