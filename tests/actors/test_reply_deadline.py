"""A reply that is late fails its call, however many came in time before it."""

import gc
from typing import Any

import pytest

from poe.actors import NO_REPLY, Call, CallTimeout
from poe.actors.reply_deadline import ReplyDeadline
from tests.actors.puppet import Gate, Puppet


@pytest.fixture
def server(system):
    return system.start(Puppet)


def never(_puppet, _caller):
    return NO_REPLY


def ask(server, deadline, log, requests):
    """Have an actor call `server` with each of the requests, and note how and when that ends."""

    async def ask_all(puppet):
        for request in requests:
            call = puppet.call(server, request, None)
            try:
                answer = await deadline.wait(call)
            except CallTimeout as error:
                answer = str(error)
            log.append((puppet.monotonic_s(), answer))
            await puppet.sleep(0.4)

    return ask_all


def test_each_call_has_the_whole_time(system, server):
    log: list[Any] = []
    requests = [lambda *_: "at once", never, never]
    system.cast(system.start(Puppet), ask(server, ReplyDeadline(1.0), log, requests))
    system.advance(1.39)
    assert log == [(0.0, "at once")]
    system.advance(10)
    refusal = f"{server} did not answer within 1.0 s; the work may have been done"
    assert log[1:] == [(pytest.approx(1.4), refusal), (pytest.approx(2.8), refusal)]


def test_one_timer_serves_many_calls(system):
    gate = system.start(Gate)
    log: list[Any] = []
    system.cast(system.start(Puppet), ask(gate, ReplyDeadline(1.0), log, ["wait"] * 5))
    timers = []
    for _ in range(5):
        system.advance(0.3)
        system.cast(gate, "late")
        timers.append(len(system.run_queue.timers))
        system.advance(0.4)
    assert [said for _, said in log] == ["late"] * 5
    assert timers == [2] * 5  # with the one for the pause between two calls
    system.advance(1)
    assert len(system.run_queue.timers) == 0


def test_without_a_time_it_waits_for_ever(system, server):
    log: list[Any] = []
    system.cast(system.start(Puppet), ask(server, ReplyDeadline(None), log, [never]))
    system.advance(1_000_000)
    assert log == []


def test_nothing_is_kept_of_a_call_that_is_done(system):
    """It refers to its request, and that to what a client has put, be it many MiB."""
    gate = system.start(Gate)
    deadline = ReplyDeadline(30.0)
    log: list[Any] = []
    system.cast(system.start(Puppet), ask(gate, deadline, log, ["wait"]))
    system.cast(gate, "late")
    system.advance(1)
    assert [said for _, said in log] == ["late"]
    calls = [each for each in gc.get_objects() if isinstance(each, Call) and each.is_done]
    assert [call for call in calls if call.request == "wait"] == []
