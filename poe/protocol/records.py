"""The records of one data reply: join and split them.

Records travel exactly as they lie on disk, so that the server can send a part of a data file
without reading it. Only clients look inside; the layout is in `poe/record.py`.

Source: poe_protocol.erl, `decode_data/1`.
"""

from collections.abc import Iterable
from struct import Struct

import numpy as np

from poe.errors import CorruptRecord
from poe.record import (
    POINTER_BYTES,
    POINTER_MAX,
    RECORD_HEADER_BYTES,
    SIZE_BYTES,
    WIDE_POINTER_AT,
    encode_header,
    pointer_fields,
)

Record = tuple[int, bytes]
"""Pointer and message."""

_SIZE_FIELD = np.dtype((np.void, SIZE_BYTES))
_unpack_size = Struct(">I").unpack_from
_unpack_pointer = Struct(">Q").unpack_from


def join_records(records: Iterable[Record]) -> bytes:
    """Return the records' bytes, back to back."""
    parts: list[bytes] = []
    for pointer, message in records:
        parts += (encode_header(len(message), pointer), message)
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
    if len(data) < RECORD_HEADER_BYTES:
        return walk_records(data)
    (size,) = _unpack_size(data, 0)
    stride = SIZE_BYTES + size
    message_size = size - POINTER_BYTES
    count, rest = divmod(len(data), stride)
    if rest or message_size < 1:
        return walk_records(data)
    sizes = np.ndarray((count,), _SIZE_FIELD, data, 0, (stride,))
    if sizes.tobytes() != bytes(data[:SIZE_BYTES]) * count:
        return walk_records(data)
    pointers = pointer_fields(data, count, 0, stride) & POINTER_MAX
    if not (pointers[1:] > pointers[:-1]).all():
        return walk_records(data)
    message_field = np.dtype((np.void, message_size))
    messages = np.ndarray((count,), message_field, data, RECORD_HEADER_BYTES, (stride,))
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
        start = offset + RECORD_HEADER_BYTES
        stop = offset + SIZE_BYTES + _unpack_size(data, offset)[0] if start <= end else end + 1
        pointer = 0
        if start <= stop <= end:
            pointer = _unpack_pointer(data, offset + WIDE_POINTER_AT)[0] & POINTER_MAX
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
