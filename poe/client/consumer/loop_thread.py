"""An event loop in a thread of its own, for objects whose callers have none."""

import asyncio
import os
import threading
import weakref
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any, TypeVar

from poe.errors import ConsumerClosed, QueueClosed

T = TypeVar("T")

_CLOSED = "it was closed"
FORKED = "it belongs to the process that this is a fork of"


@contextmanager
def until_closed() -> Iterator[None]:
    """Have a loop end when what it reads is closed, but not in a fork, where that never was."""
    try:
        yield
    except (ConsumerClosed, QueueClosed) as error:
        if error.reason == FORKED:
            raise


class LoopThread:
    """Runs coroutines for threads that wait for them; ends with `close`, or with its owner."""

    def __init__(
        self,
        name: str,
        at_end: Callable[[], Coroutine[Any, Any, None]],
        ended: Callable[[str], Exception],
        holds_lock: Callable[[], bool] = lambda: False,
    ) -> None:
        """Start the thread.

        Args:
            name: of the thread.
            at_end: what to run last; it has all other coroutines come to their end.
            ended: makes the error of who comes too late, from the reason.
            holds_lock: tells whether this thread has the lock that `at_end` waits for.
        """
        loop = asyncio.new_event_loop()
        self._loop = loop
        self._ended = ended
        self._thread = threading.Thread(target=_serve, args=(loop,), name=name, daemon=True)
        self._thread.start()
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._holds_lock = holds_lock
        self._callers: set[int] = set()
        """The threads that are in `run` or `close`."""
        # Runs once, whichever comes first: `close`, or that nobody has this object any more.
        self._end = weakref.finalize(self, _end, loop, at_end)
        self._end.atexit = False

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Return what a coroutine returns, when it does; it is cancelled if this is interrupted.

        Raises:
            Exception: that of `ended`, where the thread has ended, or a fork has none.
        """
        me = threading.get_ident()
        try:
            self._callers.add(me)
            future = self._hand_over(coroutine)
            try:
                return future.result()
            finally:
                future.cancel()
        finally:
            self._callers.discard(me)

    async def wait(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Return the same to a task of another event loop, with which it is cancelled.

        Raises:
            Exception: as `run`.
        """
        return await asyncio.wrap_future(self._hand_over(coroutine))

    def _hand_over(self, coroutine: Coroutine[Any, Any, T]) -> Future[T]:
        if self._pid != os.getpid():
            coroutine.close()
            raise self._ended(FORKED)
        # What is handed over before the end began is waited for there, and so not forgotten.
        with self._lock:
            if not self._end.alive:
                coroutine.close()
                raise self._ended(_CLOSED)
            return asyncio.run_coroutine_threadsafe(coroutine, self._loop)

    def close(self, timeout_s: float | None = None) -> None:
        """End the thread; return when it has ended, or after `timeout_s`.

        In a signal handler that has interrupted a call it returns at once: that call may have what
        the end waits for.
        """
        if self._pid != os.getpid():
            return
        me = threading.get_ident()
        if me in self._callers or self._holds_lock():
            threading.Thread(target=self.close, name=f"end of {self._thread.name}").start()
            return
        try:
            self._callers.add(me)
            with self._lock:
                self._end()
            self._thread.join(timeout_s)
        finally:
            self._callers.discard(me)


def _serve(loop: asyncio.AbstractEventLoop) -> None:
    asyncio.set_event_loop(loop)
    try:
        loop.run_forever()
    finally:
        loop.close()


def _end(loop: asyncio.AbstractEventLoop, at_end: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run_coroutine_threadsafe(_finish(loop, at_end), loop)


async def _finish(
    loop: asyncio.AbstractEventLoop, at_end: Callable[[], Coroutine[Any, Any, None]]
) -> None:
    try:
        await at_end()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        await asyncio.gather(*others, return_exceptions=True)
    finally:
        # Not at once: those who wait for what has just ended are told in the loop's next turn.
        loop.call_soon(loop.stop)
