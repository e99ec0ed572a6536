"""Turn batches of records into bytes of the data file of a writer, all of a batch or nothing.

Strategy: one write at the offset where the last batch ended, and only when it returned in full is
the flushed offset moved, in memory and in the lock file. A write that fails is cut off again;
should even that fail, the bytes lie behind the flushed offset, where nobody reads, the next write
goes over them, and recovery cuts them.
"""

import contextlib

from poe.storage.failure import as_storage_error
from poe.storage.files import OpenFile


class DataFile:
    """The open data file of a writer; one thread at a time may call it.

    Always:

        flushed_bytes <= size of the file
        lock_cell[0] == flushed_bytes
    """

    __slots__ = ("_lock_cell", "_path", "file", "flushed_bytes")

    def __init__(self, file: OpenFile, path: str, lock_cell: memoryview, flushed_bytes: int) -> None:
        """Take over a data file whose first `flushed_bytes` are whole records."""
        self.file = file
        self.flushed_bytes = flushed_bytes
        self._path = path
        self._lock_cell = lock_cell

    def append(self, data: bytes | bytearray | memoryview) -> None:
        """Write records behind those that are there; on an error nothing is changed.

        Raises:
            StorageFull: no room on the disk.
            WriteFailed: another failure.
        """
        try:
            self.file.write_at(data, self.flushed_bytes)
        except OSError as error:
            with contextlib.suppress(OSError):
                self.file.truncate(self.flushed_bytes)
            raise as_storage_error(error, self._path) from error
        self.flushed_bytes += len(data)
        self._lock_cell[0] = self.flushed_bytes

    def cut(self) -> None:
        """Cut off what a failed write may have left.

        Raises:
            OSError: as reported by the file layer.
        """
        if self.file.size() != self.flushed_bytes:
            self.file.truncate(self.flushed_bytes)
