"""A coroutine of asyncio, run for an actor by the event loop, so that others go on meanwhile.

The actor gets the `AsyncWork` back in `handle_info` when it is done, whatever thread it runs in.
Under an injected clock there is no loop: the coroutine then runs at once, and may wait for nothing.
"""

import asyncio
import contextlib
import threading
from collections.abc import Callable, Coroutine
from typing import Any

from poe.actors.event_loop import EventLoop
from poe.actors.gen_server import GenServer
from poe.actors.reason import is_for_program
from poe.actors.server_cell import cell_of_actor
from poe.errors import LoopSystemOnly


class AsyncWork:
    """One run of a coroutine for one actor; begins when it is made.

    `result` is what it returned, or `error` what it raised, once it is done. It is cancelled when
    its actor ends. Nobody is told of one that was cancelled.

    Raises:
        LoopSystemOnly: on construction; a process of Thespian's has no event loop.
    """

    __slots__ = (
        "_cell",
        "_coroutine",
        "_event_loop",
        "_is_cancelled",
        "_task",
        "error",
        "owner",
        "result",
    )

    def __init__(self, actor: GenServer, coroutine: Coroutine[Any, Any, Any]) -> None:
        self._cell = cell = cell_of_actor(actor)
        self.owner: dict[Any, Any] | None = None
        self.result: Any = None
        self.error: BaseException | None = None
        self._coroutine = coroutine
        self._task: asyncio.Task[None] | None = None
        self._is_cancelled = False
        self._event_loop: EventLoop | None = None
        if cell.run_queue.is_simulated:
            with contextlib.suppress(StopIteration):
                self._run(coroutine).send(None)
            cell.post(self)
            return
        event_loop: object = cell.run_queue.event_loop()
        if not isinstance(event_loop, EventLoop):
            coroutine.close()
            raise LoopSystemOnly("AsyncWork", "use run_blocking, or Work, and asyncio.run in it")
        self._event_loop = event_loop
        if event_loop.is_ending:
            coroutine.close()
            return
        cell.own().add_work(self)
        cell.run_queue.works_count += 1
        self._in_loop(self._begin)

    def cancel(self) -> None:
        """Give it up."""
        self._is_cancelled = True
        self._leave_owner()
        self._in_loop(self._end)

    def _leave_owner(self) -> None:
        if self.owner is not None:
            self.owner.pop(self, None)
            self.owner = None
            self._cell.run_queue.works_count -= 1

    def _in_loop(self, action: Callable[[], object]) -> None:
        """Do something in the loop's thread: asyncio notices nothing that others do."""
        loop = self._event_loop
        if loop is None:
            return
        if loop.thread_ident == threading.get_ident():
            action()
        else:
            loop.wake(action)

    def _begin(self) -> None:
        assert self._event_loop is not None
        if self._is_cancelled or self._event_loop.is_ending:
            self._coroutine.close()
            return
        self._task = self._event_loop.loop.create_task(self._run(self._coroutine))
        self._task.add_done_callback(self._ended)

    def _end(self) -> None:
        if self._task is not None:
            self._task.cancel()

    def _ended(self, task: asyncio.Task[None]) -> None:
        if task.cancelled():
            self._coroutine.close()  # which it may not even have begun
        else:
            self._cell.run_queue.run_outside(self._tell)

    def _tell(self) -> None:
        if not self._is_cancelled:
            self._leave_owner()
            self._cell.post(self)

    async def _run(self, coroutine: Coroutine[Any, Any, Any]) -> None:
        try:
            self.result = await coroutine
        except asyncio.CancelledError as error:
            # Not of ours if nobody has cancelled it: what it awaited was cancelled.
            if self._task is not None and self._task.cancelling():
                raise
            self.error = error
        except GeneratorExit:
            raise  # in simulated time it has waited for something
        except BaseException as error:  # the actor decides what it means
            # `sys.exit()`, too: it would end the loop, and with it all actors.
            self.error = error
            if is_for_program(error):
                raise
