"""Turn a pointer into the records that follow it, from the open files of a segment.

Strategy: the index tells where records begin, so a slice of the data file is found without reading
it, and a single message is one read. What the index says is checked to be possible before anybody
sends it.
"""

from poe.errors import CorruptRecord
from poe.storage.failure import as_read_failed
from poe.storage.files import FileSlice, OpenFile
from poe.storage.index import ENTRY_BYTES, Index
from poe.storage.record import HEADER_BYTES, SIZE_BYTES


class RecordReader:
    """Data file and index of one segment that is awake; path names them, less `_data`."""

    __slots__ = ("_path", "file", "index")

    def __init__(self, file: OpenFile, index: Index, path: str) -> None:
        self.file = file
        self.index = index
        self._path = path

    def find(
        self, pointer: int, limit: int, bytes_max: int, count: int, size_bytes: int
    ) -> FileSlice | None:
        """Find up to `limit` records behind a pointer among the first `count`, of `size_bytes`.

        Raises:
            ReadFailed: the index cannot be mapped.
            CorruptRecord: the index names a place that cannot be.
        """
        index = self.index
        start = index.search(pointer)
        if start >= count:
            return None
        _, offset = index.entry(start)
        stop = min(start + limit, count)
        end = index.entry(stop)[1] if stop < count else size_bytes
        if end - offset > bytes_max:
            stop = max(index.search_offset(offset + bytes_max, start + 1, stop) - 1, start + 1)
            end = index.entry(stop)[1] if stop < count else size_bytes
        if not offset < end <= size_bytes:
            raise CorruptRecord(self._path + "_index", start * ENTRY_BYTES)
        last_pointer, _ = index.entry(stop - 1)
        index.hint(last_pointer, stop)
        return FileSlice(self.file, offset, end - offset, stop - start, last_pointer)

    def next(self, pointer: int, count: int, size_bytes: int) -> tuple[int, bytes] | None:
        """Read the message behind a pointer, and its pointer, among the first `count` records.

        Raises:
            ReadFailed: the files cannot be mapped or read.
            CorruptRecord: what is stored there is no record, or not the one of the index.
        """
        index = self.index
        number = index.search(pointer)
        if number >= count:
            return None
        next_pointer, offset = index.entry(number)
        end = index.entry(number + 1)[1] if number + 1 < count else size_bytes
        if not offset < end <= size_bytes:
            raise CorruptRecord(self._path + "_index", number * ENTRY_BYTES)
        try:
            record = self.file.read_at(end - offset, offset)
        except OSError as error:
            raise as_read_failed(error, self._path + "_data") from error
        header = (end - offset - SIZE_BYTES) << 56 | next_pointer
        if int.from_bytes(record[:HEADER_BYTES], "big") != header or len(record) != end - offset:
            raise CorruptRecord(self._path + "_data", offset)
        index.hint(next_pointer, number + 1)
        return next_pointer, record[HEADER_BYTES:]
