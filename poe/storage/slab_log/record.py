"""Turn messages into the records of a slab, and records back into messages.

Strategy: many messages of one size become the rows of a matrix, whose headers are columns; no
Python code runs per message. Few messages, or of mixed sizes, are joined in C.

Layout of a record (little endian, records back to back):
    length   u32    bytes of the message
    hash     u32    xxHash32 of the message, seed 0
    message  bytes  0 or more

Source: queuefka.go, Writer.Write.
"""

import os
import struct
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from itertools import accumulate, chain, islice
from typing import NamedTuple, Self, TypeAlias

import numpy as np
from numpy.typing import NDArray
from xxhash import xxh32_intdigest

from poe.storage.slab_log.errors import CorruptSlabRecord
from poe.storage.slab_log.xxh32 import Hashes, xxh32_of_rows

HEADER_BYTES = 8
LENGTH_MAX = 2**32 - 1

Rows: TypeAlias = NDArray[np.uint8]
"""Messages of one size, 1 byte or more, one per row."""
Batch: TypeAlias = Rows | list[bytes]
Bytes: TypeAlias = bytes | bytearray | memoryview

_HEADER = struct.Struct("<II")
# With fewer messages than this, numpy costs more than it saves.
ROWS_COUNT_MIN = 1000
_MARK_TYPE = np.dtype("u8")
_MARK_BYTES = _MARK_TYPE.itemsize
_MARK = os.urandom(_MARK_BYTES)


class Window(NamedTuple):
    """Good records that lie one behind the other."""

    addresses: Sequence[int]
    """Where each begins, and the address behind the last: one more than there are messages."""

    messages: list[bytes]

    @property
    def end(self) -> int:
        """The address behind the last record."""
        return self.addresses[-1]

    def from_address(self, path: str, address: int) -> Self:
        """Leave out what lies before an address.

        Raises:
            CorruptSlabRecord: no record begins there; it names the next one.
        """
        index = bisect_left(self.addresses, address)
        if self.addresses[index] != address:
            raise CorruptSlabRecord(path, address, self.addresses[index])
        if index == 0:
            return self
        return self._replace(addresses=self.addresses[index:], messages=self.messages[index:])


def as_bytes(message: Bytes) -> bytes:
    """Copy what could still be changed.

    Raises:
        TypeError: it holds no bytes.
    """
    return message if type(message) is bytes else bytes(memoryview(message))


def as_rows(messages: Sequence[Bytes] | Rows) -> Rows | None:
    """Copy messages into a matrix; None where they are few, empty or not of one size.

    Raises:
        TypeError: one holds no bytes, or the matrix is none of bytes.
    """
    if isinstance(messages, np.ndarray):
        if messages.dtype != np.uint8 or messages.ndim != 2:  # noqa: PLR2004 - rows and columns
            msg = "a matrix of messages holds bytes, one message a row"
            raise TypeError(msg)
        is_worth_it = len(messages) >= ROWS_COUNT_MIN and messages.size > 0
        return messages.copy() if is_worth_it else None
    if len(messages) < ROWS_COUNT_MIN:
        return None
    # Joined with a mark between them, messages are of one size when the marks lie one size apart:
    # a look at a column, where asking each message for its length takes a third of all the time.
    # The mark is random, so that no message contains it, by accident or on purpose.
    count, length = len(messages), len(messages[0])
    stride = length + _MARK_BYTES
    joined = _MARK.join(messages)
    if length == 0 or len(joined) != count * stride - _MARK_BYTES:
        return None
    marks: NDArray[np.uint64] = np.ndarray((count - 1,), _MARK_TYPE, joined, length, (stride,))
    is_even = (marks == np.frombuffer(_MARK, _MARK_TYPE)).all()
    return np.ndarray((count, length), np.uint8, joined, 0, (stride, 1)) if is_even else None


def count_within(batch: Batch, first: int, room_bytes: int) -> int:
    """Return how many messages from the first on make records, up to the one that exceeds the room.

    This is 1 or more: it is the original's rule for when a slab is full.
    """
    if isinstance(batch, np.ndarray):
        fitting_count = room_bytes // (HEADER_BYTES + len(batch[0]))
    else:
        # Each record takes a header at least, so that no more than this need to be looked at.
        some = islice(batch, first, first + room_bytes // HEADER_BYTES + 1)
        ends = list(accumulate(HEADER_BYTES + len(message) for message in some))
        fitting_count = bisect_right(ends, room_bytes)
    return min(fitting_count + 1, len(batch) - first)


def encode(batch: Batch) -> bytes | memoryview:
    """Make the records of a batch."""
    if not isinstance(batch, np.ndarray):
        headers = map(_HEADER.pack, map(len, batch), map(xxh32_intdigest, batch))
        return b"".join(chain.from_iterable(zip(headers, batch, strict=True)))
    count, length = batch.shape
    records = np.empty((count, HEADER_BYTES + length), np.uint8)
    columns = records[:, :HEADER_BYTES].view("<u4")
    columns[:, 0] = length
    columns[:, 1] = xxh32_of_rows(batch)
    # As one opaque value each; numpy copies those three times as fast as rows of bytes.
    opaque = np.dtype(f"V{length}")
    records[:, HEADER_BYTES:].view(opaque)[...] = batch.view(opaque)
    return records.reshape(-1).data


def decode(data: bytes, address: int, count: int) -> Window:
    """Take apart `count` records that are known to be whole and good."""
    stride, rest = divmod(len(data), count)
    length = stride - HEADER_BYTES
    if rest == 0 and length > 0:
        lengths: Hashes = np.ndarray((count,), "<u4", data, 0, (stride,))
        if (lengths == length).all():
            messages = np.ndarray((count,), f"V{length}", data, HEADER_BYTES, (stride,)).tolist()
            return Window(range(address, address + len(data) + 1, stride), messages)
    return _window(_split(data), address)


def decode_checked(data: bytes, address: int) -> Window:
    """Take apart the records from an address on, up to the first that is cut off or not good."""
    return _window(_split_checked(data), address)


def length_at(header: bytes) -> int:
    """Return the length of the message that a header announces; the header may be cut off."""
    return int.from_bytes(header[:4], "little") if len(header) >= HEADER_BYTES else LENGTH_MAX


def _window(messages: Iterable[bytes], address: int) -> Window:
    found = list(messages)
    sizes = (HEADER_BYTES + len(message) for message in found)
    return Window(list(accumulate(sizes, initial=address)), found)


def _split(data: bytes) -> Iterable[bytes]:
    at = 0
    while at < len(data):
        begin = at + HEADER_BYTES
        at = begin + int.from_bytes(data[at : at + 4], "little")
        yield data[begin:at]


def _split_checked(data: bytes) -> Iterable[bytes]:
    at = 0
    while at + HEADER_BYTES <= len(data):
        length, expected = _HEADER.unpack_from(data, at)
        begin = at + HEADER_BYTES
        at = begin + length
        message = data[begin:at]
        if len(message) != length or xxh32_intdigest(message) != expected:
            return
        yield message
