"""What waited for its topic's partitions to be known, in a spool, and where it goes then.

Until a broker has told the partitions, a producer with a spool gathers the messages of a topic in a
queue of their own, with the number `UNPLACED`, and that queue's batches go to disk as others do.
Which calls they came from is not written there, so those without a key stay together.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from poe.client.producer.accumulator import Accumulator
from poe.client.producer.batch import Batch, bytes_of
from poe.client.producer.delivery import Delivery, Failed, Gathering, Result, Sent
from poe.client.producer.instrumentation import Instrumentation
from poe.client.producer.partitioner import Partitioner, Split
from poe.client.producer.payload import Messages, is_keyed
from poe.client.producer.transport import OutgoingBatch
from poe.client.producer.unplaced_calls import UNPLACED
from poe.errors import PoeError
from poe.protocol import PutId

if TYPE_CHECKING:
    from poe.client.producer.topic_queues import TopicQueues
    from poe.client.spool.spooled_queue import SpooledQueue


class Part(NamedTuple):
    """The messages of one partition."""

    queue: "SpooledQueue"
    batch: Batch
    outgoing: OutgoingBatch


class Assignment(Gathering):
    """The outcome of a batch that went to several partitions; becomes the value of that batch."""

    __slots__ = ("_batch", "_where", "parts_of", "split")

    def __init__(
        self,
        topic: "TopicQueues",
        batch: Batch,
        messages: Sequence[Any],
        split: Split,
        put_id: PutId | None,
    ) -> None:
        """Split `batch`; its parts are nowhere yet.

        On Poe each partition is a topic, so that all of them may use the number `put_id`.
        """
        self.split = split
        self._batch = batch
        self._where: dict[int, tuple[Batch, int]] = {}
        self.parts_of: list[Part] = []
        for partition, places in split.places.items():
            chosen = [messages[place] for place in places]
            queue = cast("SpooledQueue", topic.replay_queue(partition))
            part = Batch(queue, batch.begun_s)
            part.messages, part.size = chosen, bytes_of(chosen)
            part.places = part.living_count = len(chosen)
            part.is_plain = type(chosen[0]) is bytes
            outgoing = OutgoingBatch(topic.topic, partition, chosen, put_id, part.size)
            self.parts_of.append(Part(queue, part, outgoing))
            self._where.update({place: (part, end) for end, place in enumerate(places, start=1)})
        super().__init__([Delivery(part) for _, part, _ in self.parts_of], _list_of)
        if not self.parts_of:
            batch.settle(self)

    def results(self, start: int, end: int) -> list[Sent | Failed]:
        """Return what became of each message of these places."""
        return [self._result(place) for place in range(start, end)]

    def _result(self, place: int) -> Sent | Failed:
        if place in self.split.failed:
            return Failed(UNPLACED, self.split.failed[place])
        batch, end = self._where[place]
        try:
            return cast(Sent, batch.result_of(end, 1))
        except PoeError as error:
            return Failed(batch.queue.partition, error)

    def settle(self, value: object) -> None:
        """Settle the batch, too."""
        super().settle(value)
        self._batch.settle(self)

    def abandon(self, error: PoeError) -> None:
        """Abandon the batch, too."""
        super().abandon(error)
        self._batch.abandon(error)


class UnplacedBatches:
    """The queue of one topic's messages that have no partition yet, and what it has in the spool.

    It takes the place of `UnplacedCalls`.
    """

    partition = UNPLACED

    def __init__(
        self,
        topic: "TopicQueues",
        queue: "SpooledQueue",
        partitioner: Partitioner,
        accumulator: Accumulator,
        observer: Instrumentation,
    ) -> None:
        self._topic = topic
        self._queue = queue
        self._partitioner = partitioner
        self._accumulator = accumulator
        self._observer = observer
        self._rest: list[Batch] = []
        self._refusal: PoeError | None = None
        """Why nobody will tell the partitions."""
        self.buffered = queue.buffered
        self.batches = queue.batches
        self.unsettled = queue.unsettled
        self.flush = queue.flush
        self.drop = queue.drop
        self.expire = queue.expire
        self.spool_all = queue.spool_all

    @property
    def unsent_count(self) -> int:
        """How many messages wait in memory."""
        return self._queue.unsent_count

    def add(self, messages: Messages, *, is_due: bool) -> Delivery:
        """Add a call.

        Raises:
            BufferFull, ProducerClosed: nothing was added.
        """
        deliveries = self._queue.add(messages, is_due=is_due)
        if is_keyed(messages):
            return Delivery(Gathering(deliveries, _list_of, refused=[]))
        return Delivery(Gathering(deliveries, _last_of))

    def withdraw(self, call: object, why: PoeError) -> bool:
        """Tell that this is none of its calls."""
        del call, why
        return False

    def stop(self) -> None:
        """Take note that the partitions are known: nothing goes into the spool any more."""
        self._refusal = None
        self._rest += self._queue.take_rest()

    def place(self, place: object) -> None:
        """Put into partitions what is not in the spool."""
        del place
        for batch in self._rest:
            messages, batch.messages = batch.messages, []
            assignment = self._assign(batch, messages, None)
            for queue, part, _ in assignment.parts_of:
                queue.take_over(part)
            failed = [messages[place] for place in assignment.split.failed]
            if failed:
                self._accumulator.release(len(failed), bytes_of(failed))
        self._rest = []

    def assign(self, spooled: OutgoingBatch, batch: Batch | None) -> "Assignment | None":
        """Return where a batch of the spool goes, which `batch` stands for; None: not known yet."""
        if self._refusal is None and not self._topic.queues():
            return None
        batch = batch or Batch(self._queue, self._accumulator.scheduler.now_s())
        return self._assign(batch, spooled.messages, spooled.put_id)

    def _assign(self, batch: Batch, messages: Sequence[Any], put_id: PutId | None) -> "Assignment":
        split = self._split(messages)
        if split.failed:
            self._observer.refused(
                self._topic, len(split.failed), next(iter(split.failed.values()))
            )
        return Assignment(self._topic, batch, messages, split, put_id)

    def _split(self, messages: Sequence[Any]) -> Split:
        """Choose partitions; those without a key go to one, since their calls are forgotten."""
        if self._refusal is not None:
            return Split({}, dict.fromkeys(range(len(messages)), self._refusal))
        partitions = sorted({queue.partition for queue in self._topic.queues()})
        keyed = [i for i, each in enumerate(messages) if is_keyed([each])]
        split = self._partitioner.split([messages[i] for i in keyed], partitions)
        places = {partition: [keyed[i] for i in part] for partition, part in split.places.items()}
        failed = {keyed[i]: error for i, error in split.failed.items()}
        if others := sorted(set(range(len(messages))) - set(keyed)):
            try:
                partition = self._partitioner.pick(None, partitions, len(others))
            except PoeError as error:
                failed |= dict.fromkeys(others, error)
            else:
                places[partition] = sorted([*places.get(partition, ()), *others])
        return Split(places, failed)

    def fail(self, error: PoeError) -> list[list[Any]]:
        """Give up what is not in the spool; return the messages of each batch."""
        given_up = [self._queue.give_up(batch, error) for batch in self._queue.unsettled()]
        return [messages for messages in given_up if messages]

    def refuse(self, error: PoeError) -> None:
        """Take note that nobody will tell the partitions: what is in the spool is for nobody."""
        self._refusal = error


def _list_of(deliveries: Sequence[Delivery]) -> Result:
    """Return the result of each message of a call with keys.

    Raises:
        PoeError: none of them was delivered; it is the first one's.
    """
    found: list[Sent | Failed] = []
    for delivery in deliveries:
        try:
            found += cast(list[Sent | Failed], delivery.result(0))
        except PoeError as error:
            found += [Failed(UNPLACED, error)] * delivery.count
    if all(isinstance(each, Failed) for each in found):
        raise cast(Failed, found[0]).error.with_traceback(None)
    return found


def _last_of(deliveries: Sequence[Delivery]) -> Result:
    """Return the result of a call without keys.

    Raises:
        PoeError: not all of it was delivered.
    """
    found = [each for one in deliveries for each in cast(list[Sent | Failed], one.result(0))]
    for each in found:
        if isinstance(each, Failed):
            raise each.error.with_traceback(None)
    return cast(Sent, found[-1])._replace(count=len(found))
