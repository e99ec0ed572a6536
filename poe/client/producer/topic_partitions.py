"""The partitions of one topic: which there are, their queues, and what of a call goes where.

It turns the payload of a call into messages in queues, and puts the results together again. Until
somebody has told the partitions, calls wait in a queue of their own, with the number `UNPLACED`.
Its batches may go into the spool as others do. Which calls they came from is not written there, so
those without a key stay together when they come out.
"""

import itertools
import threading
from collections.abc import Sequence

from poe.client.producer.accumulator import Accumulator
from poe.client.producer.batch import Batch, batches_of, bytes_of
from poe.client.producer.delivery import UNPLACED, Delivery, Gathering, in_a_row
from poe.client.producer.instrumentation import Instrumentation
from poe.client.producer.partition_queue import PartitionQueue
from poe.client.producer.partitioner import Split, partitioner
from poe.client.producer.payload import Message, Messages, has_key, is_keyed, some_of
from poe.client.producer.producer_options import TopicOptions
from poe.client.producer.transport import OutgoingBatch, TopicMetadata
from poe.client.spool.spooler import Part, Spooler
from poe.errors import PoeError


class TopicPartitions:
    """The partitions that were ever known; none ever goes. Any thread may add."""

    def __init__(  # noqa: PLR0913 - what it is, what it has, whom it tells
        self,
        topic: bytes,
        options: TopicOptions,
        accumulator: Accumulator,
        observer: Instrumentation,
        *,
        is_numbered: bool,
        spooler: Spooler | None,
    ) -> None:
        self._topic = topic
        self._options = options
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
        self._are_known = False
        """Whether calls wait no more for partitions to be known."""
        # So that a call which finds no partitions is behind those that waited for them.
        self._placing = threading.RLock()

    # ---- which ones there are -----------------------------------------------------------------

    def queues(self) -> list[PartitionQueue]:
        """Return the queues of all partitions."""
        return [queue for queues in list(self._queues.values()) for queue in list(queues)]

    def all_queues(self) -> list[PartitionQueue]:
        """Return those, and the one of what has no partition, first."""
        return [self._unplaced, *self.queues()]

    def learn(self, metadata: TopicMetadata) -> None:
        """Add partitions, and place the calls that waited for them."""
        with self._placing:
            self._refusal = None
            for each in metadata.partitions:
                if each.id not in self._queues:
                    self._queues[each.id] = [self._new_queue(each.id)]
            self._numbers = tuple(sorted(self._queues))
            for batch in self._unplaced.unload():
                messages, batch.messages = batch.messages, []
                is_due = batch.is_due or self._spooler is not None
                split = self._split_batch(messages)
                batch.place(self._put(messages, split, is_due=is_due, is_keyed=False))
            # Only now: who finds it set does not wait for the lock, and would overtake them.
            self._are_known = True

    def refuse(self, error: PoeError) -> None:
        """Fail what waits for the partitions: nobody will tell them."""
        with self._placing:
            for batch in self._unplaced.unsettled():
                self._unplaced.give_up(batch, error)
        self._refusal = error
        if self._spooler is not None:
            self._spooler.fill()

    def note_error(self, error: PoeError) -> None:
        """Keep why the partitions are not known, for what waits for them in vain."""
        self._unplaced.last_error = error

    def widen(self, count: int) -> None:
        """Have that many queues for each partition; only where order is not asked for."""
        for partition, queues in self._queues.items():
            while len(queues) < count:
                queues.append(self._new_queue(partition))

    def _new_queue(self, partition: int) -> PartitionQueue:
        return PartitionQueue(
            self._topic,
            partition,
            self._options,
            self._accumulator,
            self._observer,
            is_numbered=self._is_numbered,
            spooler=self._spooler,
        )

    def next_partition(self) -> int | None:
        """Return where the next call without a key would go; None where none is known."""
        return self._partitioner.pick(None, self._numbers, 0) if self._numbers else None

    # ---- calls --------------------------------------------------------------------------------

    def add(self, messages: Messages, *, is_due: bool) -> Delivery:
        """Put the messages of a call into queues.

        Raises:
            BufferFull, ProducerClosed: nothing was added.
            PickerFailed: likewise, of a call without keys.
        """
        if not self._are_known:
            with self._placing:
                if not self._are_known:
                    return self._add_to(self._unplaced, messages, is_due=is_due)
        if not is_keyed(messages):
            partition = self._partitioner.pick(None, self._numbers, len(messages))
            return self._add_to(self._queue_of(partition), messages, is_due=is_due)
        with self._accumulator.lock:
            self._accumulator.take(len(messages), bytes_of(messages))
        split = self._partitioner.split(messages, self._numbers)
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
        for partition, places in split.places.items():
            part = some_of(messages, places)
            end = 0
            for each in self._queue_of(partition).add(part, is_due=is_due, is_counted=True):
                placed.append((each, places[end : end + each.count]))
                end += each.count
        if split.failed:
            size = bytes_of(some_of(messages, split.failed))
            self._accumulator.release(len(split.failed), size)
            self._tell_failed(split)
        return Gathering(placed, split.failed, is_keyed=is_keyed)

    def _queue_of(self, partition: int) -> PartitionQueue:
        queues = self._queues[partition]
        return queues[0] if len(queues) == 1 else queues[next(self._turns) % len(queues)]

    def _tell_failed(self, split: Split) -> None:
        self._observer.refused(self._topic, len(split.failed), next(iter(split.failed.values())))

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
            parts = batch.placed.parts_of(part.end, part.count)
            done = [self.withdraw(each, why) for each in parts]
            return all(done)

    # ---- what had no partition ----------------------------------------------------------------

    def parts_of(self, spooled: OutgoingBatch, batch: Batch | None) -> list[Part] | None:
        """Return what each partition is to send of a batch of the spool, as `SpooledTopic`."""
        now_s = self._accumulator.scheduler.now_s()
        topic, partition, messages, put_id, _ = spooled
        if partition != UNPLACED:
            queues = self._queues.get(partition)
            if queues is None:
                return None
            return [Part(queues[0], batch or Batch(queues[0], now_s), spooled)]
        if self._refusal is None and not self._queues:
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
            # On Poe each partition is a topic, so that all of them may use the number `put_id`.
            outgoing = OutgoingBatch(topic, number, chosen, put_id, bytes_of(chosen))
            parts.append(Part(queue, part, outgoing))
            placed.append((Delivery(part, count, count), places))
        if split.failed:
            self._tell_failed(split)
        batch.place(Gathering(placed, split.failed, is_keyed=False))
        return parts

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
