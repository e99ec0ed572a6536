"""A segment: turns batches of messages into records in files, and pointers into slices of them.

It owns three files, `<timestamp>_data`, `_index` and, while it is a writer, `_lock`. It never reads
the clock and never decides when to rotate, hibernate or expire; its owner does. Strategy: data goes
to the file at once, index entries follow in larger pieces, and what hibernates is a few numbers.
"""

import contextlib
from dataclasses import dataclass
from typing import Literal, Self

import numpy as np

from poe.errors import (
    OptionError,
    PointerOutOfRange,
    SegmentSealed,
    StorageError,
    StorageFull,
)
from poe.storage.data_file import DataFile
from poe.storage.failure import reading, writing
from poe.storage.files import Files, FileSlice
from poe.storage.index import OFFSET_MAX
from poe.storage.record import (
    POINTER_MAX,
    Messages,
    Numbers,
    encode_record,
    encode_records,
)
from poe.storage.record_reader import RecordReader
from poe.storage.recovery import Extent, recover
from poe.storage.segment_lock import make_lock, open_lock

_MESSAGE_LIMIT = 2**32 - 8


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentOptions:
    """How segments store messages.

    Raises:
        OptionError: on construction, naming the option and what is allowed.
    """

    message_max: int = 16 * 1024 * 1024
    """Largest message, in bytes."""

    buffer_count_max: int = 100
    """Messages that wait in memory before they are written, with `ack="memory"`."""

    ack: Literal["memory", "flushed", "fsync"] = "flushed"
    """What a put waits for: a copy in memory, the kernel, or the disk."""

    def __post_init__(self) -> None:
        """Reject what no segment could keep."""
        if not 1 <= self.message_max <= _MESSAGE_LIMIT:
            raise OptionError(
                key="message_max", value=self.message_max, allowed="1 to 2^32 - 8 (bytes)"
            )
        if self.buffer_count_max < 1:
            raise OptionError(
                key="buffer_count_max", value=self.buffer_count_max, allowed="1 or more (messages)"
            )
        if self.ack not in ("memory", "flushed", "fsync"):
            raise OptionError(key="ack", value=self.ack, allowed="memory or flushed or fsync")

    @property
    def waiting_count_max(self) -> int:
        """Messages that may wait in memory at this `ack`."""
        return self.buffer_count_max if self.ack == "memory" else 0


class Segment:
    """A run of records with rising pointers; a writer takes more of them, a reader does not.

    Always:

        timestamp <= pointer_low <= pointer_high      (the pointers are None while it is empty)
        flushed bytes + buffered bytes == size_bytes  (nothing is buffered but with ack="memory")

    Life: `create` makes a writer, `open` a reader. `seal` and `unseal` change the role, `hibernate`
    closes the files until the next request opens them by itself, `destroy` removes them. A
    `FileSlice` outlives all of this. One thread at a time may call it. On an error it is as before.

    Source: appendix_server.erl; its process and its index process are one object here.
    """

    __slots__ = (
        "_data",
        "_files",
        "_reader",
        "count",
        "is_writer",
        "last_pointer",
        "options",
        "path",
        "pointer_low",
        "size_bytes",
        "timestamp",
    )

    def __init__(
        self, files: Files, folder: str, timestamp: int, options: SegmentOptions, extent: Extent
    ) -> None:
        """Stand for recovered files; use `create` or `open`."""
        self.path = f"{folder}/{timestamp}"
        self.timestamp = timestamp
        self.is_writer = False
        self.count = extent.count
        self.size_bytes = extent.size_bytes
        self.pointer_low = extent.pointer_low if extent.count else None
        # The next pointer exceeds it; only while the segment is empty it is of no message.
        self.last_pointer = extent.pointer_high if extent.count else timestamp - 1
        self._files = files
        self.options = options
        self._reader: RecordReader | None = None
        self._data: DataFile | None = None

    @classmethod
    def create(cls, files: Files, folder: str, timestamp: int, options: SegmentOptions) -> Self:
        """Make the files of an empty segment in the folder of its topic, and be its writer.

        No pointer of the segment will be less than `timestamp`, which names the files.

        Raises:
            StorageFull: no room; nothing is left behind.
            WriteFailed: another failure; nothing is left behind.
        """
        segment = cls(files, folder, timestamp, options, Extent(0, 0, 0, 0))
        with writing(segment.path):
            _make_files(files, folder, segment.path, options)
        segment.is_writer = True
        return segment

    @classmethod
    def open(
        cls, files: Files, folder: str, timestamp: int, options: SegmentOptions
    ) -> Self | None:
        """Recover a segment, which hibernates then; None without a data file.

        Raises:
            SegmentLocked: a live program writes to it.
            ReadFailed: a file cannot be opened or read.
            StorageFull: no room to repair it.
            WriteFailed: repairing it failed for another reason.
        """
        extent = recover(files, f"{folder}/{timestamp}")
        return None if extent is None else cls(files, folder, timestamp, options, extent)

    @property
    def pointer_high(self) -> int | None:
        """Pointer of the newest record, None when there is none; asking wakes nothing."""
        return self.last_pointer if self.count else None

    @property
    def is_awake(self) -> bool:
        """Whether its files are open."""
        return self._reader is not None

    def append(self, messages: Messages, now_us: int) -> int:
        """Store a batch, all of it or nothing, and return the pointer of its last message.

        Its pointers are consecutive, from max(`now_us`, last pointer + 1).

        Raises:
            InvalidMessage: a message is empty or too large, or there is none.
            SegmentSealed: this is a reader.
            StorageFull: no room on the disk, or 2^40 bytes in the segment.
            WriteFailed: another failure of the disk.
            ReadFailed: the files could not be opened again.
            PointerOutOfRange: pointers would exceed 56 bits.
        """
        if not self.is_writer:
            raise SegmentSealed(self.path)
        index, options = (self._reader or self._wake()).index, self.options
        pointer = max(now_us, self.last_pointer + 1)
        count = len(messages)
        last_pointer = pointer + count - 1
        if last_pointer > POINTER_MAX:
            raise PointerOutOfRange(last_pointer)
        offset = self.size_bytes
        if count == 1:
            data = encode_record(messages[0], pointer, options.message_max)
        else:
            data, starts = encode_records(messages, pointer, options.message_max)
        if offset + len(data) > OFFSET_MAX:
            raise StorageFull(self.path + "_data", "it would exceed 2^40 - 1 bytes")
        if index.is_full():
            self.flush()
        assert self._data is not None
        # The last step that may fail: from here on data and index go together.
        self._data.append(data, count)
        if count == 1:
            index.append_one(pointer, offset)
        elif starts is None:
            index.append_run(pointer, offset, count, len(data) // count)
        else:
            index.append(_consecutive(pointer, count), starts + np.uint64(offset))
        if self.pointer_low is None:
            self.pointer_low = pointer
        self.last_pointer = last_pointer
        self.count += count
        self.size_bytes = offset + len(data)
        return last_pointer

    def read(self, pointer: int, limit: int, bytes_max: int) -> FileSlice | None:
        """Find the records that follow a pointer.

        Args:
            pointer: 0 to 2^56 - 1; of the last message seen, stored or not.
            limit: records at most.
            bytes_max: bytes at most, though one record is found however large it is.

        Returns:
            A slice of one or more records; None when nothing follows or the limit is 0.

        Raises:
            PointerOutOfRange: it is no pointer.
            ReadFailed: the files cannot be opened or mapped.
            CorruptRecord: the index names a place that cannot be.
        """
        reader = self._reader_behind(pointer) if limit > 0 else None
        if reader is None:
            return None
        return reader.find(pointer, limit, bytes_max, *self._flushed_extent())

    def next(self, pointer: int) -> tuple[int, bytes] | None:
        """Read the message that follows a pointer, and its pointer; None when nothing follows.

        Raises:
            PointerOutOfRange: it is no pointer.
            ReadFailed: the files cannot be opened or read.
            CorruptRecord: what is stored there is no record, or not the one of the index.
        """
        reader = self._reader_behind(pointer)
        return None if reader is None else reader.next(pointer, *self._flushed_extent())

    def flush(self) -> None:
        """Hand everything to the kernel: buffered data, then waiting index entries.

        Raises:
            StorageFull: no room on the disk.
            WriteFailed: another failure.
        """
        if self._data is not None and self._reader is not None:
            self._data.flush()
            self._reader.index.flush()

    def sync(self) -> None:
        """Make all data durable; the index can be made from it.

        Raises:
            StorageFull: no room for what was buffered.
            WriteFailed: the disk did not take it; what was not durable before may never be.
            ReadFailed: the files could not be opened again.
        """
        if self._data is not None:
            self._data.flush()
        reader = self._reader or self._wake()
        with writing(self.path + "_data"):
            reader.file.sync()

    def seal(self) -> None:
        """Become a reader: write what waits, cut the files to their exact size, unlock.

        Raises:
            StorageFull: no room for what waits.
            WriteFailed: another failure.
            ReadFailed: the files could not be opened again.
        """
        if not self.is_writer:
            return
        reader = self._reader or self._wake()
        self.flush()
        assert self._data is not None
        with writing(self.path):
            self._data.cut()
            reader.index.cut(is_synced=self.options.ack == "fsync")
            self._files.unlink(self.path + "_lock")
        self.is_writer = False
        self._data = None

    def unseal(self) -> None:
        """Become the writer again; only the newest segment of a topic may.

        Raises:
            StorageFull: no room for a lock file; the segment is still a reader.
            WriteFailed: another failure; likewise.
        """
        if self.is_writer:
            return
        self._forget_files()
        with writing(self.path + "_lock"):
            _lock_again(self._files, self.path, self.size_bytes, self.options)
        self.is_writer = True

    def hibernate(self) -> None:
        """Write what waits and close the files; the next request opens them again by itself.

        Raises:
            StorageFull: no room for what waits; the segment stays awake.
            WriteFailed: another failure; likewise.
        """
        self.flush()
        if self._data is not None:
            with writing(self.path):
                self._data.cut()
        self._forget_files()

    def close(self) -> None:
        """Seal and hibernate; what lies on disk then is complete.

        Raises:
            StorageFull: no room for what waits.
            WriteFailed: another failure.
            ReadFailed: the files could not be opened again.
        """
        self.seal()
        self.hibernate()

    def destroy(self) -> None:
        """Remove the files; the segment is an empty reader from then on, slices go on to work.

        Raises:
            WriteFailed: a file cannot be removed.
        """
        self._forget_files()
        self.is_writer = False
        self.count = self.size_bytes = 0
        self.pointer_low = None
        with writing(self.path):
            # Data first: an index or a lock without data is removed by recovery, while data
            # without an index would be taken for a segment that lost it.
            for suffix in ("_data", "_index", "_lock"):
                self._files.unlink(self.path + suffix)

    def _reader_behind(self, pointer: int) -> RecordReader | None:
        """Wake to read behind a pointer; None, and no waking, when nothing follows it."""
        if not 0 <= pointer <= POINTER_MAX:
            raise PointerOutOfRange(pointer)
        if pointer >= self.last_pointer or self.count == 0:
            return None
        return self._reader or self._wake()

    def _flushed_extent(self) -> tuple[int, int]:
        """Write what is buffered, and tell how many records and bytes can be read."""
        data = self._data
        if data is None or data.buffered_count == 0:
            return self.count, self.size_bytes
        # On a full disk readers still get what was written before.
        with contextlib.suppress(StorageError):
            data.flush()
        return self.count - data.buffered_count, data.flushed_bytes

    def _wake(self) -> RecordReader:
        """Open the files."""
        path, files = self.path, self._files
        with reading(path):
            reader = RecordReader.open(files, path, "r+" if self.is_writer else "r", self.count)
            if self.is_writer:
                self._data = DataFile(
                    reader.file,
                    path + "_data",
                    lock_cell=open_lock(files, path + "_lock"),
                    flushed_bytes=self.size_bytes,
                    buffer_count_max=self.options.waiting_count_max,
                )
        self._reader = reader
        return reader

    def _forget_files(self) -> None:
        self._data = self._reader = None


def _consecutive(first: int, count: int) -> Numbers:
    return np.arange(first, first + count, dtype=np.uint64)


def _lock_again(files: Files, path: str, size_bytes: int, options: SegmentOptions) -> None:
    make_lock(files, path + "_lock", size_bytes)
    if options.ack == "fsync":
        # Without the lock, recovery would trust an index that a power cut has torn.
        files.sync_folder(path.rpartition("/")[0])


def _make_files(files: Files, folder: str, path: str, options: SegmentOptions) -> None:
    """Make the empty files of a segment; on an error none is left behind."""
    # First, and outside of the cleaning up: should it be there already, nothing may be touched.
    files.open(path + "_data", "x+")
    try:
        make_lock(files, path + "_lock", 0)
        files.open(path + "_index", "w+")
        if options.ack == "fsync":
            files.sync_folder(folder)
    except OSError:
        for suffix in ("_data", "_index", "_lock"):
            with contextlib.suppress(OSError):
                files.unlink(path + suffix)
        raise
