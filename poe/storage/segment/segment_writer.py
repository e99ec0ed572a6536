"""The open files of a writer, and the order in which they are written: data, index, sums.

Strategy: one write of a batch at the offset where the last one ended, and only when it returned in
full is the flushed offset moved, in memory and in the lock file. A write that fails is cut off
again; should even that fail, the bytes lie behind the flushed offset, where nobody reads, the next
write goes over them, and recovery cuts them. With `ack="memory"` batches wait in a buffer and share
a write. Once a data file has grown to 2 MiB, disk blocks are reserved ahead of the writes.
"""

import contextlib
from collections.abc import Callable
from functools import partial

from poe.errors import StorageError
from poe.storage.failure import as_storage_error, writing
from poe.storage.files import Files, OpenFile
from poe.storage.formats.segment_lock import open_lock
from poe.storage.formats.sum_file import SumState
from poe.storage.segment.receipts import Receipts
from poe.storage.segment.record_reader import RecordReader
from poe.storage.segment.sum_writer import SumWriter

_RESERVE_FROM_BYTES = 2 << 20
_RESERVE_BYTES_MAX = 4 << 20
_RESERVE_PART = 8
"""What is reserved is this part of what is there, or many topics would fill a disk with it."""


class SegmentWriter:
    """Data, index and sums of a segment that is awake and takes batches; `path` is less `_data`.

    A batch goes to the data first, which may refuse it, then to the others. One that ends at
    `direct_end` or before may be written to the file by who owns this, and be noted in
    `flushed_bytes` and `lock_cell`: of each put, a call less is felt.

    Always:

        flushed_bytes <= size of the data file
        lock_cell[0] == flushed_bytes
        buffered_count < buffer_count_max     (0 when that is 0: nothing is ever buffered)
        blocks reserved behind flushed_bytes <= flushed_bytes / 8, and 4 MiB at most
    """

    __slots__ = (
        "_buffer",
        "_buffer_count_max",
        "_path",
        "_reserved_bytes",
        "buffered_count",
        "direct_end",
        "file",
        "flushed_bytes",
        "index",
        "is_cut_short",
        "lock_cell",
        "sums",
    )

    def __init__(  # noqa: PLR0913 - what a segment knows about itself
        self,
        files: Files,
        path: str,
        reader: RecordReader,
        sums: SumState,
        *,
        size_bytes: int,
        buffer_count_max: int,
    ) -> None:
        """Open what a writer needs beside the files of its reader, behind so much whole data.

        Raises:
            OSError: as reported by the file layer.
        """
        self.file = reader.file
        self.index = reader.index
        self.lock_cell = open_lock(files, path + "_lock")
        self.sums = SumWriter(files.open(path + "_sum", "r+"), sums, size_bytes, self.index.count)
        self.flushed_bytes = size_bytes
        # It is less than it was where a batch that was never durable is given up.
        self.lock_cell[0] = size_bytes
        self.buffered_count = 0
        self.is_cut_short = False
        """Ctrl-C, or a lack of memory, came in the middle of a step: what is known here may be half
        of it, and must not be written. Recovery goes by the files alone."""
        self._buffer = bytearray()
        self._buffer_count_max = buffer_count_max
        self._path = path
        self._set_reserved(_RESERVE_FROM_BYTES)

    def append(self, data: bytes | memoryview, count: int) -> None:
        """Add a batch of `count` records to the data; on an error nothing is changed.

        Raises:
            StorageFull: no room on the disk.
            WriteFailed: another failure.
        """
        if self.buffered_count + count < self._buffer_count_max:
            self._buffer += data
            self.buffered_count += count
        elif self.buffered_count:
            # Written together, so that a failure refuses this batch and keeps the earlier ones.
            self._write(self._buffer + data)
        else:
            self._write(data)

    def flush_data(self) -> None:
        """Write what is buffered of the data; on an error it stays buffered.

        Raises:
            StorageFull: no room on the disk.
            WriteFailed: another failure.
        """
        if self.buffered_count:
            self._write(self._buffer)

    def note_cut_short(self, error: BaseException) -> None:
        """Note that a step has ended by something else than a failure that it reckons with."""
        if not isinstance(error, StorageError):
            self.is_cut_short = True

    def failed(self, error: OSError) -> StorageError:
        """Cut off what a write of data has left, and return the error that tells why it failed."""
        with contextlib.suppress(OSError):
            self._cut_data()
        return as_storage_error(error, self._path + "_data")

    def flush(self, last_pointer: int, *, is_last: bool = False) -> None:
        """Hand everything to the kernel; `last_pointer` is the segment's, 0 while it is empty.

        Sums wait while a sync is under way, but for the last ones.

        Raises:
            StorageFull: no room on the disk; what waits goes on waiting.
            WriteFailed: another failure; likewise.
        """
        self.flush_data()
        sums = self.sums
        try:
            index_bytes = self.index.flush()
            sums.cut(self.flushed_bytes, self.index.count, last_pointer)
            sums.close_entries(index_bytes)
            if is_last or not sums.is_syncing:
                with writing(self._path + "_sum"):
                    sums.write()
        except BaseException as error:
            self.note_cut_short(error)
            raise

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
        receipt_file = None if receipts is None else receipts.cover(self.flushed_bytes)
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
            is_reserved = self._reserved_bytes > _RESERVE_FROM_BYTES
            if is_reserved or self.file.size() != self.flushed_bytes:
                self._cut_data()
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
            receipts.cover(self.flushed_bytes)

    def _write(self, data: bytes | bytearray | memoryview) -> None:
        """Write what waits, or what waits and more behind it; or, where nothing waits, a batch."""
        end = self.flushed_bytes + len(data)
        if end > self._reserved_bytes:
            self._reserve(end)
        try:
            self.file.write_at(data, self.flushed_bytes)
        except OSError as error:
            raise self.failed(error) from error
        self.flushed_bytes = self.lock_cell[0] = end
        # What waited is written with it. No signal comes between, as nothing is called.
        del self._buffer[:]
        self.buffered_count = 0

    def _reserve(self, end: int) -> None:
        """Reserve blocks for the writes to come.

        On ext4, writes into reserved blocks were measured to take 3/4 to 5/6 of the time.
        """
        self._set_reserved(end + min(end // _RESERVE_PART, _RESERVE_BYTES_MAX))
        # It is for speed alone. Should there be no room, the write itself will tell.
        with contextlib.suppress(OSError):
            self.file.reserve(self._reserved_bytes)

    def _cut_data(self) -> None:
        """Cut off what lies behind the flushed offset, and give reserved blocks back."""
        self.file.truncate(self.flushed_bytes)
        self._set_reserved(_RESERVE_FROM_BYTES)

    def _set_reserved(self, size_bytes: int) -> None:
        self._reserved_bytes = size_bytes
        self.direct_end = 0 if self._buffer_count_max else size_bytes

    def _sync(self, receipt_file: OpenFile | None) -> None:
        with writing(self._path + "_data"):
            self.file.sync()
        if receipt_file is not None:
            with writing(self._path + "_seq"):
                receipt_file.sync()
        with writing(self._path + "_sum"):
            self.sums.sync()
