"""Calls: who answers, how, and what the caller gets when nobody does."""

from typing import Any

import pytest

from poe.actors import NO_REPLY, TIMED_OUT, ActorDead, CallTimeout, Error, GenServer, Stop
from poe.errors import NameTaken
from tests.actors.puppet import Puppet, in_actor, log_of


class Echo(GenServer):
    def handle_call(self, request, caller):
        del caller
        return request


class Late(GenServer):
    """Answers each call when it is told to."""

    def init(self):
        self.waiting = []
        self.handled = 0

    def handle_call(self, request, caller):
        del request
        self.handled += 1
        self.waiting.append(caller)
        return NO_REPLY

    def handle_cast(self, message):
        for caller in self.waiting:
            self.reply(caller, message)
        self.waiting = []

    def handle_info(self, message):
        for caller in self.waiting:
            self.reply_error(caller, message)


def start_caller(system, server, timeout_s=5.0, log=None):
    """Start a puppet that calls `server`; its log tells what came of it."""

    async def call(puppet):
        try:
            puppet.log.append(("reply", await puppet.call(server, "request", timeout_s)))
        except (ActorDead, CallTimeout) as error:
            puppet.log.append(("error", error))

    ref = system.start(Puppet, log)
    system.cast(ref, call)
    return ref


@pytest.mark.parametrize("value", [1, None, "text", (), [1, 2]])
def test_a_call_returns_what_handle_call_returns(system, value):
    assert system.call(system.start(Echo), value) == value


def test_an_actor_gets_the_reply_of_another_actor(system):
    echo = system.start(Echo)

    async def ask(puppet):
        return await puppet.call(echo, 7)

    assert in_actor(system, ask) == 7


def test_two_calls_of_one_actor_run_side_by_side_and_are_awaited_in_any_order(system):
    first, second = system.start(Echo), system.start(Echo)

    async def ask(puppet):
        call_1, call_2 = puppet.call(first, 1), puppet.call(second, 2)
        return [await call_2, await call_1, await call_1]

    assert in_actor(system, ask) == [2, 1, 1]


def test_a_call_by_name_reaches_the_actor_of_that_name(system):
    system.start(Echo, name="echo")
    assert system.call("echo", 1) == 1

    async def ask(puppet):
        return await puppet.call("echo", 2)

    assert in_actor(system, ask) == 2


def test_a_reply_may_come_after_the_callback_has_returned(system):
    server = system.start(Late)
    caller = start_caller(system, server)
    assert system.get_state(server)["handled"] == 1
    system.cast(server, "now")
    assert log_of(system, caller) == [("reply", "now")]


def test_an_application_thread_gets_a_late_reply_too(live):
    server = live.start(Late)
    puppet = live.start(Puppet)

    def answer(me):
        me.cast(server, "now")

    live.call(puppet, lambda me, _: me.send_after(0.001, answer) and None)
    assert live.call(server, "request") == "now"


def test_an_error_reply_is_raised_at_the_caller_and_the_server_lives_on(system):
    server = system.start(Puppet)
    with pytest.raises(NameTaken):
        system.call(server, lambda *_: Error(NameTaken("x", None)))
    assert system.call(server, lambda *_: 1) == 1


def test_a_late_error_is_raised_at_the_caller(system):
    server = system.start(Late)
    caller = start_caller(system, server)
    error = ActorDead("x", "y")
    in_actor(system, lambda puppet: server.cell.post(error, puppet.ref))
    assert log_of(system, caller) == [("error", error)]


def test_stop_with_a_reply_terminates_first_and_answers_then(system):
    log: list[Any] = []
    server = system.start(Puppet, log)

    async def ask(puppet):
        log.append(("reply", await puppet.call(server, lambda *_: Stop("done", reply=5))))

    in_actor(system, ask)
    assert log == [("terminate", "done"), ("reply", 5)]
    assert not system.is_alive(server)


def test_stop_with_a_reply_answers_even_when_terminate_crashes(system):
    def crash(_):
        raise ValueError

    server = system.start(Puppet, on_terminate=crash)
    assert system.call(server, lambda *_: Stop("done", reply=5)) == 5


def test_stop_without_a_reply_fails_the_call_with_the_reason(system):
    with pytest.raises(ActorDead) as caught:
        system.call(system.start(Puppet), lambda *_: Stop("normal"))
    assert caught.value.reason == "normal"


def test_a_crash_fails_the_call_with_the_exception_as_reason(system):
    boom = ValueError("boom")

    def crash(*_):
        raise boom

    with pytest.raises(ActorDead) as caught:
        system.call(system.start(Puppet), crash)
    assert caught.value.reason is boom


def test_calls_behind_the_one_that_ends_the_server_learn_the_reason(system):
    server = system.start(Puppet)

    async def ask(puppet):
        # What is queued before them keeps the calls in the queue, too.
        puppet.cast(server, lambda *_: None)
        calls = [puppet.call(server, lambda *_: Stop("enough")) for _ in range(3)]
        return [await reason_of(call) for call in calls]

    assert in_actor(system, ask) == ["enough", "enough", "enough"]
    with pytest.raises(ActorDead) as caught:
        system.call(server, "too late")
    assert caught.value.reason == "noproc"


async def reason_of(call):
    try:
        await call
    except ActorDead as error:
        return error.reason
    return "answered"


def test_a_call_that_waits_for_a_late_reply_fails_when_the_server_ends(system):
    server = system.start(Late)
    caller = start_caller(system, server)
    system.exit(server, "killed by test")
    ((_, error),) = log_of(system, caller)
    assert error.reason == "killed by test"


def test_a_call_times_out_when_its_time_is_over_and_not_before(system):
    log: list[Any] = []
    start_caller(system, system.start(Late), timeout_s=2.0, log=log)
    system.advance(1.999)
    assert log == []
    system.advance(0.001)
    ((_, error),) = log
    assert isinstance(error, CallTimeout)
    assert error.timeout_s == 2.0


def test_a_call_of_an_application_thread_times_out(live):
    server = live.start(Late)
    with pytest.raises(CallTimeout):
        live.call(server, "request", timeout_s=0.01)
    assert live.is_alive(server)


def test_a_late_reply_after_a_timeout_is_dropped(system):
    server = system.start(Late)
    caller = start_caller(system, server, timeout_s=1.0)
    system.advance(1.0)
    system.cast(server, "late")
    assert [kind for kind, _ in log_of(system, caller)] == ["error"]


def test_a_second_reply_is_dropped(system):
    def twice(puppet, caller):
        puppet.reply(caller, "first")
        puppet.reply(caller, "second")
        return "third"

    assert system.call(system.start(Puppet), twice) == "first"


def test_a_request_whose_call_timed_out_is_still_handled(system):
    server = system.start(Late)
    system.suspend(server)
    caller = start_caller(system, server, timeout_s=1.0)
    system.advance(1.0)
    assert [kind for kind, _ in log_of(system, caller)] == ["error"]
    system.resume(server)
    assert system.get_state(server)["handled"] == 1


def test_a_dead_actor_an_unknown_name_and_itself_cannot_be_called(system):
    dead = system.start(Puppet)
    system.stop(dead)

    async def ask(puppet):
        targets = (dead, "nobody", puppet.ref)
        return [await reason_of(puppet.call(target, "request")) for target in targets]

    assert in_actor(system, ask) == ["noproc", "noproc", "calling_self"]
    with pytest.raises(ActorDead):
        system.call("nobody", "request")


def test_a_reply_for_a_caller_that_has_ended_is_dropped(system):
    server = system.start(Late)
    caller = start_caller(system, server)
    system.exit(caller, "gone")
    system.cast(server, "late")
    assert system.is_alive(server)


# Ported from gen_server_SUITE: send_request
def test_a_response_may_be_waited_for_again_and_again(system):
    log: list[object] = []
    server = system.start(Late)

    async def ask(puppet):
        call = puppet.call(server, "question", None)
        log.append(await puppet.wait_response(call, 1))
        log.append(puppet.monotonic_s())
        log.append(await puppet.wait_response(call, 1))
        log.append(puppet.monotonic_s())
        log.append(await puppet.wait_response(call, 1))

    system.cast(system.start(Puppet), ask)
    system.advance(1.5)
    system.cast(server, "answer")
    system.advance(5)
    assert log == [TIMED_OUT, 1, "answer", 1.5, "answer"]
    assert system.get_state(server)["handled"] == 1


def test_a_response_that_is_waited_for_no_more_does_not_disturb_other_waits(system):
    log: list[object] = []
    server = system.start(Late)

    async def ask(puppet):
        call = puppet.call(server, "question", None)
        assert await puppet.wait_response(call, 1) is TIMED_OUT
        await puppet.sleep(10)
        log.append((puppet.monotonic_s(), await call))

    system.cast(system.start(Puppet), ask)
    system.advance(2)
    system.cast(server, "answer")
    assert log == []
    system.advance(10)
    assert log == [(11, "answer")]


def test_waiting_for_the_response_of_an_actor_that_ends_raises_its_reason(system):
    server = system.start(Late)

    async def ask(puppet):
        with pytest.raises(ActorDead, match="killed"):
            await puppet.wait_response(puppet.call(server, "question", None), 1)
        puppet.log.append("told")

    asker = system.start(Puppet)
    system.cast(asker, ask)
    system.exit(server, "kill")
    assert log_of(system, asker) == ["told"]
    assert system.run_queue.next_deadline_s() is None
