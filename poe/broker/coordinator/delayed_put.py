"""Puts one batch of delayed messages onto its topic, once: by an actor of its own.

So a topic whose disk is slow, or full, keeps no other one waiting, nor who puts messages later.
"""

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, cast
from weakref import proxy

from poe.actors import ActorRef, Continue, GenServer, Stop
from poe.broker.appendix.message import GetRange
from poe.broker.coordinator.delayed_log import (
    DELAYED_TOPIC,
    decode_later,
    encode_done,
    encode_intent,
    encode_void,
)
from poe.broker.coordinator.waiting import Batch, Done, Number, due_us_of, pointer_of
from poe.broker.registry.routing_table import RoutingTable
from poe.broker.requests.delayed import DELAYER, PutLater
from poe.broker.requests.request_handler import RequestHandler
from poe.broker.requests.slices import read_records
from poe.errors import (
    CorruptRecord,
    NotATopic,
    PoeError,
    ProducerFenced,
    SequenceGap,
    UnderCopies,
    UnknownTopic,
)
from poe.protocol import IndexedRecords, PutId
from poe.protocol.put import DELAYED_PREFIX, DELAYED_PRODUCER, PRODUCER_SIZE
from poe.storage import Clock
from poe.topic_properties import partition_of

logger = logging.getLogger("poe.broker")

_PUT_S: Final = 30.0
_READ_COUNT: Final = 64
_READ_BYTES: Final = 1024 * 1024


class Stored(NamedTuple):
    """A batch is stored."""

    next_number: Number | None
    """Of the next one onto the topic; None where that has to ask."""


@dataclass(frozen=True, slots=True)
class Voided:
    """A batch is not stored, and needs another number."""


class PutEnded(NamedTuple):
    """Cast to the delayer: what has become of a batch; an error says why it is not stored yet."""

    ref: ActorRef
    batch: Batch
    outcome: Stored | Voided | PoeError


class Marked(NamedTuple):
    """Cast to the delayer: what of it is stored for good, and what not, up to a pointer."""

    ref: ActorRef
    done: list[Done]
    failed: list[Done]
    pointer: int


class DelayedPut(GenServer):
    """Puts one batch, tells its parent what has become of it, and ends."""

    def init(self, routes: RoutingTable, batch: Batch, clock: Clock) -> Continue:
        """Begin when the parent goes on."""
        self._handler = RequestHandler(cast("GenServer", proxy(self)), routes, put_timeout_s=_PUT_S)
        self._clock = clock
        return Continue(batch)

    async def handle_continue(self, batch: Batch) -> Stop:
        """Do all there is to do."""
        outcome: Stored | Voided | PoeError
        self._batch = batch
        try:
            outcome = await self._put(batch)
        except PoeError as error:
            outcome = error
        assert self.parent is not None
        self.cast(self.parent, PutEnded(self.ref, self._batch, outcome))
        return Stop("normal")

    async def _put(self, batch: Batch) -> Stored | Voided:
        """Put a batch; `_batch` is what the delayer is to know of it, whatever happens."""
        topic, is_repeated = batch.topic, batch.is_written
        number = batch.number
        partitions = self._partitions(topic)
        if topic not in partitions:
            return await self._move(batch, partitions)
        producer = self._producer(topic)
        if is_repeated or number is None:
            last = await self._handler.last_put(topic, producer)
            newest = Number(0, 0) if last is None else Number(last.epoch, last.sequence)
            if number is not None and last is not None and number <= newest:
                return Stored(None)
            # A power cut may have taken what the log has told of numbers, and not what they were
            # given to: so each life of the delayer begins an epoch.
            number = number or Number(max(newest.epoch + 1, self._clock.now_us() // 1_000_000), 0)
        messages = await self._messages(batch)
        if not messages:
            return Stored(None)
        self._batch = batch = batch._replace(number=number)
        if not is_repeated:
            await self._handler.put(DELAYED_TOPIC, [encode_intent(batch, number)])
            self._batch = batch = batch._replace(is_written=True)
        try:
            await self._handler.put(topic, messages, None, PutId(producer, *number))
        except UnderCopies as error:  # a queue has it, and makes more copies by itself
            logger.warning("what is due for queue %r: %s", topic, error)
        except (SequenceGap, ProducerFenced) as error:
            # It was made anew meanwhile, or a power cut has set it back; or this node's copy of it
            # was behind when it was asked.
            if is_repeated and isinstance(error, ProducerFenced):
                raise
            await self._handler.put(DELAYED_TOPIC, [encode_void(topic, number)])
            return Voided()
        return Stored(None if is_repeated else Number(number.epoch, number.sequence + 1))

    def _producer(self, topic: bytes) -> bytes:
        """Return the name under which this node puts onto a topic.

        Onto a replicated one others put, too, and each counts for itself: there it is that of the
        log, which nobody else has.
        """
        properties = self._handler.routes.properties
        holder = None if properties is None else properties.holder(topic)
        if properties is None or holder is None or not holder.properties.is_replicated:
            return DELAYED_PRODUCER
        return (DELAYED_PREFIX + properties.of(DELAYED_TOPIC).id)[:PRODUCER_SIZE]

    def _partitions(self, topic: bytes) -> tuple[bytes, ...]:
        """Return where what waits for a topic is put: it may have been made with partitions since.

        Or what was a partition may be none any more, since it was made anew with fewer.
        """
        routes, part = self._handler.routes, partition_of(topic)
        described = None if routes.properties is None else routes.properties.find(topic)
        if part is not None and not routes.is_topic(topic) and routes.properties is not None:
            described = routes.properties.find(part[0])
        partitions = () if described is None else described.partition_topics()
        return partitions if len(partitions) > 1 else (topic,)

    async def _move(self, batch: Batch, partitions: Sequence[bytes]) -> Stored:
        """Have messages wait for a partition instead.

        Who dies in between has them twice.
        """
        first = batch.entries[0]
        messages = await self._messages(batch)
        if messages:
            partition = partitions[pointer_of(first) % len(partitions)]
            later = PutLater(partition, due_us_of(first), messages, is_moved=True)
            await self._handler.actor.call(DELAYER, later, timeout_s=None)
        number = batch.number or Number(self._clock.now_us() // 1_000_000, 0)
        notes = [encode_intent(batch, number), encode_done(batch.topic, number)]
        await self._handler.put(DELAYED_TOPIC, notes)
        self._batch = batch._replace(number=None)
        return Stored(None)

    async def _messages(self, batch: Batch) -> list[bytes]:
        """Read what is to be put; what the disk has lost is left out."""
        found: dict[int, list[bytes]] = {}
        wanted = sorted(map(pointer_of, batch.entries))
        while wanted:
            asked = GetRange(wanted[0] - 1, wanted[-1], _READ_COUNT, _READ_BYTES)
            behind = wanted[0]
            try:
                told = await self._handler.get_range(DELAYED_TOPIC, asked)
                if told is not None:
                    records = read_records(DELAYED_TOPIC, told)
                    behind = int(records.pointers[-1])
                    found |= _later(records, set(wanted))
            except CorruptRecord as error:
                if error.pointer is None:
                    raise  # how much is damaged is not known, as where an index is
                behind = max(behind, error.pointer)
            wanted = [each for each in wanted if each > behind]
        lost_count = len(batch.entries) - len(found)
        if lost_count:
            logger.error("%d delayed puts onto %r cannot be read", lost_count, batch.topic)
        pointers = map(pointer_of, batch.entries)
        return [each for pointer in pointers for each in found.get(pointer, ())]


def _later(records: IndexedRecords, wanted: set[int]) -> dict[int, list[bytes]]:
    found = {}
    for pointer, record in records.pairs():
        if pointer in wanted and (later := decode_later(record)) is not None:
            found[pointer] = later.messages
    return found


class DelayedMarks(GenServer):
    """Notes in the log what need not be put again, since a power cut would not take it; and ends.

    Only then what has waited may be trimmed.
    """

    def init(self, routes: RoutingTable, done: list[Done]) -> Continue:
        """Begin when the parent goes on."""
        self._handler = RequestHandler(cast("GenServer", proxy(self)), routes, put_timeout_s=_PUT_S)
        return Continue(done)

    async def handle_continue(self, done: list[Done]) -> Stop:
        """Do all there is to do."""
        synced: list[Done] = []
        failed: list[Done] = []
        pointer = 0
        try:
            # First: what is on the disk of a topic without the note of it would be put again.
            await self._handler.sync(DELAYED_TOPIC)
            for each in done:
                (synced if await self._is_synced(each.topic) else failed).append(each)
            if synced:
                marks = [encode_done(each.topic, each.number) for each in synced]
                pointer = await self._handler.put(DELAYED_TOPIC, marks)
        except PoeError as error:
            logger.error("topic poe.delayed does not take what is done: %s", error)
            synced, failed = [], done
        assert self.parent is not None
        self.cast(self.parent, Marked(self.ref, synced, failed, pointer))
        return Stop("normal")

    async def _is_synced(self, topic: bytes) -> bool:
        """Return whether a topic is on its disk now, unless it was deleted, or is a queue."""
        try:
            await self._handler.sync(topic)
        except (UnknownTopic, NotATopic):
            return True
        except PoeError:  # the next time
            return False
        return True
