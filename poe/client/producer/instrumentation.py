"""Tells callbacks and metrics what happens to batches and workers of one producer."""

import threading
from collections.abc import Sequence
from typing import Protocol

from poe.client.metrics.metrics import Metrics, sinks_of
from poe.client.producer.accumulator import Accumulator
from poe.client.producer.batch import Batch
from poe.client.producer.callbacks import Callbacks, Event, massaged
from poe.client.producer.delivery import UNPLACED
from poe.client.producer.failure_log import FailureLog
from poe.client.producer.payload import Message, Messages
from poe.client.producer.producer_options import ProducerOptions
from poe.client.producer.topic_info import Carrier, TopicInfo, TopicState, WorkerState
from poe.errors import PoeError, ProducerClosed


class Told(Protocol):
    """A topic, as callbacks are told of it."""

    topic: bytes
    state: TopicState

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
        self.metrics = Metrics(options.client_id, sinks_of(options.metrics))
        self.takes_empty = takes_empty
        """Whether values may be empty."""
        self._accumulator = accumulator
        self._failures = FailureLog(accumulator.scheduler)
        self._has_sinks = bool(options.metrics)
        self._is_told = bool(options.callbacks)
        self._lock = threading.Lock()
        self._topics: dict[bytes, Told] = {}

    def know(self, topic: Told) -> None:
        """Tell of a topic from now on."""
        self._topics[topic.topic] = topic

    def close(self) -> None:
        """Tell the rest; the producer has ended."""
        self._failures.close()
        self.metrics.close()

    # ---- batches ------------------------------------------------------------------------------

    def massaged(self, batch: Batch) -> Messages:
        """Return what is to be sent in place of the messages of a batch.

        Raises:
            MassageFailed: the user's function did.
        """
        queue = batch.queue
        massage = queue.options.massage
        assert massage is not None
        empty = self.takes_empty or queue.options.envelope
        return massaged(massage, queue.topic, batch.messages, empty=empty)

    def sent(self, batch: Batch) -> None:
        """Tell of a batch that was given to a connection."""
        queue, count = batch.queue, batch.living_count
        with self._lock:
            self.metrics.sent(queue.topic, queue.partition, _broker(batch), count, batch.size)
        if self._is_told and Event.FLUSH in self.callbacks:
            self._fire(Event.FLUSH, batch, count)

    def ended(self, batch: Batch, value: int | PoeError) -> None:
        """Tell of a batch that was delivered or given up."""
        topic, partition, count = batch.queue.topic, batch.queue.partition, batch.living_count
        if isinstance(value, PoeError):
            if partition == UNPLACED:
                self.refused(topic, count, value)
                return
            with self._lock:
                self.metrics.failed(topic, partition, count)
                self._tell_buffered()
            self._log(topic, count, value)
        else:
            time_s = self._accumulator.scheduler.now_s() - batch.sent_s
            with self._lock:
                self.metrics.delivered(topic, partition, _broker(batch), count, time_s)
                self._tell_buffered()
        if not self._is_told:
            return
        if Event.FLUSHED_REPLIED in self.callbacks:
            self._fire(Event.FLUSHED_REPLIED, batch, batch.reply(value))
        if Event.FAILED in self.callbacks and isinstance(value, PoeError):
            self._fire(Event.FAILED, batch, value)

    def refused(self, topic: bytes, count: int, error: PoeError) -> None:
        """Tell of messages that are given up before they have a partition."""
        with self._lock:
            self.metrics.failed(topic, UNPLACED, count)
        self._log(topic, count, error)
        self.topic_event(Event.FAILED, topic, error)

    def retried(self, batch: Batch) -> None:
        """Tell of a batch that will be sent again."""
        queue = batch.queue
        with self._lock:
            self.metrics.retried(queue.topic, queue.partition, _broker(batch), batch.living_count)

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
        with self._lock:
            self._tell_buffered()
        self.topic_event(Event.DOWNTIME_SAVED, topic, messages)

    def overflowing(self, topic: bytes, messages: list[bytes | Message]) -> None:
        """Tell of messages that fall out of a full downtime buffer."""
        self.topic_event(Event.MAX_DOWNTIME_BUFFER_REACHED, topic, messages)
        self.topic_event(Event.DROPPED, topic, len(messages))

    def dropped(self, topic: bytes, partition: int, count: int) -> None:
        """Count messages that fall out of a full downtime buffer."""
        with self._lock:
            self.metrics.dropped(topic, partition, count)

    def spooled(self, count: int) -> None:
        """Tell how many messages are on disk."""
        with self._lock:
            self.metrics.spooled(count)

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
        """Tell how many workers a topic has."""
        workers = self._topics[topic].workers
        ready = sum(worker.state is WorkerState.READY for worker in workers)
        with self._lock:
            self.metrics.workers(topic, ready)
            self._tell_buffered()

    def _tell_buffered(self) -> None:
        if self._has_sinks:
            self.metrics.buffered(self._accumulator.count)


def _broker(batch: Batch) -> str:
    """Return host:port of the broker that takes a batch; empty without a connection."""
    worker = batch.queue.worker
    return "" if worker is None else worker.broker
