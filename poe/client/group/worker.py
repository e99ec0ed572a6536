"""A pool of handlers on a work queue, under supervision.

worker_sup     simple_one_for_one
└── slot …     permanent, one for each handler that may run at a time

A slot has one job at a time. Its handler runs in a thread, or as a coroutine on an event loop that
handlers have to themselves, so that neither keeps the queue from being heard of.
"""

import asyncio
import inspect
import logging
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields
from functools import partial
from typing import Annotated, Any, Final, Self

from poe.actors import SHUTDOWN, GenServer, LoopSystem
from poe.actors.async_work import AsyncWork
from poe.client.consumer.loop_thread import LoopThread
from poe.client.group.async_queue import AsyncQueue
from poe.client.group.job import Job, reason_of
from poe.client.local_server import LocalServer
from poe.client.patience import NOT_LET_IN
from poe.client.timeouts import deadline_of, left_s
from poe.errors import (
    ActorDead,
    ConfigError,
    CorruptGroup,
    GroupMismatch,
    InvalidGroupName,
    InvalidTopicName,
    LeaseLost,
    NotAuthorized,
    OptionError,
    OriginalServer,
    PoeError,
    QueueClosed,
    UnknownGroup,
)
from poe.option import Range, check_options
from poe.supervision import (
    Backoff,
    ChildSpec,
    StartDynamicChild,
    Strategy,
    Supervisor,
    SupervisorFlags,
)

_log = logging.getLogger(__name__)

Handler = Callable[[Job], object] | Callable[[Job], Coroutine[Any, Any, object]]

_INTENSITY: Final = 10
"""Restarts of each slot within `_PERIOD_S`, after which the pool gives up."""
_PERIOD_S: Final = 3600
_LOOK_S = 0.2
_CANCEL_S = 5.0
"""How long coroutines that were cancelled are waited for, and those that they have begun."""
_FINAL: Final = (
    *NOT_LET_IN,
    NotAuthorized,
    ConfigError,
    CorruptGroup,
    GroupMismatch,
    InvalidGroupName,
    InvalidTopicName,
    OriginalServer,
    UnknownGroup,
)
"""What the group refuses, however often it is asked; also that somebody has deleted it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerOptions:
    """How many handlers run, and how they end.

    Raises:
        OptionError: on construction, naming the option and what is allowed.
    """

    concurrency: Annotated[int, Range(1, 1000)] = 8
    """Handlers that run at a time."""

    stop_timeout_s: Annotated[float, Range(unit="seconds")] = 30.0
    """How long `stop` waits for those that run; then their messages go to others."""

    def __post_init__(self) -> None:
        """Reject what cannot be worked with."""
        check_options(self, none="None")


class GroupWorker:
    """Has a function or a coroutine function work on the messages of a topic, several at a time.

        with GroupWorker("poe://localhost:5555", "jobs", handle, concurrency=4) as worker:
            worker.join()

    Args (of the constructor):
        url, topics, group: as of `Queue`.
        handler: gets a `Job`. When it returns, the job is done; when it raises, or calls
            `sys.exit`, it is tried again, with the error as the reason; or it says itself what
            becomes of it: `job.dead(…)`.
        options: see `WorkerOptions` and `QueueOptions`; by default `batch` is as large as
            `concurrency`, and `timeout_s` None, so that a server may be away for as long as it
            likes.

    A handler that never returns holds its slot only. What fails in a slot itself has the slot
    started anew, later and later; `join` tells when the pool has given that up, and at once when
    the group refuses it.

    Raises:
        UnknownOption, OptionError: on construction, naming what is allowed.
    """

    def __init__(
        self,
        url: str | LocalServer,
        topics: Any,  # noqa: ANN401 - as of `Queue`
        handler: Handler,
        /,
        *,
        group: str = "workers",
        **options: Any,  # noqa: ANN401 - checked by `WorkerOptions` and `QueueOptions`
    ) -> None:
        if not callable(handler):
            raise OptionError("handler", handler, "a function that takes a job")
        own = {each.name for each in fields(WorkerOptions)} & options.keys()
        self._options = WorkerOptions(**{name: options.pop(name) for name in own})
        defaults = {"batch": self._options.concurrency, "timeout_s": None}
        self._queue = AsyncQueue(url, topics, group=group, **{**defaults, **options})
        self._handler = handler
        self._loop: LoopThread | None = None
        self._handling: set[asyncio.Task[Any]] = set()
        """Coroutines of handlers that run."""
        self._system = LoopSystem()
        self._root: Any = None
        self._refusal: PoeError | None = None
        self._stopping = threading.Lock()
        self._stoppers: set[int] = set()
        """The threads that are in `stop`."""
        self._is_stopped = threading.Event()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        """Begin to work; the group is joined when the first job is asked for."""
        handler = self._handler
        if inspect.iscoroutinefunction(handler) or inspect.iscoroutinefunction(
            getattr(handler, "__call__", None)  # noqa: B004 - of an object whose call is a coroutine
        ):
            at_end = partial(_cancel, self._handling)
            self._loop = LoopThread("handlers", at_end, QueueClosed)
        shutdown_s = self._options.stop_timeout_s
        slot = ChildSpec(
            id="slot",
            actor=Slot,
            args=(self._queue, self._work, self._give_up),
            shutdown_s=shutdown_s,
        )
        flags = SupervisorFlags(
            strategy=Strategy.SIMPLE_ONE_FOR_ONE,
            intensity=_INTENSITY * self._options.concurrency,
            period_s=_PERIOD_S,
            backoff=Backoff(max_s=5.0, jitter=0.2),
        )
        self._root = self._system.start(Supervisor, flags, [slot], name="worker_sup")
        for _ in range(self._options.concurrency):
            self._system.call(self._root, StartDynamicChild())

    def join(self, timeout_s: float | None = None) -> bool:
        """Wait until it is stopped; False where it is not within `timeout_s`.

        Raises:
            ActorDead: it has given up: its slots have failed too often; the log tells why.
            GroupMismatch: the group is of another mode, or of other topics.
            UnknownGroup: somebody has deleted the group.
            CorruptGroup: what the server holds of it is damaged.
            InvalidGroupName, InvalidTopicName, OptionError: the server refuses a name, or the
                options of the group; or `timeout_s` is no time.
            AuthenticationFailed, NotAuthorized, TlsFailed: it does not let the pool in.
            OriginalServer: it is the original's, which knows no groups.
        """
        deadline_s = deadline_of(timeout_s)
        while not self._is_stopped.wait(_LOOK_S):
            if self._refusal is not None:
                raise self._refusal
            has_ended = self._root is not None and not self._system.is_alive(self._root)
            if has_ended and not (self._stopping.locked() or self._is_stopped.is_set()):
                raise ActorDead(self._root, "its slots have failed too often")
            if time.monotonic() >= deadline_s:
                return False
        return True

    def stop(self) -> None:
        """Take no more jobs, let those that run end, and leave. Twice is harmless.

        A signal handler may call it; where it has interrupted a stop, that goes on behind it.

        What runs for longer than `stop_timeout_s` goes on in its thread, or is cancelled where it
        is a coroutine, but its message is another member's to try.
        """
        me = threading.get_ident()
        if me in self._stoppers:
            return  # of a signal handler, which has interrupted this
        try:
            self._stoppers.add(me)
            with self._stopping:
                if not self._is_stopped.is_set():
                    self._stop()
        finally:
            self._stoppers.discard(me)

    def _stop(self) -> None:
        deadline_s = time.monotonic() + self._options.stop_timeout_s
        try:
            if self._root is not None and self._system.is_alive(self._root):
                limit_s = self._options.stop_timeout_s + 5
                self._system.stop(self._root, SHUTDOWN, timeout_s=limit_s)
        finally:
            self._queue.close_now()
            if self._loop is not None:
                self._loop.close(max(_CANCEL_S, left_s(deadline_s)))
            self._system.shutdown()
            self._is_stopped.set()

    def statistics(self) -> dict[str, int]:
        """Return what `Queue.statistics` does; `working` is how many handlers run."""
        return self._queue.statistics()

    def _give_up(self, refusal: PoeError) -> None:
        """Keep for `join` what trying again does not change; log it for who never joins."""
        if self._refusal is None:
            self._refusal = refusal
            _log.error("the pool does nothing: %s", refusal, extra={"report": "refusal"})

    def _work(self, job: Job) -> None:
        """Have the handler work on a job, in the thread of a slot."""
        try:
            with job:
                if self._loop is None:
                    with _failing(job):
                        self._handler(job)
                else:
                    self._loop.run(_await(self._handler, job, self._handling))
        except (LeaseLost, QueueClosed) as error:
            _log.warning("%s came to its end too late: %s", job, error)
        except Exception:  # noqa: BLE001 - it is the message's, and ends no slot
            _log.exception("%s is tried again, or is a dead letter", job)


class Slot(GenServer):
    """Works on one job after the other; between two of them it may be stopped."""

    trap_exits = True  # a stop waits for the job that is under way

    def init(
        self,
        queue: AsyncQueue,
        work: Callable[[Job], None],
        give_up: Callable[[PoeError], None],
    ) -> None:
        """Ask for the first job."""
        self._queue = queue
        self._work = work
        self._give_up = give_up
        self._ask()

    async def handle_info(self, message: AsyncWork) -> None:
        """Work on the job that has come, and ask for the next one; not after a final refusal."""
        if isinstance(message.error, _FINAL):
            self._give_up(message.error)
            return
        if message.error is not None:
            raise message.error
        await self.run_blocking(self._work, message.result)
        self._ask()

    def terminate(self, reason: object) -> None:
        """Ask no more."""
        del reason
        self._asking.cancel()

    def _ask(self) -> None:
        self._asking = AsyncWork(self, self._queue.get())


@contextmanager
def _failing(job: Job) -> Iterator[None]:
    """Have a job fail of what is no `Exception`: it would end the thread, or the loop."""
    try:
        yield
    except Exception:  # that the job hears of itself
        raise
    except BaseException as error:  # noqa: BLE001 - `sys.exit` ends no program from here
        job.nack(reason=reason_of(error))  # an error where it is too late, as at a stop
        _log.exception("%s is tried again, or is a dead letter", job)


async def _await(handler: Handler, job: Job, handling: set[asyncio.Task[Any]]) -> None:
    task = asyncio.current_task()
    assert task is not None
    handling.add(task)
    try:
        with _failing(job):
            await handler(job)  # type: ignore[misc]  # it was looked at
    finally:
        handling.discard(task)


async def _cancel(handling: set[asyncio.Task[Any]]) -> None:
    """Cancel handlers; what they have begun beside goes on, and is waited for."""
    for task in handling:
        task.cancel()
