"""Turn bytes of a data file into the places of its records, up to the first that is none.

This is what recovery knows the truth by when an index is missing or cannot be trusted. A record is
accepted when its size holds its own pointer, it ends within the file, and its pointer is greater
than the one before. Zeros, as a power cut leaves them, are never a record.

Strategy: headers are read one by one until several sizes in a row are equal; from there a window,
which grows while it succeeds, is checked at once as a matrix.
"""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from poe.record import (
    POINTER_BITS,
    POINTER_BYTES,
    POINTER_MAX,
    RECORD_HEADER_BYTES,
    SIZE_BYTES,
    pointer_fields,
    size_fields,
)
from poe.storage.files import OpenFile

_CHUNK_BYTES = 1 << 20
# After so many equal sizes the next are worth a guess, which costs as much as some ten records.
_EQUAL_COUNT_MIN = 8
_WINDOW_COUNT_MIN = 64


@dataclass(slots=True)
class RecordPlaces:
    """The records found so far, oldest first, and where the next would begin."""

    end: int
    """Offset behind the last record."""

    last_pointer: int
    """Pointer of the last record, or what the first must exceed."""

    pointers: list[int] = field(default_factory=list)
    offsets: list[int] = field(default_factory=list)


def scan_records(file: OpenFile, start: int, end: int, last_pointer: int) -> RecordPlaces:
    """Find the records of a data file between two offsets.

    Args:
        file: the data file.
        start: offset of the first record.
        end: offset that no record may exceed.
        last_pointer: what the first pointer must exceed.

    Returns:
        The places; their `end` is less than the argument `end` when something there is no record.
    """
    places = RecordPlaces(start, last_pointer)
    while places.end + RECORD_HEADER_BYTES <= end:
        chunk = file.read_at(min(_CHUNK_BYTES, end - places.end), places.end)
        if not _scan_chunk(chunk, end - places.end, places):
            break
    return places


def _scan_chunk(chunk: bytes, room: int, places: RecordPlaces) -> bool:
    """Add the records whose headers lie in the chunk; tell whether all of them were good.

    `room` is the number of bytes from the beginning of the chunk that records may take.
    """
    base = places.end
    last_pointer = places.last_pointer
    equal_count = 0
    size_before = 0
    window_count = _WINDOW_COUNT_MIN
    at = 0
    is_good = len(chunk) >= RECORD_HEADER_BYTES
    while at + RECORD_HEADER_BYTES <= len(chunk):
        # `decode_header`, whose call would cost a third more.
        header = int.from_bytes(chunk[at : at + RECORD_HEADER_BYTES], "big")
        size, pointer = header >> POINTER_BITS, header & POINTER_MAX
        end = at + SIZE_BYTES + size
        if size < POINTER_BYTES or end > room or pointer <= last_pointer:
            is_good = False
            break
        places.pointers.append(pointer)
        places.offsets.append(base + at)
        at, last_pointer = end, pointer
        equal_count = equal_count + 1 if size == size_before else 0
        size_before = size
        while equal_count >= _EQUAL_COUNT_MIN:
            run = _find_run(chunk, at, room, size, window_count, last_pointer)
            stride = SIZE_BYTES + size
            places.pointers.extend(run.tolist())
            places.offsets.extend(range(base + at, base + at + len(run) * stride, stride))
            at += len(run) * stride
            last_pointer = places.pointers[-1]
            if len(run) < window_count:
                equal_count, window_count = 0, _WINDOW_COUNT_MIN
            else:
                window_count *= 4
    places.end = base + at
    places.last_pointer = last_pointer
    return is_good


def _find_run(  # noqa: PLR0913, PLR0917 - the state of the scan, passed as it is for speed
    chunk: bytes, at: int, room: int, size: int, window_count: int, last_pointer: int
) -> NDArray[np.uint64]:
    """Return the pointers of the good records of one size from a place on, at most a window."""
    stride = SIZE_BYTES + size
    headers_count = (len(chunk) - at - RECORD_HEADER_BYTES) // stride + 1
    count = min(window_count, headers_count, (room - at) // stride)
    if count <= 0:
        return np.empty(0, np.uint64)
    pointers = pointer_fields(chunk, count, at, stride).astype(np.uint64) & np.uint64(POINTER_MAX)
    is_good = size_fields(chunk, count, at, stride) == size
    is_good[1:] &= pointers[1:] > pointers[:-1]
    is_good[0] &= pointers[0] > last_pointer
    good_count = count if is_good.all() else int(is_good.argmin())
    return pointers[:good_count]
