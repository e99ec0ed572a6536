"""What a segment holds, and reading it; what may be done to it else is in `segment.py`."""

import contextlib
import threading

from poe.errors import CorruptRecord, PointerOutOfRange, ReadFailed, StorageError
from poe.storage.files import FileSlice
from poe.storage.formats.record import POINTER_MAX
from poe.storage.recovery.recovery import Extent
from poe.storage.segment.receipts import Receipts
from poe.storage.segment.record_reader import RecordReader
from poe.storage.segment.segment_files import SegmentFiles
from poe.storage.segment.segment_options import SegmentOptions
from poe.storage.segment.segment_writer import SegmentWriter
from poe.storage.segment.verification import Verification

Visible = tuple[int, int]
"""The first records of a segment, and their bytes."""


class ReadableSegment:
    """The state of a segment, and its reads; they open its files, and `hibernate` closes them.

    Data that was found on disk is compared with its sums before it is read for the first time. An
    index, or sums, that turn out not to fit their own hashes are made anew from the data.
    """

    __slots__ = (
        "_ending",
        "_files",
        "_is_at_rest",
        "_reader",
        "_sums",
        "_synced",
        "_verification",
        "_writer",
        "count",
        "damage",
        "damaged_path",
        "failure",
        "given_pointer",
        "has_failed_to_sync",
        "is_idle",
        "is_locked",
        "is_retry",
        "is_writer",
        "last_pointer",
        "options",
        "path",
        "pointer_low",
        "receipts",
        "size_bytes",
        "timestamp",
    )

    def __init__(
        self, files: SegmentFiles, timestamp: int, options: SegmentOptions, extent: Extent
    ) -> None:
        """Stand for recovered files."""
        self.path = files.path
        self.timestamp = timestamp
        self.is_writer = False
        self.failure = ""  # what its disk failed of: its topic has to go on in a new segment
        self.has_failed_to_sync = False
        self.is_retry = False  # made in place of one that failed, and not synced yet
        self.is_locked = False  # as a reader: sealed, and not durable yet
        self.is_idle = False  # as the writer: as it was closed, nothing has come since
        # Its own, or of a segment before it, while it is no writer and has none.
        self.receipts: Receipts | None = None
        self.options = options
        self._files = files
        self._reader: RecordReader | None = None
        self._writer: SegmentWriter | None = None
        self._verification: Verification | None = None
        self._is_at_rest = False  # as a writer asleep, whose files have their exact sizes
        # Held by the thread that ends it behind a sync, and by whoever makes something else of it:
        # an end that came later would take the lock, and the last entry of the sums, of that.
        self._ending = threading.Lock()
        self._take(extent)
        self.given_pointer = self.last_pointer  # the highest one, of what was cut off, too

    @property
    def pointer_high(self) -> int | None:
        """Pointer of the newest record, None when there is none; asking wakes nothing."""
        return self.last_pointer if self.count else None

    @property
    def is_awake(self) -> bool:
        """Whether its files are open."""
        return self._reader is not None

    def read(
        self, pointer: int, limit: int, bytes_max: int, visible: Visible | None = None
    ) -> FileSlice | None:
        """Find the records that follow a pointer.

        Args:
            pointer: 0 to 2^56 - 1; of the last message seen, stored or not.
            limit: records at most.
            bytes_max: bytes at most, though one record is found however large it is.
            visible: what may be found; all by default.

        Returns:
            A slice of one or more records; None when nothing follows or the limit is 0.

        Raises:
            PointerOutOfRange: it is no pointer.
            ReadFailed: the files cannot be opened or mapped.
            CorruptRecord: what is stored there is not what was written; its pointer tells from
                where to go on.
        """
        reader = self._reader_behind(pointer) if limit > 0 else None
        if reader is None:
            return None
        if self._verification is None:
            return reader.find(pointer, limit, bytes_max, *(visible or self._flushed_extent()))
        return self._find_verified(pointer, limit, bytes_max, visible)

    def next(self, pointer: int, visible: Visible | None = None) -> tuple[int, bytes] | None:
        """Read the message that follows a pointer, and its pointer; None when nothing follows.

        Raises:
            PointerOutOfRange: it is no pointer.
            ReadFailed: the files cannot be opened or read.
            CorruptRecord: what is stored there is not what was written; its pointer tells from
                where to go on.
        """
        reader = self._reader_behind(pointer)
        if reader is None:
            return None
        if self._verification is not None:
            self._find_verified(pointer, 1, 1, visible)
            reader = self._reader or self._wake()
        return reader.next(pointer, *(visible or self._flushed_extent()))

    def flush(self) -> None:
        """Hand everything to the kernel: buffered data, then waiting index entries and sums.

        Raises:
            StorageFull: no room on the disk.
            WriteFailed: another failure.
        """
        if self._writer is not None:
            self._writer.flush(self.pointer_high or 0)

    def hibernate(self) -> None:
        """Write what waits and close the files; the next request opens them again by itself.

        Raises:
            StorageFull: no room for what waits; the segment stays awake.
            WriteFailed: another failure; likewise.
        """
        if self._writer is not None:
            self._writer.rest(self.pointer_high or 0)
            self._is_at_rest = True
        self._forget_files()

    def _take(self, extent: Extent) -> None:
        """Be what recovery has found, or is left of a writer."""
        self._synced = extent  # nothing of it may be cut off
        self._is_at_rest = False
        self.count = extent.count
        self.size_bytes = extent.size_bytes
        self.pointer_low = extent.pointer_low if extent.count else None
        # The next pointer exceeds it; only while the segment is empty it is of no message.
        self.last_pointer = extent.pointer_high if extent.count else self.timestamp - 1
        self.damage = extent.damage
        self.damaged_path = self.path  # of a segment before this one, where that is damaged
        self._sums = extent.sums
        if extent.count and extent.sums is not None:
            self._verify()

    def _verify(self) -> None:
        """From now on compare what is read with the sums, as `verify` asks for.

        After a failed sync it is each time: the kernel holds pages that it could not write for
        clean, and when it has dropped them, it reads what was on the disk before.
        """
        if self.options.verify != "never":
            is_once = self.options.verify == "once" and not self.has_failed_to_sync
            self._verification = self._files.verification(is_once=is_once)

    def _reader_behind(self, pointer: int) -> RecordReader | None:
        """Wake to read behind a pointer; None, and no waking, when nothing follows it."""
        if not 0 <= pointer <= POINTER_MAX:
            raise PointerOutOfRange(pointer)
        if pointer >= self.last_pointer or self.count == 0:
            return None
        return self._reader or self._wake()

    def _find_verified(
        self, pointer: int, limit: int, bytes_max: int, visible: Visible | None
    ) -> FileSlice | None:
        """Find records as `read` does, and no more of them than were compared with their sums."""
        try:
            return self._find_and_verify(pointer, limit, bytes_max, visible)
        except CorruptRecord as error:
            if error.path.endswith("_data"):
                raise
        self._mend()
        return self._find_and_verify(pointer, limit, bytes_max, visible)

    def _find_and_verify(
        self, pointer: int, limit: int, bytes_max: int, visible: Visible | None
    ) -> FileSlice | None:
        reader = self._reader or self._wake()
        verification = self._verification
        if verification is not None:
            verification.open()
        extent = visible or self._flushed_extent()
        found = reader.find(pointer, limit, bytes_max, *extent)
        if found is None or verification is None:
            return found
        end = found.offset + found.length
        sound_end = verification.check(reader.file, found.offset, end)
        if verification.is_over:
            self._verification = None
        if sound_end == end:
            return found
        return reader.find(pointer, limit, sound_end - found.offset, *extent)

    def _mend(self) -> None:
        """Make index and sums anew where they do not fit, as a thorough recovery does."""
        with self._ending:
            self._make_anew()

    def _make_anew(self) -> None:
        self.hibernate()
        extent = self._files.recover(self.options.recovery, is_thorough=True)
        if extent is None:
            raise ReadFailed(self.path, "its files are gone, or were those of another segment")
        known_damage = self.damage  # of the segments before it, too
        self._take(extent)
        self.damage += known_damage
        self.is_locked = False
        if self.receipts is not None:
            self.receipts.forget()
        if self.is_writer:
            self._files.lock(self.size_bytes)
            self._own_receipts()
            self._begin_writing()

    def _own_receipts(self) -> None:
        """Have receipts of its own, ready for what is about to be put, where its topic has any."""
        receipts = self.receipts
        if receipts is None:
            return
        if receipts.path == self.path:
            receipts.prepare(self.size_bytes)
        else:
            earlier = receipts.earlier(self.last_pointer)
            self.receipts = self._files.make_receipts(earlier, self.size_bytes)

    def _begin_writing(self) -> None:
        """Have the lock survive a power cut, before it is needed.

        Not when it is made: a start would wait for the disk once for each topic.
        """
        self._files.sync_lock()
        self.is_idle = False

    def _flushed_extent(self) -> tuple[int, int]:
        """Write what is buffered, and tell how many records and bytes can be read."""
        data = None if self._writer is None else self._writer.data
        if data is None or data.buffered_count == 0:
            return self.count, self.size_bytes
        # On a full disk readers still get what was written before.
        with contextlib.suppress(StorageError):
            data.flush()
        return self.count - data.buffered_count, data.flushed_bytes

    def _wake(self) -> RecordReader:
        """Open the files."""
        if not self.is_writer or self.is_idle:
            self._reader = self._files.open_reader(self.count)
            return self._reader
        assert self._sums is not None
        self._is_at_rest = False
        self._reader, self._writer = self._files.open_writer(
            self.count, self.size_bytes, self._sums, self.options.waiting_count_max
        )
        return self._reader

    def _forget_files(self) -> None:
        if self._writer is not None:
            self._sums = self._writer.sums.state
        if self._verification is not None:
            self._verification.forget()
        if self.receipts is not None:
            self.receipts.close()
        self._reader = self._writer = None
