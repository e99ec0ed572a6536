"""Adds batches of records to one slab and its side file, all of a batch or nothing.

Strategy: data first, then the entry that covers it, each with one write at a known offset. Readers
go by the entries. What fails is cut off again; should even that fail, it lies behind the last
entry, where nobody reads, the next batch goes over it, and recovery cuts it.
"""

import contextlib
import os
from typing import Self

from xxhash import xxh3_64_intdigest

from poe.errors import NoDescriptors, StorageError, SyncFailed
from poe.storage.failure import as_storage_error, reading, writing
from poe.storage.files import Files, OpenFile
from poe.storage.slab_log.slab_name import find_slabs, full_path, slab_path, sum_path
from poe.storage.slab_log.slab_sum import Chain, Entry, Flag, encode_header

LOG_ID_BYTES = 16


class SlabWriter:
    """The newest slab of a log, open for writing; one thread at a time may call it.

    Always: the slab holds `end - start` bytes that its side file covers, and nobody reads what
    lies behind them.
    """

    __slots__ = (
        "_chain",
        "_data",
        "_files",
        "_is_name_synced",
        "_is_synced",
        "_path",
        "_sum",
        "_sum_bytes",
        "end",
        "log_id",
        "start",
    )

    def __init__(  # noqa: PLR0913, PLR0917 - what recovery found, passed as it is
        self,
        files: Files,
        start: int,
        end: int,
        log_id: bytes,
        chain: Chain,
        sum_bytes: int,
    ) -> None:
        """Open the files of a slab whose content is known.

        Raises:
            OSError: as reported by the file layer.
        """
        self.start = start
        """Address of its first byte."""
        self.end = end
        """Address of what is written next."""
        self.log_id = log_id
        self._files = files
        self._path = full_path(files, slab_path(start))
        self._data: OpenFile = files.open(slab_path(start), "r+")
        self._sum: OpenFile = files.open(sum_path(start), "r+")
        self._chain = chain
        self._sum_bytes = sum_bytes
        self._is_synced = False
        self._is_name_synced = False

    @classmethod
    def create(cls, files: Files, start: int, log_id: bytes | None = None) -> Self:
        """Make an empty slab; a new log where no id is given.

        Raises:
            StorageFull: no room; nothing is left behind.
            WriteFailed: another failure; nothing is left behind.
        """
        log_id = log_id or os.urandom(LOG_ID_BYTES)
        with writing(full_path(files, slab_path(start))):
            chain, sum_bytes = make_sum(files, start, log_id)
            # Last: readers that see a slab without a side file believe that it has none. An empty
            # one is what an earlier attempt has left, which could not even remove it.
            files.open(slab_path(start), "x+" if files.size(slab_path(start)) else "w+")
            try:
                return cls(files, start, start, log_id, chain, sum_bytes)
            except OSError:
                with contextlib.suppress(OSError):
                    files.unlink(slab_path(start))
                raise

    def append(self, data: bytes | memoryview, last: int, count: int) -> None:
        """Add `count` records, the last of which begins at address `last`; on an error none.

        Raises:
            StorageFull: no room on the disk.
            WriteFailed: another failure.
        """
        with writing(self._path):
            try:
                self._data.write_at(data, self.end - self.start)
                self._add_entry(data, last, count, Flag.NONE)
            except BaseException:  # Ctrl-C, too
                with contextlib.suppress(OSError):
                    self._sum.truncate(self._sum_bytes)
                with contextlib.suppress(OSError):
                    self._data.truncate(self.end - self.start)
                raise

    def adopt(self, data: bytes, last: int, count: int, flags: Flag) -> None:
        """Cover the next bytes, which the slab holds already; on an error nothing is lost.

        Raises:
            StorageFull: no room on the disk.
            WriteFailed: another failure.
        """
        with writing(self._path):
            self._add_entry(data, last, count, flags | Flag.ADOPTED)

    def mark(self, flags: Flag) -> None:
        """Say something of all that was written, in an entry without records.

        Raises:
            StorageFull: no room on the disk.
            WriteFailed: another failure.
        """
        with writing(self._path):
            self._add_entry(b"", self.end, 0, flags)

    def _add_entry(self, data: bytes | memoryview, last: int, count: int, flags: Flag) -> None:
        begin = self.end - self.start
        flags |= Flag.SYNCED if self._is_synced else Flag.NONE
        data_hash = xxh3_64_intdigest(data, self._chain.seed)
        entry = Entry(begin, begin + len(data), last, count, flags, data_hash)
        encoded, chain = self._chain.encode(entry)
        sum_bytes, end = self._sum_bytes + len(encoded), self.end + len(data)
        self._sum.write_at(encoded, self._sum_bytes)
        # The last step that may fail: from here on data and entry go together. No signal comes
        # between, as nothing is called.
        self._chain = chain
        self._sum_bytes = sum_bytes
        self.end = end
        self._is_synced = False

    def sync(self) -> None:
        """Make all that was written durable: data, then what covers it, then the names.

        Raises:
            SyncFailed: it may be lost in a power cut; nothing that is done later vouches for it.
            NoDescriptors: the process may open no more files; to be tried again.
        """
        if self._is_synced:
            return
        try:
            self._data.sync()
            self._sum.sync()
            if not self._is_name_synced:
                self._files.sync_folder("")
        except OSError as error:
            raise _failure_of_sync(self._path, error) from error
        self._is_synced = self._is_name_synced = True

    def settle(self) -> None:
        """Make durable what recovery left, and that nothing lies behind the ends of the files.

        After a power cut the last block of a file may hold more than its size tells: what was
        written to the disk before the size was. Appended to in memory only, it would come back
        with the next power cut, once a larger size is on the disk. So the last block of each file
        is written anew, which leaves zeros behind the end: the side file's has got a mark from
        recovery, the slab's gets its own last byte.

        Raises:
            ReadFailed: the last byte cannot be read.
            StorageFull: no room on the disk.
            WriteFailed: another failure.
            SyncFailed: what recovery left may be lost in a power cut.
            NoDescriptors: the process may open no more files; to be tried again.
        """
        size = self.end - self.start
        if size:
            with reading(self._path):
                last = self._data.read_at(1, size - 1)
            with writing(self._path):
                self._data.write_at(last, size - 1)
        self.sync()

    def cut(self) -> None:
        """Cut off what a failed write may have left.

        Raises:
            WriteFailed: that failed, too.
        """
        with writing(self._path):
            for file, size in (
                (self._data, self.end - self.start),
                (self._sum, self._sum_bytes),
            ):
                if file.size() != size:
                    file.truncate(size)


def make_sum(files: Files, start: int, log_id: bytes) -> tuple[Chain, int]:
    """Make an empty side file; return the chain of its header, and its size.

    Raises:
        OSError: as reported by the file layer.
    """
    header, chain = encode_header(log_id, start)
    files.open(sum_path(start), "w+").write_at(header, 0)
    return chain, len(header)


def sync_slabs(files: Files, start_min: int, start_max: int) -> None:
    """Make slabs durable that are no longer written: those that begin in between, max excluded.

    Raises:
        SyncFailed: they may be lost in a power cut.
        NoDescriptors: the process may open no more files; to be tried again.
    """
    try:
        for start in find_slabs(files):
            if start_min <= start < start_max:
                for path in (slab_path(start), sum_path(start)):
                    # A slab of the original has no side file, and retention may come at any time.
                    with contextlib.suppress(FileNotFoundError):
                        files.open(path, "r+").sync()
    except OSError as error:
        raise _failure_of_sync(files.base, error) from error


# No context manager: a generator's, from Python 3.12 on, ties the frames that an error has passed
# in a cycle with it, and a log that its owner has dropped stays locked.
def _failure_of_sync(path: str, error: OSError) -> StorageError:
    failure = as_storage_error(error, path)
    # To open a file, or the folder: what was synced before that was, and the rest can be anew.
    is_passing = isinstance(failure, NoDescriptors)
    return failure if is_passing else SyncFailed(path, error.strerror or str(error))
