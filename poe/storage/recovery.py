"""Turn the files of a segment, as its last writer left them, into a segment that can be trusted.

The data file is the truth; the index is derived from it. Strategy, from cheap to thorough:

- no lock, and the last index entry names a record which ends where the data ends: closed cleanly,
  nothing is read but that record and the first.
- lock of a writer that died in this boot of the machine: the data is cut to the offset that whole
  batches had flushed, and the index goes on from its last entry.
- else (reboot, lock of the original, files that disagree): all headers are read, the data is cut at
  the first that is no record, the index is made to agree.

Bytes that whole batches had flushed are not just cut off, but kept in `<timestamp>_damaged`: behind
a damaged header there may be good records.

Dying on the way is harmless: each step leads to the same bytes when done again, and the lock goes
last.
"""

import logging
from dataclasses import dataclass

import numpy as np

from poe.storage.failure import reading, writing
from poe.storage.files import Files, OpenFile
from poe.storage.index import ENTRY_BYTES, decode_entry, encode_entries
from poe.storage.record import HEADER_BYTES, POINTER_BYTES, POINTER_MAX, SIZE_BYTES
from poe.storage.scan import scan_records
from poe.storage.segment_lock import FoundLock, find_lock

_CHUNK_BYTES = 1 << 20

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Extent:
    """What a segment holds."""

    count: int
    size_bytes: int
    pointer_low: int
    """Pointer of the first record; 0 when there is none."""

    pointer_high: int
    """Pointer of the last record; 0 when there is none."""


def recover(files: Files, path: str) -> Extent | None:
    """Make a segment trustworthy and unlocked; `path` is its path less `_data`.

    Returns:
        What it holds, or None when there is no data file; what else there was is removed then.

    Raises:
        SegmentLocked: a live program writes to it.
        ReadFailed: a file cannot be opened or read.
        StorageFull: no room to repair.
        WriteFailed: repairing failed for another reason.
    """
    with reading(path):
        lock = find_lock(files, path + "_lock")
        data = _open_maybe(files, path + "_data")
        index = _open_maybe(files, path + "_index")
        extent = None
        if data is not None and index is not None and lock is None:
            extent = _check(data, index, data.size())
    if extent is not None:
        return extent
    if data is None:
        _log.warning("segment %s has no data file; its other files are removed", path)
    with writing(path):
        if data is None:
            files.unlink(path + "_index")
        else:
            extent = _repair(files, path, index, lock)
        files.unlink(path + "_lock")
    return extent


def _open_maybe(files: Files, path: str) -> OpenFile | None:
    try:
        return files.open(path, "r")
    except FileNotFoundError:
        return None


def _check(data: OpenFile, index: OpenFile, data_size: int) -> Extent | None:
    """Tell what a segment holds if its index covers the data exactly."""
    index_size = index.size()
    covered = _covered(data, index, data_size)
    is_exact = index_size % ENTRY_BYTES == 0 and covered.size_bytes == data_size
    return covered if is_exact and covered.count * ENTRY_BYTES == index_size else None


def _covered(data: OpenFile, index: OpenFile, end: int) -> Extent:
    """Tell what the index covers of the data before `end`.

    Its first and its last whole entry must be true, else it covers nothing.
    """
    count = index.size() // ENTRY_BYTES
    if count:
        first = decode_entry(index.read_at(ENTRY_BYTES, 0))
        last = decode_entry(index.read_at(ENTRY_BYTES, (count - 1) * ENTRY_BYTES))
        first_end, last_end = _record_end(data, first), _record_end(data, last)
        # A torn entry may by chance name an earlier record; that has no room for `count` of them.
        has_room = last[1] >= (count - 1) * HEADER_BYTES and last[0] >= first[0] + count - 1
        if first[1] == 0 and first_end and last_end and last_end <= end and has_room:
            return Extent(count, last_end, first[0], last[0])
    return Extent(0, 0, 0, 0)


def _record_end(data: OpenFile, entry: tuple[int, int]) -> int | None:
    """Tell where the record of an entry ends; None when there is no such record."""
    pointer, offset = entry
    header = data.read_at(HEADER_BYTES, offset)
    number = int.from_bytes(header, "big")
    size = number >> 56
    if len(header) < HEADER_BYTES or size < POINTER_BYTES or number & POINTER_MAX != pointer:
        return None
    return offset + SIZE_BYTES + size


def _repair(files: Files, path: str, index: OpenFile | None, lock: FoundLock | None) -> Extent:
    data = files.open(path + "_data", "r+")
    data_size = data.size()
    end = data_size
    kept = Extent(0, 0, 0, 0)
    if lock is not None and lock.flushed_offset is not None:
        end = min(data_size, lock.flushed_offset)
        if index is not None:
            kept = _covered(data, index, end)
    places = scan_records(data, kept.size_bytes, end, kept.pointer_high)
    if places.end < end:
        _log.error("no record at offset %d of %s_data, of %d bytes", places.end, path, end)
        is_promised = lock is None or lock.flushed_offset is not None
        if is_promised or not _is_torn(data, places.end, end):
            _keep_bytes(files, path + "_damaged", data, places.end, end)
    if places.end < data_size:
        _log.warning("%d bytes are cut off %s_data", data_size - places.end, path)
    # In any case: blocks may be reserved behind the end.
    data.truncate(places.end)
    entries = encode_entries(
        np.array(places.pointers, np.uint64), np.array(places.offsets, np.uint64)
    )
    _complete_index(files, path + "_index", index, kept.count * ENTRY_BYTES, entries)
    pointer_low = kept.pointer_low or next(iter(places.pointers), 0)
    count = kept.count + len(places.pointers)
    return Extent(count, places.end, pointer_low, places.last_pointer)


def _is_torn(data: OpenFile, start: int, end: int) -> bool:
    """Tell whether bytes may be the beginning of one record, as a power cut leaves it."""
    header = data.read_at(HEADER_BYTES, start)
    size = int.from_bytes(header[:SIZE_BYTES], "big")
    return len(header) < HEADER_BYTES or start + SIZE_BYTES + size > end


def _keep_bytes(files: Files, path: str, data: OpenFile, start: int, end: int) -> None:
    """Copy a part of a data file that is about to be cut off, unless it is zeros from a power cut.

    For whoever can make sense of it; no program of ours reads it.
    """
    kept = None
    for offset in range(start, end, _CHUNK_BYTES):
        chunk = data.read_at(min(_CHUNK_BYTES, end - offset), offset)
        if kept is not None or chunk.count(0) < len(chunk):
            if kept is None:
                _log.error("bytes that are cut off are kept in %s", path)
                kept = files.open(path, "w+")
            kept.write_at(chunk, offset - start)


def _complete_index(
    files: Files, path: str, index: OpenFile | None, kept_bytes: int, entries: bytes
) -> None:
    """Make the index file hold its first `kept_bytes`, then `entries`, then nothing."""
    if index is not None:
        found_bytes = index.size() - kept_bytes
        found = index.read_at(found_bytes - found_bytes % ENTRY_BYTES, kept_bytes)
        if entries.startswith(found) or found.startswith(entries):
            file = files.open(path, "r+")
            if len(found) < len(entries):
                file.write_at(entries[len(found) :], kept_bytes + len(found))
            file.truncate(kept_bytes + len(entries))
            return
    _log.warning("%s is written anew from the data", path)
    kept = index.read_at(kept_bytes, 0) if index is not None else b""
    files.open(path + "_new", "w+").write_at(kept + entries, 0)
    files.rename(path + "_new", path)
