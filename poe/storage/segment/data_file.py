"""Turn batches of records into bytes of the data file of a writer, all of a batch or nothing.

Strategy: one write at the offset where the last batch ended, and only when it returned in full is
the flushed offset moved, in memory and in the lock file. A write that fails is cut off again;
should even that fail, the bytes lie behind the flushed offset, where nobody reads, the next write
goes over them, and recovery cuts them. With `ack="memory"` batches wait in a buffer and share a
write. Once a file has grown to 2 MiB, disk blocks are reserved ahead of the writes.
"""

import contextlib

from poe.storage.failure import as_storage_error
from poe.storage.files import OpenFile

_RESERVE_FROM_BYTES = 2 << 20
_RESERVE_BYTES_MAX = 4 << 20
_RESERVE_PART = 8
"""What is reserved is this part of what is there, or many topics would fill a disk with it."""


class DataFile:
    """The open data file of a writer; one thread at a time may call it.

    Always:

        flushed_bytes <= size of the file
        lock_cell[0] == flushed_bytes
        buffered_count < buffer_count_max     (0 when that is 0: nothing is ever buffered)
        blocks reserved behind flushed_bytes <= flushed_bytes / 8, and 4 MiB at most
    """

    __slots__ = (
        "_buffer",
        "_buffer_count_max",
        "_lock_cell",
        "_path",
        "_reserved_bytes",
        "buffered_count",
        "file",
        "flushed_bytes",
    )

    def __init__(
        self,
        file: OpenFile,
        path: str,
        *,
        lock_cell: memoryview,
        flushed_bytes: int,
        buffer_count_max: int,
    ) -> None:
        """Take over a data file whose first `flushed_bytes` are whole records."""
        self.file = file
        self.flushed_bytes = flushed_bytes
        self.buffered_count = 0
        self._buffer = bytearray()
        self._buffer_count_max = buffer_count_max
        self._path = path
        self._reserved_bytes = _RESERVE_FROM_BYTES
        self._lock_cell = lock_cell
        # It is less than it was where a batch that was never durable is given up.
        lock_cell[0] = flushed_bytes

    def append(self, data: bytes | memoryview, count: int) -> None:
        """Add a batch of `count` records; on an error nothing is changed.

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
            self._forget_buffer()
        else:
            self._write(data)

    def flush(self) -> None:
        """Write what is buffered; on an error it stays buffered.

        Raises:
            StorageFull: no room on the disk.
            WriteFailed: another failure.
        """
        if self.buffered_count:
            self._write(self._buffer)
            self._forget_buffer()

    def cut(self) -> None:
        """Cut off what a failed write may have left, and give reserved blocks back.

        Raises:
            OSError: as reported by the file layer.
        """
        is_reserved = self._reserved_bytes > _RESERVE_FROM_BYTES
        if is_reserved or self.file.size() != self.flushed_bytes:
            self.file.truncate(self.flushed_bytes)
            self._reserved_bytes = _RESERVE_FROM_BYTES

    def _write(self, data: bytes | bytearray | memoryview) -> None:
        end = self.flushed_bytes + len(data)
        if end > self._reserved_bytes:
            self._reserve(end)
        try:
            self.file.write_at(data, self.flushed_bytes)
        except OSError as error:
            with contextlib.suppress(OSError):
                self.file.truncate(self.flushed_bytes)
                self._reserved_bytes = _RESERVE_FROM_BYTES
            raise as_storage_error(error, self._path) from error
        self.flushed_bytes = end
        self._lock_cell[0] = self.flushed_bytes

    def _reserve(self, end: int) -> None:
        """Reserve blocks for the writes to come.

        On ext4, writes into reserved blocks were measured to take 3/4 to 5/6 of the time.
        """
        self._reserved_bytes = end + min(end // _RESERVE_PART, _RESERVE_BYTES_MAX)
        # It is for speed alone. Should there be no room, the write itself will tell.
        with contextlib.suppress(OSError):
            self.file.reserve(self._reserved_bytes)

    def _forget_buffer(self) -> None:
        self._buffer = bytearray()
        self.buffered_count = 0
