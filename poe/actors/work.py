"""A function that blocks, run for an actor by a thread, so that other actors go on meanwhile.

The actor gets the `Work` back in `handle_info` when it is done. The function must touch nothing
that actors touch: it runs beside them. Under an injected clock there are no threads: the function
then runs at once, and its end arrives as a message all the same.
"""

import os
from collections.abc import Callable
from functools import partial
from queue import SimpleQueue
from threading import Lock, Thread
from typing import TYPE_CHECKING

from poe.actors.event_loop import EventLoop

if TYPE_CHECKING:
    from poe.actors.gen_server import GenServer

_DISK_THREADS_MAX = 16
"""One disk needs few; a thread is taken for as long as a stalled disk pleases."""


class Work:
    """One run of a function for one actor; begins when it is made.

    `error` is what the function raised, once it is done.
    """

    __slots__ = ("_cell", "_function", "_running", "error")

    def __init__(self, actor: "GenServer", function: Callable[[], object]) -> None:
        self._cell = actor._myRef  # noqa: SLF001 - part of the runtime
        self._function = function
        self._running = Lock()
        self._running.acquire()
        self.error: Exception | None = None
        if self._cell.system.is_simulated:
            self._run()
            self._cell.post(self)
        else:
            _disk_threads.submit(partial(self._run_and_tell, self._cell.system.event_loop()))

    def wait(self) -> None:
        """Block until it is done; for an actor that is about to end, or has to know now."""
        with self._running:
            pass

    def _run(self) -> None:
        try:
            self._function()
        except Exception as error:  # noqa: BLE001 - the actor decides what it means
            self.error = error
        self._running.release()

    def _run_and_tell(self, loop: EventLoop) -> None:
        self._run()
        # By the event loop: a thread that waited here for its turn to run actors would keep others'
        # work waiting, and with it an actor that waits for one of them while actors cannot run.
        loop.wake(partial(self._cell.system.post_from_outside, self._cell, self, None))


class Threads:
    """Up to `threads_max` threads for functions that block; they start when they are needed.

    Neither a `concurrent.futures` executor, whose futures cost as much as the rest of a sync that
    is short, nor threads that have to end before the process may: a dead disk would keep it alive.
    """

    def __init__(self, name: str, threads_max: int) -> None:
        self._name = name
        self._threads_max = threads_max
        self.forget()

    def forget(self) -> None:
        """Begin without threads, as in a process that was forked: its parent's are not there."""
        self._jobs: SimpleQueue[Callable[[], object]] = SimpleQueue()
        self._lock = Lock()
        self._count = 0
        self._idle_count = 0

    def submit(self, job: Callable[[], object]) -> None:
        """Have a thread call `job`, which raises nothing.

        Raises:
            RuntimeError: the system gives this process not even one thread.
        """
        with self._lock:
            if self._idle_count:
                self._idle_count -= 1
            elif self._count < self._threads_max:
                self._start()
        self._jobs.put(job)

    def _start(self) -> None:
        try:
            Thread(target=self._serve, name=self._name, daemon=True).start()
        except RuntimeError:
            if not self._count:
                raise
            return  # those that are there do it, one after the other
        self._count += 1

    def _serve(self) -> None:
        while True:
            self._jobs.get()()
            with self._lock:
                self._idle_count += 1


# All systems of the process share them.
_disk_threads = Threads("poe-work", _DISK_THREADS_MAX)
os.register_at_fork(after_in_child=_disk_threads.forget)
