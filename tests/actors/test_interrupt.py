"""Ctrl-C in a thread that runs actors: the interrupted actor ends, everything else goes on."""

import ast
import signal
import sys
import threading
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Any

import pytest

import poe
from poe.actors import ActorDead, GenServer, IdleTimeout, LoopSystem, StartFailed
from poe.actors.server_cell import ServerCell
from poe.actors.timer_queue import TimerQueue
from poe.errors import CallFromActor, ChildStartFailed
from poe.supervision import (
    ChildSpec,
    StartChild,
    Supervisor,
    SupervisorFlags,
    WhichChildren,
    call_supervisor,
)
from poe.testing import SimulatedClock
from tests.actors.puppet import Puppet
from tests.waiting import wait_until


class Interrupted(GenServer):
    def init(self):
        self.served = 0

    def handle_call(self, request, caller):
        if request == "interrupt":
            raise KeyboardInterrupt
        self.served += 1
        return self.served


class Idle(GenServer):
    def init(self):
        return IdleTimeout(0.5)

    def handle_info(self, message):
        raise KeyboardInterrupt


class Asker(GenServer):
    async def handle_call(self, request, caller):
        return await self.call(request, "interrupt")


@pytest.fixture
def system():
    system = LoopSystem()
    yield system
    system.shutdown()


def test_the_interrupted_actor_ends_and_the_caller_sees_the_interrupt(system):
    ref, other = system.start(Interrupted), system.start(Interrupted)
    with pytest.raises(KeyboardInterrupt):
        system.call(ref, "interrupt")
    assert not system.is_alive(ref)
    assert system.call(other, "more") == 1


def test_an_interrupt_within_nested_calls_ends_all_that_were_cut_short(system):
    ref, asker = system.start(Interrupted), system.start(Asker)
    with pytest.raises(KeyboardInterrupt):
        system.call(asker, ref)
    assert not system.is_alive(ref)
    assert not system.is_alive(asker)


def test_a_supervisor_replaces_the_interrupted_child(system):
    spec = ChildSpec(id="child", actor=Interrupted, name="child")
    system.start(Supervisor, SupervisorFlags(), [spec])
    with pytest.raises(KeyboardInterrupt):
        system.call("child", "interrupt")
    system.run_queue.run_ready()
    assert system.call("child", "again") == 1


def test_an_interrupt_between_lock_and_work_is_healed_by_the_next_call(system):
    ref = system.start(Interrupted)
    system.run_queue.enter()
    assert system.call(ref, "more") == 1
    assert not system.run_queue.is_running_here()


def test_a_signal_handler_that_calls_between_lock_and_work_takes_the_lock_from_nobody(system):
    ref, seen = system.start(Interrupted), []

    def handle(*_):
        seen.append(system.call(ref, "more"))
        seen.append(system.run_queue.is_running_here())

    before = signal.signal(signal.SIGUSR1, handle)
    try:
        system.run_outside(lambda: signal.raise_signal(signal.SIGUSR1))
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert seen == [1, True]
    assert not system.run_queue.is_running_here()
    assert system.call(ref, "more") == 2


def test_each_function_that_enters_the_run_queue_is_marked():
    """A signal handler that interrupts one that is not would give back the lock it works under."""
    texts = [path.read_text() for path in Path(poe.__file__).parent.rglob("*.py")]
    functions = [
        node
        for text in texts
        if ".enter()" in text
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.FunctionDef) and ".enter()" in ast.unparse(node)
    ]
    unmarked = [
        function.name
        for function in functions
        if "enters" not in map(ast.unparse, function.decorator_list)
    ]
    assert functions
    assert unmarked == []


def test_who_is_interrupted_while_another_thread_runs_actors_waits_no_longer(system):
    """Each later call of any thread gave way to it, and so the interpreter to others."""
    ref, main = system.start(Interrupted), threading.get_ident()
    has_lock, may_go = threading.Event(), threading.Event()
    waiters = system.run_queue._waiters  # noqa: SLF001 - nobody is told

    def hold():
        has_lock.set()
        wait_until(lambda: waiters == [main])
        signal.pthread_kill(main, signal.SIGINT)
        may_go.wait(10)

    other = threading.Thread(target=system.run_outside, args=(hold,))
    other.start()
    has_lock.wait(10)
    with pytest.raises(KeyboardInterrupt):
        system.call(ref, "more")
    may_go.set()
    other.join(10)
    assert waiters == []


def test_an_interrupt_while_the_next_alarm_is_set_keeps_the_lock_from_nobody(system, monkeypatch):
    def interrupt(_):
        raise KeyboardInterrupt

    queue = system.run_queue
    with monkeypatch.context() as patch:
        patch.setattr(TimerQueue, "next_deadline_s", interrupt)
        with pytest.raises(KeyboardInterrupt):
            queue._ring()  # noqa: SLF001 - as the loop does, where that is in the main thread
    assert not queue._is_owned()  # noqa: SLF001 - who waits for it is not told


async def rest(puppet, _):
    await puppet.sleep(0.001)


def test_who_has_called_an_actor_that_an_interrupt_ends_before_it_begins_hears_of_it(system):
    asker, other, told = system.start(Puppet), system.start(Puppet), []

    async def ask(puppet, _):
        with suppress(ActorDead):
            told.append(await puppet.call(other, "question"))
        told.append("over")

    def interrupt(frame, event, _):
        if frame.f_code is ServerCell.deliver.__code__ and frame.f_locals["self"] is other.cell:
            raise KeyboardInterrupt

    before = sys.gettrace()
    sys.settrace(interrupt)
    try:
        with pytest.raises(KeyboardInterrupt):
            system.call(asker, ask)
    finally:
        sys.settrace(before)
    assert told == ["over"]


def test_an_interrupt_of_who_waits_for_an_answer_keeps_nobody_else_waiting():
    """The lock of a `threading.Event` stayed taken, and with it the thread that runs actors."""
    system: Any = LoopSystem()
    puppet, seen = system.start(Puppet), []
    system.call(puppet, rest)  # its thread has been started now

    def interrupt(frame, event, _):
        if frame.f_code is threading.Condition.__enter__.__code__ and event == "return":
            raise KeyboardInterrupt
        return interrupt

    def call_again():
        system.call(puppet, rest)
        seen.append("answered")

    before = sys.gettrace()
    sys.settrace(interrupt)
    try:
        with suppress(KeyboardInterrupt):
            system.call(puppet, rest)
    finally:
        sys.settrace(before)
    other = threading.Thread(target=call_again, daemon=True)
    other.start()
    other.join(10)
    assert seen == ["answered"]
    system.shutdown()


def test_who_would_wait_for_actors_that_wait_for_its_thread_is_told_so(system):
    puppet = system.start(Puppet)
    with pytest.raises(CallFromActor):
        system.run_outside(lambda: system.call(puppet, rest, timeout_s=None))
    system.call(puppet, rest)


def test_an_interrupt_while_a_time_out_is_handled_ends_the_actor():
    system = LoopSystem(clock=SimulatedClock())
    ref = system.start(Idle)
    assert ref is not None
    with pytest.raises(KeyboardInterrupt):
        system.advance(1.0)
    assert not system.is_alive(ref)


class Unstartable(GenServer):
    def init(self, error):
        raise error


class Starter(GenServer):
    """Starts an actor from a coroutine, or from a plain callback."""

    def handle_call(self, error, caller):
        return self.start_and_tell(error)

    async def start_and_tell(self, error):
        try:
            await self.start_link(Unstartable, error)
        except StartFailed as failure:
            return failure.reason

    def handle_cast(self, error):
        self.start_link(Unstartable, error)


def raises_interrupt(error):
    is_interrupt = isinstance(error, KeyboardInterrupt)
    return pytest.raises(KeyboardInterrupt) if is_interrupt else nullcontext()


@pytest.mark.parametrize("error", [GeneratorExit(), SystemExit(), KeyboardInterrupt()])
def test_an_init_that_raises_such_an_error_is_a_failed_start(system, error):
    starter = system.start(Starter)
    with raises_interrupt(error):
        assert system.call(starter, error) is error
    assert system.is_alive(starter)


@pytest.mark.parametrize("error", [GeneratorExit(), SystemExit(), KeyboardInterrupt()])
def test_the_supervisor_of_a_child_that_cannot_start_so_lives_on(system, error):
    sibling = ChildSpec(id="sibling", actor=Interrupted, name="sibling")
    supervisor = system.start(Supervisor, SupervisorFlags(), [sibling])
    with raises_interrupt(error), suppress(ChildStartFailed):
        spec = ChildSpec(id="child", actor=Unstartable, args=(error,))
        call_supervisor(system, supervisor, StartChild(spec))
    assert system.is_alive(supervisor)
    assert system.call("sibling", "more") == 1
    (child,) = call_supervisor(system, supervisor, WhichChildren())
    assert child.id == "sibling"


@pytest.mark.parametrize("error", [GeneratorExit(), KeyboardInterrupt()])
def test_a_starter_that_has_not_waited_for_it_gets_no_second_notice(system, error):
    starter = system.start(Starter)
    with raises_interrupt(error):
        system.cast(starter, error)
    assert system.is_alive(starter)


def test_a_generator_exit_in_a_callback_is_a_crash(system):
    puppet = system.start(Puppet)

    def end(*_):
        raise GeneratorExit

    with pytest.raises(ActorDead):
        system.call(puppet, end)
    assert not system.is_alive(puppet)


def test_an_interrupt_in_the_loop_s_own_thread_is_logged_and_timers_go_on(system, caplog):
    cut_short, ended = system.start(Idle), threading.Event()
    system.when_ended(cut_short, lambda _: ended.set())
    assert ended.wait(10)
    sleeper = system.start(Puppet)

    async def sleep(puppet, _):
        await puppet.sleep(0.01)
        return "woken"

    assert system.call(sleeper, sleep) == "woken"
    (record,) = [record for record in caplog.records if record.exc_info]
    assert record.exc_info[0] is KeyboardInterrupt
