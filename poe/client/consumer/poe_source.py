"""Reads topics of Poe for a consumer: for each partition a connection, and one fetch ahead."""

import asyncio
import logging
import time
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from poe.client.async_retrying_socket import AsyncRetryingSocket
from poe.client.async_socket import AsyncSocket
from poe.client.consumer.source import (
    ConsumerOptions,
    ConsumerStatistics,
    Fetched,
    Start,
    pointer_at,
)
from poe.client.consumer.turns import Turns
from poe.client.local_server import AnyServer
from poe.client.partition_topic import partition_topics
from poe.errors import (
    CorruptRecord,
    InvalidEnvelope,
    MessagesLost,
    OptionError,
    OriginalServer,
    PoeError,
    PropertyMismatch,
    UnknownTopic,
)
from poe.errors.root import shown
from poe.protocol import FOLLOW_WAIT_S, RANGE_COUNT_MAX, IndexedRecords, Removed
from poe.protocol.arguments import check_pointer
from poe.protocol.envelope import Enveloped, decode
from poe.record import POINTER_MAX

_log = logging.getLogger(__name__)

_LOOK_FOR_PARTITIONS_S = 30.0
"""How long a partition that was added may not be read."""
_FETCH_BATCHES = 10
"""Batches to ask for at a time: each time, threads or tasks wait for each other."""


class PoeSource:
    """The Poe topics that are the partitions of one topic; see `Source`."""

    def __init__(
        self, servers: Sequence[AnyServer], topic: bytes, options: ConsumerOptions
    ) -> None:
        self.statistics = ConsumerStatistics()
        self._servers = servers
        self._topic = topic
        self._options = options
        self._turns: Turns[PartitionReader] = Turns()
        self._start: Start = "oldest"
        self._is_told = False
        self._has_envelope: bool | None = False
        """Whether messages are in envelopes; None: there is no such topic yet."""
        self._names: tuple[bytes, ...] = ()
        """The topics that are read: its partitions."""
        self._looked_s = 0.0
        """When it was looked last which ones there are, in monotonic time."""
        self._growing: asyncio.Task[None] | None = None
        self._socket = AsyncRetryingSocket(
            servers,
            timeout_s=options.timeout_s,
            request_timeout_s=options.request_timeout_s,
            on_lost=self._note_lost_connection,
        )

    async def open(self, start: Start) -> dict[int, int]:
        """Begin at `start`; see `Source`.

        Raises:
            OptionError: a partition that there is not.
            PointerOutOfRange: a pointer that no message can have.
            PropertyMismatch: the options contradict what the topic has.
            PoeError: as `fetch`.
        """
        await self.close()
        self._start = start
        names, self._is_told = await self._find_partitions()
        partitions = range(len(names))
        if isinstance(start, Mapping) and not start.keys() <= set(partitions):
            raise OptionError("start", start, f"partitions up to {partitions[-1]}")
        for pointer in start.values() if isinstance(start, Mapping) else (start,):
            if isinstance(pointer, int):
                check_pointer(max(pointer, 0))
        readers = [self._reader(*each) for each in enumerate(names)]
        for reader in readers:
            self._turns.add(reader)
        self._names = names
        if self._options.follow:
            self._growing = asyncio.create_task(self._look_often())
        begun = await asyncio.gather(*(reader.begin(start) for reader in readers))
        return dict(zip(partitions, begun, strict=True))

    async def fetch(self) -> Fetched | None:
        """Return what follows in the partition whose turn it is; see `Source`.

        Raises:
            CorruptRecord, InvalidEnvelope, MessagesLost, PoeError: see `Source`.
        """
        try:
            turn = await self._turns.next()
        except PropertyMismatch:
            if self._is_told:
                raise
            # It was made, with several partitions, since nobody could tell of it: begin in these.
            await self.open("oldest" if self._start == "newest" else self._start)
            turn = await self._turns.next()
        if turn is None and time.monotonic() >= self._looked_s + _LOOK_FOR_PARTITIONS_S:
            await self._look_for_more()
            turn = await self._turns.next()
        return None if turn is None else turn.fetched

    def _note_lost_connection(self) -> None:
        self.statistics.reconnect_count += 1

    async def close(self) -> None:
        """Give up what was begun, and all connections."""
        growing, self._growing = self._growing, None
        if growing is not None:
            growing.cancel()
            await asyncio.gather(growing, return_exceptions=True)
        await self._turns.close()

    def _reader(self, partition: int, name: bytes) -> "PartitionReader":
        place = self._servers, name, partition
        reader = PartitionReader(*place, self._options, self.statistics)
        reader.has_envelope = self._has_envelope
        return reader

    async def _find_partitions(self) -> tuple[tuple[bytes, ...], bool]:
        """Ask what the topic has; the options count where the server does not know.

        Return its partitions, and whether it was the server that has told of them.

        Raises:
            PropertyMismatch: they contradict it.
            PoeError: it cannot be asked.
        """
        options = self._options
        unknown = options.envelope
        try:
            found = await self._socket.call(lambda socket: socket.find_topic(self._topic))
        except OriginalServer:
            found, unknown = None, bool(options.envelope)
        finally:
            await self._socket.close()  # each partition has a connection of its own
        self._looked_s = time.monotonic()
        if found is not None:
            found.check({"partitions": options.partitions, "envelope": options.envelope})
        if found is None or not found.is_told:
            self._has_envelope = unknown if found is None else bool(options.envelope)
            return partition_topics(self._topic, options.partitions or 1), False
        self._has_envelope = found.properties.envelope
        return tuple(each.topic for each in found.partitions), True

    async def _look_often(self) -> None:
        """Look for new partitions while those that are known are followed."""
        while True:
            await asyncio.sleep(_LOOK_FOR_PARTITIONS_S)
            try:
                await self._look_for_more()
            except PoeError as error:  # who reads is told, if it does not pass
                _log.debug("topic %r is not described: %s", self._topic, error)

    async def _look_for_more(self) -> None:
        """Read new partitions, too, from their beginning; the topic may grow at any time.

        Raises:
            PoeError: as `_find_partitions`.
        """
        names, _ = await self._find_partitions()
        if names[: len(self._names)] != self._names:
            return  # it is another topic now, which who reads is told
        for partition in range(len(self._names), len(names)):
            reader = self._reader(partition, names[partition])
            await reader.begin("oldest")
            self._turns.add(reader)
            self._names = names[: partition + 1]


class PartitionReader:
    """Reads one topic of Poe, wherever its connection goes; one task at a time may call it.

    What was deleted before it was read is noticed so: the broker tells what was removed, before and
    after each read. What it cannot know (its store was served by an older version) is guessed at:
    the record at `_pointer` is still there, or the oldest segment was there when all up to `_seen`
    had been read.
    """

    def __init__(
        self,
        servers: Sequence[AnyServer],
        topic: bytes,
        partition: int,
        options: ConsumerOptions,
        statistics: ConsumerStatistics,
    ) -> None:
        self.has_envelope: bool | None = None
        """Whether messages are in envelopes; None: that is asked together with the first ones."""
        self._topic = topic
        self._partition = partition
        self._options = options
        self._statistics = statistics
        self._socket = AsyncRetryingSocket(
            servers,
            timeout_s=options.timeout_s,
            request_timeout_s=options.request_timeout_s,
            on_lost=self._note_lost_connection,
        )
        self._pointer = 0
        # Last pointers of what was removed before reading began, or is told already; None until
        # that is known.
        self._missed: set[int] | None = None
        self._seen = 0
        self._is_at_end = False
        self._has_been_at_end = False

    async def begin(self, start: Start) -> int:
        """Begin at the partition's place in `start`, and return the pointer of it.

        Raises:
            PoeError: as `read`.
        """
        if isinstance(start, Mapping):
            start = start.get(self._partition, "oldest")
        if isinstance(start, datetime):
            # What was deleted of that time was not there when reading began.
            self._pointer, self._seen = pointer_at(start), _now_us()
            return self._pointer
        if isinstance(start, int):
            self._pointer = max(start, 0)
        self._missed = set() if self._pointer or start == "newest" else None
        self._seen = self._pointer
        if start == "newest":
            self._pointer = await self._socket.call(self._newest)
            self._seen = max(self._pointer, _now_us())
        return self._pointer

    async def read(self) -> Fetched | None:
        """Return what follows; None where nothing does, which with `follow` never happens.

        Raises:
            PropertyMismatch: the option `envelope` contradicts what the topic has.
            PoeError: it cannot be read.
        """
        self._is_at_end = False
        wait_s = FOLLOW_WAIT_S if self._options.follow else 0.0
        while True:
            fetched = await self._socket.call(self._read_once, wait_s)
            if fetched is not None and fetched.pointers:
                return fetched
            if fetched is None and not self._options.follow:
                return None

    async def _find_envelope(self, socket: AsyncSocket) -> bool | None:
        """Return whether messages are in envelopes; None: nobody can tell yet, nor was it said."""
        envelope = self._options.envelope
        found = await socket.find_topic(self._topic)
        if found is None:
            return envelope
        if not found.is_told:
            return bool(envelope)
        found.check({"envelope": envelope})
        return found.properties.envelope

    async def close(self) -> None:
        """Let go of the connection."""
        await self._socket.close()

    async def _newest(self, socket: AsyncSocket) -> int:
        rows, removed = await asyncio.gather(self._segments(socket), socket.removed(self._topic, 0))
        newest = (int(row["pointer_high"]) for row in rows if row["count"])
        return int(max(removed.newest, *newest, 0))

    async def _segments(self, socket: AsyncSocket) -> list[dict[str, Any]]:
        """Return what is known of the segments; none where there is no such topic, or not yet."""
        try:
            return await socket.segments(self._topic)
        except UnknownTopic:
            return []

    async def _read_once(self, socket: AsyncSocket) -> Fetched | None:
        """Send all requests of one read together; return what came, None at the end."""
        after = self._pointer
        while True:
            _, before, records, removed = await asyncio.gather(
                self._wait(socket),
                socket.removed(self._topic, after),
                self._records(socket),
                socket.removed(self._topic, after),
            )
            if removed == before and self._pointer == after:
                break
            # Something went meanwhile, or damage was skipped by asking again.
            self._is_at_end = False
            if removed == await socket.removed(self._topic, after):
                break
        if not len(records) and not self._has_been_at_end:
            # Of a topic that is not there a read says nothing; this refuses a name.
            await socket.wait(self._topic, self._pointer, 0.0)
            self._has_been_at_end = True
        found = int(records.pointers[0]) if len(records) else None
        await self._check_lost(socket, after, removed, found)
        self._is_at_end = not len(records)
        if self._is_at_end:
            self._seen = _now_us()
            return None
        if self.has_envelope is None:  # there was no such topic a moment ago
            self.has_envelope = bool(await self._find_envelope(socket))
        fetched = self._taken_apart(records)
        self._statistics.received_count += len(fetched.pointers)
        return fetched

    async def _wait(self, socket: AsyncSocket) -> None:
        """Wait for news, where that is to be done; find out what they will be, if nobody knows."""
        # Not before it has come to the end once: what is deleted from then on was read.
        if self._options.follow and self._is_at_end:
            await socket.wait(self._topic, self._pointer, FOLLOW_WAIT_S)
        if self.has_envelope is None:
            self.has_envelope = await self._find_envelope(socket)

    async def _records(self, socket: AsyncSocket) -> IndexedRecords:
        """Return what follows, behind damage where that is to be skipped."""
        # What is committed before it is handed out is lost with the process: no more than need be.
        batches = 1 if self._options.commit == "before" else _FETCH_BATCHES
        count_max = min(batches * self._options.batch, RANGE_COUNT_MAX)
        while True:
            try:
                return await socket.read_range(
                    self._topic, self._pointer, POINTER_MAX, count_max, self._options.fetch_bytes
                )
            except CorruptRecord as error:
                behind = error.pointer or 0
                if self._options.on_corrupt == "error" or behind <= self._pointer:
                    self._note_place(error)
                    raise
                self._note_skipped(error)
                self._pointer = self._seen = behind

    async def _check_lost(
        self, socket: AsyncSocket, after: int, removed: Removed, found: int | None
    ) -> None:
        """Find out whether messages that came behind `after`, and before `found`, were removed.

        Raises:
            MessagesLost: they were, or may have been, and that is an error.
        """
        if self._missed is None:  # reading begins here, with what there is
            self._missed = {last for _, last in removed.extents}
        missed = self._missed
        lost = [each for each in removed.lost(after, found) if each[1] not in missed]
        if lost:
            is_gone = found is None and not await self._segments(socket)
            self._report_lost(after + 1, None if is_gone else lost[-1][1])
            missed |= {last for _, last in lost}
        elif not removed.is_known_behind(after) and not await self._is_kept(socket):
            await self._check_unknown(socket)

    async def _is_kept(self, socket: AsyncSocket) -> bool:
        """Return whether the last record that was read is there: then so is all behind it."""
        if self._is_at_end or not self._pointer:
            return True
        try:
            span = await socket.span(self._topic, self._pointer - 1, self._pointer, 1, 1)
        except CorruptRecord:
            return True
        return span is not None

    async def _check_unknown(self, socket: AsyncSocket) -> None:
        """Guess whether segments with messages that were not read are gone; nobody knows.

        Raises:
            MessagesLost: they may be, and that is an error.
        """
        rows = await self._segments(socket)
        if rows:
            # The name of a segment says up to where anything before can have been.
            last = int(rows[0]["path"].rpartition("/")[2]) - 1
            is_lost = last > self._seen
        else:
            last, is_lost = None, self._seen == self._pointer
        if is_lost:
            self._report_lost(self._pointer + 1, last, is_certain=False)

    def _report_lost(self, first: int, last: int | None, *, is_certain: bool = True) -> None:
        """Raise an error, or count, as the option `on_lost` says.

        Raises:
            MessagesLost: it is an error.
        """
        lost = MessagesLost(self._topic, self._partition, first, last, is_certain=is_certain)
        if self._options.on_lost == "error":
            raise lost
        self._statistics.lost_count += 1
        _log.warning("%s", lost)

    def _taken_apart(self, records: IndexedRecords) -> Fetched:
        """Return the messages of records, and go on behind them."""
        pointers = records.pointers.tolist()
        values = records.messages()
        ordinals = range(records.ordinal, records.ordinal + len(pointers))
        if self.has_envelope:
            return self._unwrapped(pointers, values, ordinals)
        self._pointer = self._seen = pointers[-1]
        return Fetched(self._partition, pointers, ordinals, values)

    def _unwrapped(
        self, pointers: list[int], messages: list[bytes], ordinals: Sequence[int]
    ) -> Fetched:
        """Return what is in envelopes, up to the first that is none where that is an error."""
        good: list[int] = []
        kept: list[int] = []
        opened: list[Enveloped] = []
        for pointer, message, ordinal in zip(pointers, messages, ordinals, strict=True):
            try:
                opened.append(decode(message))
                good.append(pointer)
                kept.append(ordinal)
            except InvalidEnvelope as error:
                found = InvalidEnvelope(error.problem, pointer)
                if self._options.on_corrupt == "error":
                    if good:
                        break
                    self._note_place(found)
                    raise found from error
                self._note_skipped(found)
            self._pointer = self._seen = pointer
        keys, values, headers = zip(*opened, strict=True) if opened else ((), (), ())
        return Fetched(self._partition, good, kept, values, keys, headers)

    def _note_place(self, error: PoeError) -> None:
        """Note in which partition an error is: `seek` of a pointer alone is for all of them."""
        error.add_note(f"in partition {self._partition}, topic {shown(self._topic)}")

    def _note_skipped(self, error: PoeError) -> None:
        self._statistics.corrupt_count += 1
        _log.warning("topic %s: skipped: %s", self._topic.decode(errors="replace"), error)

    def _note_lost_connection(self) -> None:
        self._statistics.reconnect_count += 1
        if self._is_at_end:
            self._seen = _now_us()
            self._is_at_end = False


def _now_us() -> int:
    """Return the time as pointers tell it; a clock beside the server's is good enough for a day."""
    return time.time_ns() // 1000
