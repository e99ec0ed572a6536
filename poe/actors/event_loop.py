"""The event loop of one actor system: uvloop where it is there, else asyncio.

It runs in a thread of its own (embedded nodes) or in the caller's thread (`run`, services). It
only wakes the actor system: it fires timers and lets actors that own sockets run.
"""

import asyncio
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial

from poe.actors.latch import Latch
from poe.actors.turns import Turns

try:
    from uvloop import new_event_loop
except ImportError:  # no uvloop on this platform
    from asyncio import new_event_loop  # type: ignore[assignment]  # the same for our purposes


_ROUND_S = 0.001
"""How much of large replies is sent before the loop looks at everybody again."""
_ARRIVAL_S = 0.00025
"""The same of what is done for those who only arrive: about one step of a handshake."""
_ARRIVALS_SHARE = 1 / 3
"""What they get of the time that everybody else takes, where that is more: a quarter of the whole,
so that a client gets in however busy others keep the loop."""

_END_S = 1.0
"""How long tasks may take to end when the loop has been stopped."""
_LAST_S = 0.01
"""For those that began when that time was up."""


class EventLoop:
    """Owns the loop and the thread it runs in.

    `wake` and `set_alarm` are safe from any thread; readers and writers belong to the loop's
    thread.
    """

    def __init__(self) -> None:
        self.loop: asyncio.AbstractEventLoop = new_event_loop()
        self.turns = Turns(self.loop.call_soon, _ROUND_S)
        """Of those who are served."""
        self.arrivals = Turns(self.loop.call_soon, _ARRIVAL_S, _ARRIVALS_SHARE)
        """Of those who are not served yet, which are dear, and thousands may come at once."""
        self.thread_ident = 0
        self.is_ending = False
        """It was stopped: what runs comes to its end, and nothing new is to begin."""
        self._thread: threading.Thread | None = None
        self._is_closed = False
        self._alarm: asyncio.TimerHandle | None = None

    def start_thread(self, name: str) -> None:
        """Run the loop in a daemon thread until `stop`."""
        started = Latch()
        self._thread = threading.Thread(
            target=self._run, args=(started.set,), name=name, daemon=True
        )
        self._thread.start()
        started.wait()

    def run(self, started: Callable[[], object] = lambda: None) -> None:
        """Run the loop in the calling thread until `stop`, then close it.

        What `started` raises ends the loop, and is raised.
        """
        failures: list[BaseException] = []

        def begin() -> None:
            try:
                started()
            except BaseException as error:  # noqa: BLE001 - it is raised below
                failures.append(error)
                self.loop.stop()

        try:
            self._run(begin)
        finally:
            self._is_closed = True
            self.loop.close()
        if failures:
            raise failures[0]

    def _run(self, started: Callable[[], object]) -> None:
        self.thread_ident = threading.get_ident()
        asyncio.set_event_loop(self.loop)
        self.loop.call_soon(started)
        try:
            self.loop.run_forever()
            self.is_ending = True
            self._end_tasks()
            # One turn more, for what other threads have handed over meanwhile.
            self.loop.call_soon(self.loop.stop)
            self.loop.run_forever()
        finally:
            self.thread_ident = 0
            asyncio.set_event_loop(None)

    def _end_tasks(self) -> None:
        """Let tasks that were cancelled, or are now, come to their end, unless they take long.

        What other threads have handed over may begin more of them meanwhile.
        """
        deadline_s = time.monotonic() + _END_S
        is_last = False
        while not is_last and (tasks := asyncio.all_tasks(self.loop)):
            for task in tasks:
                if not task.cancelling():
                    task.cancel()
            rest_s = deadline_s - time.monotonic()
            # When time is up, once more: those that have begun a moment ago end at once.
            is_last = rest_s <= 0
            with suppress(RuntimeError):  # it was stopped again
                timeout_s = _LAST_S if is_last else rest_s
                self.loop.run_until_complete(asyncio.wait(tasks, timeout=timeout_s))

    def wake(self, callback: Callable[[], object]) -> None:
        """Run `callback` in the loop's thread soon; nothing happens on a closed loop."""
        if not self._is_closed:
            with suppress(RuntimeError):  # it was closed a moment ago
                self.loop.call_soon_threadsafe(callback)

    def set_alarm(self, deadline_s: float, ring: Callable[[], object]) -> None:
        """Replace the one alarm: run `ring` in the loop's thread at a monotonic time."""
        # Never set directly, not even in the loop's own thread: an older request that is still on
        # its way would then replace the newer one.
        self.wake(partial(self._set_alarm, deadline_s, ring))

    def _set_alarm(self, deadline_s: float, ring: Callable[[], object]) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
        rest_s = deadline_s - time.monotonic()
        # libuv counts whole milliseconds from the start of the loop's turn. An alarm that rang
        # early would be set again and again until its time has come.
        self._alarm = self.loop.call_later(rest_s + 0.001 if rest_s > 0 else 0, ring)

    def stop(self) -> None:
        """End the loop and, unless called from it, wait for its thread and close it."""
        if self._is_closed:
            return
        self.wake(self.loop.stop)
        thread = self._thread
        # Of a thread whose start was interrupted nobody can wait for the end.
        if thread is not None and thread.is_alive() and thread is not threading.current_thread():
            thread.join()
        # In the caller's thread it may be between two of its last turns: `run` closes it then.
        if not self.thread_ident:
            self._is_closed = True
            self.loop.close()
