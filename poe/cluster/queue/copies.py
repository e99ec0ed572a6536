"""The messages of one queue that one node holds, by stream and range.

Strategy: of a stream the batches stand in order, found by bisection. What is dropped out of one
leaves its rest as batches, whose records are copied: so what is dropped one by one costs most where
it comes from the middle of large batches, and memory is given back at once.
"""

from bisect import bisect_right
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

from poe.broker.groups.ranges import Bounds, RangeSet
from poe.cluster.batch import Batch
from poe.cluster.identity import NodeRef, StreamId
from poe.cluster.queue.knowledge import Knowledge
from poe.cluster.queue.report import ROWS_MAX, Repeated
from poe.cluster.queue_record import GroupRecord

BATCH_OVERHEAD_BYTES: Final = 256
"""What a batch takes of memory besides its records."""


@dataclass(frozen=True, slots=True)
class Found:
    """Messages that were looked for, ready to be handed to a client."""

    after: int
    last: int
    count: int
    entries: bytes
    """An index entry for each, as `poe/record.py` has it; the first record is at 0."""
    records: bytes


class KnownGroup(NamedTuple):
    """A group, and what a node knows of its messages."""

    record: GroupRecord
    knowledge: Knowledge
    past: deque[Repeated]
    """What the report says of streams that are forgotten; the last rows."""


class Copies:
    """What a node holds of a queue; kept where a crash of the queue's actor leaves it.

    So is what it knows of the groups: else what was handed out before a crash would be again, and
    nobody could say so. It only grows, and is written in the step that hands messages out.

    Always: `held(stream)` covers all messages of the batches, and no two batches overlap.
    """

    def __init__(self) -> None:
        self.bytes_count = 0
        """Bytes of memory, those of the batches themselves included."""
        self.messages_count = 0
        self.groups: dict[str, KnownGroup] = {}
        self.is_logged = False
        """Whether what is handed out is so, and known, when it is written."""
        self._streams: dict[StreamId, _Stream] = {}
        self._last: dict[StreamId, int] = {}

    def agree(self, record: GroupRecord, me: NodeRef) -> KnownGroup:
        """Keep the record of a group; return what is known of it, nothing where it is new.

        It is that, too, where it was deleted, of which nothing is kept but that; else who made it
        anew did not know that it was there.
        """
        kept = self.groups.get(record.name)
        if kept is None or kept.record.deleted_us or record.deleted_us:
            knowledge = Knowledge(record.name, me, is_logged=self.is_logged)
            known = KnownGroup(record, knowledge, deque(maxlen=ROWS_MAX))
        else:
            known = kept._replace(record=record)
        self.groups[record.name] = known
        return known

    def forget_group(self, record: GroupRecord) -> None:
        """Keep nothing of a group any more."""
        self.groups.pop(record.name, None)

    def streams(self) -> list[StreamId]:
        """Return the streams of which something is held."""
        return list(self._streams)

    @property
    def stream_count(self) -> int:
        """How many streams these are."""
        return len(self._streams)

    def place(self, stream: StreamId, now_us: int) -> Bounds:
        """Return where new messages of a stream go: the last pointer that is taken, and theirs.

        Theirs follow, whatever the clock says.
        """
        after = self._last.get(stream, 0)
        return after, max(now_us, after + 1)

    def take_place(self, stream: StreamId, last: int) -> None:
        """Let no other messages of a stream have pointers up to this one."""
        self._last[stream] = max(last, self._last.get(stream, 0))

    def add(self, stream: StreamId, batch: Batch) -> list[Bounds]:
        """Hold messages; return the ranges of them that were not held before."""
        kept = self._streams.get(stream)
        if kept is None:
            kept = self._streams[stream] = _Stream()
        self.take_place(stream, batch.last)
        new = kept.held.join(batch.after, batch.last)
        for bounds in new:
            part = batch.part(*bounds)
            if part is not None:
                kept.insert(part)
                self._count(part, 1)
        return new

    def held(self, stream: StreamId) -> RangeSet:
        """Return what is held of a stream; it is not to be changed."""
        kept = self._streams.get(stream)
        return RangeSet() if kept is None else kept.held

    def find(
        self, stream: StreamId, after: int, last: int, limit: int, bytes_max: int
    ) -> Found | None:
        """Return the first messages behind a pointer that are held, up to another one.

        They are of one range without a gap; at most so many, and bytes of records, but one message
        in any case. None: there are none.
        """
        parts: list[Batch] = []
        count = size = 0
        for batch in self._behind(stream, after):
            if parts and (batch.after != parts[-1].last or count == limit or size >= bytes_max):
                break
            part = batch.head(after, last, limit - count, bytes_max - size)
            if part is None or (parts and size + len(part.records) > bytes_max):
                break
            parts.append(part)
            count += part.messages_count
            size += len(part.records)
            if part.last != batch.last:
                break
        if not parts:
            return None
        records = [each.records for each in parts]
        joined = records[0] if len(records) == 1 else b"".join(records)
        return Found(parts[0].after, parts[-1].last, count, _entries(parts), joined)

    def batches(self, stream: StreamId, after: int, last: int) -> Iterator[Batch]:
        """Yield the batches, and parts of such, that are held of a range, lowest first."""
        for batch in self._behind(stream, after):
            if batch.first > last:
                return
            part = batch.part(after, last)
            if part is not None:
                yield part

    def drop(self, stream: StreamId, after: int, last: int) -> list[Bounds]:
        """Hold a range no more; return the parts of it that were held."""
        kept = self._streams.get(stream)
        if kept is None:
            return []
        gone = kept.held.cut(after, last)
        if gone:
            for batch in kept.take(after, last):
                self._count(batch, -1)
                for part in (batch.part(0, after), batch.part(last, batch.last)):
                    if part is not None:
                        kept.insert(part)
                        self._count(part, 1)
        if not kept.held:
            del self._streams[stream]
        return gone

    def oldest(self) -> tuple[StreamId, Batch] | None:
        """Return the batch whose messages are the oldest; None where nothing is held."""
        firsts = [
            (batch.first, stream, batch)
            for stream, kept in self._streams.items()
            for batch in kept.first()
        ]
        if not firsts:
            return None
        _, stream, batch = min(firsts)
        return stream, batch

    def forget(self, stream: StreamId) -> None:
        """Drop all that is known of a stream."""
        self.drop(stream, 0, self._last.pop(stream, 0))

    def _behind(self, stream: StreamId, after: int) -> Iterator[Batch]:
        kept = self._streams.get(stream)
        return iter(()) if kept is None else kept.behind(after)

    def _count(self, batch: Batch, sign: int) -> None:
        self.messages_count += sign * batch.messages_count
        self.bytes_count += sign * size_bytes(batch)


def size_bytes(batch: Batch) -> int:
    """Return what a batch takes of memory."""
    return len(batch.records) + len(batch.starts) + BATCH_OVERHEAD_BYTES


class _Stream:
    """The batches of one stream, in order.

    What was there before place `_begin` is gone: to take from the front is what mostly happens, and
    moves the others only now and then.
    """

    __slots__ = ("_batches", "_begin", "_lasts", "held")

    def __init__(self) -> None:
        self.held = RangeSet()
        self._batches: list[Batch] = []
        self._lasts: list[int] = []
        self._begin = 0

    def first(self) -> list[Batch]:
        return self._batches[self._begin : self._begin + 1]

    def behind(self, after: int) -> Iterator[Batch]:
        """Yield the batches that have messages behind a pointer."""
        for at in range(self._find(after), len(self._lasts)):
            yield self._batches[at]

    def insert(self, batch: Batch) -> None:
        at = self._find(batch.last)
        self._lasts.insert(at, batch.last)
        self._batches.insert(at, batch)

    def take(self, after: int, last: int) -> list[Batch]:
        """Take out the batches that cover some of a range, and return them."""
        low = high = self._find(after)
        while high < len(self._lasts) and self._batches[high].after < last:
            high += 1
        taken = self._batches[low:high]
        if low != self._begin:
            del self._batches[low:high], self._lasts[low:high]
            return taken
        self._batches[low:high] = [_NOTHING] * (high - low)
        self._begin = high
        if 2 * high > len(self._lasts):
            del self._batches[:high], self._lasts[:high]
            self._begin = 0
        return taken

    def _find(self, pointer: int) -> int:
        """Return the place of the first batch whose last is greater."""
        return bisect_right(self._lasts, pointer, self._begin)


_NOTHING: Final = Batch(0, 0, 0, b"", b"")


def _entries(parts: list[Batch]) -> bytes:
    offset, entries = 0, []
    for part in parts:
        entries.append(part.entries(offset))
        offset += len(part.records)
    return b"".join(entries)
