"""Turn a pointer into the records that follow it, from the open files of a segment.

Strategy: the index tells where records begin, so a slice of the data file is found without reading
it, and a single message is one read. What the index says is checked to be possible before anybody
sends it.
"""

from typing import Self

from poe.errors import CorruptRecord
from poe.storage.failure import as_read_failed
from poe.storage.files import Files, FileSlice, Mode, OpenFile
from poe.storage.index import ENTRY_BYTES, Index
from poe.storage.record import HEADER_BYTES, SIZE_BYTES


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

        Raises:
            ReadFailed: the index cannot be mapped.
            CorruptRecord: the index names a place that cannot be.
        """
        located = self.index.locate(pointer)
        if located is None or located[0] >= count:
            return None
        start, offset = located
        stop = min(start + limit, count)
        last_pointer, end = self._end_at(stop, count, size_bytes)
        if end - offset > bytes_max:
            stop = self.index.search_offset(offset + bytes_max, start + 1, stop) - 1
            stop = max(stop, start + 1)
            last_pointer, end = self._end_at(stop, count, size_bytes)
        if not offset < end <= size_bytes:
            raise CorruptRecord(self._path + "_index", start * ENTRY_BYTES)
        return FileSlice(self.file, offset, end - offset, stop - start, last_pointer)

    def _end_at(self, stop: int, count: int, size_bytes: int) -> tuple[int, int]:
        """Tell the last pointer before a record, and the offset where the record begins."""
        if stop < count:
            last_pointer, end = self.index.boundary(stop)
        else:
            last_pointer, end = self.index.entry(stop - 1)[0], size_bytes
        # At the end, too: that is where the next record will begin.
        self.index.hint(last_pointer, stop, end)
        return last_pointer, end

    def next(self, pointer: int, count: int, size_bytes: int) -> tuple[int, bytes] | None:
        """Read the message behind a pointer, and its pointer, among the first `count` records.

        Raises:
            ReadFailed: the files cannot be mapped or read.
            CorruptRecord: what is stored there is no record, or not the one of the index.
        """
        index = self.index
        located = index.locate(pointer)
        if located is None or located[0] >= count:
            return None
        number, offset = located
        next_pointer, end = self._end_at(number + 1, count, size_bytes)
        if not offset < end <= size_bytes:
            raise CorruptRecord(self._path + "_index", number * ENTRY_BYTES)
        try:
            record = self.file.read_at(end - offset, offset)
        except OSError as error:
            raise as_read_failed(error, self._path + "_data") from error
        header = (end - offset - SIZE_BYTES) << 56 | next_pointer
        if int.from_bytes(record[:HEADER_BYTES], "big") != header or len(record) != end - offset:
            raise CorruptRecord(self._path + "_data", offset)
        return next_pointer, record[HEADER_BYTES:]
