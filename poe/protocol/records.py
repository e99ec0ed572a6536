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

from poe.errors import RemoteProtocolError

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

    Raises:
        RemoteProtocolError: the sizes do not add up to the data exactly, or one is too small.
    """
    if not data:
        return []
    if len(data) < RECORD_HEADER_SIZE:
        raise RemoteProtocolError(_cut_short(len(data)))
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
    message_field = np.dtype((np.void, message_size))
    messages = np.ndarray((count,), message_field, data, RECORD_HEADER_SIZE, (stride,))
    return list(zip(pointers.tolist(), messages.tolist(), strict=True))


def walk_records(data: memoryview) -> list[Record]:
    """Return the records of any sizes, by following the chain of sizes.

    Raises:
        RemoteProtocolError: as `split_records`.
    """
    end = len(data)
    offset = 0
    records: list[Record] = []
    while offset < end:
        start = offset + RECORD_HEADER_SIZE
        if start > end:
            raise RemoteProtocolError(_cut_short(end - offset))
        stop = offset + SIZE_SIZE + _unpack_size(data, offset)[0]
        if not start <= stop <= end:
            msg = f"record of {stop - offset} bytes in a data reply that has {end - offset} left"
            raise RemoteProtocolError(msg)
        pointer = _unpack_pointer(data, offset + _POINTER_OFFSET)[0] & POINTER_MAX
        records.append((pointer, bytes(data[start:stop])))
        offset = stop
    return records


def _cut_short(size: int) -> str:
    return f"data reply ends with {size} bytes, too few for a record"
