"""Messages of one stream, back to back, as they travel between nodes and lie in memory.

The pointers of a batch follow each other without a gap, and end with its `last`; it covers what is
behind `after`, so that it touches the batch before it. Nobody loops over its messages: what is told
of each of them is looked at by numpy, all at once.
"""

from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from poe.errors import RemoteProtocolError
from poe.record import (
    POINTER_BITS,
    POINTER_MAX,
    RECORD_HEADER_BYTES,
    SIZE_BYTES,
    are_sound,
    pointer_fields,
    size_fields,
)
from poe.storage.formats.record import Messages, encode_entries, encode_records, encode_runs

BATCH_BYTES_MAX: Final = 15 * 1024 * 1024
"""Of a batch; with what goes with it, it fits an envelope."""
PUT_BYTES_MAX: Final = BATCH_BYTES_MAX - 64 * 1024
"""Of one that is put: of each of its messages a dead letter can be made."""
STARTS: Final = np.dtype(">u4")


class Batch(NamedTuple):
    """Some messages; nothing in it changes, and what is a part of it is another one."""

    after: int
    last: int
    messages_count: int
    records: bytes
    starts: bytes
    """Where each record begins, u32 big endian; empty where all are of one size."""

    @classmethod
    def encode(cls, messages: Messages, after: int, first: int) -> "Batch":
        """Make records of messages, whose pointers begin at `first`, which is behind `after`.

        Raises:
            InvalidMessage: one is empty or too large, or there is none.
        """
        records, starts = encode_records(messages, first, BATCH_BYTES_MAX)
        told = b"" if starts is None else starts.astype(STARTS).tobytes()
        return cls(after, first + len(messages) - 1, len(messages), bytes(records), told)

    @property
    def size_bytes(self) -> int:
        """Return how much travels: the records, and where they begin."""
        return len(self.records) + len(self.starts)

    @property
    def first(self) -> int:
        """Return the pointer of the first message."""
        return self.last - self.messages_count + 1

    def check(self) -> None:
        """See whether a batch that came from elsewhere is one.

        Raises:
            RemoteProtocolError: it is not.
        """
        why = self._flaw()
        if why:
            msg = f"a batch was sent that is none: {why}"
            raise RemoteProtocolError(msg)

    def _flaw(self) -> str:
        count, size = self.messages_count, len(self.records)
        if not 0 <= self.after < self.first <= self.last <= POINTER_MAX:
            return "its pointers do not rise"
        if not size // count > RECORD_HEADER_BYTES or self.size_bytes > BATCH_BYTES_MAX:
            return f"{count} messages cannot be of {size} bytes"
        if not self.starts:
            return "" if self._is_even() else "its records are not what they say"
        if len(self.starts) != count * STARTS.itemsize:
            return "it does not tell where its records begin"
        starts = np.append(np.frombuffer(self.starts, STARTS).astype(np.int64), size)
        pointers = np.arange(self.first, self.last + 1, dtype=np.uint64)
        is_whole = starts[0] == 0 and (np.diff(starts) > RECORD_HEADER_BYTES).all()
        if not is_whole or not are_sound(pointers, starts, memoryview(self.records)).all():
            return "its records are not what they say"
        return ""

    def _is_even(self) -> bool:
        """Return whether the records are of one size, and their headers right."""
        count = self.messages_count
        stride, rest = divmod(len(self.records), count)
        if rest:
            return False
        size = stride - SIZE_BYTES
        first = (size & 0xFF) << POINTER_BITS | self.first
        pointers = np.arange(first, first + count, dtype=np.uint64)
        # Comparing the fields' bytes takes a quarter of the time of reading them as numbers.
        return (
            size_fields(self.records, count, 0, stride).tobytes()
            == size.to_bytes(SIZE_BYTES, "big") * count
            and pointer_fields(self.records, count, 0, stride).tobytes()
            == pointers.byteswap().tobytes()
        )

    def part(self, after: int, last: int) -> "Batch | None":
        """Return the messages with after < pointer <= last; None: there are none.

        It covers no more than that range.
        """
        after, last = max(after, self.after), min(last, self.last)
        begin, end = max(after + 1 - self.first, 0), last + 1 - self.first
        if begin >= end:
            return None
        if end - begin == self.messages_count:
            return self if after == self.after else self._replace(after=after)
        low, high = self._place(begin), self._place(end)
        starts = b""
        if self.starts:
            told = np.frombuffer(self.starts, STARTS)[begin:end] - np.uint32(low)
            starts = told.astype(STARTS).tobytes()
        return Batch(after, last, end - begin, self.records[low:high], starts)

    def head(self, after: int, last: int, limit: int, bytes_max: int) -> "Batch | None":
        """Return the first messages of a part: at most so many, and bytes, but one in any case."""
        after, last = max(after, self.after), min(last, self.last)
        begin = max(after + 1 - self.first, 0)
        end = min(last + 1 - self.first, begin + limit)
        if begin >= end:
            return None
        end = max(begin + 1, min(end, self._count_before(self._place(begin) + bytes_max)))
        return self.part(after, self.first + end - 1)

    def entries(self, offset: int) -> bytes:
        """Return an index entry for each record, of which the first is at `offset`."""
        if self.starts:
            starts = np.frombuffer(self.starts, STARTS).astype(np.uint64) + np.uint64(offset)
            return encode_entries(np.arange(self.first, self.last + 1, dtype=np.uint64), starts)
        return encode_runs(
            [(self.first, offset, self.messages_count, len(self.records) // self.messages_count)]
        )

    def _place(self, number: int) -> int:
        """Return where the record of a number begins, or the one before it ends."""
        if number == self.messages_count:
            return len(self.records)
        if not self.starts:
            return number * (len(self.records) // self.messages_count)
        width = STARTS.itemsize
        return int.from_bytes(self.starts[number * width : (number + 1) * width], "big")

    def _count_before(self, place: int) -> int:
        """Return how many records end at a place or before it."""
        if place >= len(self.records):
            return self.messages_count
        if not self.starts:
            return place // (len(self.records) // self.messages_count)
        starts: NDArray[np.uint32] = np.frombuffer(self.starts, STARTS)
        return int(np.searchsorted(starts, place, "right")) - 1
