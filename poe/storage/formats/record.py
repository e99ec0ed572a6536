"""Turn messages into the records of a data file and the entries of its index, and back.

Strategy: a batch is encoded at once. Messages of equal size become the rows of a matrix, headers
its first columns; messages of mixed sizes get their headers from numpy and are joined in C. Either
way no Python code runs per message. Batches of equal count and message length, one after the other
as most are, are encoded into the same memory, of which each thread has its own. Its entries are
four numbers until the index has to write or read them. For the layouts see `poe/record.py`.
"""

import threading
from collections.abc import Sequence
from functools import lru_cache
from itertools import chain
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from poe.errors import CorruptRecord, InvalidMessage
from poe.record import (
    ENTRY_BYTES,
    ENTRY_FIELDS,
    POINTER_BITS,
    POINTER_BYTES,
    RECORD_HEADER_BYTES,
    SIZE_BYTES,
    WIDE_POINTER_AT,
    decode_header,
    pointer_fields,
)

Messages: TypeAlias = NDArray[np.uint8] | Sequence[bytes | memoryview]
"""One or more messages: a matrix with a message per row (it may be a view with strides into a
received frame), or a sequence of bytes-likes of any sizes."""

Numbers: TypeAlias = NDArray[np.uint64]

# Below this, joining the messages and looking at them as a matrix costs more than it saves.
_ROWS_COUNT_MIN = 10
# The size is stored after the pointer, which overlaps its last byte.
_HEADER = np.dtype(
    {"names": ["pointer", "size"], "formats": [">u8", ">u4"], "offsets": [WIDE_POINTER_AT, 0]}
)

OFFSET_BITS = 40
OFFSET_MAX = (1 << OFFSET_BITS) - 1

_LOW_BITS = np.uint64(2**32 - 1)
# Shifting by a Python integer would convert it at each call.
_8 = np.uint64(8)
_32 = np.uint64(32)

Run: TypeAlias = tuple[int, int, int, int]
"""A batch whose records are all of one size, with consecutive pointers: first pointer, offset of
the first record, number of records, bytes of one."""

Encoded: TypeAlias = bytes | memoryview
"""Records as they lie on disk."""
Batch: TypeAlias = tuple[Encoded, Numbers | None]
"""The records of one put, back to back, until the same thread encodes the next batch; and where
each begins in them, None where all are of one size."""


def encode_record(message: bytes | memoryview, pointer: int, message_max: int) -> Encoded:
    """Encode a single message.

    Raises:
        InvalidMessage: it is empty or longer than `message_max`.
    """
    length = len(message)
    if not 0 < length <= message_max:
        raise InvalidMessage(length, message_max)
    header = (length + POINTER_BYTES) << POINTER_BITS | pointer
    return b"".join((header.to_bytes(RECORD_HEADER_BYTES, "big"), message))


def check_sizes(messages: Messages, message_max: int) -> list[int]:
    """Return the sizes of messages that a segment with this limit takes.

    Raises:
        InvalidMessage: one is empty or longer than `message_max`, or there is none.
    """
    if isinstance(messages, np.ndarray):
        count, length = messages.shape
        sizes = [length] * count
    else:
        sizes = list(map(len, messages))
    smallest, largest = min(sizes, default=0), max(sizes, default=0)
    if not 0 < smallest <= largest <= message_max:
        raise InvalidMessage(largest if smallest else 0, message_max)
    return sizes


def encode_records(messages: Messages, first_pointer: int, message_max: int) -> Batch:
    """Encode a batch; its messages get consecutive pointers.

    The last pointer must not exceed 2^56 - 1.

    Raises:
        InvalidMessage: as `check_sizes`.
    """
    if isinstance(messages, np.ndarray):
        return _encode_rows(messages, first_pointer, message_max)
    if isinstance(messages, RecordBatch):
        return messages.encode(first_pointer, message_max)
    sizes = check_sizes(messages, message_max)
    if len(sizes) > _ROWS_COUNT_MIN and sizes.count(sizes[0]) == len(sizes):
        rows = np.frombuffer(b"".join(messages), np.uint8).reshape(-1, sizes[0])
        return _encode_rows(rows, first_pointer, message_max)
    return _encode_mixed(messages, sizes, first_pointer)


def decode_records(data: bytes) -> list[tuple[int, bytes]]:
    """Decode whole records into (pointer, message) pairs.

    Raises:
        CorruptRecord: the sizes do not add up; the path it names is "data".
    """
    records = []
    at = 0
    while at < len(data):
        size, pointer = decode_header(data[at : at + RECORD_HEADER_BYTES])
        end = at + SIZE_BYTES + size
        if end < at + RECORD_HEADER_BYTES or end > len(data):
            raise CorruptRecord(path="data", offset=at)
        records.append((pointer, data[at + RECORD_HEADER_BYTES : end]))
        at = end
    return records


def encode_entries(pointers: Numbers, offsets: Numbers) -> bytes:
    """Encode the entries of a batch; pointers fit 56 bits, offsets rise and fit 40."""
    entries = np.empty(len(pointers), ENTRY_FIELDS)
    high = pointers << _8
    if len(offsets) and offsets[-1] > _LOW_BITS:
        high |= offsets >> _32
    entries["pointer_and_offset_high"] = high
    # The cast to 32 bits keeps the low ones.
    entries["offset_low"] = offsets
    return entries.tobytes()


def encode_runs(runs: Sequence[Run]) -> bytes:
    """Encode the entries of runs, in order."""
    if len(runs) == runs[0][2] == 1:  # read, or put, one by one
        return (runs[0][0] << OFFSET_BITS | runs[0][1]).to_bytes(ENTRY_BYTES, "big")
    pointers, offsets, counts, record_bytes = np.array(runs, np.uint64).T
    count = runs[0][2]
    if (counts != count).any():
        return b"".join(encode_runs([run]) for run in runs)
    numbers = np.arange(count, dtype=np.uint64)
    return encode_entries(
        (pointers[:, np.newaxis] + numbers).reshape(-1),
        (offsets[:, np.newaxis] + record_bytes[:, np.newaxis] * numbers).reshape(-1),
    )


def decode_entry(entry: bytes) -> tuple[int, int]:
    """Decode one entry into (pointer, offset)."""
    number = int.from_bytes(entry, "big")
    return number >> OFFSET_BITS, number & OFFSET_MAX


class RecordBatch(Sequence[memoryview]):
    """Messages that are the records of another segment already, and get other pointers.

    `starts` has where each record begins in `data`, and the end of the data.
    """

    __slots__ = ("_data", "_starts")

    def __init__(self, data: bytearray, starts: Numbers) -> None:
        self._data = data
        self._starts = starts

    def __len__(self) -> int:
        return len(self._starts) - 1

    def __getitem__(self, number: int) -> memoryview:  # type: ignore[override]  # no slices
        start, end = int(self._starts[number]), int(self._starts[number + 1])
        return memoryview(self._data)[start + RECORD_HEADER_BYTES : end]

    def encode(self, first_pointer: int, message_max: int) -> Batch:
        """Give the records consecutive pointers, in place; as `encode_records`."""
        starts = self._starts[:-1]
        sizes = np.diff(self._starts)
        largest = int(sizes.max()) - RECORD_HEADER_BYTES
        if largest > message_max:
            raise InvalidMessage(largest, message_max)
        # Every place where a wide pointer could be, of which those of the records are written.
        place_count = len(self._data) - RECORD_HEADER_BYTES + 1
        places = pointer_fields(self._data, place_count)
        pointers = np.arange(first_pointer, first_pointer + len(self), dtype=np.uint64)
        lowest_of_size = sizes - np.uint64(SIZE_BYTES) & np.uint64(0xFF)
        places[starts] = lowest_of_size << np.uint64(POINTER_BITS) | pointers
        return memoryview(self._data), None if (sizes == sizes[0]).all() else starts


class _Layout:
    """Memory for the records of a batch of one count and one message length.

    The sizes in it are filled in for good; pointers and messages are written by `encode`.
    """

    __slots__ = ("_data", "_message", "_messages", "_pointers", "_wide_pointer")

    def __init__(self, count: int, length: int) -> None:
        size = length + POINTER_BYTES
        stride = SIZE_BYTES + size
        records = np.zeros((count, stride), np.uint8)
        records[:, :SIZE_BYTES] = np.frombuffer(size.to_bytes(SIZE_BYTES, "big"), np.uint8)
        self._data = records.reshape(-1).data
        self._pointers = pointer_fields(records, count, 0, stride)
        # What a wide pointer has above its 56 bits: the lowest byte of the size.
        self._wide_pointer = (size & 0xFF) << POINTER_BITS
        # As one opaque value each; numpy copies those three times as fast as rows of bytes.
        self._message = np.dtype(f"V{length}")
        self._messages: NDArray[np.void] = np.ndarray(
            (count, 1), self._message, records, RECORD_HEADER_BYTES, (stride, length)
        )

    def encode(self, rows: NDArray[np.uint8], first_pointer: int) -> memoryview:
        first = self._wide_pointer | first_pointer
        self._pointers[:] = np.arange(first, first + len(rows), dtype=np.uint64)
        self._messages[...] = rows.view(self._message)
        return self._data


class _Layouts(threading.local):
    """The layouts that a thread keeps."""

    def __init__(self) -> None:
        self.layout = lru_cache(maxsize=32)(_Layout)


_kept = _Layouts()
_KEPT_BYTES_MAX = 128 * 1024
"""Layouts of records up to this size are kept, 4 MiB a thread; for larger ones it pays less."""


def _encode_rows(rows: NDArray[np.uint8], first_pointer: int, message_max: int) -> Batch:
    count, length = rows.shape
    if not 0 < length <= message_max or count == 0:
        raise InvalidMessage(length if count else 0, message_max)
    record_bytes = count * (length + RECORD_HEADER_BYTES)
    layout_of = _kept.layout if record_bytes <= _KEPT_BYTES_MAX else _Layout
    return layout_of(count, length).encode(rows, first_pointer), None


def _encode_mixed(
    messages: Sequence[bytes | memoryview], sizes: list[int], first_pointer: int
) -> Batch:
    count = len(sizes)
    lengths = np.array(sizes, np.uint64)
    headers = np.empty(count, _HEADER)
    headers["pointer"] = np.arange(first_pointer, first_pointer + count, dtype=np.uint64)
    headers["size"] = lengths + np.uint64(POINTER_BYTES)
    # As opaque cells of 11 bytes, `tolist` makes a bytes object of each header.
    cells = headers.view(f"V{RECORD_HEADER_BYTES}").tolist()
    data = b"".join(chain.from_iterable(zip(cells, messages, strict=True)))
    ends = (lengths + np.uint64(RECORD_HEADER_BYTES)).cumsum()
    starts = np.empty(count, np.uint64)
    starts[0] = 0
    starts[1:] = ends[:-1]
    return data, starts
