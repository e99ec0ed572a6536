"""One topic of a producer: its state, its partitions, and the bound of what waits in a downtime.

Any thread may use it; what it is told of brokers comes from the topic's actor.
"""

import threading
from collections import deque

from poe.client.producer.accumulator import Accumulator
from poe.client.producer.batch import Batch, Owner, batches_of
from poe.client.producer.delivery import UNPLACED, Buffered, Delivery, Failed, Gathering, Outcome
from poe.client.producer.instrumentation import Instrumentation
from poe.client.producer.partition_queue import PartitionQueue
from poe.client.producer.payload import Message, Messages
from poe.client.producer.producer_options import TopicOptions
from poe.client.producer.topic_info import Carrier, TopicInfo, TopicState, Undelivered, WorkerInfo
from poe.client.producer.topic_partitions import TopicPartitions
from poe.client.producer.transport import OutgoingBatch, TopicMetadata
from poe.client.producer.worker_record import WorkerRecord
from poe.client.spool.spooler import Part, Spooler
from poe.errors import BrokerDown, Dropped, PoeError

_PARTS_MAX = 10_000
"""More than the partitions of a call."""


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
            topic, options, accumulator, observer, is_numbered=is_numbered, spooler=spooler
        )
        # One for all, so that what is dropped side by side is one hole.
        self._dropped = Dropped(topic, options.downtime_drop)
        self._dropping = threading.Lock()
        self._limit = limit = options.downtime_count
        # Which queue got how many messages in a downtime, call by call. It does not hear of what
        # leaves otherwise, as when a call is withdrawn: then the next message of the same queue is
        # dropped for it. Of what is held each message has one at most; the others are of calls
        # withdrawn since.
        self._saved: deque[tuple[Owner, int]] = deque(maxlen=limit and limit + _PARTS_MAX)
        observer.know(self)

    # ---- calls --------------------------------------------------------------------------------

    def add(self, messages: Messages, *, is_due: bool) -> Delivery:
        """Add the messages of one call.

        Raises:
            BufferFull, ProducerClosed: nothing was added.
            PickerFailed: likewise, of a call without keys.
        """
        delivery = self._partitions.add(messages, is_due=is_due)
        if self.state is TopicState.DOWNTIME:
            self._observer.saved(self.topic, messages)
            if self._limit is not None:
                self._saved.extend(
                    (batch.queue, part.count) for part, batch in batches_of(delivery)
                )
                self._drop_excess()
        return delivery

    def _begin_order(self) -> None:
        """Begin with what there is; it waits in the order of the partitions."""
        # In one step: who drops meanwhile must not find it empty, and drop nothing.
        held = [(queue, queue.buffered()[0]) for queue in self._partitions.all_queues()]
        self._saved = deque(held, maxlen=self._saved.maxlen)

    def _drop_excess(self) -> None:
        """Keep the bound of a downtime's buffer."""
        # One thread drops for all: two would each drop what there is too much. It does not wait,
        # since a callback may hold what the other waits for; that looks again when it has dropped.
        while (count := self._excess()) > 0 and self._dropping.acquire(blocking=False):
            try:
                is_any = self._drop(count)
            finally:
                self._dropping.release()
            if not is_any:
                break

    def _excess(self) -> int:
        assert self._limit is not None
        return sum(queue.unsent_count for queue in self._partitions.all_queues()) - self._limit

    def _drop(self, count: int) -> bool:
        """Drop the oldest or newest messages; False: there was none."""
        newest = self.options.downtime_drop == "newest"
        saved = self._saved
        dropped: list[bytes | Message] = []
        while len(dropped) < count:
            try:
                queue, held_count = saved.pop() if newest else saved.popleft()
            except IndexError:  # there is no other, or another thread was faster
                break
            wanted = count - len(dropped)
            if held_count > wanted:
                (saved.append if newest else saved.appendleft)((queue, held_count - wanted))
            gone = queue.drop(min(wanted, held_count), self._dropped, newest=newest)
            self._observer.dropped(self.topic, queue.partition, len(gone))
            dropped += gone
        if dropped:
            self._observer.overflowing(self.topic, dropped)
        return bool(dropped)

    def withdraw(self, delivery: Delivery, why: PoeError) -> bool:
        """Take a call back; False where not all of it can be, since it may have been sent."""
        return self._partitions.withdraw(delivery, why)

    # ---- what is known of brokers -------------------------------------------------------------

    def queues(self) -> list[PartitionQueue]:
        """Return the queues of all partitions."""
        return self._partitions.queues()

    def all_queues(self) -> list[PartitionQueue]:
        """Return those, and the one of what has no partition, first."""
        return self._partitions.all_queues()

    def learn(self, metadata: TopicMetadata) -> None:
        """Add partitions, and place the calls that waited for them; none ever goes."""
        self.metadata = metadata
        self._partitions.learn(metadata)
        if self._limit is not None:
            self._begin_order()
        self._find_only()
        if self.known.value is None:
            self.known.settle(value=True)

    def refuse(self, error: PoeError) -> None:
        """Fail what waits for the partitions: nobody will tell them."""
        self._partitions.refuse(error)

    def parts_of(self, spooled: OutgoingBatch, batch: Batch | None) -> list[Part] | None:
        """Return what each partition is to send of a batch of the spool, as `SpooledTopic`."""
        return self._partitions.parts_of(spooled, batch)

    def spool_all(self) -> None:
        """Put into the spool, if there is one, what is not delivered: the producer ends."""
        for queue in self._partitions.all_queues():
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
        if state is TopicState.DOWNTIME is not self.state and self._limit is not None:
            self._begin_order()
        self.state = state
        if error is not None:
            self.last_error = error
            self._partitions.note_error(error)
        self._find_only()
        if state is TopicState.READY:
            if self.up.value is None:
                self.up.settle(value=True)
        elif self.up.value is not None:
            self.up = Outcome()
        if state is TopicState.DOWNTIME:
            for queue in self.queues():
                queue.begin_downtime()
            if self._limit is not None:
                self._drop_excess()  # of what was taken before anybody knew

    def flush(self) -> list[Outcome]:
        """Send what waits without waiting for more; return what is to be waited for."""
        outcomes: list[Outcome] = []
        for queue in self._partitions.all_queues():
            outcomes += queue.unsettled()
            queue.flush()
        return outcomes

    def forget(self, error: PoeError) -> None:
        """Tell the copies of deliveries that a fork has made; takes no lock, and calls nobody."""
        for queue in self._partitions.all_queues():
            for outcome in queue.batches():
                outcome.abandon(error)

    def give_up_all(self, error: PoeError) -> list[Undelivered]:
        """Fail all that is not delivered, and return it."""
        return [
            Undelivered(
                self.topic,
                None if queue.partition == UNPLACED else queue.partition,
                messages,
                error,
            )
            for queue in self._partitions.all_queues()
            for batch in queue.unsettled()
            if (messages := queue.give_up(batch, error))
        ]

    def expire(self) -> set[Carrier | None]:
        """Give up what is older than `delivery_timeout_s`; return the workers that had sent it."""
        return {queue.worker for queue in self._partitions.all_queues() if queue.expire()}

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
        buffered = [queue.buffered() for queue in self._partitions.all_queues()]
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
    parts = [Buffered(batch.queue.partition, part.end) for part, batch in batches_of(delivery)]
    if not (isinstance(outcome, Gathering) and outcome.is_keyed):
        return parts[-1]
    refused = [Failed(UNPLACED, error) for error in outcome.failed.values()]
    if not parts:
        raise refused[0].error
    return [*parts, *refused]
