"""Calls that may wait for a server for long, and are given up when what they ask for is closed."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class Underway:
    """The calls of one object that are under way; belongs to one event loop."""

    def __init__(self, closed: Callable[[], Exception]) -> None:
        """Begin with none; `closed` makes the error of those that are given up."""
        self._closed = closed
        self._tasks: set[asyncio.Task[Any]] = set()

    async def run(self, call: Coroutine[Any, Any, T]) -> T:
        """Return what a call returns; it is cancelled with whoever waits for it.

        Raises:
            Exception: that of `closed`, where it was given up, or that of the call.
        """
        caller = asyncio.current_task()
        assert caller is not None
        cancels = caller.cancelling()
        task = asyncio.create_task(call)
        self._tasks.add(task)
        try:
            return await task
        except asyncio.CancelledError:
            if caller.cancelling() > cancels:
                raise
            raise self._closed() from None
        finally:
            self._tasks.discard(task)

    async def end(self, patience_s: float = 0.0) -> None:
        """Give up what is still under way after so many seconds, and have who waits told so."""
        tasks = list(self._tasks)
        if tasks and patience_s:
            await asyncio.wait(tasks, timeout=patience_s)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
