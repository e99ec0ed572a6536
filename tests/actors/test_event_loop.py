"""The loop's thread: wake-ups, the one alarm, and a clean end."""

import threading
import time

import pytest

from poe.actors.event_loop import EventLoop
from tests.waiting import wait_until


@pytest.fixture
def loop():
    event_loop = EventLoop()
    event_loop.start_thread("test-loop")
    yield event_loop
    event_loop.stop()


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


def test_a_loop_in_the_own_thread_runs_until_it_is_stopped_from_within():
    event_loop = EventLoop()
    event_loop.run(event_loop.stop)
    assert event_loop.loop.is_closed()
