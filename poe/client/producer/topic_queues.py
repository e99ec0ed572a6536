"""One topic of a producer: its state, the queues of its partitions, and what of a call goes where.

It turns the payload of a call into messages in queues, and puts the results together again. Until
somebody has told the partitions, calls wait in a queue of their own, with the number `UNPLACED`.
Its batches may go into the spool as others do. Which calls they came from is not written there, so
those without a key stay together when they come out.

Any thread may use it; what it is told of brokers comes from the topic's actor.
"""

import itertools
import logging
import threading
from array import array
from collections import deque
from collections.abc import Sequence
from hashlib import blake2b

from poe.client.producer.accumulator import Accumulator
from poe.client.producer.batch import Batch, Owner, batches_of, bytes_of, size_of
from poe.client.producer.delivery import (
    UNPLACED,
    Buffered,
    Delivery,
    Failed,
    Gathering,
    Outcome,
    in_a_row,
)
from poe.client.producer.instrumentation import Instrumentation
from poe.client.producer.partition_queue import PartitionQueue
from poe.client.producer.partitioner import Split, partitioner
from poe.client.producer.payload import Message, Messages, has_key, is_keyed, some_of
from poe.client.producer.producer_options import TopicOptions
from poe.client.producer.topic_info import Carrier, TopicInfo, TopicState, Undelivered, WorkerInfo
from poe.client.producer.transport import OutgoingBatch, TopicMetadata
from poe.client.producer.worker_record import WorkerRecord
from poe.client.spool.spooler import Part, Spooler
from poe.errors import BrokerDown, Dropped, PoeError, SecurityError
from poe.errors.short_text import short_repr
from poe.protocol import PutId
from poe.protocol.put import PRODUCER_SIZE

_log = logging.getLogger(__name__)

_PARTS_MAX = 10_000
"""More than the partitions of a call."""


class TopicQueues:
    """The queues of one topic; that of a partition that was ever known never goes.

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
        self._accumulator = accumulator
        self._observer = observer
        self._is_numbered = is_numbered
        self._spooler = spooler
        self._partitioner = partitioner(topic, options)
        self._queues: dict[int, list[PartitionQueue]] = {}
        self._numbers: tuple[int, ...] = ()
        self._turns = itertools.count()
        self._unplaced = self._new_queue(UNPLACED)
        self._refusal: PoeError | None = None
        """Why nobody will tell the partitions."""
        self._missed: set[int] = set()
        """Partitions that the spool has messages for, and that there are not."""
        self._are_known = False
        """Whether calls wait no more for partitions to be known."""
        # So that a call which finds no partitions is behind those that waited for them.
        self._placing = threading.RLock()
        # One for all, so that what is dropped side by side is one hole.
        self._dropped = Dropped(topic, options.downtime_drop)
        self._dropping = threading.Lock()
        self._limit = limit = options.downtime_count
        # Which queue got how many messages in a downtime, call by call. It does not hear of what
        # leaves otherwise, as when a call is withdrawn: then the next message of the same queue is
        # dropped for it. Of what is held each message has one at most; the others are of calls
        # withdrawn since.
        self._saved: deque[tuple[Owner, int]] = deque(
            maxlen=None if limit is None else limit + _PARTS_MAX
        )
        observer.know(self)

    @property
    def has_envelope(self) -> bool:
        """Whether messages are stored with their keys, so that values may be empty or None."""
        if self.metadata is not None and self.metadata.envelope:
            return True
        return bool(self.options.envelope)

    # ---- calls --------------------------------------------------------------------------------

    def add(self, messages: Messages, *, is_due: bool) -> Delivery:
        """Add the messages of one call.

        Raises:
            BufferFull, ProducerClosed: nothing was added.
            PickerFailed: likewise, of a call without keys.
        """
        delivery = self._put_call(messages, is_due=is_due)
        if self.state is TopicState.DOWNTIME:
            self._observer.saved(self.topic, messages)
            if self._limit is not None:
                self._saved.extend(
                    (batch.queue, part.count) for part, batch in batches_of(delivery)
                )
                self._drop_excess()
        return delivery

    def _put_call(self, messages: Messages, *, is_due: bool) -> Delivery:
        if not self._are_known:
            with self._placing:
                if not self._are_known:
                    self._check_let_in()
                    return self._add_to(self._unplaced, messages, is_due=is_due)
        if not is_keyed(messages):
            partition = self._partitioner.pick(None, self._numbers, len(messages))
            return self._add_to(self._queue_of(partition), messages, is_due=is_due)
        # First, since a picker may take its time, and the producer may end meanwhile.
        split = self._partitioner.split(messages, self._numbers)
        with self._accumulator.lock:
            self._accumulator.take(len(messages), bytes_of(messages))
        gathering = self._put(messages, split, is_due=is_due, is_keyed=True)
        return Delivery(gathering, len(messages), len(messages))

    def _add_to(self, queue: PartitionQueue, messages: Messages, *, is_due: bool) -> Delivery:
        parts = queue.add(messages, is_due=is_due)
        has_keys = is_keyed(messages)
        if len(parts) == 1 and not has_keys:
            return parts[0]
        gathering = Gathering(in_a_row(parts), {}, is_keyed=has_keys)
        return Delivery(gathering, len(messages), len(messages))

    def _put(self, messages: Messages, split: Split, *, is_due: bool, is_keyed: bool) -> Gathering:
        """Put messages, which the accumulator has counted, into the partitions that were chosen."""
        placed: list[tuple[Delivery, Sequence[int]]] = []
        left = dict(split.places)
        try:
            for partition, places in split.places.items():
                part, queue = some_of(messages, places), self._queue_of(partition)
                del left[partition]
                end = 0
                for each in queue.add(part, is_due=is_due, is_counted=True):
                    placed.append((each, places[end : end + each.count]))
                    end += each.count
        except BaseException:  # a signal's: what is in no queue is to take no room
            rest = some_of(messages, itertools.chain(split.failed, *left.values()))
            self._accumulator.release(len(rest), sum(map(size_of, rest)))
            raise
        if split.failed:
            size = bytes_of(some_of(messages, split.failed))
            self._accumulator.release(len(split.failed), size)
            self._tell_failed(split)
        return Gathering(placed, split.failed, is_keyed=is_keyed)

    def _queue_of(self, partition: int) -> PartitionQueue:
        queues = self._queues[partition]
        return queues[0] if len(queues) == 1 else queues[next(self._turns) % len(queues)]

    def _tell_failed(self, split: Split) -> None:
        self._observer.refused(self.topic, len(split.failed), next(iter(split.failed.values())))

    def withdraw(self, delivery: Delivery, why: PoeError) -> bool:
        """Take a call back; False where not all of it can be, since it may have been sent."""
        done = [self._withdraw(part, batch, why) for part, batch in batches_of(delivery)]
        return all(done)

    def _withdraw(self, part: Delivery, batch: Batch, why: PoeError) -> bool:
        if batch.queue is not self._unplaced:
            return batch.queue.withdraw(part, why)
        with self._placing:
            if batch.placed is None:
                return self._unplaced.withdraw(part, why)
            if batch.hole_in(part.end - part.count, part.end) is not None:
                return False  # as a queue does: not all of it is there
            end = part.end - batch.gone_before(part.end)
            done = [self.withdraw(each, why) for each in batch.placed.parts_of(end, part.count)]
            return all(done)

    # ---- the bound of a downtime ---------------------------------------------------------------

    def _begin_order(self) -> None:
        """Begin with what there is; it waits in the order of the partitions."""
        # In one step: who drops meanwhile must not find it empty, and drop nothing.
        held = [(queue, queue.buffered()[0]) for queue in self.all_queues()]
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
        return sum(queue.unsent_count for queue in self.all_queues()) - self._limit

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

    # ---- what had no partition ----------------------------------------------------------------

    def parts_of(self, spooled: OutgoingBatch, batch: Batch | None) -> list[Part] | None:
        """Return what each partition is to send of a batch of the spool, as `SpooledTopic`."""
        now_s = self._accumulator.scheduler.now_s()
        topic, partition, messages, put_id, _ = spooled
        if partition != UNPLACED:
            if partition not in self._numbers:
                self._note_missed(partition)
            queues = self._queues.get(partition)
            if queues is None:
                return None
            return [Part(queues[0], batch or Batch(queues[0], now_s), spooled)]
        if not self._queues and (self._refusal is None or self._is_kept_out):
            return None
        batch = batch or Batch(self._unplaced, now_s)
        split = self._split_batch(messages)
        parts: list[Part] = []
        placed: list[tuple[Delivery, Sequence[int]]] = []
        for number, places in split.places.items():
            queue = self._queues[number][0]
            chosen = some_of(messages, places)
            part = Batch(queue, batch.begun_s)
            part.places = part.living_count = count = len(chosen)
            own_id = put_id if count == len(messages) else _id_of_part(put_id, places)
            outgoing = OutgoingBatch(topic, number, chosen, own_id, bytes_of(chosen))
            parts.append(Part(queue, part, outgoing))
            placed.append((Delivery(part, count, count), places))
        if split.failed:
            self._tell_failed(split)
        batch.place(Gathering(placed, split.failed, is_keyed=False))
        return parts

    def _note_missed(self, partition: int) -> None:
        """Tell once what the spool waits for, unless partitions may not be known yet."""
        if self.state is TopicState.READY and partition not in self._missed:
            self._missed.add(partition)
            _log.warning(
                "topic %s: the spool has messages for partition %d, which there is not: "
                "they wait for it, and all behind them do",
                short_repr(self.topic),
                partition,
            )

    def _split_batch(self, messages: Messages) -> Split:
        """Choose partitions for a batch that had none.

        In memory it is one call. Else its calls are forgotten, and messages without a key go to one
        partition.
        """
        if self._refusal is not None:
            return Split({}, dict.fromkeys(range(len(messages)), self._refusal))
        if self._spooler is None and is_keyed(messages):
            return self._partitioner.split(messages, self._numbers)
        with_key = {
            place: each for place, each in enumerate[bytes | Message](messages) if has_key(each)
        }
        keyed = list(with_key)
        split = self._partitioner.split(list(with_key.values()), self._numbers)
        places = {number: [keyed[i] for i in part] for number, part in split.places.items()}
        failed = {keyed[i]: error for i, error in split.failed.items()}
        if others := [i for i in range(len(messages)) if i not in with_key]:
            try:
                number = self._partitioner.pick(None, self._numbers, len(others))
            except PoeError as error:
                failed |= dict.fromkeys(others, error)
            else:
                places[number] = sorted([*places.get(number, ()), *others])
        return Split(places, failed)

    # ---- which partitions there are -----------------------------------------------------------

    def queues(self) -> list[PartitionQueue]:
        """Return the queues of all partitions, also of those that are gone."""
        return [queue for queues in list(self._queues.values()) for queue in list(queues)]

    def present_queues(self) -> list[PartitionQueue]:
        """Return the queues of the partitions that there are now."""
        return [queue for number in self._numbers for queue in list(self._queues[number])]

    def all_queues(self) -> list[PartitionQueue]:
        """Return those, and the one of what has no partition, first."""
        return [self._unplaced, *self.queues()]

    def learn(self, metadata: TopicMetadata) -> None:
        """Take the partitions that there are now, and place the calls that waited for them.

        Of a topic that was made anew they may be fewer; nothing new goes to those that are gone.
        """
        self.metadata = metadata
        with self._placing:
            self._refusal = None
            for each in metadata.partitions:
                if each.id not in self._queues:
                    self._queues[each.id] = [self._new_queue(each.id)]
            self._numbers = tuple(sorted(each.id for each in metadata.partitions))
            for batch in self._unplaced.unload():
                messages, batch.messages = batch.messages, []
                is_due = batch.is_due or self._spooler is not None
                split = self._split_batch(messages)
                batch.place(self._put(messages, split, is_due=is_due, is_keyed=False))
            # Only now: who finds it set does not wait for the lock, and would overtake them.
            self._are_known = True
        if self._limit is not None:
            self._begin_order()
        self._find_only()
        if self.known.value is None:
            self.known.settle(value=True)

    def refuse(self, error: PoeError) -> None:
        """Fail what waits for the partitions: nobody will tell them."""
        with self._placing:
            for batch in self._unplaced.unsettled():
                self._unplaced.give_up(batch, error)
            self._refusal = error
        if self._is_kept_out and self.up.value is None:
            self.up.settle(value=False)
        if self._spooler is not None:
            self._spooler.fill()

    def widen(self, count: int) -> None:
        """Have that many queues for each partition; only where order is not asked for."""
        for partition in self._numbers:
            queues = self._queues[partition]
            while len(queues) < count:
                queues.append(self._new_queue(partition))
        self._find_only()

    def _new_queue(self, partition: int) -> PartitionQueue:
        return PartitionQueue(
            self.topic,
            partition,
            self.options,
            self._accumulator,
            self._observer,
            is_numbered=self._is_numbered,
            spooler=self._spooler,
        )

    def _find_only(self) -> None:
        queues = self.present_queues()
        is_sole = len(queues) == 1 and self.options.picker is None
        self.only = queues[0] if is_sole and self.state is TopicState.READY else None

    # ---- what is known of brokers -------------------------------------------------------------

    def enter(self, state: TopicState, error: PoeError | None = None) -> None:
        """Enter a state, for a reason."""
        if state is TopicState.DOWNTIME is not self.state and self._limit is not None:
            self._begin_order()
        self.state = state
        if error is not None:
            self.last_error = error
            self._unplaced.last_error = error
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

    # ---- all queues ---------------------------------------------------------------------------

    def spool_all(self) -> None:
        """Put into the spool, if there is one, what is not delivered: the producer ends."""
        for queue in self.all_queues():
            queue.spool_all()

    def flush(self) -> list[Outcome]:
        """Send what waits without waiting for more; return what is to be waited for."""
        outcomes: list[Outcome] = []
        for queue in self.all_queues():
            outcomes += queue.unsettled()
            queue.flush()
        return outcomes

    def forget(self, error: PoeError) -> None:
        """Tell the copies of deliveries that a fork has made; takes no lock, and calls nobody."""
        for queue in self.all_queues():
            for outcome in queue.batches():
                outcome.abandon(error)

    def give_up_all(self, error: PoeError) -> list[Undelivered]:
        """Fail all that is not delivered, and return it; wake who waits for brokers."""
        for outcome in (self.known, self.up):
            if outcome.value is None:
                outcome.settle(value=False)
        return [
            Undelivered(
                self.topic,
                None if queue.partition == UNPLACED else queue.partition,
                messages,
                error,
            )
            for queue in self.all_queues()
            for batch in queue.unsettled()
            if (messages := queue.give_up(batch, error))
        ]

    def expire(self) -> set[Carrier | None]:
        """Give up what is older than `delivery_timeout_s`; return the workers that had sent it."""
        return {queue.worker for queue in self.all_queues() if queue.expire()}

    # ---- for people ---------------------------------------------------------------------------

    def check_taken(self) -> None:
        """Refuse what the server has refused.

        Raises:
            InvalidTopicName, LocalProtocolError: it cannot have such a topic.
            SecurityError: it has never let this producer in.
        """
        self._check_let_in()
        if self.metadata is not None and self.metadata.refusal is not None:
            raise self.metadata.refusal.with_traceback(None)

    @property
    def _is_kept_out(self) -> bool:
        """Whether the server would tell the partitions, but not to this producer."""
        return isinstance(self._refusal, SecurityError)

    def _check_let_in(self) -> None:
        """Refuse to go on from where the producer was never let in.

        Raises:
            SecurityError: it was not.
        """
        refusal = self._refusal
        if isinstance(refusal, SecurityError):
            raise refusal.with_traceback(None)

    def unreachable(self) -> PoeError:
        """Return the error for who has waited for a broker in vain."""
        error = self.last_error
        if error is not None and not error.retriable and self.metadata is None:
            return error.with_traceback(None)  # a broker's refusal
        return BrokerDown(self.topic, str(error or "no answer"))

    def info(self) -> TopicInfo:
        """Return what there is to know."""
        buffered = [queue.buffered() for queue in self.all_queues()]
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
        return len(self._numbers) if is_bounded else None

    def pick(self) -> WorkerInfo | None:
        """Return the worker that the next call without a key would go to; None without one."""
        if not self._numbers:
            return None
        partition = self._partitioner.pick(None, self._numbers, 0)
        for worker in list(self.workers):
            if any(queue.partition == partition for queue in worker.queues):
                return worker.info(self.topic)
        return None


def _id_of_part(put_id: PutId | None, places: Sequence[int]) -> PutId:
    """Return the number of these messages of a batch from the spool.

    On Poe each partition is a topic, so that a part needs none among the others. But a later life
    may share the batch out in another way, and no partition is to take that for what it has.
    """
    assert put_id is not None
    which = array("Q", places).tobytes()
    return put_id._replace(
        producer=blake2b(put_id.producer + which, digest_size=PRODUCER_SIZE).digest()
    )


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
