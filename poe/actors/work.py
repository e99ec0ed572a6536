"""A function that blocks, run for an actor by a thread, so that other actors go on meanwhile.

The actor gets the `Work` back in `handle_info` when it is done. The function must touch nothing
that actors touch: it runs beside them. Under an injected clock there are no threads: the function
then runs at once, and its end arrives as a message all the same.
"""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache, partial
from threading import Event
from typing import TYPE_CHECKING

from poe.actors.event_loop import EventLoop

if TYPE_CHECKING:
    from poe.actors.gen_server import GenServer

_THREADS_MAX = 16
"""One disk needs few; a thread is taken for as long as a stalled disk pleases."""


class Work:
    """One run of a function for one actor; begins when it is made.

    `error` is what the function raised, once it is done.
    """

    __slots__ = ("_cell", "_done", "_function", "error")

    def __init__(self, actor: "GenServer", function: Callable[[], object]) -> None:
        self._cell = actor._myRef  # noqa: SLF001 - part of the runtime
        self._function = function
        self._done = Event()
        self.error: Exception | None = None
        if self._cell.system.is_simulated:
            self._run()
            self._cell.post(self)
        else:
            _threads().submit(self._run_and_tell, self._cell.system.event_loop())

    def wait(self) -> None:
        """Block until it is done; for an actor that is about to end, or has to know now."""
        self._done.wait()

    def _run(self) -> None:
        try:
            self._function()
        except Exception as error:  # noqa: BLE001 - the actor decides what it means
            self.error = error
        self._done.set()

    def _run_and_tell(self, loop: EventLoop) -> None:
        self._run()
        # By the event loop: a thread that waited here for its turn to run actors would keep others'
        # work waiting, and with it an actor that waits for one of them while actors cannot run.
        loop.wake(partial(self._cell.system.post_from_outside, self._cell, self, None))


@cache
def _threads() -> ThreadPoolExecutor:
    """Return the threads that all systems of the process share; they start when first needed."""
    return ThreadPoolExecutor(_THREADS_MAX, "poe-work")
