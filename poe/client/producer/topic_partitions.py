"""The partitions of one topic: which there are, their queues, and what of a call goes where.

It turns the payload of a call into messages in queues, and puts the results together again.
"""

import itertools
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, cast

from poe.client.producer.accumulator import Accumulator
from poe.client.producer.batch import bytes_of
from poe.client.producer.delivery import Delivery, Failed, Gathering, Sent
from poe.client.producer.instrumentation import Instrumentation
from poe.client.producer.partition_queue import PartitionQueue
from poe.client.producer.partitioner import partitioner
from poe.client.producer.payload import Message, Messages, is_keyed
from poe.client.producer.transport import TopicMetadata
from poe.client.spool.spooled_queue import SpooledQueue
from poe.client.spool.spooler import Spooler
from poe.errors import PoeError

if TYPE_CHECKING:
    from poe.client.producer.topic_queues import TopicQueues


class TopicPartitions:
    """The partitions that were ever known; none ever goes.

    Any thread may add, once something was learnt.
    """

    def __init__(
        self,
        topic: "TopicQueues",
        accumulator: Accumulator,
        observer: Instrumentation,
        *,
        is_numbered: bool,
        spooler: Spooler | None,
    ) -> None:
        self.partitioner = partitioner(topic.topic, topic.options)
        self._topic = topic
        self._accumulator = accumulator
        self._observer = observer
        self._is_numbered = is_numbered
        self._spooler = spooler
        self._queues: dict[int, list[PartitionQueue]] = {}
        self._numbers: tuple[int, ...] = ()
        self._turns = itertools.count()

    # ---- which ones there are -----------------------------------------------------------------

    def queues(self) -> list[PartitionQueue]:
        """Return the queues of all partitions."""
        return [queue for queues in list(self._queues.values()) for queue in list(queues)]

    def queues_of(self, partition: int) -> list[PartitionQueue]:
        """Return the queues of a partition; none where it is not known yet."""
        return self._queues.get(partition, [])

    def learn(self, metadata: TopicMetadata) -> None:
        """Take note of partitions."""
        for each in metadata.partitions:
            if each.id not in self._queues:
                self._queues[each.id] = [self.new_queue(each.id)]
        self._numbers = tuple(sorted(self._queues))

    def widen(self, count: int) -> None:
        """Have that many queues for each partition; only where order is not asked for."""
        for partition, queues in self._queues.items():
            while len(queues) < count:
                queues.append(self.new_queue(partition))

    def new_queue(self, partition: int) -> PartitionQueue:
        """Return a queue for the messages of a partition, as the options ask for it."""
        topic = self._topic
        parts = (topic.topic, partition, topic.options, self._accumulator, self._observer)
        if self._spooler is None:
            return PartitionQueue(*parts, is_numbered=self._is_numbered)
        return SpooledQueue(self._spooler, *parts, is_numbered=self._is_numbered)

    def next_partition(self) -> int | None:
        """Return where the next call without a key would go; None where none is known."""
        return self.partitioner.pick(None, self._numbers, 0) if self._numbers else None

    # ---- calls --------------------------------------------------------------------------------

    def add(self, messages: Messages, *, is_due: bool, is_counted: bool = False) -> Delivery:
        """Put the messages of a call into queues.

        `is_counted` says that the accumulator has counted them before.

        Raises:
            BufferFull, ProducerClosed: nothing was added.
            PickerFailed: likewise, of a call without keys.
        """
        if is_keyed(messages):
            if not is_counted:
                with self._accumulator.lock:
                    self._accumulator.take(len(messages), bytes_of(messages))
            return self._add_keyed(messages, is_due=is_due)
        partition = self.partitioner.pick(None, self._numbers, len(messages))
        queue = self._queue_of(partition)
        deliveries = queue.add(messages, is_due=is_due, is_counted=is_counted)
        if len(deliveries) == 1:
            return deliveries[0]
        return Delivery(Gathering(deliveries, _last))

    def _add_keyed(self, messages: list[Message], *, is_due: bool) -> Delivery:
        """Put each message into the partition of its key: a list of results, one for each."""
        split = self.partitioner.split(messages, self._numbers)
        parts: list[tuple[Delivery, Sequence[int]]] = []
        for partition, places in split.places.items():
            part = [messages[place] for place in places]
            end = 0
            for delivery in self._queue_of(partition).add(part, is_due=is_due, is_counted=True):
                parts.append((delivery, places[end : end + delivery.count]))
                end += delivery.count
        results: list[Sent | Failed | None] = [None] * len(messages)
        refused = [Failed(-1, error) for error in split.failed.values()]
        for place, failed in zip(split.failed, refused, strict=True):
            results[place] = failed
        if refused:
            size = bytes_of([messages[place] for place in split.failed])
            self._accumulator.release(len(refused), size)
            self._observer.refused(self._topic, len(refused), refused[0].error)
        deliveries = [delivery for delivery, _ in parts]
        return Delivery(Gathering(deliveries, partial(_each, parts, results), refused=refused))

    def _queue_of(self, partition: int) -> PartitionQueue:
        queues = self._queues[partition]
        return queues[0] if len(queues) == 1 else queues[next(self._turns) % len(queues)]


def _last(deliveries: Sequence[Delivery]) -> Sent:
    """Return the result of a list that was sent in several requests, in order."""
    results = cast(list[Sent], [delivery.result(0) for delivery in deliveries])
    return results[-1]._replace(count=sum(sent.count for sent in results))


def _each(
    parts: Sequence[tuple[Delivery, Sequence[int]]],
    results: list[Sent | Failed | None],
    deliveries: Sequence[Delivery],
) -> list[Sent | Failed]:
    """Return the result of each message of a keyed list.

    Raises:
        PoeError: none of them was delivered; it is the first one's.
    """
    del deliveries
    found = list(results)
    for delivery, places in parts:
        try:
            sent = cast(Sent, delivery.result(0))
        except PoeError as error:
            partition = delivery.outcome.queue.partition  # type: ignore[attr-defined]  # a batch
            failed = Failed(partition, error)
            for place in places:
                found[place] = failed
        else:
            first = sent.pointer - len(places) + 1 if sent.pointer else 0
            for i, place in enumerate(places):
                found[place] = sent._replace(pointer=first + i if sent.pointer else 0, count=1)
    complete = cast(list[Sent | Failed], found)
    if all(isinstance(each, Failed) for each in complete):
        raise cast(Failed, complete[0]).error.with_traceback(None)
    return complete
