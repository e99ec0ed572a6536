"""Children whose spec has a start function of its own (OTP §1.2)."""

from dataclasses import replace

import pytest

from poe.actors import ActorRef, StartFailed
from poe.errors import ChildStartFailed
from poe.supervision import (
    ChildSpec,
    Restart,
    RestartChild,
    StartChild,
    StartDynamicChild,
    Started,
    Strategy,
    TerminateChild,
    WhichChildren,
)
from tests.supervision.workers import Client, Worker


def spec_with(world, start, label="a", **options):
    return replace(world.spec(label, **options), start=start)


async def start_with_info(supervisor, actor, *args, name, **kwargs):
    return Started(await supervisor.start_link(actor, *args, name=name, **kwargs), "port 80")


async def start_nothing(supervisor, actor, *args, name, **kwargs):
    return None


async def start_junk(supervisor, actor, *args, name, **kwargs):
    return "junk"


async def start_junk_with_info(supervisor, actor, *args, name, **kwargs):
    return Started("junk", "port 80")


async def start_nothing_with_info(supervisor, actor, *args, name, **kwargs):
    return Started(None, "port 80")


async def start_raising(supervisor, actor, *args, name, **kwargs):
    msg = "no room"
    raise OSError(msg)


class Foreign:
    """What another framework awaits."""

    def __await__(self):
        yield self


async def start_by_another_framework(supervisor, actor, *args, name, **kwargs):
    await Foreign()


async def start_refusing(supervisor, actor, *args, name, **kwargs):
    raise StartFailed("later")


# Ported from supervisor_SUITE: extra_return
def test_what_a_start_function_tells_is_part_of_the_answer(world):
    supervisor = world.supervise([])
    spec = spec_with(world, start_with_info)
    started = world.ask(supervisor, StartChild(spec))
    assert started == Started(world.ref(supervisor, "a"), "port 80")
    world.ask(supervisor, TerminateChild("a"))
    assert world.ask(supervisor, RestartChild("a")).info == "port 80"
    world.journal.take()
    assert world.end(supervisor, "a") == [("stop", "a", "boom"), ("start", "a")]
    assert world.base.is_alive(world.ref(supervisor, "a"))


# Ported from supervisor_SUITE: simple_one_for_one_extra
def test_a_dynamic_child_tells_it_too_and_is_restarted(world):
    template = spec_with(world, start_with_info)
    supervisor = world.supervise([template], Strategy.SIMPLE_ONE_FOR_ONE)
    started = world.ask(supervisor, StartDynamicChild())
    assert started.info == "port 80"
    world.base.cast(started.ref, ("stop", "boom"))
    assert world.journal.take()[-1] == ("start", "a")


def test_none_is_kept_as_a_child_that_does_not_run(world):
    supervisor = world.supervise([spec_with(world, start_nothing)])
    assert world.slots(supervisor) == {"a": None}


def test_a_temporary_child_that_does_not_run_is_not_kept_whatever_else_is_told(world):
    supervisor = world.supervise([])
    spec = spec_with(world, start_nothing_with_info, restart=Restart.TEMPORARY)
    for _ in range(2):
        assert world.ask(supervisor, StartChild(spec)) is None
    assert world.slots(supervisor) == {}


def test_one_actor_that_is_given_to_two_children_ends_with_the_first_that_stops(world):
    shared: list[ActorRef] = []

    async def start_once(supervisor, actor, *args, name, **kwargs):
        if not shared:
            shared.append(await supervisor.start_link(actor, *args, name=name, **kwargs))
        return shared[0]

    specs = [world.spec("x"), spec_with(world, start_once), spec_with(world, start_once, "b")]
    supervisor = world.supervise(specs)
    for child in "ab":
        world.ask(supervisor, TerminateChild(child))
        assert not world.base.is_alive(shared[0])
    assert world.base.is_alive(world.ref(supervisor, "x"))


@pytest.mark.parametrize(
    ("start", "reason"),
    [
        (start_junk, "'junk'"),
        (start_junk_with_info, "'junk'"),
        (start_raising, "OSError"),
        (start_refusing, "later"),
        (start_by_another_framework, "awaits calls, wait_down and sleep, not Foreign"),
    ],
)
def test_whatever_else_comes_is_a_failed_start(world, start, reason):
    supervisor = world.supervise([])
    with pytest.raises(ChildStartFailed, match=reason):
        world.ask(supervisor, StartChild(spec_with(world, start)))
    assert world.slots(supervisor) == {}


class SlowWorker(Worker):
    async def init(self, journal, label, **options):
        await self.sleep(3)
        return super().init(journal, label, **options)


def test_a_child_that_starts_too_slowly_is_killed_and_has_failed_to_start(world):
    supervisor = world.supervise([])
    spec = ChildSpec(
        id="slow", actor=SlowWorker, args=(world.journal, "slow"), start_timeout_s=2, name="slow"
    )
    asker = world.base.start(Client, supervisor, [StartChild(spec)])
    world.base.cast(asker, "go")
    world.base.advance(2)
    [failure] = world.base.call(asker, "answers")
    assert (type(failure), failure.reason) == (ChildStartFailed, "timeout")
    assert world.base.whereis("slow") is None
    assert world.ask(supervisor, WhichChildren()) == []
    world.base.advance(10)
    assert world.journal.take() == []


def test_a_child_that_starts_in_time_runs(world):
    supervisor = world.supervise([])
    spec = ChildSpec(id="slow", actor=SlowWorker, args=(world.journal, "slow"), start_timeout_s=4)
    asker = world.base.start(Client, supervisor, [StartChild(spec)])
    world.base.cast(asker, "go")
    world.base.advance(10)
    [ref] = world.base.call(asker, "answers")
    assert world.base.is_alive(ref)
