"""Writes sealed segments straight to disk, so that a start-up can be measured without a long put.

Layout: docs/formats.md; written here by numpy and not by Poe, whose own code is what is measured.
"""

from pathlib import Path

import numpy as np

FIRST_POINTER = 1_600_000_000_000_000
RECORD_HEADER_BYTES = 11
POINTER_BYTES = 7


def write_sealed_segments(
    base: Path, topic: str, segment_count: int, message_count: int, message_bytes: int
) -> int:
    """Write closed segments of equal messages; return the bytes of their data files."""
    folder = base / "topics" / topic
    folder.mkdir(parents=True, mode=0o700)
    offsets = np.arange(message_count, dtype=np.uint64) * np.uint64(
        RECORD_HEADER_BYTES + message_bytes
    )
    pointer = FIRST_POINTER
    for _ in range(segment_count):
        timestamp = pointer
        pointers = np.arange(pointer + 1, pointer + 1 + message_count, dtype=np.uint64)
        (folder / f"{timestamp}_data").write_bytes(_data(pointers, message_bytes))
        (folder / f"{timestamp}_index").write_bytes(_index(pointers, offsets))
        pointer += message_count + 1
    return segment_count * message_count * (RECORD_HEADER_BYTES + message_bytes)


def _data(pointers: np.ndarray, message_bytes: int) -> bytes:
    records = np.full((len(pointers), RECORD_HEADER_BYTES + message_bytes), ord("a"), np.uint8)
    size = np.array([POINTER_BYTES + message_bytes], dtype=">u4").view(np.uint8)
    records[:, :4] = size
    records[:, 4:RECORD_HEADER_BYTES] = _big_endian(pointers)[:, 1:]
    return records.tobytes()


def _index(pointers: np.ndarray, offsets: np.ndarray) -> bytes:
    entries = np.empty((len(pointers), 12), np.uint8)
    entries[:, :7] = _big_endian(pointers)[:, 1:]
    entries[:, 7:] = _big_endian(offsets)[:, 3:]
    return entries.tobytes()


def _big_endian(numbers: np.ndarray) -> np.ndarray:
    return numbers.astype(">u8").view(np.uint8).reshape(-1, 8)
