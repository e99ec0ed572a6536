"""A function that blocks, run for an actor by a thread, so that other actors go on meanwhile.

The actor gets the `Work` back in `handle_info` when it is done, or awaits it by `run_blocking`. The
function must touch nothing that actors touch: it runs beside them. Under an injected clock there
are no threads: the system then says when the function runs, and when its end arrives.

Strategy against what hangs: nobody can end a thread, so each actor has a share of its own, and what
it cannot have at once waits behind its own works only. The disk's threads are apart.
"""

import os
from collections import deque
from collections.abc import Callable
from functools import partial
from queue import SimpleQueue
from threading import Lock, Thread
from typing import Any, Final, Protocol

from poe.actors.actor_cell import ActorCell
from poe.actors.call import Wait
from poe.actors.event_loop import EventLoop
from poe.actors.reason import is_for_program
from poe.actors.server_cell import cell_of_actor
from poe.errors import TooMuchWork

WORK_RUNNING_MAX: Final = 16
"""Works of one actor that run at a time; more wait for these."""
WORK_MAX: Final = 10_000
"""Works of one actor that run or wait; one more is refused."""
THREADS_MAX: Final = 1024
"""Threads for the works of all actors of the process."""
_LOOK_S = 0.01
_DISK_THREADS_MAX = 16
"""One disk needs few; a thread is taken for as long as a stalled disk pleases."""


class _Submits(Protocol):
    """Has threads for functions that block."""

    def submit(self, job: Callable[[], object]) -> None:
        """Have a thread call `job`, which raises nothing."""
        ...


class Work:
    """One run of a function for one actor; begins when it is made.

    `result` is what the function returned, or `error` what it raised, once it is done. Nobody is
    told of one that was cancelled, or whose actor has ended.

    Raises:
        TooMuchWork: on construction; so many of the actor's works are not done.
    """

    __slots__ = (
        "_begun",
        "_cell",
        "_function",
        "_is_cancelled",
        "_is_counted",
        "_outlives_actor",
        "_running",
        "_wait",
        "error",
        "result",
    )

    def __init__(
        self,
        actor: object,
        function: Callable[[], object],
        threads: _Submits | None = None,
        *,
        is_awaited: bool = False,
        outlives_actor: bool = False,
    ) -> None:
        """Begin.

        Args:
            actor: the GenServer that is told, in `handle_info`.
            function: is called without arguments.
            threads: others than those that all actors share.
            is_awaited: whether the actor awaits the end instead; see `run_blocking`.
            outlives_actor: whether it is done, too, where the actor has ended before a thread had
                time.
        """
        self._cell = cell_of_actor(actor)
        self._function = function
        self._is_cancelled = False
        self._outlives_actor = outlives_actor
        self._is_counted = False
        self._begun = Lock()
        self._running = Lock()
        self._running.acquire()
        self._wait = Wait(self._cell) if is_awaited else None
        self.result: Any = None
        self.error: BaseException | None = None
        if self._cell.run_queue.is_simulated:
            self._cell.run_queue.simulate_work(self._run, self._tell)
            return
        event_loop: object = self._cell.run_queue.event_loop()
        job = self._run
        if isinstance(event_loop, EventLoop):
            job = partial(self._run_and_tell, event_loop)
        if threads is None:
            _shares.submit(self._cell, job)
        else:
            threads.submit(job)
        if isinstance(event_loop, EventLoop):
            # Its end waits for the lock, which this actor's turn has.
            self._is_counted = True
            self._cell.run_queue.works_count += 1
        else:
            self._look()

    def wait(self) -> None:
        """Block until it is done; for an actor that is about to end, or has to know now."""
        if self._cell.run_queue.is_simulated:
            self._run()
        with self._running:
            pass

    def cancel(self) -> None:
        """Give it up: its actor is not told. What runs already cannot be ended, and runs on."""
        self._is_cancelled = True
        self._uncount()

    def withdraw(self) -> bool:
        """Take it back, unless a thread has begun: then nobody calls the function any more.

        Returns whether it is taken back.
        """
        if not self._begun.acquire(blocking=False):
            return False
        del self._function  # it may hold files, and the job has yet to find a thread
        self._running.release()
        self.cancel()
        return True

    async def outcome(self) -> Any:  # noqa: ANN401 - whatever the function returns
        """Await the end of one that was made to be awaited: the result, or the error raised."""
        assert self._wait is not None
        try:
            await self._wait
        finally:
            self.cancel()
        if self.error is not None:
            raise self.error
        return self.result

    def _run(self) -> None:
        if not self._begun.acquire(blocking=False):
            return  # taken back; or in simulated time, where the actor could not wait for its turn
        # What waited for a thread may be nobody's by now.
        is_wanted = self._outlives_actor or self._cell.instance is not None
        if is_wanted and not self._is_cancelled:
            try:
                self.result = self._function()
            except BaseException as error:  # the actor decides what it means
                # `sys.exit()`, too: it would end the thread, and nobody would hear of the work.
                if is_for_program(error):
                    raise
                self.error = error
        self._running.release()

    def _run_and_tell(self, loop: EventLoop) -> None:
        self._run()
        # By the event loop: a thread that waited here for its turn to run actors would keep others'
        # work waiting, and with it an actor that waits for one of them while actors cannot run.
        loop.wake(partial(self._cell.run_queue.run_outside, self._come_back))

    def _come_back(self) -> None:
        self._uncount()
        self._tell()

    def _uncount(self) -> None:
        if self._is_counted:
            self._is_counted = False
            self._cell.run_queue.works_count -= 1

    def _look(self) -> None:
        """Look again and again whether it is done: a process of Thespian's listens to no thread."""
        if not self._running.locked():
            self._tell()
        elif self._cell.instance is not None:
            self._cell.own().add_timer(_LOOK_S, self._look)

    def _tell(self) -> None:
        if self._is_cancelled:
            return
        if self._wait is None:
            self._cell.post(self)
        else:
            self._wait.finish(None)


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
        self._job_count = 0
        """Jobs that wait or run."""

    def submit(self, job: Callable[[], object]) -> None:
        """Have a thread call `job`, which raises nothing.

        Raises:
            RuntimeError: the system gives this process not even one thread.
        """
        with self._lock:
            if self._count <= self._job_count and self._count < self._threads_max:
                self._start()
            self._job_count += 1
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
                self._job_count -= 1


class _Share:
    """What one actor has of the threads."""

    __slots__ = ("running_count", "waiting")

    def __init__(self) -> None:
        self.running_count = 0
        self.waiting: deque[Callable[[], object]] = deque()


class _Shares:
    """The works of all actors of the process that are not done; there is nothing of the others."""

    def __init__(self) -> None:
        self._threads = Threads("poe-work", THREADS_MAX)
        self.forget()

    def forget(self) -> None:
        """Begin anew, as in a process that was forked."""
        self._threads.forget()
        self._lock = Lock()
        self._of: dict[ActorCell, _Share] = {}

    def submit(self, cell: ActorCell, job: Callable[[], object]) -> None:
        """Have a thread call `job`, now or after others of the same actor.

        Raises:
            TooMuchWork: so many wait already.
            RuntimeError: the system gives this process not even one thread.
        """
        with self._lock:
            share = self._of.get(cell) or _Share()
            if share.running_count >= WORK_RUNNING_MAX:
                if share.running_count + len(share.waiting) >= WORK_MAX:
                    raise TooMuchWork(cell.address, WORK_MAX)
                share.waiting.append(job)
                return
            self._threads.submit(partial(self._run, cell, share, job))
            # Only now: what no thread was given for would never end.
            share.running_count += 1
            self._of[cell] = share

    def _run(self, cell: ActorCell, share: _Share, job: Callable[[], object]) -> None:
        job()
        with self._lock:
            if not share.waiting:
                share.running_count -= 1
                if not share.running_count:
                    del self._of[cell]
                return
            job = share.waiting.popleft()
        # Not called from here: others may be waiting for this thread.
        self._threads.submit(partial(self._run, cell, share, job))


_shares = _Shares()
DISK_THREADS: Final = Threads("poe-disk", _DISK_THREADS_MAX)
"""For syncs, of all systems of the process."""
os.register_at_fork(after_in_child=_shares.forget)
os.register_at_fork(after_in_child=DISK_THREADS.forget)
