"""Reading by ranges: records up to a pointer, and where each of them lies.

What a reader of whole columns needs (Spark) without looking for the records one by one: the server
sends the entries of its index before the records, both as they lie on disk, and the client compares
them with the headers of the records, all at once. Integers are big-endian.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from struct import Struct
from typing import ClassVar, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from poe.errors import CorruptRecord, RemoteProtocolError
from poe.protocol.arguments import range_arguments
from poe.protocol.frame_memory import SCRATCH_BYTES
from poe.protocol.frames import RANGE_REQUEST, frame_header
from poe.record import ENTRY_BYTES, POINTER_BYTES, RECORD_HEADER_BYTES, are_sound, decode_entries

RANGE_COUNT_MAX = 1 << 18
"""Records in one reply; their entries take 3 MiB of the server's memory."""
RANGE_BYTES = 8 * 1024 * 1024
"""Bytes of records to ask for at a time, where nothing else is said."""

_NUMBERS = Struct(">7s7sII")
_PREFIX = Struct(">IQ")


class RangeRequest(NamedTuple):
    """Ask for records with pointers greater than `pointer`, up to `last`, of one segment.

    The server sends at most `limit` of them and `bytes_max` bytes of records, though one record
    always, and may send fewer.

    Wire:
        pointer    u56   last pointer seen; 0 asks from the oldest record
        last       u56   no record behind it is wanted
        limit      u32   records
        bytes_max  u32   bytes of records
        topic      rest  1 or more bytes
    """

    topic: bytes
    pointer: int
    last: int
    limit: int
    bytes_max: int

    def encode(self) -> bytes:
        """Return the frame.

        Raises:
            LocalProtocolError: empty topic, or a limit that does not fit 32 bits.
            PointerOutOfRange: a pointer does not fit 56 bits.
        """
        topic = range_arguments(*self)["topic"]
        pointers = (each.to_bytes(POINTER_BYTES, "big") for each in (self.pointer, self.last))
        body: bytes = _NUMBERS.pack(*pointers, self.limit, self.bytes_max) + topic
        return frame_header(RANGE_REQUEST, len(body)) + body

    @classmethod
    def decode(cls, body: memoryview) -> Self:
        """Parse a whole body.

        Raises:
            RemoteProtocolError: the body is too short to hold a topic.
        """
        if len(body) <= _NUMBERS.size:
            msg = f"range request of {len(body)} bytes has no topic"
            raise RemoteProtocolError(msg)
        pointer, last, limit, bytes_max = _NUMBERS.unpack_from(body)
        topic = bytes(body[_NUMBERS.size :])
        return cls(topic, int.from_bytes(pointer), int.from_bytes(last), limit, bytes_max)


@dataclass(frozen=True, slots=True, eq=False)
class IndexedRecords:
    """Records side by side, oldest first, and where each of them lies; none is an object.

    Always: `starts[0]` is 0 and `starts[-1]` the length of `data`; pointers and starts rise.
    """

    pointers: npt.NDArray[np.uint64]
    """One for each record."""

    starts: npt.NDArray[np.uint64]
    """One more than records: message i is `data[starts[i] + 11 : starts[i + 1]]`."""

    data: memoryview
    """The records as they lie on disk, see `poe.protocol.records`."""

    ordinal: int = 0
    """Of the first record; they follow one another."""

    def __len__(self) -> int:
        return len(self.pointers)

    def messages(self) -> list[bytes]:
        """Return the messages, copied."""
        data, starts = bytes(self.data), self.starts.tolist()
        return [data[begin + RECORD_HEADER_BYTES : end] for begin, end in pairwise(starts)]

    def pairs(self) -> Iterator[tuple[int, bytes]]:
        """Yield pointer and message of each record."""
        return zip(self.pointers.tolist(), self.messages(), strict=True)

    @classmethod
    def of(cls, entries: bytes | memoryview, data: memoryview, ordinal: int = 0) -> Self:
        """Return the records up to the first that is not what its entry says.

        Every record is looked at, since an entry that lies would give away parts of two messages.

        Raises:
            CorruptRecord: it is the first one; the offset counts from the begin of the data.
        """
        pointers, offsets = decode_entries(entries)
        count = len(pointers)
        starts = np.full(count + 1, len(data))
        starts[:-1] = (offsets - offsets[:1]).astype(np.int64)
        if count:
            is_sound = are_sound(pointers, starts, data) & (np.diff(starts) > RECORD_HEADER_BYTES)
            if not is_sound.all():
                count = int(is_sound.argmin())
                if not count:
                    raise CorruptRecord(path="the data reply", offset=0)
        end = int(starts[count])
        starts = starts[: count + 1].astype(np.uint64)
        return cls(pointers[:count], starts, data[:end], ordinal)


class Span(NamedTuple):
    """What a read by range would return."""

    last_pointer: int
    """Of the last record; the next read continues from it."""

    record_count: int
    """1 or more."""

    size_bytes: int
    """Of the records, with their headers."""


@dataclass(frozen=True, slots=True)
class IndexedReply:
    """Records of a range, each with its entry; none where nothing is in it.

    Wire:
        count    u32
        ordinal  u64   of the first record; 0 where there is none
        entries  12 bytes each, as in an index file: u56 pointer, u40 offset in the data file
        records  rest  as they lie on disk
    """

    MESSAGE_TYPE: ClassVar[int] = 6

    records: IndexedRecords

    @classmethod
    def head(cls, entries: bytes, records_size: int, ordinal: int = 0) -> bytes:
        """Return what to send before `records_size` bytes of a data file."""
        prefix = cls.prefix(len(entries) // ENTRY_BYTES, ordinal)
        body_size = len(prefix) + len(entries) + records_size
        return b"".join((frame_header(cls.MESSAGE_TYPE, body_size), prefix, entries))

    @staticmethod
    def prefix(count: int, ordinal: int) -> bytes:
        """Return what the body begins with, before the entries."""
        return _PREFIX.pack(count, ordinal)

    @classmethod
    def decode(cls, body: memoryview) -> Self:
        """Parse a whole body, up to the first record that is not what its entry says.

        The data is a view into the body, copied where that may lie in a `FrameReader`'s scratch.

        Raises:
            RemoteProtocolError: the body is too short for its entries, or holds records without.
            CorruptRecord: the first record is damaged.
        """
        if len(body) < _PREFIX.size:
            msg = f"indexed reply of {len(body)} bytes has no count"
            raise RemoteProtocolError(msg)
        count, ordinal = _PREFIX.unpack_from(body)
        entries_end = _PREFIX.size + count * ENTRY_BYTES
        if entries_end > len(body) or (count == 0) != (entries_end == len(body)):
            msg = f"indexed reply of {len(body)} bytes cannot hold {count} records"
            raise RemoteProtocolError(msg)
        if len(body) < SCRATCH_BYTES:
            body = memoryview(bytes(body))
        entries, data = body[_PREFIX.size : entries_end], body[entries_end:]
        return cls(IndexedRecords.of(entries, data.toreadonly(), ordinal))
