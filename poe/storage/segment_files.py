"""The files of one segment by name: making, recovering, locking, opening and removing them."""

import contextlib
from typing import Self

from poe.storage.failure import reading, writing
from poe.storage.files import Files
from poe.storage.record_reader import RecordReader
from poe.storage.recovery import Extent, RecoveryMode, adopt, recover
from poe.storage.segment_lock import make_lock
from poe.storage.segment_writer import SegmentWriter
from poe.storage.sum_file import SUM_HEADER_BYTES, SumHeader, SumState, seed_of
from poe.storage.verification import Verification

# Data first: an index, a lock or sums without data are put away by recovery, while data without
# the others would be taken for a segment that lost them.
_SUFFIXES = ("_data", "_index", "_sum", "_lock")


class SegmentFiles:
    """Where the files of a segment are; `path` is theirs, less `_data`. It opens none by itself."""

    __slots__ = ("_store_id", "files", "path")

    def __init__(self, files: Files, path: str, store_id: bytes) -> None:
        self.files = files
        self.path = path
        self._store_id = store_id

    @classmethod
    def make(
        cls, files: Files, path: str, store_id: bytes, *, is_synced: bool
    ) -> tuple[Self, Extent]:
        """Make the files of an empty segment, locked.

        Raises:
            StorageFull: no room; nothing is left behind.
            WriteFailed: another failure; nothing is left behind.
        """
        place = cls(files, path, store_id)
        folder, _, timestamp = path.rpartition("/")
        with writing(path):
            # First, and outside of the cleaning up: should it be there, nothing may be touched.
            files.open(path + "_data", "x+")
            try:
                make_lock(files, path + "_lock", 0)
                files.open(path + "_index", "w+")
                header = SumHeader(store_id, int(timestamp), int(timestamp))
                files.open(path + "_sum", "w+").write_at(header.encode(), 0)
                if is_synced:
                    files.sync_folder(folder)
            except OSError:
                for suffix in _SUFFIXES:
                    with contextlib.suppress(OSError):
                        files.unlink(path + suffix)
                raise
        sums = SumState(SUM_HEADER_BYTES, seed_of(path, store_id), 0)
        return place, Extent(0, 0, 0, 0, sums)

    def recover(self, mode: RecoveryMode, *, is_thorough: bool = False) -> Extent | None:
        """Make the files trustworthy and unlocked, see `recovery.recover`."""
        return recover(self.files, self.path, self._store_id, mode=mode, is_thorough=is_thorough)

    def verification(self, *, is_once: bool) -> Verification:
        """Return what compares the data with its sums before it is read."""
        return Verification(self.files, self.path, self._store_id, is_once=is_once)

    def adopt(self) -> SumState:
        """Make sums for a segment of another program, see `recovery.adopt`."""
        return adopt(self.files, self.path, self._store_id)

    def open_reader(self, count: int) -> RecordReader:
        """Open data and index of a segment of `count` records for reading.

        Raises:
            ReadFailed: a file cannot be opened.
        """
        with reading(self.path):
            return RecordReader.open(self.files, self.path, "r", count)

    def open_writer(
        self, count: int, size_bytes: int, sums: SumState, buffer_count_max: int
    ) -> tuple[RecordReader, SegmentWriter]:
        """Open everything for writing behind `size_bytes` of data, which are `count` records.

        Raises:
            ReadFailed: a file cannot be opened.
        """
        with reading(self.path):
            reader = RecordReader.open(self.files, self.path, "r+", count)
            writer = SegmentWriter.open(
                self.files,
                self.path,
                reader,
                sums,
                size_bytes=size_bytes,
                buffer_count_max=buffer_count_max,
            )
        return reader, writer

    def sync(self, reader: RecordReader) -> None:
        """Make data and sums of a closed segment durable.

        Raises:
            WriteFailed: the disk did not take it.
        """
        with writing(self.path):
            reader.file.sync()
            with contextlib.suppress(FileNotFoundError):
                self.files.open(self.path + "_sum", "r+").sync()

    def lock(self, size_bytes: int) -> None:
        """Make the lock file.

        Raises:
            StorageFull: no room for it.
            WriteFailed: another failure.
        """
        with writing(self.path + "_lock"):
            make_lock(self.files, self.path + "_lock", size_bytes)

    def unlock(self) -> None:
        """Remove the lock file.

        Raises:
            WriteFailed: it cannot be removed.
        """
        with writing(self.path + "_lock"):
            self.files.unlink(self.path + "_lock")

    def remove(self) -> None:
        """Remove all files.

        Raises:
            WriteFailed: a file cannot be removed.
        """
        with writing(self.path):
            for suffix in _SUFFIXES:
                self.files.unlink(self.path + suffix)
