"""Calls that pass the queue: order is kept, and nobody is starved."""

import contextlib
from typing import Any

import pytest

from poe.actors import NO_REPLY, ActorDead, Call, GenServer, LoopSystem, run_queue
from poe.actors.server_cell import cell_of_actor
from poe.testing import SimulatedClock
from tests.actors.puppet import Puppet


class Recorder(GenServer):
    def init(self, log):
        self.log = log

    def handle_call(self, request, caller):
        self.log.append(("call", request))
        return request

    def handle_cast(self, message):
        self.log.append(("cast", message))


class Asker(GenServer):
    """Runs the coroutine function it is given."""

    async def handle_call(self, request, caller):
        return await request(self)


class Link(GenServer):
    """Passes a call on to the next one of a chain."""

    def init(self, following):
        self.following = following

    async def handle_call(self, request, caller):
        return request if self.following is None else await self.call(self.following, request)


def test_a_call_behind_a_cast_to_the_same_actor_comes_second():
    system: Any = LoopSystem(clock=SimulatedClock())
    log: list[tuple[str, object]] = []
    recorder, asker = system.start(Recorder, log), system.start(Asker)

    async def cast_then_call(actor):
        actor.cast(recorder, 1)
        await actor.call(recorder, 2)
        await actor.call(recorder, 3)

    system.call(asker, cast_then_call)
    assert log == [("cast", 1), ("call", 2), ("call", 3)]


def test_a_call_is_answered_even_if_the_reply_is_there_before_it_is_awaited():
    system: Any = LoopSystem(clock=SimulatedClock())
    log: list[tuple[str, object]] = []
    recorder, asker = system.start(Recorder, log), system.start(Asker)

    async def ask_twice(actor):
        first, second = actor.call(recorder, 1), actor.call(recorder, 2)
        return await second, await first

    assert system.call(asker, ask_twice) == (2, 1)
    assert log == [("call", 1), ("call", 2)]


def test_a_chain_of_calls_may_be_longer_than_the_stack():
    system: Any = LoopSystem(clock=SimulatedClock())
    head = None
    for _ in range(2_000):
        head = system.start(Link, head)
    assert system.call(head, "through") == "through"


def test_an_actor_that_calls_in_a_loop_lets_other_messages_through():
    system: Any = LoopSystem(clock=SimulatedClock())
    log: list[tuple[str, object]] = []
    recorder, asker = system.start(Recorder, []), system.start(Asker)
    witness = system.start(Recorder, log)

    async def call_until_the_witness_was_served(actor):
        actor.send_after(0, "tick")
        for count in range(100_000):
            await actor.call(recorder, count)
            if count == 10:
                actor.cast(witness, "now")
            if log:
                return count
        return None

    assert system.call(asker, call_until_the_witness_was_served) < 100_000
    assert log == [("cast", "now")]


def test_calls_that_pass_the_queue_make_a_burst_no_longer_than_it_may_be(monkeypatch):
    """Timers, sockets and other threads wait for the end of a burst."""
    monkeypatch.setattr(run_queue, "_HAND_OVERS_MAX", 50)
    system: Any = LoopSystem(clock=SimulatedClock())
    system.run_queue.burst = (None,) * 100
    log: list[tuple[str, object]] = []
    recorder, asker = system.start(Recorder, log), system.start(Asker)

    async def call_for_ever(actor):
        while True:
            await actor.call(recorder, "again")

    call = Call(call_for_ever, None, asker.cell, None)
    system.run_queue.post_from_outside(asker.cell, call, None)
    assert len(log) <= 50 + 100


def test_who_calls_a_name_until_somebody_has_it_lets_that_one_start():
    system: Any = LoopSystem(clock=SimulatedClock())
    asker = system.start(Asker)
    log: list[tuple[str, object]] = []

    async def call_until_it_is_there(actor):
        await actor.start_link(Starter, log)
        while True:
            with contextlib.suppress(ActorDead):
                return await actor.call("late", "hello")

    assert system.call(asker, call_until_it_is_there) == "hello"
    assert log == [("call", "hello")]


class Starter(GenServer):
    """Starts somebody who has a name, once it has started itself."""

    def init(self, log):
        self.cast(self.ref, log)

    async def handle_cast(self, log):
        await self.start_link(Recorder, log, name="late")


class CallsBack(GenServer):
    """Calls whoever it is told to before it answers."""

    async def handle_call(self, caller_ref, caller):
        return await self.call(caller_ref, "inner")


class AsksForIt(GenServer):
    """Calls or starts another actor that calls it back, in the middle of a plain callback."""

    is_busy = False

    def init(self):
        self.seen_busy: list[bool] = []

    def handle_call(self, request, caller):
        self.seen_busy.append(self.is_busy)
        return self.seen_busy

    def handle_cast(self, act):
        self.is_busy = True
        act(self)
        self.is_busy = False


class CallsFirst(GenServer):
    """Calls whoever starts it."""

    async def init(self):
        assert self.parent is not None
        await self.call(self.parent, "inner")


@pytest.mark.parametrize("way", ["call", "start"])
def test_a_plain_callback_ends_before_its_actor_handles_a_call_that_it_caused(way):
    runtime = LoopSystem(clock=SimulatedClock())
    other, asks = runtime.start(CallsBack), runtime.start(AsksForIt)
    assert other is not None
    assert asks is not None
    if way == "call":
        runtime.cast(asks, lambda actor: actor.call(other, actor.ref))
    else:
        runtime.cast(asks, lambda actor: actor.start_link(CallsFirst))
    assert runtime.call(asks, "outer") == [False, False]
    runtime.shutdown()


def test_a_server_that_calls_nobody_answers_at_once_within_a_plain_callback():
    system: Any = LoopSystem(clock=SimulatedClock())
    log: list[object] = []
    recorder = system.start(Recorder, log)
    done: list[bool] = []

    def ask(puppet):
        done.append(cell_of_actor(puppet).call_leaf(recorder, 1).is_done)
        puppet.cast(recorder, "before the second")
        done.append(cell_of_actor(puppet).call_leaf(recorder, 2).is_done)

    system.cast(system.start(Puppet), ask)
    system.advance(0)
    assert done == [True, False]
    assert log == [("call", 1), ("cast", "before the second"), ("call", 2)]


def test_a_dead_server_fails_the_call_at_once():
    system: Any = LoopSystem(clock=SimulatedClock())
    dead = system.start(Recorder, [])
    system.exit(dead, "kill")
    system.advance(0)
    errors: list[object] = []
    system.cast(
        system.start(Puppet),
        lambda puppet: errors.append(cell_of_actor(puppet).call_leaf(dead, 1).error),
    )
    system.advance(0)
    assert [type(error) for error in errors] == [ActorDead]


class Early(GenServer):
    """Answers before it calls back."""

    def init(self, answers):
        self.answers = answers

    async def handle_call(self, request, caller):
        self.reply(caller, "early")
        self.answers.append(await self.call(request, say_yes))
        return NO_REPLY


async def say_yes(_):
    return "yes"


def test_a_call_back_to_an_actor_that_then_waits_for_nothing_is_served(system):
    """It lay in the mailbox until the actor happened to wait again."""
    answers: list[object] = []
    asker, early = system.start(Asker), system.start(Early, answers)

    async def ask(actor):
        return await actor.call(early, actor.ref)

    assert system.call(asker, ask) == "early"
    assert answers == ["yes"]


class Small(Asker):
    mailbox_max = 3

    def init(self):
        self.heard = 0

    def handle_cast(self, message):
        self.heard += 1


class Gossip(GenServer):
    def handle_call(self, request, caller):
        self.cast(request, "by the way")


def test_what_comes_to_an_actor_that_waits_for_nothing_takes_no_room_for_ever(system):
    small, gossip = system.start(Small), system.start(Gossip)

    async def ask(actor):
        await actor.call(gossip, actor.ref)

    for _ in range(10):
        system.call(small, ask)
    assert system.get_state(small) == {"heard": 10}
