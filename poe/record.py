"""The record, and its entry in an index: as they lie in files, and go from there to clients.

Defined here for the files, the wire and whoever reads either.

Layout of a record (big endian, records back to back):
    size     u32    bytes that follow: 7 + length of the message
    pointer  u56    microseconds since the epoch, strictly increasing within a topic
    message  bytes

Layout of an entry (big endian, 12 bytes, one per record):
    pointer  u56
    offset   u40    where the record begins in the data file
"""

from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

SIZE_BYTES: Final = 4
POINTER_BYTES: Final = 7
RECORD_HEADER_BYTES: Final = SIZE_BYTES + POINTER_BYTES
POINTER_BITS: Final = 8 * POINTER_BYTES
POINTER_MAX: Final = (1 << POINTER_BITS) - 1

WIDE_POINTER_AT: Final = SIZE_BYTES - 1
"""Numpy and struct know no number of 7 bytes. A pointer is the low 56 bits of a u64 that begins
here in the record, with the last byte of the size."""

ENTRY_BYTES: Final = 12
ENTRY_FIELDS: Final = np.dtype([("pointer_and_offset_high", ">u8"), ("offset_low", ">u4")])
"""Numpy knows no number of 5 bytes either."""

Bytes: TypeAlias = bytes | bytearray | memoryview | NDArray[np.uint8]


def encode_header(length: int, pointer: int) -> bytes:
    """Return what stands before a message of `length` bytes."""
    header = (length + POINTER_BYTES) << POINTER_BITS | pointer
    return header.to_bytes(RECORD_HEADER_BYTES, "big")


def decode_header(header: bytes | memoryview) -> tuple[int, int]:
    """Return the size and the pointer that a header tells."""
    number = int.from_bytes(header, "big")
    return number >> POINTER_BITS, number & POINTER_MAX


def size_fields(data: Bytes, count: int, at: int = 0, stride: int = 1) -> NDArray[np.uint32]:
    """See the sizes of `count` records in a buffer, from `at` on, so many bytes apart."""
    return np.ndarray((count,), ">u4", data, at, (stride,))


def pointer_fields(data: Bytes, count: int, at: int = 0, stride: int = 1) -> NDArray[np.uint64]:
    """See their pointers, as `size_fields` does, above whose 56 bits stands a byte of the size."""
    return np.ndarray((count,), ">u8", data, at + WIDE_POINTER_AT, (stride,))


def decode_entries(content: bytes | memoryview) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
    """Decode the whole entries in some bytes into pointers and offsets."""
    entries = np.frombuffer(content, ENTRY_FIELDS, len(content) // ENTRY_BYTES)
    high = entries["pointer_and_offset_high"].astype(np.uint64)
    low = entries["offset_low"].astype(np.uint64)
    return high >> np.uint64(8), (high & np.uint64(0xFF)) << np.uint64(32) | low


def are_sound(
    pointers: NDArray[np.uint64], starts: NDArray[Any], data: memoryview
) -> NDArray[np.bool_]:
    """Return of each record whether its header says what an index does, and pointers rise.

    Args:
        pointers: one for each record, by the index.
        starts: where each begins in the data, and the end of the last one.
        data: the records.
    """
    place_count = len(data) - RECORD_HEADER_BYTES + 1
    if place_count < 1:
        return np.zeros(len(pointers), np.bool_)
    # A header may lie anywhere: all places are seen as fields, of which those at the starts count.
    places = starts[:-1].clip(0, place_count - 1)
    sizes = np.diff(starts) - starts.dtype.type(SIZE_BYTES)
    is_sound: NDArray[np.bool_] = (
        (places == starts[:-1])
        & (starts[1:] <= len(data))
        & (size_fields(data, place_count)[places] == sizes)
        & (pointer_fields(data, place_count)[places] & np.uint64(POINTER_MAX) == pointers)
    )
    is_sound[1:] &= pointers[1:] > pointers[:-1]
    return is_sound
