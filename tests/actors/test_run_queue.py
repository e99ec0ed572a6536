"""Who runs actors: many threads at once, the loop's thread, timers, and fairness between them."""

import contextlib
import os
import signal
import threading
import time
from itertools import pairwise
from typing import Any

import pytest

from poe.actors import ActorDead, GenServer, LoopSystem
from poe.actors.run_queue import RunQueue
from poe.errors import CallFromActor
from tests.actors.puppet import PinnedPuppet, Puppet, in_actor, log_of
from tests.forks import exit_code_of, fork
from tests.waiting import wait_until


class Counter(GenServer):
    def init(self):
        self.count = 0

    def handle_call(self, request, caller):
        del caller
        self.count += request
        return self.count


def in_threads(count, action):
    """Run `action` in that many threads at once and wait for all."""
    threads = [threading.Thread(target=action) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def test_calls_of_many_threads_at_once_are_each_answered_and_none_is_lost(live):
    counter = live.start(Counter)
    answers: list[int] = []
    in_threads(8, lambda: answers.extend(live.call(counter, 1) for _ in range(2000)))
    assert sorted(answers) == list(range(1, 16_001))


def test_the_calling_thread_runs_the_actor_itself(live):
    ident = live.call(live.start(Puppet), lambda *_: threading.get_ident())
    assert ident == threading.get_ident()


def test_a_system_that_got_no_thread_for_its_loop_tries_again(live, monkeypatch):
    def refuse(_thread):
        msg = "can't start new thread"
        raise RuntimeError(msg)

    first, second = live.start(Puppet), live.start(Puppet)
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        live.cast(first, lambda puppet: puppet.send_after(0, "never"))
    assert not live.is_alive(first)
    live.cast(second, lambda puppet: puppet.send_after(0, "awake"))
    wait_until(lambda: log_of(live, second) == [("info", "awake")])


def test_a_call_that_no_timer_can_end_fails_and_who_runs_actors_then_is_not_told(live, monkeypatch):
    def refuse(_thread):
        msg = "can't start new thread"
        raise RuntimeError(msg)

    caller, busy = live.start(Puppet), live.start(Puppet)
    live.suspend(busy)
    calls: list[Any] = []
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        live.cast(caller, lambda puppet: calls.append(puppet.call(busy, "hello", timeout_s=5)))
    assert isinstance(calls[0].error, RuntimeError)
    assert live.is_alive(caller)


async def sleep_for_no_time(puppet, goes_on):
    while goes_on():
        await puppet.sleep(0)
    puppet.log.append("over")


async def ask_who_is_not_there(puppet, goes_on):
    while goes_on():
        with contextlib.suppress(ActorDead):
            await puppet.call("nobody", "are you there?")
    puppet.log.append("over")


def remind_at_once(puppet, goes_on):
    if goes_on():
        puppet.send_after(0, lambda puppet: remind_at_once(puppet, goes_on))
    else:
        puppet.log.append("over")


@pytest.mark.parametrize("spin", [sleep_for_no_time, remind_at_once, ask_who_is_not_there])
def test_an_actor_that_awaits_what_is_there_at_once_keeps_nobody_waiting(live, spin):
    spinning, other = live.start(Puppet), live.start(Puppet)
    is_told, deadline_s = threading.Event(), time.monotonic() + 10

    def goes_on():
        return not is_told.is_set() and time.monotonic() < deadline_s

    live.cast(spinning, lambda puppet: spin(puppet, goes_on))
    for _ in range(3):
        time.sleep(0)  # the loop's thread may have the lock
        assert live.call(other, lambda *_: "served") == "served"
    is_told.set()
    wait_until(lambda: log_of(live, spinning) == ["over"])
    assert time.monotonic() < deadline_s


def test_timers_that_are_due_at_a_time_ring_in_bursts(live):
    """Between two of them threads, sockets and the actors' own messages have their turn."""
    live.run_queue.burst = (None,) * 10
    waking = live.start(Puppet)
    rung: list[int] = []
    turns: list[int] = []

    def set_many(puppet):
        for _ in range(100):
            puppet.send_after(0, lambda _: rung.append(1))

    def fire_due():
        before = len(rung)
        RunQueue.fire_due(live.run_queue)
        turns.append(len(rung) - before)

    live.run_queue.fire_due = fire_due
    live.cast(waking, set_many)
    wait_until(lambda: len(rung) == 100)
    assert max(turns) == 10


def test_a_thread_that_calls_in_a_tight_loop_does_not_starve_timers(live):
    counter, ticker = live.start(Counter), live.start(Puppet)
    ticks: list[float] = []

    def tick(puppet):
        ticks.append(puppet.monotonic_s())
        puppet.send_after(0.001, tick)

    live.cast(ticker, tick)
    wait_until(lambda: live.call(counter, 1) and len(ticks) >= 20, timeout_s=10.0)


def test_actors_that_never_rest_starve_neither_callers_nor_timers(live):
    log: list[object] = []
    is_over = threading.Event()

    def play(puppet):
        if not is_over.is_set():
            puppet.cast(puppet.ref, play)

    live.cast(live.start(Puppet), play)
    timed = live.start(Puppet)
    live.call(timed, lambda puppet, _: puppet.send_after(0.0, lambda _: log.append("due")) and None)
    wait_until(lambda: log)
    assert live.call(live.start(Counter), 1) == 1
    is_over.set()


def test_calls_that_are_answered_at_once_leave_no_timer_behind(system):
    counter = system.start(Counter)

    async def call_often(puppet):
        for _ in range(100):
            await puppet.call(counter, 1)

    in_actor(system, call_often)
    assert system.run_queue.is_quiet()


def test_the_blocking_interface_is_refused_inside_an_actor(system):
    ref = system.start(Puppet)

    def misuse(_):
        for action in (
            lambda: system.call(ref, "request"),
            lambda: system.start(Puppet),
            lambda: system.cast(ref, "message"),
            lambda: system.stop(ref),
        ):
            with pytest.raises(CallFromActor):
                action()

    in_actor(system, misuse)


def test_a_pinned_actor_runs_in_the_thread_of_the_loop(live):
    ident = live.call(live.start(PinnedPuppet), lambda *_: threading.get_ident())
    assert ident != threading.get_ident()
    assert ident == live.run_queue.event_loop().thread_ident


def test_messages_to_a_pinned_actor_keep_their_order(live):
    pinned = live.start(PinnedPuppet)

    def send(puppet):
        for number in range(100):
            puppet.cast(pinned, number)

    in_actor(live, send)
    assert log_of(live, pinned) == [("cast", number) for number in range(100)]


def test_a_pinned_and_a_free_actor_call_each_other(live):
    free, pinned = live.start(Puppet), live.start(PinnedPuppet)

    async def ask(puppet, _):
        return await puppet.call(free, lambda *_: threading.get_ident())

    assert live.call(pinned, ask) == live.run_queue.event_loop().thread_ident

    async def ask_pinned(puppet, _):
        return await puppet.call(pinned, lambda *_: threading.get_ident())

    assert live.call(free, ask_pinned) == live.run_queue.event_loop().thread_ident


def test_real_timers_fire_in_order_and_not_too_early(live):
    ref = live.start(Puppet)
    fired: list[tuple[float, float]] = []

    def start(puppet, _):
        now_s = puppet.monotonic_s()
        for delay_s in (0.03, 0.01, 0.02):
            due_s = now_s + delay_s
            puppet.send_after(
                delay_s, lambda puppet, due_s=due_s: fired.append((due_s, puppet.monotonic_s()))
            )

    live.call(ref, start)
    wait_until(lambda: len(fired) == 3)
    assert all(earlier < later for (earlier, _), (later, _) in pairwise(fired))
    assert all(now_s >= due_s for due_s, now_s in fired)


def test_time_cannot_be_moved_where_it_is_real(live):
    with pytest.raises(ValueError, match="simulated clock"):
        live.advance(1.0)


def test_the_loop_can_run_in_the_thread_of_a_service():
    base: Any = LoopSystem()
    idents: list[int] = []

    def started():
        def stop(_):
            idents.append(threading.get_ident())
            base.shutdown()

        base.cast(base.start(PinnedPuppet), stop)

    base.run(started)
    assert idents == [threading.get_ident()]


def test_timers_go_on_after_a_signal_handler_has_raised_in_a_loop_of_the_main_thread(caplog):
    base: Any = LoopSystem()

    def handle(*_):
        msg = "time limit"
        raise TimeoutError(msg)

    def set_timers(puppet):
        puppet.send_after(0.001, lambda _: signal.raise_signal(signal.SIGUSR1))
        base.run_queue.add_timer(0.05, base.shutdown)

    def give_up():
        given_up.append("gave up")
        base.shutdown()

    given_up: list[str] = []
    before = signal.signal(signal.SIGUSR1, handle)
    guard = threading.Timer(10, give_up)
    guard.start()
    try:
        base.run(lambda: base.cast(base.start(Puppet), set_timers))
    finally:
        guard.cancel()
        signal.signal(signal.SIGUSR1, before)
    assert not given_up
    assert "time limit" in caplog.text


def test_run_outside_lets_the_actors_run_after_the_action(live):
    ref = live.start(Puppet)
    live.run_outside(lambda: ref.cell.post("message"))
    assert log_of(live, ref) == [("info", "message")]


def test_a_pipe_wakes_a_pinned_actor_through_the_loop(live):
    pinned = live.start(PinnedPuppet)
    reader, writer = os.pipe()
    arrived = threading.Event()

    def watch(puppet, _):
        loop = live.run_queue.event_loop().loop

        def readable():
            loop.remove_reader(reader)
            live.run_queue.post_from_outside(puppet.ref.cell, lambda _: arrived.set(), None)

        loop.add_reader(reader, readable)

    live.call(pinned, watch)
    os.write(writer, b"x")
    wait_until(arrived.is_set)
    os.close(reader)
    os.close(writer)


class NotesStart(RunQueue):
    """Knows when its event loop was ready."""

    ready_s = 0.0

    def event_loop(self):
        loop = super().event_loop()
        self.ready_s = self.ready_s or time.monotonic()
        return loop


def test_the_start_of_the_event_loop_is_not_part_of_a_delay():
    run_queue = NotesStart()
    timers = []
    run_queue.run_outside(lambda: timers.append(run_queue.add_timer(60, lambda: None)))
    assert timers[0].deadline_s - 60 >= run_queue.ready_s > 0
    run_queue.stop_event_loop()


def test_a_process_that_was_forked_waits_for_no_lock_of_its_parent(live):
    """A thread that is not there has the lock of a copied system, for which something waits."""
    ref, has_lock, may_go = live.start(Puppet), threading.Event(), threading.Event()

    def hold():
        ref.cell.post("waits")
        has_lock.set()
        may_go.wait(10)

    holder = threading.Thread(target=live.run_outside, args=(hold,))
    holder.start()
    has_lock.wait(10)

    def ask_one_of_its_own():
        own: Any = LoopSystem()
        assert own.call(own.start(Puppet), lambda *_: "answer") == "answer"

    child = fork(ask_one_of_its_own)
    may_go.set()
    holder.join()
    assert exit_code_of(child) == 0
