"""Blocking work with a result, awaited or answered later; it starves nobody."""

import asyncio
import contextlib
import sys
import threading

import pytest

from poe.actors import NO_REPLY, AsyncWork, GenServer, LoopSystem, TooMuchWork, Work
from poe.actors.work import WORK_MAX, WORK_RUNNING_MAX
from poe.testing import SimulatedClock
from tests.waiting import wait_until

DEADLINE_S = 20


class Awaiting(GenServer):
    """Answers with what the function returns; other messages wait meanwhile."""

    async def handle_call(self, request, caller):
        function, *arguments = request
        return await self.run_blocking(function, *arguments)


class Answering(GenServer):
    """Answers later, and goes on meanwhile."""

    def init(self):
        self.callers = {}
        self.cancelled = None

    def handle_call(self, request, caller):
        if request == "ping":
            return "pong"
        if request == "cancel":
            for work in self.callers:
                work.cancel()
            return len(self.callers)
        self.callers[Work(self, request)] = caller
        return NO_REPLY

    def handle_info(self, message):
        caller = self.callers.pop(message)
        if message.error is not None:
            self.reply_error(caller, message.error)
        else:
            self.reply(caller, message.result)


class AsyncAnswering(Answering):
    """The same with a coroutine, and not pinned to the loop."""

    def handle_call(self, request, caller):
        self.callers[AsyncWork(self, request())] = caller
        return NO_REPLY


def fail():
    raise OSError(5, "Input/output error")


async def add(a, b):
    await asyncio.sleep(0)
    return a + b


@pytest.fixture
def system():
    with LoopSystem() as system:
        yield system


@pytest.fixture
def gate():
    gate = threading.Event()
    yield gate
    gate.set()


@pytest.mark.parametrize("clock", [None, SimulatedClock()])
def test_a_call_is_answered_with_what_the_function_returns_or_raises(clock):
    with LoopSystem(clock=clock) as system:
        awaiting = system.start(Awaiting)
        assert awaiting is not None
        assert system.call(awaiting, (pow, 2, 10), DEADLINE_S) == 1024
        answering = system.start(Answering)
        assert answering is not None
        assert system.call(answering, lambda: "done", DEADLINE_S) == "done"
        with pytest.raises(OSError, match="Input/output"):
            system.call(answering, fail, DEADLINE_S)
        assert system.call(answering, "ping") == "pong"


def test_a_failure_that_is_not_caught_ends_the_actor(system):
    awaiting = system.start(Awaiting)
    with pytest.raises(Exception, match="Input/output"):
        system.call(awaiting, (fail,), DEADLINE_S)
    assert not system.is_alive(awaiting)


def test_other_actors_go_on_and_the_own_messages_wait(system, gate):
    awaiting, other = system.start(Awaiting), system.start(Answering)
    has_begun, order = threading.Event(), []

    def work():
        has_begun.set()
        gate.wait()
        order.append("first")

    calls = [
        threading.Thread(target=system.call, args=(awaiting, request, DEADLINE_S))
        for request in ((work,), (order.append, "second"))
    ]
    calls[0].start()
    assert has_begun.wait(DEADLINE_S)
    assert system.call(other, "ping") == "pong"
    calls[1].start()
    assert order == []
    gate.set()
    for call in calls:
        call.join()
    assert order == ["first", "second"]


def test_what_hangs_in_one_actor_stops_no_other(system, gate):
    """16 threads that hung once stopped the whole process, and all of its syncs."""
    for _ in range(5):
        hanging = system.start(Answering)
        for _ in range(3 * WORK_RUNNING_MAX):
            _begin(system, hanging, gate.wait)
    other = system.start(Answering)
    assert system.call(other, lambda: "done", DEADLINE_S) == "done"


def _begin(system, ref, function):
    """Call, and wait for no answer."""
    threading.Thread(target=lambda: _swallow(system, ref, function), daemon=True).start()


def _swallow(system, ref, function):
    with contextlib.suppress(Exception):  # the system is shut down at the end of the test
        system.call(ref, function, None)


class Greedy(GenServer):
    def init(self, function):
        self.function = function

    def handle_call(self, count, caller):
        for _ in range(count):
            Work(self, self.function)

    def handle_info(self, message):
        pass


def test_an_actor_may_have_so_much_work_that_is_not_done(system, gate):
    greedy = system.start(Greedy, gate.wait)
    system.call(greedy, WORK_MAX, DEADLINE_S)
    threads = [each for each in threading.enumerate() if each.name == "poe-work"]
    with pytest.raises(Exception, match=f"has {WORK_MAX} works that are not done") as caught:
        system.call(greedy, 1, DEADLINE_S)
    assert isinstance(getattr(caught.value, "reason", None), TooMuchWork)
    assert len(threads) <= 10 * WORK_RUNNING_MAX


def test_what_waits_for_a_thread_is_not_begun_for_an_actor_that_has_ended(system, gate):
    begun: list[object] = []

    def function():
        begun.append(1)
        gate.wait()

    greedy = system.start(Greedy, function)
    system.call(greedy, 100, DEADLINE_S)
    wait_until(lambda: len(begun) == WORK_RUNNING_MAX)
    system.exit(greedy, "kill")
    gate.set()
    other = system.start(Greedy, lambda: begun.append("other"))
    system.call(other, 1)
    wait_until(lambda: "other" in begun)
    assert len(begun) == WORK_RUNNING_MAX + 1


def test_the_end_of_cancelled_work_is_told_to_nobody(system, gate):
    answering = system.start(Answering)
    _begin(system, answering, gate.wait)
    wait_until(lambda: system.call(answering, "cancel") == 1)
    gate.set()
    assert system.call(answering, lambda: "done", DEADLINE_S) == "done"
    assert system.call(answering, "cancel") == 1, "the first has been told to nobody"


def test_a_supervisor_can_end_an_actor_that_awaits_what_hangs(system, gate):
    awaiting = system.start(Awaiting)
    _begin(system, awaiting, (gate.wait,))
    system.exit(awaiting, "shutdown")
    wait_until(lambda: not system.is_alive(awaiting))


def test_a_coroutine_is_run_for_an_actor_that_is_not_pinned(system):
    answering = system.start(AsyncAnswering)
    assert system.call(answering, lambda: add(1, 2), DEADLINE_S) == 3
    with pytest.raises(TypeError):
        system.call(answering, lambda: add(1, "x"), DEADLINE_S)


def test_a_coroutine_that_leaves_by_sys_exit_ends_nobody_but_itself(system):
    async def leave():
        sys.exit(3)

    answering = system.start(AsyncAnswering)
    with pytest.raises(SystemExit):
        system.call(answering, leave, DEADLINE_S)
    assert system.call(answering, lambda: add(1, 2), DEADLINE_S) == 3


def test_a_coroutine_that_was_cancelled_by_another_is_an_error_of_its_work(system):
    async def await_cancelled():
        cancelled = asyncio.get_running_loop().create_future()
        cancelled.cancel()
        await cancelled

    answering = system.start(AsyncAnswering)
    with pytest.raises(asyncio.CancelledError):
        system.call(answering, await_cancelled, DEADLINE_S)


def test_a_coroutine_ends_with_its_actor(system):
    has_begun, has_ended = threading.Event(), threading.Event()

    async def wait_for_ever():
        has_begun.set()
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            has_ended.set()

    answering = system.start(AsyncAnswering)
    _begin(system, answering, wait_for_ever)
    assert has_begun.wait(DEADLINE_S)
    system.exit(answering, "kill")
    assert has_ended.wait(DEADLINE_S)


def test_an_actor_has_no_coroutine_that_is_done(system):
    answering = system.start(AsyncAnswering)
    for _ in range(3):
        assert system.call(answering, lambda: add(1, 2), DEADLINE_S) == 3
    assert not answering.cell.belongings
