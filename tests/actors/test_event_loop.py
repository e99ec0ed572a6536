"""The loop's thread: wake-ups, the one alarm, and a clean end."""

import asyncio
import inspect
import threading
import time

import pytest

from poe.actors import AsyncWork, GenServer, LoopSystem
from poe.actors.event_loop import EventLoop
from tests.waiting import wait_until


@pytest.fixture
def loop():
    event_loop = EventLoop()
    event_loop.start_thread("test-loop")
    yield event_loop
    event_loop.stop()


def test_who_wakes_a_loop_that_closes_at_that_moment_does_nothing():
    loop, called = EventLoop(), []
    loop.loop.close()
    loop.wake(lambda: called.append("called"))
    assert called == []


def test_a_wake_up_runs_in_the_thread_of_the_loop(loop):
    idents: list[int] = []
    loop.wake(lambda: idents.append(threading.get_ident()))
    wait_until(lambda: idents)
    assert idents == [loop.thread_ident]


def test_a_new_alarm_replaces_the_old_one(loop):
    rung: list[str] = []
    loop.set_alarm(time.monotonic() + 60.0, lambda: rung.append("old"))
    loop.set_alarm(time.monotonic(), lambda: rung.append("new"))
    wait_until(lambda: rung)
    assert rung == ["new"]


def test_a_stopped_loop_has_no_thread_and_ignores_wake_ups():
    event_loop = EventLoop()
    event_loop.start_thread("test-loop")
    event_loop.stop()
    event_loop.stop()
    event_loop.wake(lambda: pytest.fail("it ran"))
    assert "test-loop" not in {thread.name for thread in threading.enumerate()}


def test_a_stopped_loop_has_ended_its_tasks():
    async def wait_for_ever() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            ended.append(True)

    ended: list[bool] = []
    event_loop = EventLoop()
    event_loop.start_thread("test-loop")
    asyncio.run_coroutine_threadsafe(asyncio.sleep(0), event_loop.loop).result(5)
    asyncio.run_coroutine_threadsafe(wait_for_ever(), event_loop.loop)
    event_loop.stop()
    assert ended == [True]


def test_work_that_is_cancelled_before_it_begins_is_closed():
    class Canceller(GenServer):
        pinned_to_loop = True

        def init(self, coroutine) -> None:
            AsyncWork(self, coroutine).cancel()

    coroutine = asyncio.sleep(0)
    with LoopSystem() as system:
        system.start(Canceller, coroutine)
    assert inspect.getcoroutinestate(coroutine) == inspect.CORO_CLOSED


def test_a_loop_in_the_own_thread_runs_until_it_is_stopped_from_within():
    event_loop = EventLoop()
    event_loop.run(event_loop.stop)
    assert event_loop.loop.is_closed()


def test_tasks_that_begin_while_others_end_are_ended_too():
    event_loop = EventLoop()
    event_loop.start_thread("test-loop")
    begun = threading.Event()
    tasks: list[asyncio.Task[None]] = []
    ended: list[str] = []

    async def wait_for_ever(name: str) -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(name)
            if name == "first":
                begin("last")
                await asyncio.sleep(0)

    def begin(name: str) -> None:
        tasks.append(event_loop.loop.create_task(wait_for_ever(name)))

    event_loop.wake(lambda: begin("first"))
    assert begun.wait(10)
    event_loop.stop()
    assert ended == ["first", "last"]
    assert all(task.cancelled() for task in tasks)


def test_a_loop_that_is_stopped_twice_ends_its_tasks_all_the_same():
    event_loop = EventLoop()
    event_loop.start_thread("test-loop")
    begun = threading.Event()
    ended: list[str] = []

    async def stop_again() -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            event_loop.loop.stop()
            await asyncio.sleep(0.01)
            ended.append("task")

    asyncio.run_coroutine_threadsafe(stop_again(), event_loop.loop)
    assert begun.wait(10)
    event_loop.stop()
    assert ended == ["task"]


def test_a_loop_that_is_stopped_again_between_its_turns_is_closed_by_its_own_thread():
    class Again(EventLoop):
        def _end_tasks(self):
            other = threading.Thread(target=self.stop)
            other.start()
            other.join()
            super()._end_tasks()

    event_loop = Again()
    event_loop.run(event_loop.stop)
    assert event_loop.loop.is_closed()


@pytest.mark.slow
def test_a_task_that_has_not_begun_ends_although_another_takes_too_long(monkeypatch):
    monkeypatch.setattr("poe.actors.event_loop._END_S", 1.0)
    event_loop = EventLoop()
    event_loop.start_thread("test-loop")
    begun = threading.Event()
    last: list[asyncio.Task[None]] = []

    async def end_slowly() -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.shield(asyncio.sleep(0.04))
            time.sleep(1.0)  # noqa: ASYNC251 - until time is up
            last.append(event_loop.loop.create_task(asyncio.sleep(1)))

    asyncio.run_coroutine_threadsafe(end_slowly(), event_loop.loop)
    assert begun.wait(10)
    event_loop.stop()
    assert last[0].cancelled()


@pytest.mark.parametrize("from_the_loop", [True, False])
def test_work_that_would_begin_on_a_loop_that_ends_is_closed(from_the_loop):
    class Beginner(GenServer):
        pinned_to_loop = True

        def init(self, begun) -> None:
            self.begun = begun
            AsyncWork(self, self.wait_for_ever())

        async def wait_for_ever(self) -> None:
            self.begun.set()
            try:
                await asyncio.Event().wait()
            finally:
                if from_the_loop:
                    self.begin()
                else:
                    thread = threading.Thread(target=self.begin)
                    thread.start()
                    thread.join()

        def begin(self) -> None:
            AsyncWork(self, coroutine)

    async def work() -> None:
        has_begun.append(True)

    has_begun: list[bool] = []
    coroutine = work()
    begun = threading.Event()
    with LoopSystem() as system:
        system.start(Beginner, begun)
        assert begun.wait(10)
    assert not has_begun
    assert inspect.getcoroutinestate(coroutine) == inspect.CORO_CLOSED


def test_a_service_that_cannot_begin_is_told_why_and_does_not_run_on():
    def fail():
        msg = "the port is taken"
        raise OSError(msg)

    system = LoopSystem()
    guard = threading.Timer(5, system.shutdown)
    guard.start()
    with pytest.raises(OSError, match="the port is taken"):
        system.run(fail)
    guard.cancel()
    system.shutdown()
