"""A segment: turns batches of messages into records in files, and pointers into slices of them.

It owns three files, `<timestamp>_data`, `_index` and, while it is a writer, `_lock`. It never reads
the clock and never decides when to roll, hibernate or expire; its owner does. Strategy: data goes
to the file at once, index entries follow in larger pieces, and what is asleep is a few numbers.
"""

import contextlib
from dataclasses import dataclass
from typing import Literal, Self

from poe.errors import (
    CorruptRecord,
    OptionError,
    PointerOutOfRange,
    SegmentSealed,
    StorageError,
    StorageFull,
)
from poe.storage.data_file import DataFile
from poe.storage.failure import reading, writing
from poe.storage.files import Files, FileSlice, OpenFile
from poe.storage.index import OFFSET_MAX, Index
from poe.storage.record import (
    HEADER_BYTES,
    POINTER_MAX,
    SIZE_BYTES,
    Messages,
    encode_record,
    encode_records,
)
from poe.storage.recovery import Extent, recover
from poe.storage.segment_lock import open_lock, take_lock

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
    """What a put waits for: a copy in memory, the kernel, or (`Segment.sync`) the disk."""

    def __post_init__(self) -> None:
        """Reject what no segment could keep."""
        if not 1 <= self.message_max <= _MESSAGE_LIMIT:
            raise OptionError("message_max", self.message_max, "1 to 2^32 - 8 (bytes)")
        if self.buffer_count_max < 1:
            raise OptionError("buffer_count_max", self.buffer_count_max, "1 or more (messages)")
        if self.ack not in ("memory", "flushed", "fsync"):
            raise OptionError("ack", self.ack, "'memory', 'flushed' or 'fsync'")


class Segment:
    """A run of records with rising pointers; a writer takes more of them, a reader does not.

    Always:

        timestamp <= pointer_low <= pointer_high      (the pointers are None while it is empty)
        flushed bytes + buffered bytes == size_bytes   (nothing is buffered but with ack="memory")

    Life: `create` makes a writer, `open` a reader. `seal` and `unseal` change the role, `hibernate`
    closes the files until the next request opens them again by itself, `close` is for the end of
    the server, `destroy` removes the files. A `FileSlice` outlives all of this.

    One thread at a time may call it. On an error the segment is as it was before the call.

    Source: appendix_server.erl; its process and its index process are one object here.
    """

    __slots__ = (
        "_buffer",
        "_buffer_count",
        "_data",
        "_file",
        "_files",
        "_index",
        "_options",
        "count",
        "is_writer",
        "last_pointer",
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
        self.last_pointer = max(extent.pointer_high, timestamp - 1)
        self._files = files
        self._options = options
        self._buffer = b""
        self._buffer_count = 0
        self._index: Index | None = None
        self._file: OpenFile | None = None
        self._data: DataFile | None = None

    @classmethod
    def create(cls, files: Files, folder: str, timestamp: int, options: SegmentOptions) -> Self:
        """Make the files of an empty segment and be its writer.

        Args:
            files: the file layer.
            folder: folder of the topic, which exists.
            timestamp: names the files; no pointer of the segment will be less.
            options: how to store.

        Raises:
            StorageFull: no room; nothing is left behind.
            WriteFailed: another failure; nothing is left behind.
        """
        segment = cls(files, folder, timestamp, options, Extent(0, 0, 0, 0))
        path = segment.path
        with writing(path):
            try:
                cell = take_lock(files, path + "_lock", 0)
                index_file = files.open(path + "_index", "x+")
                file = files.open(path + "_data", "x+")
                if options.ack == "fsync":
                    files.sync_folder(folder)
            except OSError:
                for suffix in ("_data", "_index", "_lock"):
                    with contextlib.suppress(OSError):
                        files.unlink(path + suffix)
                raise
        segment.is_writer = True
        segment._index = Index(index_file, path + "_index", 0)
        segment._file = file
        segment._data = DataFile(file, path + "_data", cell, 0)
        return segment

    @classmethod
    def open(
        cls, files: Files, folder: str, timestamp: int, options: SegmentOptions
    ) -> Self | None:
        """Recover the files of a segment as far as needed and be its sleeping reader.

        Returns:
            The segment, or None when there is no data file.

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
        return self._index is not None

    def append(self, messages: Messages, now_us: int) -> int:
        """Store a batch, all of it or nothing, and return the pointer of its last message.

        Pointers are consecutive and begin at `now_us`, or behind the last pointer where the clock
        is not ahead of it.

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
        index = self._index or self._wake()
        pointer = max(now_us, self.last_pointer + 1)
        count = len(messages)
        last_pointer = pointer + count - 1
        if last_pointer > POINTER_MAX:
            raise PointerOutOfRange(last_pointer)
        offset = self.size_bytes
        data: bytes | memoryview
        if count == 1:
            data = encode_record(messages[0], pointer, self._options.message_max)
            self._write(data, 1)
            index.append_one(pointer, offset)
        else:
            batch = encode_records(messages, pointer, self._options.message_max)
            data = batch.data
            self._write(data, count)
            index.append(batch.pointers, batch.starts + offset)
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
        found = self._find(pointer)
        if found is None or limit < 1:
            return None
        index, start, count, size_bytes = found
        _, offset = index.entry(start)
        stop = min(start + limit, count)
        end = index.entry(stop)[1] if stop < count else size_bytes
        if end - offset > bytes_max:
            stop = max(index.search_end(start + 1, stop, offset + bytes_max) - 1, start + 1)
            end = index.entry(stop)[1] if stop < count else size_bytes
        if not offset < end <= size_bytes:
            raise CorruptRecord(self.path + "_index", start)
        last_pointer, _ = index.entry(stop - 1)
        index.hint(last_pointer, stop)
        assert self._file is not None
        return FileSlice(self._file, offset, end - offset, stop - start, last_pointer)

    def next(self, pointer: int) -> tuple[int, bytes] | None:
        """Read the message that follows a pointer, and its pointer; None when nothing follows.

        Raises:
            PointerOutOfRange: it is no pointer.
            ReadFailed: the files cannot be opened or read.
            CorruptRecord: what is stored there is no record, or not the one of the index.
        """
        found = self._find(pointer)
        if found is None:
            return None
        index, number, count, size_bytes = found
        next_pointer, offset = index.entry(number)
        end = index.entry(number + 1)[1] if number + 1 < count else size_bytes
        if not offset < end <= size_bytes:
            raise CorruptRecord(self.path + "_index", number)
        assert self._file is not None
        with_header = self._read_at(end - offset, offset)
        size = end - offset - SIZE_BYTES
        if int.from_bytes(with_header[:HEADER_BYTES], "big") != size << 56 | next_pointer:
            raise CorruptRecord(self.path + "_data", offset)
        index.hint(next_pointer, number + 1)
        return next_pointer, with_header[HEADER_BYTES:]
