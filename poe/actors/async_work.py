"""A coroutine of asyncio, run for an actor by the event loop, so that others go on meanwhile.

The actor gets the `AsyncWork` back in `handle_info` when it is done. It must be pinned to the loop.
Under an injected clock there is no loop: the coroutine then runs at once, and may wait for nothing.
"""

import asyncio
import contextlib
import inspect
from collections.abc import Coroutine
from functools import partial
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from poe.actors.gen_server import GenServer


class AsyncWork:
    """One run of a coroutine for one actor; begins when it is made.

    `result` is what it returned, or `error` what it raised, once it is done. Nobody is told of one
    that was cancelled.
    """

    __slots__ = ("_coroutine", "_task", "error", "result")

    def __init__(self, actor: "GenServer", coroutine: Coroutine[Any, Any, Any]) -> None:
        cell = actor._myRef  # noqa: SLF001 - part of the runtime
        self.result: Any = None
        self.error: Exception | None = None
        self._coroutine = coroutine
        if cell.system.is_simulated:
            self._task: asyncio.Task[None] | None = None
            with contextlib.suppress(StopIteration):
                self._run(coroutine).send(None)
            cell.post(self)
            return
        loop = cell.system.event_loop().loop
        self._task = task = loop.create_task(self._run(coroutine))
        tell = partial(cell.system.post_from_outside, cell, self, None)
        task.add_done_callback(lambda task: None if task.cancelled() else tell())

    def cancel(self) -> None:
        """Give it up."""
        if self._task is not None:
            self._task.cancel()
            if inspect.getcoroutinestate(self._coroutine) == inspect.CORO_CREATED:
                self._coroutine.close()  # its task will not even begin it

    async def _run(self, coroutine: Coroutine[Any, Any, Any]) -> None:
        try:
            self.result = await coroutine
        except asyncio.CancelledError:
            raise
        except Exception as error:  # noqa: BLE001 - the actor decides what it means
            self.error = error
