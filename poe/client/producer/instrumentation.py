"""Tells callbacks and metrics what happens to batches and workers of one producer."""

import threading
from typing import TYPE_CHECKING

from poe.client.metrics.metrics import Metrics, sinks_of
from poe.client.producer.batch import Batch
from poe.client.producer.callbacks import Callbacks, Event, massaged
from poe.client.producer.failure_log import FailureLog
from poe.client.producer.payload import Message, Messages
from poe.client.producer.producer_options import ProducerOptions
from poe.client.producer.topic_info import TopicState, WorkerState
from poe.errors import PoeError, ProducerClosed

if TYPE_CHECKING:
    from poe.client.producer.accumulator import Accumulator
    from poe.client.producer.batch_gatherer import BatchGatherer
    from poe.client.producer.topic_queues import TopicQueues
    from poe.client.producer.worker_record import WorkerRecord


class Instrumentation:
    """What one producer tells of itself.

    Any thread may call it, without the accumulator's lock; its own keeps the counts right.
    """

    def __init__(
        self, options: ProducerOptions, accumulator: "Accumulator", *, takes_empty: bool
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

    def close(self) -> None:
        """Tell the rest; the producer has ended."""
        self._failures.close()
        self.metrics.close()

    # ---- batches ------------------------------------------------------------------------------

    def massaged(self, queue: "BatchGatherer", messages: Messages) -> Messages:
        """Return what is to be sent in place of a batch.

        Raises:
            MassageFailed: the user's function did.
        """
        massage = queue.options.massage
        assert massage is not None
        empty = self.takes_empty or queue.options.envelope
        return massaged(massage, queue.topic, messages, empty=empty)

    def sent(self, queue: "BatchGatherer", batch: Batch) -> None:
        """Tell of a batch that was given to a connection."""
        count, size = batch.living_count, batch.size
        with self._lock:
            self.metrics.sent(queue.topic, queue.partition, queue.broker, count, size)
        if self._is_told and Event.FLUSH in self.callbacks:
            self._fire(Event.FLUSH, queue, count)

    def ended(self, queue: "BatchGatherer", batch: Batch, value: int | PoeError) -> None:
        """Tell of a batch that was delivered or given up."""
        topic, partition, count = queue.topic, queue.partition, batch.living_count
        with self._lock:
            if isinstance(value, PoeError):
                self.metrics.failed(topic, partition, count)
            else:
                time_s = self._accumulator.scheduler.now_s() - batch.sent_s
                self.metrics.delivered(topic, partition, queue.broker, count, time_s)
            self._tell_buffered()
        if isinstance(value, PoeError):
            self._log(topic, count, value)
        if not self._is_told:
            return
        if Event.FLUSHED_REPLIED in self.callbacks:
            self._fire(Event.FLUSHED_REPLIED, queue, batch.reply(value))
        if Event.FAILED in self.callbacks and isinstance(value, PoeError):
            self._fire(Event.FAILED, queue, value)

    def refused(self, topic: "TopicQueues", count: int, error: PoeError) -> None:
        """Tell of messages that are given up before they are in any batch."""
        with self._lock:
            self.metrics.failed(topic.topic, -1, count)
        self._log(topic.topic, count, error)
        self.topic_event(Event.FAILED, topic, error)

    def retried(self, queue: "BatchGatherer", batch: Batch) -> None:
        """Tell of a batch that will be sent again."""
        count = batch.living_count
        with self._lock:
            self.metrics.retried(queue.topic, queue.partition, queue.broker, count)

    def _log(self, topic: bytes, count: int, error: PoeError) -> None:
        if not isinstance(error, ProducerClosed):  # `close` tells those
            self._failures.add(topic, count, error)

    def _fire(self, event: Event, queue: "BatchGatherer", extra: object) -> None:
        worker = queue.worker
        state = TopicState.DOWNTIME if worker is None else worker.state
        info = None if worker is None else worker.info(queue.topic)
        self.callbacks.fire(event, worker, state, info, extra)

    # ---- downtime -----------------------------------------------------------------------------

    def saved(self, topic: "TopicQueues", messages: Messages) -> None:
        """Tell of a call whose messages wait for the end of a downtime."""
        with self._lock:
            self._tell_buffered()
        self.topic_event(Event.DOWNTIME_SAVED, topic, messages)

    def overflowing(self, topic: "TopicQueues", messages: list[bytes | Message]) -> None:
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

    def topic_event(self, event: Event, topic: "TopicQueues", extra: object) -> None:
        """Tell of something that is about a topic."""
        if event in self.callbacks:
            self.callbacks.fire(event, topic, topic.state, topic.info(), extra)

    def worker_event(
        self, event: Event, topic: "TopicQueues", worker: "WorkerRecord", extra: object
    ) -> None:
        """Tell of something that is about a worker."""
        if event in self.callbacks:
            info = worker.info(topic.topic)
            self.callbacks.fire(event, worker, worker.state, info, extra)

    def workers(self, topic: "TopicQueues") -> None:
        """Tell how many workers a topic has."""
        ready = sum(worker.state is WorkerState.READY for worker in topic.workers)
        with self._lock:
            self.metrics.workers(topic.topic, ready)
            self._tell_buffered()

    def _tell_buffered(self) -> None:
        if self._has_sinks:
            self.metrics.buffered(self._accumulator.count)
