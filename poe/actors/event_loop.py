"""The event loop of one actor system: uvloop where it is there, else asyncio.

It runs in a thread of its own (embedded nodes) or in the caller's thread (`run`, services). It
only wakes the actor system: it fires timers and lets actors that own sockets run.
"""

import asyncio
import threading
from collections.abc import Callable

try:
    from uvloop import new_event_loop
except ImportError:  # no uvloop on this platform
    from asyncio import new_event_loop


class EventLoop:
    """Owns the loop and the thread it runs in.

    `wake(callback)` is safe from any thread; `call_later`, readers and writers belong to the
    loop's thread.
    """

    def __init__(self) -> None:
        self.loop: asyncio.AbstractEventLoop = new_event_loop()
        self.thread_ident = 0
        self._thread: threading.Thread | None = None
        self._is_closed = False

    def start_thread(self, name: str) -> None:
        """Run the loop in a daemon thread until `stop`."""
        started = threading.Event()
        self._thread = threading.Thread(
            target=self._run, args=(started.set,), name=name, daemon=True
        )
        self._thread.start()
        started.wait()

    def run(self, started: Callable[[], object] = lambda: None) -> None:
        """Run the loop in the calling thread until `stop`."""
        self._run(started)

    def _run(self, started: Callable[[], object]) -> None:
        self.thread_ident = threading.get_ident()
        asyncio.set_event_loop(self.loop)
        self.loop.call_soon(started)
        try:
            self.loop.run_forever()
        finally:
            self.thread_ident = 0
            asyncio.set_event_loop(None)

    def wake(self, callback: Callable[[], object]) -> None:
        """Run `callback` in the loop's thread soon; nothing happens on a closed loop."""
        if not self._is_closed:
            self.loop.call_soon_threadsafe(callback)

    def stop(self) -> None:
        """End the loop and, unless called from it, wait for its thread and close it."""
        if self._is_closed:
            return
        if self.loop.is_running():
            self.wake(self.loop.stop)
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join()
        if not self.loop.is_running():
            self._is_closed = True
            self.loop.close()
