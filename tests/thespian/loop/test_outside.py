"""The mailboxes of application threads, and how periods are given."""

import asyncio
import threading
from datetime import timedelta
from typing import Any

import pytest
from thespian.actors import ActorExitRequest

from poe.actors import AsyncWork, GenServer, Work
from poe.thespian.loop.outside import OutsideMailbox, to_seconds
from tests.actors.puppet import in_actor
from tests.thespian.loop import thespians
from tests.waiting import wait_until


@pytest.mark.parametrize(
    ("period", "seconds"), [(None, None), (2, 2.0), (0.5, 0.5), (timedelta(milliseconds=1), 0.001)]
)
def test_a_period_is_given_in_seconds_or_as_a_timedelta(period, seconds):
    assert to_seconds(period) == seconds


def test_messages_are_taken_in_the_order_they_came():
    mailbox = OutsideMailbox()
    mailbox.deliver(1, None)
    mailbox.deliver(2, None)
    assert [mailbox.take(0), mailbox.take(0), mailbox.take(0)] == [1, 2, None]


def test_a_waiting_thread_is_woken_by_a_message():
    mailbox = OutsideMailbox()
    taken: list[object] = []
    thread = threading.Thread(target=lambda: taken.append(mailbox.take(5.0)))
    thread.start()
    mailbox.deliver("message", None)
    thread.join()
    assert taken == ["message"]


def test_messages_of_the_system_stay_inside():
    mailbox = OutsideMailbox()
    mailbox.deliver(ActorExitRequest(), None)
    assert mailbox.take(0) is None


def test_listen_without_a_deadline_waits_for_what_a_timer_will_send(live):
    sleeper = thespians.actor_system_of(live).createActor(thespians.Sleeper)
    thespians.actor_system_of(live).tell(sleeper, 0.01)
    assert thespians.actor_system_of(live).listen() == "awake"


def test_an_answer_that_comes_as_listen_looks_whether_one_can_come_is_heard(live, monkeypatch):
    system = thespians.actor_system_of(live)
    echo = system.createActor(thespians.EchoActor)
    is_quiet = live.run_queue.is_quiet

    def speak_and_be_quiet():
        system.tell(echo, "answer")
        return is_quiet()

    monkeypatch.setattr(live.run_queue, "is_quiet", speak_and_be_quiet)
    assert system.listen() == "answer"


def test_the_address_of_an_ended_context_takes_nothing_more(live):
    echo = thespians.actor_system_of(live).createActor(thespians.EchoActor)
    context = live.actors.guests.external_clone()
    context.exit_context()
    context.tell(echo, "hello")
    wait_until(live.run_queue.is_quiet)
    assert context.listen(0.0) is None


def test_the_end_of_a_context_keeps_nobody_waiting_for_what_cannot_come(live):
    system = thespians.actor_system_of(live)
    with system.private():
        pass
    wait_until(live.run_queue.is_quiet)
    assert system.listen() is None


def test_what_a_gen_server_sends_to_an_application_comes_as_it_is_or_is_refused(live):
    thespians.actor_system_of(live)
    context = live.actors.guests.external_clone()

    async def speak(puppet):
        puppet.exit(context.address, "boom")
        puppet.cast(context.address, ["message"])
        with pytest.raises(TypeError, match="answers no calls"):
            await puppet.call(context.address, "request")

    in_actor(live, speak)
    assert [context.listen(0), context.listen(0)] == [["message"], None]


class AnswersLater(GenServer):
    """Has a thread or a coroutine find the answer."""

    def init(self, work):
        self.work = work
        self.asker: Any = None

    def handle_info(self, message):
        if isinstance(message, Work | AsyncWork):
            self.cast(self.asker, message.result)
        else:
            self.asker = message
            self.work(self)


@pytest.mark.parametrize("kind", ["Work", "AsyncWork"])
def test_an_answer_for_which_something_works_beside_the_actors_is_waited_for(live, kind):
    gate = threading.Event()

    async def answer_later():
        return await asyncio.to_thread(answer)

    def answer():
        gate.wait()
        return "answer"

    def work(actor):
        return Work(actor, answer) if kind == "Work" else AsyncWork(actor, answer_later())

    system = thespians.actor_system_of(live)
    context = live.actors.guests.external_clone()
    context.tell(live.start(AnswersLater, work), context.address)
    assert not live.run_queue.is_quiet()
    gate.set()
    assert context.listen(None) == "answer"
    wait_until(live.run_queue.is_quiet)
    assert system.listen() is None


def test_for_work_that_was_given_up_nobody_waits(live):
    started, gate = threading.Event(), threading.Event()
    thespians.actor_system_of(live)
    context = live.actors.guests.external_clone()
    begun: list[Work] = []

    def hang():
        started.set()
        gate.wait()

    context.tell(live.start(AnswersLater, lambda actor: begun.append(Work(actor, hang))), "go")
    assert started.wait(20)
    wait_until(lambda: begun)
    live.run_queue.run_outside(begun[0].cancel)
    wait_until(live.run_queue.is_quiet)
    gate.set()
