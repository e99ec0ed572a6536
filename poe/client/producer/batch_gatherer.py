"""Gathers the messages of calls into batches: closed when they are full, due when they are old."""

from abc import ABC, abstractmethod
from collections import deque

from poe.client.producer.accumulator import Accumulator
from poe.client.producer.batch import Batch, bytes_of
from poe.client.producer.delivery import Delivery
from poe.client.producer.payload import Message, Messages
from poe.client.producer.producer_options import TopicOptions
from poe.client.producer.worker_record import WorkerRecord


class BatchGatherer(ABC):
    """The batches of one partition that were never sent: any closed ones, and one that is open.

    The lock of the accumulator guards it. A call's messages stay in one batch where they can.

    Invariants of each batch, unless it is one message that is larger:
        messages <= options.batch_count
        bytes <= options.batch_bytes
    """

    def __init__(
        self, topic: bytes, partition: int, options: TopicOptions, accumulator: Accumulator
    ) -> None:
        self.topic = topic
        self.partition = partition
        self.options = options
        self.worker: WorkerRecord | None = None
        """Who sends its batches at present."""
        self._accumulator = accumulator
        self._scheduler = accumulator.scheduler
        self._lock = accumulator.lock
        self.unsent_count = 0
        """Messages in the batches that were never sent."""
        self._open: Batch | None = None
        self._waiting: deque[Batch] = deque()
        self._is_due = False
        self._is_armed = False
        self._batch_count = options.batch_count
        self._batch_bytes = options.batch_bytes

    @property
    def broker(self) -> str:
        """host:port of the broker that takes its batches; empty without a connection."""
        return "" if self.worker is None else self.worker.broker

    @abstractmethod
    def pump(self) -> None:
        """Send whatever may be sent now; without the lock."""

    @abstractmethod
    def in_flight_count(self) -> int:
        """Return how many requests are not answered."""

    def buffered(self) -> tuple[int, int]:
        """Return how many messages wait to be sent, and their bytes."""
        with self._lock:
            unsent = self._unsent()
            return self.unsent_count, sum(batch.size for batch in unsent)

    def waiting(self) -> list[bytes | Message]:
        """Return the messages that wait to be sent for the first time."""
        with self._lock:
            return [each for batch in self._unsent() for each in batch.messages if each is not None]

    def _unsent(self) -> list[Batch]:
        return [*self._waiting, self._open] if self._open is not None else list(self._waiting)

    def add_one(self, message: bytes, *, is_due: bool) -> Delivery:
        """Add one plain message, to be sent at once or with its batch.

        Raises:
            BufferFull, ProducerClosed: nothing was added.
        """
        size = len(message)
        is_closed = False
        with self._lock:
            self._accumulator.take(1, size)
            batch = self._open
            if batch is None:
                batch = self._begin(is_due=is_due)
            elif batch.size + size > self._batch_bytes:
                self._waiting.append(batch)
                is_closed = True
                batch = self._begin(is_due=is_due)
            messages = batch.messages
            messages.append(message)
            batch.size += size
            self.unsent_count += 1
            end = len(messages)
            if end >= self._batch_count or batch.size >= self._batch_bytes:
                self._waiting.append(batch)
                self._open = None
                is_closed = True
            elif is_due:
                self._is_due = True
        if is_due or is_closed:
            self.pump()
        return Delivery(batch, end, 1)

    def add(self, messages: Messages, *, is_due: bool, is_counted: bool = False) -> list[Delivery]:
        """Add the messages of one call, all or none; in one request, if they fit into one.

        `is_counted` says that the accumulator has counted them before.

        Raises:
            BufferFull, ProducerClosed: nothing was added.
        """
        deliveries = []
        with self._lock:
            if not is_counted:
                self._accumulator.take(len(messages), bytes_of(messages))
            start = 0
            while start < len(messages):
                start, delivery = self._add_some(messages, start, is_due=is_due)
                deliveries.append(delivery)
            if is_due:
                self._is_due = True
        self.pump()
        return deliveries

    def _add_some(self, messages: Messages, start: int, *, is_due: bool) -> tuple[int, Delivery]:
        """Add what goes into one batch; return where the rest starts."""
        count = min(len(messages) - start, self._batch_count)
        part = messages if count == len(messages) else messages[start : start + count]
        size = bytes_of(part)
        while size > self._batch_bytes and count > 1:
            count = max(1, count * self._batch_bytes // (size + 1))
            part = part[:count]
            size = bytes_of(part)
        batch = self._open
        if batch is not None and (
            len(batch.messages) + count > self._batch_count or batch.size + size > self._batch_bytes
        ):
            self._waiting.append(batch)
            batch = None
        if batch is None:
            batch = self._begin(is_due=is_due)
        batch.messages.extend(part)
        batch.size += size
        self.unsent_count += count
        batch.is_plain = batch.is_plain and type(part[0]) is bytes
        end = len(batch.messages)
        if end >= self._batch_count or batch.size >= self._batch_bytes:
            self._waiting.append(batch)
            self._open = None
        return start + count, Delivery(batch, end, count)

    def _take_oldest(self) -> Batch:
        """Take out the oldest batch; there is one, and the lock is held."""
        if self._waiting:
            batch = self._waiting.popleft()
        else:
            batch, self._open = self._open, None  # type: ignore[assignment]  # as said above
            self._is_due = False
        self.unsent_count -= batch.count()
        return batch

    def _begin(self, *, is_due: bool) -> Batch:
        batch = self._open = Batch(self, self._scheduler.now_s())
        self._is_due = False
        # Once for many batches: with a queue that is always busy it rings at the linger's pace.
        if not is_due and not self._is_armed:
            self._is_armed = True
            self._scheduler.call_later(self.options.linger_s, self._ring)
        return batch

    def _ring(self) -> None:
        """Send the open batch if it is old enough."""
        with self._lock:
            self._is_armed = False
            batch = self._open
            if batch is not None and not self._is_due:
                left_s = batch.begun_s + self.options.linger_s - self._scheduler.now_s()
                if left_s <= 0:
                    self._is_due = True
                else:
                    self._is_armed = True
                    self._scheduler.call_later(left_s, self._ring)
        self.pump()
