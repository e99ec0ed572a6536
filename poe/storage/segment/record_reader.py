"""Turn a pointer into the records that follow it, from the open data and index of a segment.

Strategy: the index tells where records begin, so a slice of the data file is found without reading
it, and a single message is one read. What the index says is checked to be possible before anybody
sends it.

The index file is its own memory. New entries wait in a small buffer, 64 KiB or a batch at most,
until `flush` writes them; all others are read through a read-only map of the file, made when first
needed and again when the file has grown. What was read of it does not stay in the process: the
pages are given back to the kernel's cache from time to time. A search bisects; consumers that walk
on from where they were are answered from hints.
"""

import mmap
from bisect import bisect_right
from itertools import groupby, pairwise
from typing import Self, cast

from poe.errors import CorruptRecord, ReadFailed
from poe.record import (
    ENTRY_BYTES,
    POINTER_BITS,
    RECORD_HEADER_BYTES,
    SIZE_BYTES,
)
from poe.storage.failure import as_read_failed, as_storage_error
from poe.storage.files import Files, FileSlice, Mode, OpenFile
from poe.storage.formats.record import OFFSET_BITS, OFFSET_MAX, Run, encode_runs

WAITING_BYTES_MAX = 64 * 1024
"""Entries are flushed before another batch is stored, when so many wait."""

_POINTER_BEFORE_SHIFT = ENTRY_BYTES * 8 + OFFSET_BITS
# One hint serves one consumer; when there are more, a bisection each hundred reads costs little.
_HINTS_COUNT_MAX = 128
_RECORD_READ_BYTES = 2048
"""A record that is alone, and no larger, is read when it is found: whoever asked sends it."""


class Index:
    """The entries of one segment, numbered from 0; owns the open index file and its map.

    Always:

        count == flushed_count + len(pending) / 12 + those of the batches that wait
        mapped_count <= flushed_count

    A failing flush changes nothing but bytes behind the flushed ones, which nobody reads.
    One thread at a time may call it.
    """

    __slots__ = (
        "_batches",
        "_hints",
        "_map",
        "_mapped_count",
        "_path",
        "_pending",
        "add",
        "file",
        "flushed_count",
        "hinted",
    )

    def __init__(self, file: OpenFile, path: str, count: int) -> None:
        """Take over an index file that holds `count` entries."""
        self.file = file
        self.flushed_count = count
        self._path = path
        self._pending = bytearray()
        self._batches: list[Run | bytes] = []
        self.add = self._batches.append
        """Add the entries of a batch, or the run that they are. Who adds flushes before the next
        batch when too many wait: before its data is written, that is, so that an index which cannot
        be written refuses it while nothing of it is stored."""
        self._map: mmap.mmap | None = None
        self._mapped_count = 0
        self._hints: dict[int, tuple[int, int]] = {}
        self.hinted = self._hints.get
        """Return what `search` would, where a consumer has walked to; None where none has."""

    @property
    def count(self) -> int:
        """How many entries there are."""
        if self._batches:
            self._encode_batches()
        return self.flushed_count + len(self._pending) // ENTRY_BYTES

    def flush(self) -> bytearray:
        """Write what waits, and return it; on an error it goes on waiting.

        Raises:
            StorageFull: no room on the disk.
            WriteFailed: another failure.
        """
        count = self.count
        if not self._pending:
            return self._pending
        try:
            self.file.write_at(self._pending, self.flushed_count * ENTRY_BYTES)
        except OSError as error:
            raise as_storage_error(error, self._path) from error
        self.flushed_count = count
        written, self._pending = self._pending, bytearray()
        return written

    def cut(self) -> None:
        """Cut off what a failed write may have left.

        Raises:
            OSError: as reported by the file layer.
        """
        size = self.flushed_count * ENTRY_BYTES
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
        elif number < self.flushed_count:
            self._remap()
            return self.entry(number)
        else:
            if self._batches:
                self._encode_batches()
            at -= self.flushed_count * ENTRY_BYTES
            entry = int.from_bytes(self._pending[at : at + ENTRY_BYTES], "big")
        return entry >> OFFSET_BITS, entry & OFFSET_MAX

    def entries(self, start: int, stop: int) -> bytes:
        """Return the entries of records `start` to `stop` - 1, as the file has or will have them.

        They are read, not mapped: those of a large read would stay in the memory of the process.

        Raises:
            ReadFailed: the file cannot be read.
        """
        self._encode_batches()
        flushed = self.flushed_count
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

    def search(self, pointer: int) -> tuple[int, int] | None:
        """Return number and offset of the first record behind a pointer; None when there is none.

        Raises:
            ReadFailed: the file cannot be mapped.
            CorruptRecord: the entries around it do not rise; whatever made them so (a page of zeros
                that a power cut left, a flipped bit) may have led the search astray.
        """
        count = self.count
        number = bisect_right(range(count), pointer, key=self._pointer_at)
        around = range(max(number - 2, 0), min(number + 2, count))
        entries = [self.entry(each) for each in around]
        for (pointer_before, offset_before), (pointer_at, offset_at) in pairwise(entries):
            if pointer_at <= pointer_before or offset_at <= offset_before:
                raise CorruptRecord(self._path, number * ENTRY_BYTES)
        return (number, self.entry(number)[1]) if number < count else None

    def search_offset(self, offset: int, start: int, stop: int) -> int:
        """Return the first number, `start` to `stop`, of a record that begins behind an offset."""
        return bisect_right(range(stop), offset, start, stop, key=self._offset_at)

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
            self._map = self.file.map(self.flushed_count * ENTRY_BYTES)
        except OSError as error:  # a map has a descriptor of its own
            raise as_read_failed(error, self._path) from error
        except ValueError as error:  # Python refuses to map more than a file has
            raise ReadFailed(self._path, str(error)) from error
        self._mapped_count = self.flushed_count

    def _release_pages(self) -> None:
        """Give the pages of the map back; the kernel's cache has them when they are needed again.

        A consumer that reads through all of a large segment would otherwise leave its whole index,
        12 bytes a message, in the memory of this process.
        """
        if self._map is not None and self._mapped_count * ENTRY_BYTES > WAITING_BYTES_MAX:
            self._map.madvise(mmap.MADV_DONTNEED)

    def _encode_batches(self) -> None:
        """Make entries of the batches that came since the last time.

        Many at once cost a quarter of one by one, and mostly nobody looks at them before.
        """
        if self._batches:
            encoded = bytearray()
            for kind, batches in groupby(self._batches, type):
                if kind is bytes:
                    encoded += b"".join(cast("list[bytes]", list(batches)))
                else:
                    encoded += encode_runs(cast("list[Run]", list(batches)))
            # No signal, such as Ctrl-C, comes between: it does behind calls.
            self._pending += encoded
            self._batches.clear()

    def _pointer_at(self, number: int) -> int:
        return self.entry(number)[0]

    def _offset_at(self, number: int) -> int:
        return self.entry(number)[1]


class RecordReader:
    """Data file and index of one segment that is awake; `path` is theirs, less `_data`."""

    __slots__ = ("_path", "file", "index")

    def __init__(self, file: OpenFile, index: Index, path: str) -> None:
        self.file = file
        self.index = index
        self._path = path

    @classmethod
    def open(cls, files: Files, path: str, mode: Mode, count: int) -> Self:
        """Open data and index of a segment with `count` records.

        Raises:
            OSError: as reported by the file layer.
        """
        file = files.open(path + "_data", mode)
        return cls(file, Index(files.open(path + "_index", mode), path + "_index", count), path)

    def find(
        self, pointer: int, limit: int, bytes_max: int, count: int, size_bytes: int
    ) -> FileSlice | None:
        """Find up to `limit` records behind a pointer among the first `count`, of `size_bytes`.

        The first record is looked at where a consumer begins, or asks for a single one, which then
        is read as a whole, unless it is large. One that walks on from slice to slice is not made to
        wait for it at each.

        Raises:
            ReadFailed: the index cannot be mapped, or the data not be read.
            CorruptRecord: the index names a place that cannot be, or no record lies there.
        """
        hint = self.index.hinted(pointer)
        located = hint or self.index.search(pointer)
        if located is None or located[0] >= count:
            return None
        start, offset = located
        if limit == 1:
            last_pointer, record = self._read_record(
                start, offset, count, size_bytes, _RECORD_READ_BYTES
            )
            length = SIZE_BYTES + int.from_bytes(record[:SIZE_BYTES], "big")
            content = record if len(record) == length else b""
            return FileSlice(self.file, offset, length, 1, last_pointer, start, content)
        if hint is None:
            self._read_record(start, offset, count, size_bytes, RECORD_HEADER_BYTES)
        stop = min(start + limit, count)
        last_pointer, end = self._end_at(stop, count, size_bytes)
        if end - offset > bytes_max:
            stop = self.index.search_offset(offset + bytes_max, start + 1, stop) - 1
            stop = max(stop, start + 1)
            last_pointer, end = self._end_at(stop, count, size_bytes)
        if not offset < end <= size_bytes:
            raise CorruptRecord(self._path + "_index", start * ENTRY_BYTES)
        # At the end of the file, too: that is where the next record will begin.
        self.index.hint(last_pointer, stop, end)
        return FileSlice(self.file, offset, end - offset, stop - start, last_pointer, start)

    def extent_up_to(self, last: int, count: int, size_bytes: int) -> tuple[int, int]:
        """Return how many of the first `count` records have pointers up to `last`, and their bytes.

        Raises:
            ReadFailed: the index cannot be mapped.
            CorruptRecord: the index does not rise there.
        """
        behind = self.index.search(last)
        return (count, size_bytes) if behind is None else min(behind, (count, size_bytes))

    def next(self, pointer: int, count: int, size_bytes: int) -> tuple[int, bytes] | None:
        """Read the message behind a pointer, and its pointer, among the first `count` records.

        Raises:
            ReadFailed: the files cannot be mapped or read.
            CorruptRecord: what is stored there is no record, or not the one of the index.
        """
        located = self.index.hinted(pointer) or self.index.search(pointer)
        if located is None or located[0] >= count:
            return None
        number, offset = located
        next_pointer, record = self._read_record(number, offset, count, size_bytes, size_bytes)
        return next_pointer, record[RECORD_HEADER_BYTES:]

    def _end_at(self, stop: int, count: int, size_bytes: int) -> tuple[int, int]:
        """Return the last pointer before a record, and the offset where the record begins."""
        if stop < count:
            return self.index.boundary(stop)
        return self.index.entry(stop - 1)[0], size_bytes

    def _read_record(
        self, number: int, offset: int, count: int, size_bytes: int, bytes_max: int
    ) -> tuple[int, bytes]:
        """Read a record, or the beginning of it, and its pointer; make sure that it is the one."""
        pointer, end = self._end_at(number + 1, count, size_bytes)
        record_bytes = end - offset
        if not 0 < record_bytes <= size_bytes - offset:
            raise CorruptRecord(self._path + "_index", number * ENTRY_BYTES)
        read_bytes = min(record_bytes, bytes_max)
        try:
            record = self.file.read_at(read_bytes, offset)
        except OSError as error:
            raise as_read_failed(error, self._path + "_data") from error
        header = (record_bytes - SIZE_BYTES) << POINTER_BITS | pointer
        if (
            len(record) != read_bytes
            or int.from_bytes(record[:RECORD_HEADER_BYTES], "big") != header
        ):
            raise CorruptRecord(self._path + "_data", offset, pointer)
        self.index.hint(pointer, number + 1, end)
        return pointer, record
