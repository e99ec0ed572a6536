"""Turn a pointer into the records that follow it, from the open files of a segment.

Strategy: the index tells where records begin, so a slice of the data file is found without reading
it, and a single message is one read. What the index says is checked to be possible before anybody
sends it.
"""

from typing import Self

from poe.errors import CorruptRecord
from poe.record import ENTRY_BYTES, POINTER_BITS, RECORD_HEADER_BYTES, SIZE_BYTES
from poe.storage.failure import as_read_failed
from poe.storage.files import Files, FileSlice, Mode, OpenFile
from poe.storage.formats.index import Index


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

        The first record is looked at where a consumer begins, or asks for a single one. One that
        walks on from slice to slice is not made to wait for it at each.

        Raises:
            ReadFailed: the index cannot be mapped, or the data not be read.
            CorruptRecord: the index names a place that cannot be, or no record lies there.
        """
        hint = self.index.hinted(pointer)
        located = hint or self.index.search(pointer)
        if located is None or located[0] >= count:
            return None
        start, offset = located
        if hint is None or limit == 1:
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
