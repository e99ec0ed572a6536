"""The records of one data reply: join and split them.

Records travel exactly as they lie on disk, so that the server can send a part of a data file
without reading it. Only clients look inside.

Layout of a record (big-endian):
    size     u32   bytes that follow: 7 + len(message)
    pointer  u56   strictly increasing
    message  bytes

Source: poe_protocol.erl, `decode_data/1`.
"""

from collections.abc import Iterable
from struct import Struct

import numpy as np

from poe.errors import CorruptRecord

SIZE_SIZE = 4
POINTER_SIZE = 7
RECORD_HEADER_SIZE = SIZE_SIZE + POINTER_SIZE
POINTER_MAX = (1 << 56) - 1

Record = tuple[int, bytes]
"""Pointer and message."""

# The pointer is read as 8 bytes that begin with the last byte of the size, which is masked away:
# numpy and struct know no number of 7 bytes.
_POINTER_OFFSET = RECORD_HEADER_SIZE - 8
_POINTER_FIELD = np.dtype(">u8")
_SIZE_FIELD = np.dtype((np.void, SIZE_SIZE))
_unpack_size = Struct(">I").unpack_from
_unpack_pointer = Struct(">Q").unpack_from


def join_records(records: Iterable[Record]) -> bytes:
    """Return the records' bytes, back to back."""
    parts: list[bytes] = []
    for pointer, message in records:
        parts += (
            (POINTER_SIZE + len(message)).to_bytes(SIZE_SIZE, "big"),
            pointer.to_bytes(POINTER_SIZE, "big"),
            message,
        )
    return b"".join(parts)


def split_records(data: memoryview) -> list[Record]:
    """Return (pointer, message) of each record; the messages are copies.

    The server does not look at all that it sends, so a damaged file may show only here: a size does
    not fit into the data, or a pointer does not exceed the one before. Then the records that can be
    trusted are returned, those up to two before that place; asked for the next one alone, the
    server does look.

    Raises:
        CorruptRecord: no record can be trusted; the offset counts from the begin of the data.
    """
    if len(data) < RECORD_HEADER_SIZE:
        return walk_records(data)
    (size,) = _unpack_size(data, 0)
    stride = SIZE_SIZE + size
    message_size = size - POINTER_SIZE
    count, rest = divmod(len(data), stride)
    if rest or message_size < 1:
        return walk_records(data)
    sizes = np.ndarray((count,), _SIZE_FIELD, data, 0, (stride,))
    if sizes.tobytes() != bytes(data[:SIZE_SIZE]) * count:
        return walk_records(data)
    pointers = np.ndarray((count,), _POINTER_FIELD, data, _POINTER_OFFSET, (stride,)) & POINTER_MAX
    if not (pointers[1:] > pointers[:-1]).all():
        return walk_records(data)
    message_field = np.dtype((np.void, message_size))
    messages = np.ndarray((count,), message_field, data, RECORD_HEADER_SIZE, (stride,))
    return list(zip(pointers.tolist(), messages.tolist(), strict=True))


def walk_records(data: memoryview) -> list[Record]:
    """Return the records of any sizes, by following the chain of sizes.

    Raises:
        CorruptRecord: as `split_records`.
    """
    end = len(data)
    offset = 0
    last_pointer = -1
    records: list[Record] = []
    while offset < end:
        start = offset + RECORD_HEADER_SIZE
        stop = offset + SIZE_SIZE + _unpack_size(data, offset)[0] if start <= end else end + 1
        pointer = 0
        if start <= stop <= end:
            pointer = _unpack_pointer(data, offset + _POINTER_OFFSET)[0] & POINTER_MAX
        if stop < start or stop > end or pointer <= last_pointer:
            # What is wrong may be the record before: its size, or its pointer.
            return _all_but_last(records)
        records.append((pointer, bytes(data[start:stop])))
        last_pointer, offset = pointer, stop
    return records


def _all_but_last(records: list[Record]) -> list[Record]:
    if len(records) < 2:  # noqa: PLR2004 - nothing would be left
        raise CorruptRecord(path="the data reply", offset=0)
    return records[:-1]
