"""Tells callbacks and metrics what happens to batches and workers of one producer."""

import threading
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Protocol

from poe.client.metrics.metrics import COUNTERS, Metrics, sinks_of
from poe.client.producer.accumulator import Accumulator
from poe.client.producer.batch import Batch, Owner
from poe.client.producer.callbacks import Callbacks, Event, massaged
from poe.client.producer.delivery import UNPLACED
from poe.client.producer.failure_log import FailureLog
from poe.client.producer.payload import Message, Messages
from poe.client.producer.producer_options import ProducerOptions
from poe.client.producer.topic_info import Carrier, TopicInfo, TopicState, WorkerState
from poe.client.producer.transport import PartlyStored
from poe.errors import PoeError, ProducerClosed


class Told(Protocol):
    """A topic, as callbacks are told of it."""

    topic: bytes
    state: TopicState

    @property
    def has_envelope(self) -> bool:
        """Whether its values may be empty or None."""
        ...

    @property
    def workers(self) -> Sequence[Carrier]:
        """Those that have not ended."""
        ...

    def info(self) -> TopicInfo:
        """Return what there is to know."""
        ...


class Instrumentation:
    """What one producer tells of itself.

    Any thread may call it, without the accumulator's lock; its own keeps the counts right.
    """

    def __init__(
        self, options: ProducerOptions, accumulator: Accumulator, *, takes_empty: bool
    ) -> None:
        self.callbacks = Callbacks(options.callbacks)
        self.totals: Counter[str] = Counter(dict.fromkeys(COUNTERS, 0))
        """All that was counted, over all topics."""
        self.takes_empty = takes_empty
        """Whether values may be empty."""
        self._accumulator = accumulator
        self._failures = FailureLog(accumulator.scheduler)
        sinks = sinks_of(options.metrics)
        self._metrics = Metrics(options.client_id, sinks) if sinks else None
        self._is_told = bool(options.callbacks)
        self._lock = threading.Lock()
        self._topics: dict[bytes, Told] = {}

    def know(self, topic: Told) -> None:
        """Tell of a topic from now on."""
        self._topics[topic.topic] = topic

    def close(self) -> None:
        """Tell the rest; the producer has ended."""
        self._failures.close()
        if self._metrics is not None:
            self._metrics.close()

    # ---- batches ------------------------------------------------------------------------------

    def massaged(self, batch: Batch) -> Messages:
        """Return what is to be sent in place of the messages of a batch.

        Raises:
            MassageFailed: the user's function did.
        """
        queue = batch.queue
        massage = queue.options.massage
        assert massage is not None
        told = self._topics.get(queue.topic)
        has_envelope = queue.options.envelope if told is None else told.has_envelope
        empty = self.takes_empty or bool(has_envelope)
        return massaged(massage, queue.topic, batch.messages, empty=empty)

    def sent(self, batch: Batch, *, is_again: bool) -> None:
        """Tell of a batch that was given to a connection, for the first time or again."""
        count = batch.living_count
        counts = {"messages_sent": count, "bytes_sent": batch.size, "batches_sent": 1}
        if is_again:
            counts["messages_retried"] = count
        self._count(batch.queue, counts, broker=_broker(batch))
        if self._is_told and Event.FLUSH in self.callbacks:
            self._fire(Event.FLUSH, batch, count)

    def ended(self, batch: Batch, value: int | PoeError) -> None:
        """Tell of a batch that was delivered or given up."""
        queue, count = batch.queue, batch.living_count
        error = value if isinstance(value, PoeError) else None
        failed_count = 0 if error is None else count
        if isinstance(value, PartlyStored):
            error = value.error
            # Of messages that stand for others, as after `massage`, nobody knows which are whose.
            failed_count = len(value.refused) if len(value.all) == count else count
        if error is not None:
            if queue.partition == UNPLACED:
                self.refused(queue.topic, count, error)
                return
            self._count(queue, {"messages_failed": failed_count})
            self._log(queue.topic, failed_count, error)
        if failed_count < count:
            broker = _broker(batch)
            self._count(queue, {"messages_delivered": count - failed_count}, broker=broker)
            if self._metrics is not None:
                time_s = self._accumulator.scheduler.now_s() - batch.first_sent_s
                with self._lock:
                    self._metrics.delivered(queue.topic, queue.partition, broker, time_s)
        self.buffered()
        if not self._is_told:
            return
        if Event.FLUSHED_REPLIED in self.callbacks:
            self._fire(Event.FLUSHED_REPLIED, batch, batch.reply(value))
        if Event.FAILED in self.callbacks and error is not None:
            self._fire(Event.FAILED, batch, error)

    def refused(self, topic: bytes, count: int, error: PoeError) -> None:
        """Tell of messages that are given up before they have a partition."""
        self._add(topic, UNPLACED, "", {"messages_failed": count})
        self._log(topic, count, error)
        self.topic_event(Event.FAILED, topic, error)

    def _log(self, topic: bytes, count: int, error: PoeError) -> None:
        if not isinstance(error, ProducerClosed):  # `close` tells those
            self._failures.add(topic, count, error)

    def _fire(self, event: Event, batch: Batch, extra: object) -> None:
        worker = batch.queue.worker
        state = TopicState.DOWNTIME if worker is None else worker.state
        info = None if worker is None else worker.info(batch.queue.topic)
        self.callbacks.fire(event, worker, state, info, extra)

    # ---- downtime -----------------------------------------------------------------------------

    def saved(self, topic: bytes, messages: Messages) -> None:
        """Tell of a call whose messages wait for the end of a downtime."""
        self.buffered()
        self.topic_event(Event.DOWNTIME_SAVED, topic, messages)

    def overflowing(self, topic: bytes, messages: list[bytes | Message]) -> None:
        """Tell of messages that fall out of a full downtime buffer."""
        self.topic_event(Event.MAX_DOWNTIME_BUFFER_REACHED, topic, messages)
        self.topic_event(Event.DROPPED, topic, len(messages))

    def dropped(self, topic: bytes, partition: int, count: int) -> None:
        """Count messages that fall out of a full downtime buffer."""
        self._add(topic, partition, "", {"messages_dropped": count})

    def spooled(self, count: int) -> None:
        """Tell how many messages are on disk."""
        self._set("messages_spooled", count)

    # ---- topics and workers -------------------------------------------------------------------

    def topic_event(self, event: Event, topic: bytes, extra: object) -> None:
        """Tell of something that is about a topic, if that has begun."""
        told = self._topics.get(topic)
        if event in self.callbacks and told is not None:
            self.callbacks.fire(event, told, told.state, told.info(), extra)

    def worker_event(self, event: Event, topic: bytes, worker: Carrier, extra: object) -> None:
        """Tell of something that is about a worker."""
        if event in self.callbacks:
            self.callbacks.fire(event, worker, worker.state, worker.info(topic), extra)

    def workers(self, topic: bytes) -> None:
        """Tell how many workers a topic has, and how many messages wait in memory."""
        workers = self._topics[topic].workers
        ready = sum(worker.state is WorkerState.READY for worker in workers)
        self._set("workers", ready, topic)
        self.buffered()

    # ---- counts -------------------------------------------------------------------------------

    def _count(self, queue: Owner, counts: Mapping[str, int], broker: str = "") -> None:
        self._add(queue.topic, queue.partition, broker, counts)

    def _add(self, topic: bytes, partition: int, broker: str, counts: Mapping[str, int]) -> None:
        totals = self.totals
        with self._lock:
            for name in counts:
                totals[name] += counts[name]
            if self._metrics is not None:
                self._metrics.add(topic, partition, broker, counts)

    def buffered(self) -> None:
        """Tell how many messages wait in memory; not each change of that is told."""
        self._set("messages_buffered", self._accumulator.count)

    def _set(self, gauge: str, value: int, topic: bytes = b"") -> None:
        if self._metrics is not None:
            with self._lock:
                self._metrics.set(gauge, value, topic)


def _broker(batch: Batch) -> str:
    """Return host:port of the broker that takes a batch; empty without a connection."""
    worker = batch.queue.worker
    return "" if worker is None else worker.broker
