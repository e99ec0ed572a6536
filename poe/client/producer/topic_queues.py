"""One topic of a producer: its state, its partitions, and the calls that wait for them to be known.

Any thread may use it; what it is told of brokers comes from the topic's actor.
"""

import threading
from typing import cast

from poe.client.producer.accumulator import Accumulator
from poe.client.producer.batch import Batch
from poe.client.producer.delivery import (
    Buffered,
    Delivery,
    Failed,
    Gathering,
    Outcome,
)
from poe.client.producer.downtime_order import DowntimeOrder
from poe.client.producer.instrumentation import Instrumentation
from poe.client.producer.partition_queue import PartitionQueue
from poe.client.producer.payload import Message, Messages
from poe.client.producer.producer_options import TopicOptions
from poe.client.producer.topic_info import TopicInfo, TopicState, Undelivered, WorkerInfo
from poe.client.producer.topic_partitions import TopicPartitions
from poe.client.producer.transport import OutgoingBatch, TopicMetadata
from poe.client.producer.unplaced_calls import UNPLACED, PendingCall, UnplacedCalls
from poe.client.producer.worker_record import WorkerRecord
from poe.client.spool.spooled_queue import SpooledQueue
from poe.client.spool.spooler import Spooler
from poe.client.spool.unplaced_batches import Assignment, UnplacedBatches
from poe.errors import BrokerDown, Dropped, PoeError


class TopicQueues:
    """The queues of one topic.

    Invariant: `only` is the queue that every call goes to, or None: there are several, none is
    known yet, no broker can be reached, or the user's picker is to be asked.
    """

    def __init__(  # noqa: PLR0913 - what it is, what it has, whom it tells
        self,
        topic: bytes,
        options: TopicOptions,
        accumulator: Accumulator,
        observer: Instrumentation,
        *,
        is_numbered: bool,
        spooler: Spooler | None = None,
    ) -> None:
        self.topic = topic
        self.options = options
        self.only: PartitionQueue | None = None
        self.metadata: TopicMetadata | None = None
        self.state = TopicState.STARTING
        self.last_error: PoeError | None = None
        self.workers: list[WorkerRecord] = []
        self.known = Outcome()
        """Settled once the partitions are known."""
        self.up = Outcome()
        """Settled while a worker is ready."""
        self._observer = observer
        self._spooler = spooler
        self._partitions = TopicPartitions(
            self, accumulator, observer, is_numbered=is_numbered, spooler=spooler
        )
        self._is_placing = False
        """Whether calls have to wait no more for partitions to be known."""
        self._unplaced: UnplacedCalls | UnplacedBatches
        if spooler is None:
            self._unplaced = UnplacedCalls(self, accumulator, observer)
        else:
            waiting = cast(SpooledQueue, self._partitions.new_queue(UNPLACED))
            parts = (waiting, self._partitions.partitioner, accumulator, observer)
            self._unplaced = UnplacedBatches(self, *parts)
        # One for all, so that what is dropped side by side is one hole.
        self._dropped = Dropped(topic, options.downtime_drop)
        limit = options.downtime_count
        self._order = None if limit is None else DowntimeOrder(limit)
        # So that a call which finds no partitions is behind those that waited for them.
        self._placing = threading.RLock()
        self._dropping = threading.Lock()

    # ---- calls --------------------------------------------------------------------------------

    def add(self, messages: Messages, *, is_due: bool) -> Delivery:
        """Add the messages of one call.

        Raises:
            BufferFull, ProducerClosed: nothing was added.
            PickerFailed: likewise, of a call without keys.
        """
        if not self._is_placing:
            with self._placing:
                if not self._is_placing:
                    kept = self._unplaced.add(messages, is_due=is_due)
                    if self.state is TopicState.DOWNTIME:
                        self._note_saved(messages, kept)
                    return kept
        delivery = self._partitions.add(messages, is_due=is_due)
        if self.state is TopicState.DOWNTIME:
            self._note_saved(messages, delivery)
        return delivery

    def _note_saved(self, messages: Messages, delivery: Delivery) -> None:
        """Keep the bound of a downtime's buffer."""
        self._observer.saved(self, messages)
        if self._order is None:
            return
        self._order.add(delivery, self._unplaced)
        self._drop_excess()

    def _drop_excess(self) -> None:
        # One thread drops for all: two would each drop what there is too much. It does not wait,
        # since a callback may hold what the other waits for; that looks again when it has dropped.
        while self._excess() > 0 and self._dropping.acquire(blocking=False):
            try:
                is_any = self._drop(self._excess())
            finally:
                self._dropping.release()
            if not is_any:
                break

    def _excess(self) -> int:
        assert self._order is not None
        return sum(holder.unsent_count for holder in self.holders()) - self._order.count_max

    def _drop(self, count: int) -> bool:
        """Drop the oldest or newest messages; False: there was none."""
        assert self._order is not None
        newest = self.options.downtime_drop == "newest"
        dropped: list[bytes | Message] = []
        for partition, gone in self._order.drop(count, self._dropped, newest=newest):
            self._observer.dropped(self.topic, partition, len(gone))
            dropped += gone
        if dropped:
            self._observer.overflowing(self, dropped)
        return bool(dropped)

    def withdraw(self, delivery: Delivery, why: PoeError) -> bool:
        """Take a call back; False where not all of it can be, since it may have been sent."""
        outcome = delivery.outcome
        if isinstance(outcome, Gathering):
            withdrawn = [self.withdraw(part, why) for part in outcome.parts]
            return all(withdrawn)
        if isinstance(outcome, Batch):
            return cast(PartitionQueue, outcome.queue).withdraw(delivery, why)
        call = cast(PendingCall, outcome)
        with self._placing:
            if call.placed is not None:
                return self.withdraw(call.placed, why)
            return self._unplaced.withdraw(call, why)

    # ---- what is known of brokers -------------------------------------------------------------

    def queues(self) -> list[PartitionQueue]:
        """Return the queues of all partitions."""
        return self._partitions.queues()

    def holders(self) -> list[PartitionQueue | UnplacedCalls | UnplacedBatches]:
        """Return whatever may hold messages."""
        return [self._unplaced, *self.queues()]

    def learn(self, metadata: TopicMetadata) -> None:
        """Take note of partitions, and place the calls that waited for them; none ever goes."""
        self.metadata = metadata
        with self._placing:
            self._unplaced.stop()
            self._partitions.learn(metadata)
            add = self._partitions.add
            self._unplaced.place(
                lambda call: add(call.messages, is_due=call.is_due, is_counted=True)
            )
            if self._order is not None:
                self._order.begin((queue, queue.buffered()[0]) for queue in self.queues())
            # Only now: who finds it set does not wait for the lock, and would overtake them.
            self._is_placing = True
        self._find_only()
        if self.known.value is None:
            self.known.settle(value=True)

    def refuse(self, error: PoeError) -> None:
        """Take note that nobody will tell the partitions."""
        self.fail_pending(error)
        if self._spooler is not None:
            cast(UnplacedBatches, self._unplaced).refuse(error)
            self._spooler.fill()

    def assign(self, spooled: OutgoingBatch, batch: Batch | None) -> Assignment | None:
        """Return where a batch of the spool goes that has no partition; None: not known yet."""
        return cast(UnplacedBatches, self._unplaced).assign(spooled, batch)

    def replay_queue(self, partition: int) -> SpooledQueue | None:
        """Return the queue that sends what the spool has of a partition; None: not known yet."""
        queues = self._partitions.queues_of(partition)
        return cast(SpooledQueue, queues[0]) if queues else None

    def spool_all(self) -> None:
        """Put into the spool, if there is one, what is not delivered: the producer ends."""
        for queue in self.holders():
            queue.spool_all()

    def widen(self, count: int) -> None:
        """Have that many queues for each partition; only where order is not asked for."""
        self._partitions.widen(count)
        self._find_only()

    def _find_only(self) -> None:
        queues = self.queues()
        is_sole = len(queues) == 1 and self.options.picker is None
        self.only = queues[0] if is_sole and self.state is TopicState.READY else None

    def enter(self, state: TopicState, error: PoeError | None = None) -> None:
        """Enter a state, for a reason."""
        if state is TopicState.DOWNTIME is not self.state and self._order is not None:
            self._order.begin((holder, holder.buffered()[0]) for holder in self.holders())
        self.state = state
        self.last_error = error or self.last_error
        self._find_only()
        if state is TopicState.READY:
            if self.up.value is None:
                self.up.settle(value=True)
        elif self.up.value is not None:
            self.up = Outcome()
        if state is TopicState.DOWNTIME:
            for queue in self.queues():
                queue.begin_downtime()
            if self._order is not None:
                self._drop_excess()  # of what was taken before anybody knew

    def flush(self) -> list[Outcome]:
        """Send what waits without waiting for more; return what is to be waited for."""
        outcomes: list[Outcome] = []
        for queue in self.holders():
            outcomes += queue.unsettled()
            queue.flush()
        return outcomes

    def forget(self, error: PoeError) -> None:
        """Tell the copies of deliveries that a fork has made; takes no lock, and calls nobody."""
        for queue in self.holders():
            for outcome in queue.batches():
                outcome.abandon(error)

    def fail_pending(self, error: PoeError) -> list[Undelivered]:
        """Give up the calls whose partition could not be chosen."""
        with self._placing:
            failed = self._unplaced.fail(error)
        return [Undelivered(self.topic, None, messages, error) for messages in failed]

    def expire(self) -> set[WorkerRecord | None]:
        """Give up what is older than `delivery_timeout_s`; return the workers that had sent it."""
        with self._placing:
            self._unplaced.expire()
        return {queue.worker for queue in self.queues() if queue.expire()}

    # ---- for people ---------------------------------------------------------------------------

    def check_taken(self) -> None:
        """Refuse what the server has refused.

        Raises:
            InvalidTopicName, LocalProtocolError: it cannot have such a topic.
        """
        if self.metadata is not None and self.metadata.refusal is not None:
            raise self.metadata.refusal.with_traceback(None)

    def unreachable(self) -> PoeError:
        """Return the error for who has waited for a broker in vain."""
        error = self.last_error
        if error is not None and not error.retriable and self.metadata is None:
            return error.with_traceback(None)  # a broker's refusal
        return BrokerDown(self.topic, str(error or "no answer"))

    def info(self) -> TopicInfo:
        """Return what there is to know."""
        buffered = [queue.buffered() for queue in self.holders()]
        return TopicInfo(
            self.topic,
            self.state,
            self.metadata,
            tuple(worker.info(self.topic) for worker in list(self.workers)),
            sum(count for count, _ in buffered),
            sum(size for _, size in buffered),
            0 if self._spooler is None else self._spooler.count_of(self.topic),
            0 if self._spooler is None else self._spooler.damaged_count,
            self.last_error,
            self._workers_limit(),
        )

    def _workers_limit(self) -> int | None:
        is_bounded = self.metadata is not None and self.options.ordered
        return len({queue.partition for queue in self.queues()}) if is_bounded else None

    def pick(self) -> WorkerInfo | None:
        """Return the worker that the next call without a key would go to; None without one."""
        partition = self._partitions.next_partition()
        for worker in list(self.workers):
            if any(queue.partition == partition for queue in worker.queues):
                return worker.info(self.topic)
        return None


def buffered_of(delivery: Delivery) -> Buffered | list[Buffered | Failed]:
    """Return where the messages of a call wait.

    Raises:
        PickerFailed: none of them does.
    """
    outcome = delivery.outcome
    if isinstance(outcome, Batch):
        return Buffered(outcome.queue.partition, delivery.end)
    if isinstance(outcome, Gathering):
        parts = [cast(Buffered, buffered_of(part)) for part in outcome.parts]
        if outcome.refused is None:
            return parts[-1]
        if not parts:
            raise outcome.refused[0].error
        return [*parts, *outcome.refused]
    return Buffered(-1, delivery.count)  # the broker has not told the partitions yet
