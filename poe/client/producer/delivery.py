"""What becomes of a call: a delivery, which resolves by itself when its request is answered.

Strategy: the calls whose messages leave in one request share its outcome; a delivery is no more
than a place in it. Whoever waits is woken by the outcome, once, however many calls it has.
"""

import asyncio
import contextlib
import logging
import threading
from abc import ABC, abstractmethod
from bisect import bisect_left
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from functools import partial
from itertools import accumulate
from typing import Any, NamedTuple, TypeAlias, cast

from poe.errors import CallTimeout, PoeError, WouldBlock
from poe.errors.timeout import FOR_EVER_S, check_timeout

_log = logging.getLogger(__name__)

_BROKER = "the broker"
_FUTURES_MANY = 64

UNPLACED = -1
"""Stands for the partition of what has none: it is not known yet, or the picker has refused."""

callback_threads: set[int] = set()
"""Idents of the threads that receive answers at present, and so call callbacks."""


class Sent(NamedTuple):
    """Messages that a broker has acknowledged."""

    topic: bytes
    partition: int
    pointer: int
    """Of the last message; on Kafka its offset. 0 where the broker does not know it any more."""
    count: int  # type: ignore[assignment]  # hides the method of tuples, which nobody needs here
    """How many messages; those of one request have consecutive pointers."""


class Failed(NamedTuple):
    """A message of a keyed list that was not delivered, while others were."""

    partition: int
    error: PoeError


class Buffered(NamedTuple):
    """Messages that wait for their batch to be full or old."""

    partition: int
    buffered_count: int
    """Messages that wait there now, these included."""


Result: TypeAlias = Sent | list[Sent | Failed]


class Outcome:
    """Something that others wait for, such as room in a buffer.

    Any thread may wait; one thread settles, once. Without a lock: each action is run by whoever
    takes it out of the list, and that is one atomic step.
    """

    __slots__ = ("_actions", "_futures", "value")

    def __init__(self) -> None:
        self.value: Any = None
        """None until it is settled."""
        self._actions: list[Callable[[], object]] = []
        self._futures: dict[asyncio.AbstractEventLoop, list[asyncio.Future[None]]] | None = None

    def done(self) -> bool:
        """Return whether it is settled."""
        return self.value is not None

    def settle(self, value: object) -> None:
        """Set the value, which is not None, and wake all who wait."""
        self.value = value
        self._run_actions()

    def abandon(self, error: PoeError) -> None:
        """Settle it, and what follows from it, without waking anybody; unless it is settled."""
        actions = self._take_actions()
        if self.value is None:
            self.value = error
        for action in actions:
            follower = getattr(action, "__self__", None)
            if isinstance(follower, Outcome):
                follower.abandon(error)

    def when_settled(self, action: Callable[[], object]) -> None:
        """Call `action` once it is settled: in the thread that settles, or now."""
        self._actions.append(action)
        if self.value is not None:
            self._run_actions()

    def wait(self, timeout_s: float | None) -> None:
        """Block until it is settled.

        Raises:
            CallTimeout: it was not in time.
            WouldBlock: a callback has called this.
        """
        if self.value is None:
            _block(self.when_settled, self.forget, timeout_s)

    def forget(self, action: Callable[[], object]) -> None:
        """Call an action of `when_settled` no more: who waited has given up, maybe often."""
        with contextlib.suppress(ValueError):  # it was called in this moment
            self._actions.remove(action)

    def future(self) -> "asyncio.Future[None]":
        """Return a future of the running loop that is done when this is settled.

        A loop is woken once, for all of its futures: a thousand tasks may wait for one batch.
        """
        loop = asyncio.get_running_loop()
        future: asyncio.Future[None] = loop.create_future()
        if self._futures is None:
            self._futures = {}
        futures = self._futures.get(loop)
        if futures is None:
            futures = self._futures[loop] = []
            self.when_settled(partial(resolve_soon, loop, futures))
        # Of those who have given up, maybe often, nothing is kept; looked at now and then.
        count = len(futures)
        if count >= _FUTURES_MANY and not count & (count - 1):
            futures[:] = [each for each in futures if not each.done()]
        futures.append(future)
        return future

    def _run_actions(self) -> None:
        run_all(self._actions)

    def _take_actions(self) -> list[Callable[[], object]]:
        """Take out all actions; of a copy that a fork has made, which nobody else changes."""
        actions, self._actions = self._actions, []
        return actions


class RequestOutcome(Outcome, ABC):
    """What becomes of one request, for all calls in it.

    A call is the `count` messages before place `end`. What became of it may be known before the
    request is settled: all of its messages may have been taken out.
    """

    __slots__ = ()

    def is_known(self, end: int, count: int) -> bool:
        """Return whether it is known what became of a call."""
        del end, count
        return self.value is not None

    def when_known(self, end: int, count: int, action: Callable[[], object]) -> None:
        """Call `action` once that is known, as `when_settled` does."""
        del end, count
        self.when_settled(action)

    def forget_known(
        self, end: int, count: int, waiter: "Callable[[], object] | asyncio.Future[None]"
    ) -> None:
        """Call an action of `when_known` no more, or resolve a future of `future_of`."""
        del end, count
        if not isinstance(waiter, asyncio.Future):  # of futures nothing is kept anyway
            self.forget(waiter)

    def future_of(self, end: int, count: int) -> "asyncio.Future[None]":
        """Return a future of the running loop that is done when that is known."""
        del end, count
        return self.future()

    @abstractmethod
    def result_of(self, end: int, count: int) -> Result:
        """Return the result of the `count` messages before place `end`; only once settled.

        Raises:
            PoeError: they were not delivered.
        """

    @abstractmethod
    def results_of(self, end: int, count: int) -> list[Sent | Failed]:
        """Return the result of each of these messages; only once settled."""


class Delivery:
    """The future of one call: done when its messages are acknowledged or given up.

    It resolves by itself; `result` blocks any thread but the producer's own, `await` works in any
    asyncio loop.
    """

    __slots__ = ("count", "end", "outcome")

    def __init__(self, outcome: RequestOutcome, end: int = 0, count: int = 0) -> None:
        self.outcome = outcome
        self.end = end
        self.count = count

    def __repr__(self) -> str:
        return f"<Delivery {'done' if self.done() else 'pending'}>"

    def done(self) -> bool:
        """Return whether it is known what became of it."""
        outcome = self.outcome
        return outcome.value is not None or outcome.is_known(self.end, self.count)

    def wait(self, timeout_s: float | None) -> None:
        """Block until it is known.

        Raises:
            CallTimeout: it was not in time.
            WouldBlock: a callback has called this.
        """
        if not self.done():
            _block(self.when_done, self._forget, timeout_s)

    def when_done(self, action: Callable[[], object]) -> None:
        """Call `action` once it is known: in the thread that finds out, or now."""
        self.outcome.when_known(self.end, self.count, action)

    def _forget(self, action: Callable[[], object]) -> None:
        self.outcome.forget_known(self.end, self.count, action)

    def future(self) -> "asyncio.Future[None]":
        """Return a future of the running loop that is done when it is known."""
        return self.outcome.future_of(self.end, self.count)

    def result(self, timeout_s: float | None = None) -> Result:
        """Wait, and return what was sent: a list for a keyed list of messages, else one `Sent`.

        Of a keyed list of which only some were delivered, the others are `Failed` in it.

        Raises:
            CallTimeout: it is not known yet; the delivery goes on.
            WouldBlock: it is not known yet, and this is a callback.
            OptionError: `timeout_s` is no time.
            PoeError: the messages were not delivered, or are not known to be.
        """
        self.wait(check_timeout(timeout_s))
        return self.outcome.result_of(self.end, self.count)

    def exception(self, timeout_s: float | None = None) -> PoeError | None:
        """Wait, and return the error that `result` would raise, or None.

        Raises:
            CallTimeout: it is not known yet.
            OptionError: `timeout_s` is no time.
        """
        self.wait(check_timeout(timeout_s))
        try:
            self.outcome.result_of(self.end, self.count)
        except PoeError as error:
            return error
        return None

    def add_done_callback(self, function: "Callable[[Delivery], object]") -> None:
        """Call `function(delivery)` once it is done; at once, in this thread, if it is.

        Otherwise it is called in the producer's own thread: it must not block. What it raises is
        logged.
        """
        self.when_done(partial(function, self))

    def __await__(self) -> Generator[Any, None, Result]:
        if not self.done():
            future = self.future()
            try:
                yield from future
            except BaseException:  # cancelled: who has given up may ask again, and often
                self.outcome.forget_known(self.end, self.count, future)
                raise
        return self.outcome.result_of(self.end, self.count)


class Gathering(RequestOutcome):
    """The outcome of messages that have left in several requests, settled when all of these are.

    They are those of a call, or of a batch that was made before the partitions were known.
    """

    __slots__ = ("_placed", "_results", "_waiting_count", "failed", "is_keyed")

    def __init__(
        self,
        placed: Sequence[tuple[Delivery, Sequence[int]]],
        failed: Mapping[int, PoeError],
        *,
        is_keyed: bool,
    ) -> None:
        """Begin with what goes to each request, and its places, ascending.

        Args:
            placed: the deliveries, with as many places as messages.
            failed: why the messages of the other places have none.
            is_keyed: whether each message has a result of its own.
        """
        super().__init__()
        self.failed = failed
        self.is_keyed = is_keyed
        self._placed = placed
        self._results: list[Sent | Failed] = []
        # An iterator counts down in one atomic step: parts may end in different threads.
        self._waiting_count = iter(range(len(placed) - 1, -1, -1))
        if not placed:
            self.value = self  # the picker has refused all of it
        for part, _ in placed:
            part.when_done(self._note_one)

    def parts(self) -> list[Delivery]:
        """Return what went to each request."""
        return [part for part, _ in self._placed]

    def parts_of(self, end: int, count: int) -> Iterator[Delivery]:
        """Return what of the `count` messages before place `end` went to each request."""
        for part, places in self._placed:
            first, last = bisect_left(places, end - count), bisect_left(places, end)
            if first < last:
                part_end = part.end - len(places) + last
                yield Delivery(part.outcome, part_end, last - first)

    def result_of(self, end: int, count: int) -> Result:
        """Return the result of a call: of one with keys that of each message.

        Raises:
            PoeError: the first one's; some were not delivered, or with keys none.
        """
        if self.is_keyed:
            found = self.results_of(end, count)
            if all(isinstance(each, Failed) for each in found):
                raise cast(Failed, found[0]).error.with_traceback(None)
            return found
        for place in range(end - count, end) if self.failed else ():
            if place in self.failed:
                raise self.failed[place].with_traceback(None)
        sent = [
            cast(Sent, part.outcome.result_of(part.end, part.count))
            for part in self.parts_of(end, count)
        ]
        return sent[-1]._replace(count=sum(each.count for each in sent))

    def results_of(self, end: int, count: int) -> list[Sent | Failed]:
        """Return the result of each message."""
        if not self._results:
            found: dict[int, Sent | Failed] = {
                place: Failed(UNPLACED, error) for place, error in self.failed.items()
            }
            for part, places in self._placed:
                results = part.outcome.results_of(part.end, part.count)
                found.update(zip(places, results, strict=True))
            self._results = [found[place] for place in range(len(found))]
        return self._results[end - count : end]

    def _note_one(self) -> None:
        if next(self._waiting_count) == 0:
            self.settle(self)


def in_a_row(parts: Sequence[Delivery]) -> list[tuple[Delivery, Sequence[int]]]:
    """Return deliveries with their places, where those of each follow those of the one before."""
    ends = list(accumulate(part.count for part in parts))
    return [(part, range(end - part.count, end)) for part, end in zip(parts, ends, strict=True)]


def run_all(actions: list[Callable[[], object]]) -> None:
    """Run actions in order, each once, though several threads may run the same list."""
    while actions:
        try:
            action = actions.pop(0)
        except IndexError:  # another thread was faster
            return
        try:
            action()
        # `sys.exit`, too, would end the thread that all others wait for.
        except BaseException:  # noqa: BLE001 - logged; others wait for the same answer
            _log.exception("a callback of a delivery raised")


def resolve_soon(loop: asyncio.AbstractEventLoop, futures: "list[asyncio.Future[None]]") -> None:
    """Resolve futures of a loop in its thread; from any thread."""
    # A loop that was closed has nobody left to be told, and may be closed in this moment.
    with contextlib.suppress(RuntimeError):
        loop.call_soon_threadsafe(_resolve, futures)


def _block(
    when: Callable[[Callable[[], object]], None],
    forget: Callable[[Callable[[], object]], None],
    timeout_s: float | None,
) -> None:
    """Block until what is given to `when` is called; where it gives up, it is given to `forget`.

    Raises:
        CallTimeout: it was not in time.
        WouldBlock: a callback has called this.
    """
    check_may_block("it")
    # A bare lock: an Event, which has a Condition in it, costs several times as much.
    lock = threading.Lock()
    lock.acquire()
    when(lock.release)
    limit_s = -1 if timeout_s is None else min(max(timeout_s, 0.0), FOR_EVER_S)
    is_called = False
    try:
        is_called = lock.acquire(timeout=limit_s)
    finally:
        if not is_called:
            forget(lock.release)
    if not is_called:
        raise CallTimeout(_BROKER, timeout_s or 0.0)


def check_may_block(call: str) -> None:
    """Refuse a call that would wait for what its own thread has to do.

    Raises:
        WouldBlock: it is made in a callback.
    """
    if threading.get_ident() in callback_threads:
        raise WouldBlock(call)


def _resolve(futures: "list[asyncio.Future[None]]") -> None:
    for future in futures:
        if not future.done():
            future.set_result(None)
