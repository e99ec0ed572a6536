"""Turn pointers into record numbers and offsets, through the index file of a segment.

Strategy: the file is the memory. New entries wait in a small buffer, 64 KiB or a batch at most,
until `flush` writes them; all others are read through a read-only map of the file, made when first
needed and again when the file has grown. What was read of it does not stay in the process: the
pages are given back to the kernel's cache from time to time. A search bisects; consumers that walk
on from where they were are answered from hints.

For the layout of an entry see `poe/record.py`.
"""

import mmap
from bisect import bisect_right
from itertools import pairwise
from typing import TypeAlias

import numpy as np

from poe.errors import CorruptRecord, ReadFailed
from poe.record import ENTRY_BYTES, ENTRY_FIELDS
from poe.storage.failure import as_read_failed, as_storage_error
from poe.storage.files import OpenFile
from poe.storage.formats.record import Numbers

OFFSET_MAX = 2**40 - 1

_OFFSET_BITS = 40
_LOW_BITS = np.uint64(2**32 - 1)
Run: TypeAlias = tuple[int, int, int, int]
"""A batch whose records are all of one size, with consecutive pointers: first pointer, offset of
the first record, number of records, bytes of one."""

# Shifting by a Python integer would convert it at each call.
_8 = np.uint64(8)
_32 = np.uint64(32)
_POINTER_BEFORE_SHIFT = ENTRY_BYTES * 8 + _OFFSET_BITS
_PENDING_BYTES_MAX = 64 * 1024
# One hint serves one consumer; when there are more, a bisection each hundred reads costs little.
_HINTS_COUNT_MAX = 128


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


def encode_runs(runs: list[Run]) -> bytes:
    """Encode the entries of runs, in order."""
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
    return number >> _OFFSET_BITS, number & OFFSET_MAX


class Index:
    """The entries of one segment, numbered from 0; owns the open index file and its map.

    Always:

        count == flushed_count + len(pending) / 12 + sum of the runs' counts
        mapped_count <= flushed_count

    A failing flush changes nothing but bytes behind the flushed ones, which nobody reads.
    One thread at a time may call it.
    """

    __slots__ = (
        "_flushed_count",
        "_hints",
        "_map",
        "_mapped_count",
        "_path",
        "_pending",
        "_runs",
        "count",
        "file",
    )

    def __init__(self, file: OpenFile, path: str, count: int) -> None:
        """Take over an index file that holds `count` entries."""
        self.count = count
        self.file = file
        self._path = path
        self._flushed_count = count
        self._pending = bytearray()
        self._runs: list[Run] = []
        self._map: mmap.mmap | None = None
        self._mapped_count = 0
        self._hints: dict[int, tuple[int, int]] = {}

    def is_full(self) -> bool:
        """Return whether it must be flushed before the next batch.

        Before its data is written, that is: an index that cannot be written then refuses the batch
        while nothing of it is stored.
        """
        return (self.count - self._flushed_count) * ENTRY_BYTES >= _PENDING_BYTES_MAX

    def append(self, pointers: Numbers, offsets: Numbers) -> None:
        """Add the entries of a batch."""
        self._encode_runs()
        self._pending += encode_entries(pointers, offsets)
        self.count += len(pointers)

    def append_run(self, pointer: int, offset: int, count: int, record_bytes: int) -> None:
        """Add the entries of a batch whose records are all of one size."""
        self._runs.append((pointer, offset, count, record_bytes))
        self.count += count

    def append_one(self, pointer: int, offset: int) -> None:
        """Add one entry."""
        if self._runs:
            self._encode_runs()
        self._pending += (pointer << _OFFSET_BITS | offset).to_bytes(ENTRY_BYTES, "big")
        self.count += 1

    def flush(self) -> bytearray:
        """Write what waits, and return it; on an error it goes on waiting.

        Raises:
            StorageFull: no room on the disk.
            WriteFailed: another failure.
        """
        self._encode_runs()
        if not self._pending:
            return self._pending
        try:
            self.file.write_at(self._pending, self._flushed_count * ENTRY_BYTES)
        except OSError as error:
            raise as_storage_error(error, self._path) from error
        self._flushed_count = self.count
        written, self._pending = self._pending, bytearray()
        return written

    def cut(self) -> None:
        """Cut off what a failed write may have left.

        Raises:
            OSError: as reported by the file layer.
        """
        size = self._flushed_count * ENTRY_BYTES
        if self.file.size() != size:
            self.file.truncate(size)

    def entry(self, number: int) -> tuple[int, int]:
        """Return pointer and offset of a record; `number` is 0 to `count` - 1.

        Raises:
            ReadFailed: the file cannot be mapped.
        """
        at = number * ENTRY_BYTES
        if number < self._mapped_count:
            assert self._map is not None
            entry = int.from_bytes(self._map[at : at + ENTRY_BYTES], "big")
        elif number < self._flushed_count:
            self._remap()
            return self.entry(number)
        else:
            if self._runs:
                self._encode_runs()
            at -= self._flushed_count * ENTRY_BYTES
            entry = int.from_bytes(self._pending[at : at + ENTRY_BYTES], "big")
        return entry >> _OFFSET_BITS, entry & OFFSET_MAX

    def entries(self, start: int, stop: int) -> bytes:
        """Return the entries of records `start` to `stop` - 1, as the file has or will have them.

        They are read, not mapped: those of a large read would stay in the memory of the process.

        Raises:
            ReadFailed: the file cannot be read.
        """
        self._encode_runs()
        flushed = self._flushed_count
        in_file = b""
        if start < flushed:
            wanted_bytes = (min(stop, flushed) - start) * ENTRY_BYTES
            try:
                in_file = self.file.read_at(wanted_bytes, start * ENTRY_BYTES)
            except OSError as error:
                raise as_read_failed(error, self._path) from error
            if len(in_file) != wanted_bytes:
                raise ReadFailed(self._path, "it is shorter than it was")
        waiting = slice(max(start - flushed, 0) * ENTRY_BYTES, max(stop - flushed, 0) * ENTRY_BYTES)
        return in_file + self._pending[waiting]

    def boundary(self, number: int) -> tuple[int, int]:
        """Return the pointer before a record, and where the record begins: of a slice, its end.

        `number` is 1 to `count` - 1. The two entries lie side by side, so one read does.

        Raises:
            ReadFailed: the file cannot be mapped.
        """
        if number < self._mapped_count:
            assert self._map is not None
            at = number * ENTRY_BYTES
            pair = int.from_bytes(self._map[at - ENTRY_BYTES : at + ENTRY_BYTES], "big")
            return pair >> _POINTER_BEFORE_SHIFT, pair & OFFSET_MAX
        return self.entry(number - 1)[0], self.entry(number)[1]

    def hinted(self, pointer: int) -> tuple[int, int] | None:
        """Return what `search` would, where a consumer has walked to; None where none has."""
        return self._hints.get(pointer)

    def search(self, pointer: int) -> tuple[int, int] | None:
        """Return number and offset of the first record behind a pointer; None when there is none.

        Raises:
            ReadFailed: the file cannot be mapped.
            CorruptRecord: the entries around it do not rise; whatever made them so (a page of zeros
                that a power cut left, a flipped bit) may have led the search astray.
        """
        number = bisect_right(range(self.count), pointer, key=self._pointer_at)
        around = range(max(number - 2, 0), min(number + 2, self.count))
        entries = [self.entry(each) for each in around]
        for (pointer_before, offset_before), (pointer_at, offset_at) in pairwise(entries):
            if pointer_at <= pointer_before or offset_at <= offset_before:
                raise CorruptRecord(self._path, number * ENTRY_BYTES)
        return (number, self.entry(number)[1]) if number < self.count else None

    def search_offset(self, offset: int, start: int, stop: int) -> int:
        """Return the first number, `start` to `stop`, of a record that begins behind an offset."""
        return bisect_right(range(self.count), offset, start, stop, key=self._offset_at)

    def hint(self, pointer: int, number: int, offset: int) -> None:
        """Remember which record lies behind `pointer`, and where; as read from the entries.

        A hint stays right as long as the index lives: entries are only ever added.
        """
        if len(self._hints) >= _HINTS_COUNT_MAX:
            # Forgetting all is one step; forgetting the oldest would cost a step at each read.
            self._hints.clear()
            self._release_pages()
        self._hints[pointer] = (number, offset)

    def _remap(self) -> None:
        try:
            self._map = self.file.map(self._flushed_count * ENTRY_BYTES)
        except (OSError, ValueError) as error:
            # Python refuses, with a ValueError, to map more than a file has.
            raise ReadFailed(self._path, str(error)) from error
        self._mapped_count = self._flushed_count

    def _release_pages(self) -> None:
        """Give the pages of the map back; the kernel's cache has them when they are needed again.

        A consumer that reads through all of a large segment would otherwise leave its whole index,
        12 bytes a message, in the memory of this process.
        """
        if self._map is not None and self._mapped_count * ENTRY_BYTES > _PENDING_BYTES_MAX:
            self._map.madvise(mmap.MADV_DONTNEED)

    def _encode_runs(self) -> None:
        """Make entries of the batches that came since the last time.

        Many at once cost a quarter of one by one, and mostly nobody looks at them before.
        """
        if self._runs:
            self._pending += encode_runs(self._runs)
            self._runs.clear()

    def _pointer_at(self, number: int) -> int:
        return self.entry(number)[0]

    def _offset_at(self, number: int) -> int:
        return self.entry(number)[1]
