"""A running supervisor that is given other flags and specs (OTP §1.16)."""

from dataclasses import replace

import pytest

from poe.actors import IGNORE, GenServer
from poe.actors.message import SystemRequest
from poe.errors import InvalidChildSpec
from poe.supervision import (
    AutoShutdown,
    Backoff,
    GetChildSpec,
    Restart,
    RestartChild,
    StartDynamicChild,
    Strategy,
    Supervisor,
    SupervisorFlags,
)

FLAGS = SupervisorFlags()


class Reconfigured(Supervisor):
    """Takes its configuration from a list that a test changes."""

    def configure(self, shelf):
        return shelf[0]


@pytest.fixture
def shelf():
    return []


def start(world, shelf, flags, specs):
    shelf[:] = [(flags, specs)]
    supervisor = world.watch(world.base.start(Reconfigured, shelf))
    world.journal.take()
    return supervisor


def change(world, shelf, supervisor, configuration):
    shelf[:] = [configuration]
    world.base.suspend(supervisor)
    try:
        world.base.change_code(supervisor)
    finally:
        world.base.resume(supervisor)


# Ported from supervisor_SUITE: code_change
def test_children_are_merged_by_id_and_none_is_started_or_stopped(world, shelf):
    supervisor = start(world, shelf, FLAGS, world.specs("abc"))
    before = world.slots(supervisor)
    new = [world.spec("c", restart=Restart.TRANSIENT), world.spec("d"), world.spec("a")]
    change(world, shelf, supervisor, (FLAGS, new))
    after = {"c": before["c"], "d": None, "a": before["a"], "b": before["b"]}
    assert list(world.slots(supervisor).items()) == list(after.items())
    assert world.journal.take() == []
    assert world.ask(supervisor, GetChildSpec("c")).restart is Restart.TRANSIENT
    world.ask(supervisor, RestartChild("d"))
    assert world.journal.take() == [("start", "d")]
    assert world.end(supervisor, "c", "normal") == [("stop", "c", "normal")]


def test_the_new_flags_count_the_old_restarts(world, shelf):
    supervisor = start(world, shelf, SupervisorFlags(intensity=5), world.specs("a"))
    for _ in range(2):
        world.end(supervisor, "a")
    change(world, shelf, supervisor, (SupervisorFlags(intensity=2), world.specs("a")))
    world.end(supervisor, "a")
    assert world.reason_of(supervisor) == "shutdown"


def test_the_new_strategy_decides_at_the_next_crash(world, shelf):
    supervisor = start(world, shelf, FLAGS, world.specs("ab"))
    flags = SupervisorFlags(strategy=Strategy.ONE_FOR_ALL)
    change(world, shelf, supervisor, (flags, world.specs("ab")))
    assert world.end(supervisor, "a")[-2:] == [("start", "a"), ("start", "b")]


def test_ignore_changes_nothing(world, shelf):
    supervisor = start(world, shelf, FLAGS, world.specs("ab"))
    before = world.slots(supervisor)
    change(world, shelf, supervisor, IGNORE)
    assert world.slots(supervisor) == before


# Ported from supervisor_SUITE: code_change, significant_upgrade_child
def test_a_faulty_configuration_is_refused_as_a_whole(world, shelf):
    auto = SupervisorFlags(auto_shutdown=AutoShutdown.ANY_SIGNIFICANT, intensity=0)
    significant = world.spec("a", restart=Restart.TRANSIENT, significant=True)
    supervisor = start(world, shelf, auto, [significant])
    with pytest.raises(InvalidChildSpec, match="auto_shutdown is NEVER"):
        change(world, shelf, supervisor, (SupervisorFlags(intensity=9), [significant]))
    world.end(supervisor, "a")
    assert world.reason_of(supervisor) == "shutdown"


# Ported from supervisor_SUITE: code_change_simple
def test_a_template_may_change_but_not_the_number_of_templates(world, shelf):
    dynamic = SupervisorFlags(strategy=Strategy.SIMPLE_ONE_FOR_ONE)
    supervisor = start(world, shelf, dynamic, [world.spec("a")])
    ref = world.ask(supervisor, StartDynamicChild())
    change(world, shelf, supervisor, (dynamic, [world.spec("b", restart=Restart.TEMPORARY)]))
    assert world.base.is_alive(ref)
    assert world.ask(supervisor, GetChildSpec(ref)).id == "b"
    with pytest.raises(InvalidChildSpec, match="exactly 1"):
        change(world, shelf, supervisor, (dynamic, world.specs("ab")))


@pytest.mark.parametrize(("first", "second"), [(0, 1), (1, 0)])
def test_children_with_ids_do_not_become_dynamic_nor_the_other_way(world, shelf, first, second):
    flags = [FLAGS, SupervisorFlags(strategy=Strategy.SIMPLE_ONE_FOR_ONE)]
    supervisor = start(world, shelf, flags[first], world.specs("a"))
    with pytest.raises(InvalidChildSpec, match="cannot change"):
        change(world, shelf, supervisor, (flags[second], world.specs("a")))


BACKOFF = Backoff(first_s=5)


@pytest.mark.parametrize("outcome", ["ok", "ignore", "boom"])
@pytest.mark.parametrize("strategy", list(Strategy)[:3])
@pytest.mark.parametrize("new_backoff", [None, BACKOFF])
def test_a_child_that_becomes_temporary_while_it_waits_harms_nobody(
    world, shelf, strategy, outcome, new_backoff
):
    before = SupervisorFlags(strategy=strategy, intensity=5, backoff=BACKOFF)
    supervisor = start(world, shelf, before, world.specs("abc"))
    world.end(supervisor, "c")
    world.journal.plans["c"] = [outcome]
    specs = [*world.specs("ab"), world.spec("c", restart=Restart.TEMPORARY)]
    change(world, shelf, supervisor, (replace(before, backoff=new_backoff), specs))
    world.base.advance(60)
    slots = world.slots(supervisor)
    is_started = strategy is Strategy.ONE_FOR_ONE and outcome != "ignore"
    assert list(slots) == (["a", "b", "c"] if is_started else ["a", "b"])
    assert all(world.base.is_alive(ref) for ref in slots.values())


class Changer(GenServer):
    """Gives a supervisor its new configuration when a start has failed, before the next try."""

    def init(self, supervisor):
        self.supervisor = supervisor

    async def handle_cast(self, message):
        for op in ("suspend", "change_code", "resume"):
            await self.call(self.supervisor, SystemRequest(op))


@pytest.mark.parametrize("strategy", [Strategy.REST_FOR_ONE, Strategy.ONE_FOR_ALL])
def test_so_it_does_between_two_tries_of_a_group(world, shelf, strategy):
    flags = SupervisorFlags(strategy=strategy, intensity=5)
    supervisor = start(world, shelf, flags, world.specs("ab"))
    world.journal.plans["a"] = ["boom"]
    temporary = [world.spec("a", restart=Restart.TEMPORARY), world.spec("b")]
    shelf[:] = [(replace(flags, backoff=BACKOFF), temporary)]
    changer = world.base.start(Changer, supervisor)
    world.journal.witness = changer
    world.end(supervisor, "a")
    world.base.advance(60)
    assert list(world.slots(supervisor)) == ["b"]
    assert world.base.is_alive(world.ref(supervisor, "b"))


# Checked against OTP 25, as a sequence of its driver.
def test_a_dynamic_child_without_its_arguments_cannot_be_restarted(world, shelf):
    flags = SupervisorFlags(strategy=Strategy.SIMPLE_ONE_FOR_ONE, intensity=4)
    supervisor = start(world, shelf, flags, [world.spec("a", restart=Restart.TEMPORARY)])
    ref, sibling = (world.ask(supervisor, StartDynamicChild()) for _ in range(2))
    change(world, shelf, supervisor, (flags, world.specs("a")))
    world.base.exit(ref, "kill")
    assert world.reason_of(supervisor) == "shutdown"
    assert not world.base.is_alive(sibling)
