"""The open files of a writer, and the order in which they are written: data, index, sums."""

from collections.abc import Callable
from functools import partial
from typing import Self

from poe.storage.failure import writing
from poe.storage.files import Files, OpenFile
from poe.storage.formats.index import Index
from poe.storage.formats.segment_lock import open_lock
from poe.storage.formats.sum_file import SumState
from poe.storage.segment.data_file import DataFile
from poe.storage.segment.receipts import Receipts
from poe.storage.segment.record_reader import RecordReader
from poe.storage.segment.sum_writer import SumWriter


class SegmentWriter:
    """Data, index and sums of a segment that is awake and takes batches; `path` is less `_data`.

    Batches are added to the parts directly: `data` first, which may refuse, then the others.
    """

    __slots__ = ("_path", "data", "index", "sums")

    def __init__(self, path: str, data: DataFile, index: Index, sums: SumWriter) -> None:
        self._path = path
        self.data = data
        self.index = index
        self.sums = sums

    @classmethod
    def open(  # noqa: PLR0913 - what a segment knows about itself
        cls,
        files: Files,
        path: str,
        reader: RecordReader,
        sums: SumState,
        *,
        size_bytes: int,
        buffer_count_max: int,
    ) -> Self:
        """Open what a writer needs beside the files of its reader.

        Raises:
            OSError: as reported by the file layer.
        """
        data = DataFile(
            reader.file,
            path + "_data",
            lock_cell=open_lock(files, path + "_lock"),
            flushed_bytes=size_bytes,
            buffer_count_max=buffer_count_max,
        )
        sum_file = files.open(path + "_sum", "r+")
        count = reader.index.count
        return cls(path, data, reader.index, SumWriter(sum_file, sums, size_bytes, count))

    def flush(self, last_pointer: int, *, is_last: bool = False) -> None:
        """Hand everything to the kernel; `last_pointer` is the segment's, 0 while it is empty.

        Sums wait while a sync is under way, but for the last ones.

        Raises:
            StorageFull: no room on the disk; what waits goes on waiting.
            WriteFailed: another failure; likewise.
        """
        self.data.flush()
        index_bytes = self.index.flush()
        sums = self.sums
        sums.cut(self.data.flushed_bytes, self.index.count, last_pointer)
        sums.close_entries(index_bytes)
        if is_last or not sums.is_syncing:
            with writing(self._path + "_sum"):
                sums.write()

    def begin_sync(self, last_pointer: int, receipts: Receipts | None) -> Callable[[], None]:
        """Write what waits; return what makes it durable, in any thread: data, then sums.

        Receipts go before the sums, which say that both are durable.

        Raises:
            StorageFull: no room for what waited.
            WriteFailed: another failure.
        """
        # An earlier sync may have ended before it came here, for want of descriptors.
        self.sums.end_sync()
        self.flush(last_pointer)
        receipt_file = None if receipts is None else receipts.cover(self.data.flushed_bytes)
        self.sums.begin_sync()
        return partial(self._sync, receipt_file)

    def rest(self, last_pointer: int) -> None:
        """Write what waits, and cut the files to their exact size.

        Raises:
            StorageFull: no room for what waits.
            WriteFailed: another failure.
        """
        # First: sums of data that is there no more would tell recovery of damage.
        with writing(self._path + "_sum"):
            self.sums.truncate()
        self.flush(last_pointer, is_last=True)
        with writing(self._path):
            self.data.cut()
            self.index.cut()

    def finish(self, last_pointer: int, receipts: Receipts | None) -> None:
        """Rest, with receipts that are cut, too; the sync after it ends the segment.

        Raises:
            StorageFull: no room for what waits.
            WriteFailed: another failure.
        """
        self.rest(last_pointer)
        if receipts is not None:
            # In this order: behind what was given up, a cover that is half written would look like
            # one that was whole, and is damaged.
            receipts.cut()
            receipts.cover(self.data.flushed_bytes)

    def _sync(self, receipt_file: OpenFile | None) -> None:
        with writing(self._path + "_data"):
            self.data.file.sync()
        if receipt_file is not None:
            with writing(self._path + "_seq"):
                receipt_file.sync()
        with writing(self._path + "_sum"):
            self.sums.sync()
