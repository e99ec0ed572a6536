"""The producer for asyncio: the same as `Producer`, and what would block there is awaited here."""

import asyncio
import time
from collections.abc import Callable
from functools import partial
from types import TracebackType
from typing import Any, Self, TypeVar, overload

from poe.client.producer.block_end import log_undelivered, patience_s
from poe.client.producer.delivery import Buffered, Delivery, Failed, Outcome, Result, Sent
from poe.client.producer.partition_queue import CallSoon
from poe.client.producer.producer_core import ProducerCore, Steps
from poe.client.producer.topic_info import TopicInfo, Undelivered, WorkerInfo
from poe.client.producer.topic_queues import buffered_of
from poe.client.producer.transport import TopicMetadata
from poe.client.timeouts import TimeoutQueue, end
from poe.errors import BufferFull
from poe.errors.timeout import check_timeout

T = TypeVar("T")

_TIMEOUT_S = 5.0
"""As long as ekaf's calls wait."""


class AsyncProducer:
    """Sends messages to topics of Poe or Kafka; see `Producer` for what all methods have in common.

    Tasks of any asyncio loops may use one. A call that is cancelled is withdrawn if it was not sent
    yet; otherwise its messages may be stored.
    """

    def __init__(self, url: str, /, **options: Any) -> None:  # noqa: ANN401 - checked by `ProducerOptions`
        self._core = ProducerCore(url, options)
        self._timeouts: dict[tuple[asyncio.AbstractEventLoop, float], TimeoutQueue] = {}

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        log_undelivered(await self.close(patience_s(error, self._core.all_topics())))

    # ---- producing ----------------------------------------------------------------------------

    @overload
    async def produce_sync(
        self, topic: bytes | str, data: bytes | list[bytes], timeout_s: float | None = None
    ) -> Sent: ...

    @overload
    async def produce_sync(
        self, topic: bytes | str, data: object, timeout_s: float | None = None
    ) -> Result: ...

    async def produce_sync(
        self, topic: bytes | str, data: object, timeout_s: float | None = None
    ) -> Result:
        """Send at once, and wait for the answer, see `Producer.produce_sync`."""
        core = self._core
        loop = asyncio.get_running_loop()
        if timeout_s is None:
            limit_s = core.topic(topic).options.request_timeout_s
        else:
            limit_s = check_timeout(timeout_s)
        deadline_s = time.monotonic() + limit_s
        try:
            delivery = core.add(topic, data, is_due=True, call_soon=loop.call_soon)
        except BufferFull:
            adding = core.add_when_room(topic, data, is_due=True, deadline_s=deadline_s)
            delivery = await _run(adding)
        if not delivery.done():
            try:
                if timeout_s is None:  # it waits as long as most calls do
                    future = delivery.future()
                    self._timeout_queue(loop, limit_s).limit(future)
                    await future
                else:
                    await _wait(delivery, deadline_s)
            except asyncio.CancelledError:
                core.give_up_waiting(topic, delivery, limit_s)
                raise
            if not delivery.done():
                error = core.give_up_waiting(topic, delivery, limit_s)
                if error is not None:
                    raise error
        return delivery.outcome.result_of(delivery.end, delivery.count)

    def _timeout_queue(self, loop: asyncio.AbstractEventLoop, limit_s: float) -> TimeoutQueue:
        """Return what ends waits of a loop that last as long; the loop is running."""
        key = loop, limit_s
        queue = self._timeouts.get(key)
        if queue is None:
            for other, other_s in list(self._timeouts):
                if other.is_closed():
                    self._timeouts.pop((other, other_s), None)
            queue = self._timeouts[key] = TimeoutQueue(limit_s)
        return queue

    async def produce_async(self, topic: bytes | str, data: object) -> Delivery:
        """Send at once, and return what can be awaited, see `Producer.produce_async`."""
        call_soon = asyncio.get_running_loop().call_soon
        return await self._add(topic, data, is_due=True, call_soon=call_soon)

    async def produce_async_batched(self, topic: bytes | str, data: object) -> Delivery:
        """Add to a batch, see `Producer.produce_async_batched`."""
        return await self._add(topic, data, is_due=False)

    async def produce_sync_batched(
        self, topic: bytes | str, data: object
    ) -> Buffered | list[Buffered | Failed]:
        """Add to a batch, and return how many messages that has now, see `Producer`."""
        return buffered_of(await self._add(topic, data, is_due=False))

    publish = produce_async
    """ekaf's name."""
    batch = produce_sync_batched
    """ekaf's name."""

    async def _add(
        self, topic: bytes | str, data: object, *, is_due: bool, call_soon: CallSoon | None = None
    ) -> Delivery:
        core = self._core
        try:
            return core.add(topic, data, is_due=is_due, call_soon=call_soon)
        except BufferFull:
            return await _run(core.add_when_room(topic, data, is_due=is_due))

    # ---- threads ------------------------------------------------------------------------------

    def loop(self) -> asyncio.AbstractEventLoop:
        """Return the producer's own event loop, which runs in a thread of its own.

        A program that gives it all its tasks (`asyncio.run_coroutine_threadsafe`) spares the change
        of threads with each message. There a full buffer raises at once, whatever `on_full` says,
        and `close` must not be called: it ends the loop.

        Raises:
            ProducerClosed: it has none any more.
        """
        return self._core.loop()

    # ---- topics -------------------------------------------------------------------------------

    async def pick(
        self, topic: bytes | str, function: Callable[[WorkerInfo], T] | None = None
    ) -> WorkerInfo | T:
        """Return the worker of the next call's partition, see `Producer.pick`."""
        worker = await _run(self._core.pick(topic))
        return worker if function is None else function(worker)

    async def prepare(
        self,
        topic: bytes | str,
        function: Callable[[TopicInfo], T] | None = None,
        timeout_s: float | None = _TIMEOUT_S,
    ) -> TopicInfo | T:
        """Connect before the first message, see `Producer.prepare`."""
        info = (await _run(self._core.ready(topic, timeout_s))).info()
        return info if function is None else function(info)

    async def metadata(
        self, topic: bytes | str, timeout_s: float | None = _TIMEOUT_S
    ) -> TopicMetadata:
        """Return brokers and partitions, see `Producer.metadata`."""
        return await _run(self._core.metadata(topic, timeout_s))

    async def info(self, topic: bytes | str) -> TopicInfo:
        """Return the state of a topic, without waiting for anything."""
        return self._core.topic(topic).info()

    # ---- end ----------------------------------------------------------------------------------

    async def flush(self, timeout_s: float | None = None) -> bool:
        """Send all that waits, and wait for the answers, see `Producer.flush`."""
        return await _run(self._core.flush(timeout_s))

    async def close(self, timeout_s: float | None = None) -> list[Undelivered]:
        """Deliver what waits, end, and return what was not delivered, see `Producer.close`.

        Where it is cancelled, it logs what was not delivered.
        """
        core = self._core
        limit_s = check_timeout(core.options.close_timeout_s if timeout_s is None else timeout_s)
        if not core.refuse():
            return []
        # No task: the end of `asyncio.run` would cancel it, too.
        start_end = partial(asyncio.get_running_loop().run_in_executor, None, core.end)
        ending: asyncio.Future[list[Undelivered]] | None = None
        try:
            await self.flush(limit_s)
            ending = start_end()
            return await asyncio.shield(ending)
        except BaseException:  # cancelled: whoever has called does not get what is returned
            ending = ending or start_end()
            ending.add_done_callback(lambda ended: log_undelivered(ended.result()))
            await asyncio.shield(ending)  # which may be cancelled again
            raise

    async def statistics(self) -> dict[str, Any]:
        """Return counts: of messages sent, delivered, failed, dropped, retried, buffered."""
        return self._core.statistics()


async def _run(steps: Steps[T]) -> T:
    """Return what a call comes to; it waits in this task."""
    try:
        wait = next(steps)
        while True:
            wait = steps.send(await _wait(wait.outcome, wait.deadline_s))
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]  # what `Steps` says


async def _wait(outcome: Outcome | Delivery, deadline_s: float) -> bool:
    """Wait until it is settled; False when it was not in time."""
    if not outcome.done():
        future = outcome.future()
        # A timer costs less than a time-out's scope does, and a thousand of them are for nothing.
        loop = asyncio.get_running_loop()
        timer = loop.call_later(deadline_s - time.monotonic(), partial(end, future))
        try:
            await future
        finally:
            timer.cancel()
    return outcome.done()
