"""The producer for threads: messages in, batches out, and a delivery for each call."""

import time
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self, TypeVar, overload

from poe.client.producer.block_end import log_undelivered, patience_s
from poe.client.producer.delivery import (
    Buffered,
    Delivery,
    Failed,
    Result,
    Sent,
    check_may_block,
)
from poe.client.producer.producer_core import ProducerCore, Steps
from poe.client.producer.topic_info import TopicInfo, Undelivered, WorkerInfo
from poe.client.producer.topic_queues import buffered_of
from poe.client.producer.transport import TopicMetadata
from poe.client.timeouts import deadline_of
from poe.errors import BufferFull, CallTimeout
from poe.errors.timeout import check_timeout

T = TypeVar("T")

_TIMEOUT_S = 5.0
"""As long as ekaf's calls wait."""


class Producer:
    """Sends messages to topics of Poe or Kafka.

    Any number of threads may use one; after a fork the child's begins afresh, with an empty buffer.
    A topic's connections are made when it is first used. `close` it, or use it in a `with`.

    Payloads are `bytes`, `(key, value)`, `Message`, or lists of those: see
    `poe.client.producer.payload`.

    Args:
        url: `poe://host:port` or `kafka://host:port`, with more addresses after commas.
        options: see `ProducerOptions` and `TopicOptions`.

    Raises:
        OptionError, UnknownOption: on construction.

    Source: ekaf.erl; docs/producer.md tells what differs.
    """

    def __init__(self, url: str, /, **options: Any) -> None:  # noqa: ANN401 - checked by `ProducerOptions`
        self._core = ProducerCore(url, options)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        log_undelivered(self.close(patience_s(error, self._core.all_topics())))

    # ---- producing ----------------------------------------------------------------------------

    @overload
    def produce_sync(
        self, topic: bytes | str, data: bytes | list[bytes], timeout_s: float | None = None
    ) -> Sent: ...

    @overload
    def produce_sync(
        self, topic: bytes | str, data: object, timeout_s: float | None = None
    ) -> Result: ...

    def produce_sync(
        self, topic: bytes | str, data: object, timeout_s: float | None = None
    ) -> Result:
        """Send at once, wait for the broker's answer, and return where the messages are.

        Args:
            topic: its name.
            data: the payload; a list goes as one request, if it is no larger than a batch.
            timeout_s: how long to wait, for room in the buffer too; None: `request_timeout_s`.

        Returns:
            A `Sent`; for a payload with keys a list, with a `Sent` or `Failed` for each message.

        Raises:
            BrokerDown, DeliveryTimeout: not sent in time, and withdrawn: it will not be.
            CallTimeout: sent, and not answered in time; it may be stored, or may yet be.
            BufferFull, InvalidPayload, PickerFailed, ProducerClosed: nothing was sent.
            OptionError: `timeout_s` is no time; nothing was sent.
            WouldBlock: it is called in a callback; nothing was sent.
            PoeError: the broker's refusal, for all messages.
        """
        core = self._core
        check_may_block("produce_sync")
        if timeout_s is None:
            timeout_s = core.topic(topic).options.request_timeout_s
        deadline_s = deadline_of(timeout_s)
        delivery = self._add(topic, data, is_due=True, deadline_s=deadline_s)
        try:
            core.wait(delivery, deadline_s)
        except CallTimeout:
            error = core.give_up_waiting(topic, delivery, timeout_s)
            if error is not None:
                raise error from None
        return delivery.outcome.result_of(delivery.end, delivery.count)

    def produce_async(self, topic: bytes | str, data: object) -> Delivery:
        """Send at once, and return what tells later what became of it.

        Where as many requests are under way as may be, it goes with the next one.

        Raises:
            BufferFull: there was no room in time; nothing was taken.
            InvalidPayload, PickerFailed, ProducerClosed: nothing was taken.
        """
        return self._add(topic, data, is_due=True)

    def produce_async_batched(self, topic: bytes | str, data: object) -> Delivery:
        """Add to a batch, which leaves at `batch_count`, `batch_bytes` or `linger_s`.

        Raises:
            PoeError: as `produce_async`.
        """
        try:  # as `_add` does; one call less, where each counts
            return self._core.add(topic, data, is_due=False)
        except BufferFull:
            return _run(self._core.add_when_room(topic, data, is_due=False))

    def produce_sync_batched(
        self, topic: bytes | str, data: object
    ) -> Buffered | list[Buffered | Failed]:
        """Add to a batch, and return how many messages that has now.

        For a payload with keys it is a list: one for each batch that has got some of it, and a
        `Failed` for each message that the picker has refused; `PickerFailed` where it has all.

        Raises:
            PoeError: as `produce_async`.
        """
        delivery = self._add(topic, data, is_due=False)
        return buffered_of(delivery)

    publish = produce_async
    """ekaf's name."""
    batch = produce_sync_batched
    """ekaf's name."""

    def _add(
        self, topic: bytes | str, data: object, *, is_due: bool, deadline_s: float | None = None
    ) -> Delivery:
        try:
            return self._core.add(topic, data, is_due=is_due)
        except BufferFull:
            return _run(self._core.add_when_room(topic, data, is_due=is_due, deadline_s=deadline_s))

    # ---- topics -------------------------------------------------------------------------------

    def pick(
        self, topic: bytes | str, function: Callable[[WorkerInfo], T] | None = None
    ) -> WorkerInfo | T:
        """Return the worker of the partition that the next call goes to, or `function` of it.

        Raises:
            BrokerDown: there is none.
        """
        worker = _run(self._core.pick(topic))
        return worker if function is None else function(worker)

    def prepare(
        self,
        topic: bytes | str,
        function: Callable[[TopicInfo], T] | None = None,
        timeout_s: float | None = _TIMEOUT_S,
    ) -> TopicInfo | T:
        """Connect before the first message; return what is known then, or `function` of it.

        Raises:
            BrokerDown: no broker can be reached in time; the topic goes on trying.
            ProducerClosed: it is closed, or was while this waited.
            InvalidTopicName, LocalProtocolError: no topic there can have this name.
        """
        info = _run(self._core.ready(topic, timeout_s)).info()
        return info if function is None else function(info)

    def metadata(self, topic: bytes | str, timeout_s: float | None = _TIMEOUT_S) -> TopicMetadata:
        """Return brokers and partitions, as they were last asked for.

        Raises:
            BrokerDown: nobody has told them in time.
            ProducerClosed: as `prepare`.
            LocalProtocolError: as `prepare`, on Kafka.
        """
        return _run(self._core.metadata(topic, timeout_s))

    def info(self, topic: bytes | str) -> TopicInfo:
        """Return the state of a topic, without waiting for anything."""
        return self._core.topic(topic).info()

    # ---- end ----------------------------------------------------------------------------------

    def flush(self, timeout_s: float | None = None) -> bool:
        """Send all that waits, and wait for the answers; False where some have not come in time.

        It waits for what was there when it was called; None sets no limit.
        """
        check_may_block("flush")
        return _run(self._core.flush(timeout_s))

    def close(self, timeout_s: float | None = None) -> list[Undelivered]:
        """Deliver what waits, end, and return what was not delivered. Twice is harmless.

        A `with` block logs what was not delivered, as does this where Ctrl-C ends it early.

        Args:
            timeout_s: how long delivering may take; None: option `close_timeout_s`.
        """
        core = self._core
        check_may_block("close")
        limit_s = check_timeout(core.options.close_timeout_s if timeout_s is None else timeout_s)
        if not core.refuse():
            return []
        try:
            self.flush(limit_s)
        except BaseException:  # Ctrl-C: whoever has called does not get what is returned
            log_undelivered(core.end())
            raise
        return core.end()

    def statistics(self) -> dict[str, Any]:
        """Return counts: of messages sent, delivered, failed, dropped, retried, buffered."""
        return self._core.statistics()


def _run(steps: Steps[T]) -> T:
    """Return what a call comes to; it waits in this thread."""
    try:
        wait = next(steps)
        while True:
            try:
                wait.outcome.wait(wait.deadline_s - time.monotonic())
            except CallTimeout:
                wait = steps.send(False)
            else:
                wait = steps.send(True)
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]  # what `Steps` says
