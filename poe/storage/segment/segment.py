"""A segment: turns batches of messages into records in files, and pointers into slices of them.

It owns `<timestamp>_data`, `_index`, `_sum`, for sequenced puts `_seq` and, while it is a writer,
`_lock`. It never reads the clock and never decides when to rotate, hibernate or expire; its owner
does.
Strategy: data goes to the file at once, index entries and sums follow in larger pieces, and what
hibernates is a few numbers.
"""

import contextlib
from collections.abc import Callable, Iterable
from enum import Enum, auto
from typing import Final, Self

import numpy as np

from poe.errors import (
    CorruptRecord,
    PointerOutOfRange,
    ReadFailed,
    SegmentSealed,
    StorageError,
    StorageFull,
    TopicDamaged,
    WriteFailed,
)
from poe.record import ENTRY_BYTES, POINTER_MAX, are_sound, decode_entries
from poe.storage.files import Files, FileSlice, IndexedSlice
from poe.storage.formats.receipt_file import PutKey, Receipt, earlier_receipt, place_alone
from poe.storage.formats.record import (
    OFFSET_MAX,
    Messages,
    encode_entries,
    encode_record,
    encode_records,
)
from poe.storage.formats.store_meta import StoreMeta
from poe.storage.formats.sum_file import Flag, SumState
from poe.storage.recovery.recovery import Extent
from poe.storage.segment.durability import Durability
from poe.storage.segment.producers import LastPut, Producers
from poe.storage.segment.receipts import Receipts
from poe.storage.segment.record_reader import WAITING_BYTES_MAX, RecordReader
from poe.storage.segment.segment_files import SegmentFiles
from poe.storage.segment.segment_options import SegmentOptions
from poe.storage.segment.segment_writer import SegmentWriter
from poe.storage.segment.verification import Verification
from poe.storage.shared_sync import SharedSync

Visible = tuple[int, int]
"""The first records of a segment, and their bytes."""


class Role(Enum):
    """What a segment is to its topic."""

    READER = auto()
    """It takes no more."""

    IDLE_WRITER = auto()
    """The writer, as it was closed: nothing has come since."""

    WRITER = auto()


# A name of its own: a member of an enum is looked up by a function, which puts would feel.
_READER: Final = Role.READER


class Segment:
    """A run of records with rising pointers; a writer takes more of them, a reader does not.

    Always:

        timestamp <= pointer_low <= pointer_high      (the pointers are None while it is empty)
        ordinal of record number n == base + n < next_ordinal
        flushed bytes + buffered bytes == size_bytes  (nothing is buffered but with ack="memory")
        receipts of its own cover all sequenced puts in its data

    Life: `create` makes a writer, `open` a reader. `seal` and `unseal` change the role, `hibernate`
    closes the files until the next request opens them by itself, `destroy` removes them. A
    `FileSlice` outlives all of this. One thread at a time may call it. On an error it is as before.

    Data that was found on disk is compared with its sums before it is read for the first time. An
    index, or sums, that turn out not to fit their own hashes are made anew from the data.

    Source: appendix_server.erl; its process and its index process are one object here.
    """

    __slots__ = (
        "_damage_before",
        "_failure",
        "_files",
        "_is_at_rest",
        "_reader",
        "_sums",
        "_verification",
        "_writer",
        "base_maybe",
        "count",
        "damage",
        "durability",
        "given_pointer",
        "is_retry",
        "last_pointer",
        "lost_count",
        "options",
        "pointer_low",
        "receipts",
        "role",
        "size_bytes",
    )

    def __init__(self, files: SegmentFiles, options: SegmentOptions, extent: Extent) -> None:
        """Stand for files that were found, or made."""
        self.options = options
        self.role = Role.READER
        self._failure = ""
        self.is_retry = False
        """Whether it was made in place of one that has failed."""
        self.durability = Durability(files, extent)
        # Its own, or of a segment before it, while it is no writer and has none.
        self.receipts: Receipts | None = None
        self._files = files
        self._reader: RecordReader | None = None
        self._writer: SegmentWriter | None = None
        self._verification: Verification | None = None
        self._sums: SumState | None = None  # of a writer asleep: where they go on
        self._is_at_rest = False  # as a writer asleep, whose files have their exact sizes
        self._damage_before: tuple[str, str] | None = None
        """The path of another segment that is damaged or gone, and what was found there."""
        self.base_maybe = extent.base
        """Ordinal of its first record; None: of a folder that older programs have written, where
        nothing tells it."""
        self._take(extent)
        self.given_pointer = self.last_pointer  # the highest one, of what was cut off, too

    def _take(self, extent: Extent) -> None:
        """Be what was found or made, or is left of a writer."""
        self._is_at_rest = False
        self.count = extent.count
        # Their ordinals were given: as long as there are any, it takes no more.
        self.lost_count = extent.lost_count
        self.size_bytes = extent.size_bytes
        self.pointer_low = extent.pointer_low if extent.count else None
        # The next pointer exceeds it; only while the segment is empty it is of no message.
        self.last_pointer = extent.pointer_high if extent.count else self.timestamp - 1
        self.damage = extent.damage
        self._sums = extent.sums
        if extent.count and extent.sums is not None:
            self._verify()

    @classmethod
    def create(  # noqa: PLR0913
        cls,
        files: Files,
        folder: str,
        timestamp: int,
        options: SegmentOptions,
        meta: StoreMeta | None = None,
        *,
        base: int = 0,
        before: Self | None = None,
        is_retry: bool = False,
    ) -> Self:
        """Make the files of an empty segment in the folder of its topic, and be its writer.

        No pointer of the segment will be less than `timestamp`, which names the files, and its
        ordinals begin at `base`. It knows the sequenced puts that the segment `before` it knows,
        which was sealed and synced. With `is_retry` it stands in for that one, which has failed.

        Raises:
            StorageFull: no room; nothing is left behind.
            WriteFailed: another failure; nothing is left behind.
        """
        place = SegmentFiles(files, f"{folder}/{timestamp}", meta)
        is_synced = options.ack == "fsync"
        earlier = [] if before is None else before.receipts_for(timestamp)
        if is_synced and before is not None and before.options.ack != "fsync":
            # Else a power cut could take that, and would leave what is acknowledged behind it.
            before.make_durable()
        # With "fsync" what is in front of the new segment is durable, if it was acknowledged.
        after_pointer = 0 if before is None or is_synced else before.durability.pending_pointer
        extent, receipts = place.make(earlier, after_pointer, base, is_synced=is_synced)
        segment = cls(place, options, extent)
        segment.durability.begin(extent, are_names_synced=is_synced)
        segment.role = Role.WRITER
        segment.is_retry = is_retry
        segment.receipts = receipts
        if before is not None:
            segment.durability.follow(before.durability)
            if before.receipts is not None:
                before.receipts.forget()
        return segment

    @classmethod
    def open(  # noqa: PLR0913
        cls,
        files: Files,
        folder: str,
        timestamp: int,
        options: SegmentOptions,
        meta: StoreMeta | None = None,
        *,
        is_locked: bool = True,
        has_receipts: bool = True,
        before_pointer: int | None = None,
        base: int | None = None,
        removed_high: int = 0,
    ) -> Self | None:
        """Recover a segment as far as needed, as a hibernating reader; None without a data file.

        Where `is_locked` is known to be false, a segment that the store has noted as sealed is
        taken as it is; where `has_receipts` is, receipts are not looked for. `before_pointer` is
        that of the last message before it, and `base` the ordinal of its first record where its
        sums do not tell that. `removed_high` is the pointer of its last message, where the store
        has noted that it was about to go.

        Raises:
            SegmentLocked: a live program writes to it.
            FormatNotSupported: a newer version has written it.
            ReadFailed: a file cannot be opened or read.
            StorageFull: no room to repair it.
            WriteFailed: repairing it failed for another reason.
        """
        place = SegmentFiles(files, f"{folder}/{timestamp}", meta)
        if place.is_being_removed():
            place.remove()
            return None
        extent = None if is_locked else place.sealed_extent(base)
        mode = options.recovery
        extent = extent or place.recover(
            mode, before_pointer=before_pointer, base=base, removed_high=removed_high
        )
        if extent is None:
            return None
        segment = cls(place, options, extent)
        if has_receipts and place.has_receipts():
            segment.receipts = place.receipts()
        return segment

    @property
    def path(self) -> str:
        """That of its files, less `_data`."""
        return self._files.path

    @property
    def timestamp(self) -> int:
        """Names the files, and is not greater than any pointer."""
        return self._files.timestamp

    @property
    def base(self) -> int:
        """Ordinal of its first record; it never changes."""
        return self.base_maybe or 0

    @property
    def next_ordinal(self) -> int:
        """What the ordinals of the segment behind it begin at, as far as this one knows."""
        return self.base + self.count + self.lost_count

    @property
    def has_gap_behind(self) -> bool:
        """Whether messages behind its last one are gone: the next ordinal is another segment's."""
        return self.lost_count > 0

    @property
    def is_writer(self) -> bool:
        """Whether it is not sealed; asking wakes nothing."""
        return self.role is not _READER

    @property
    def takes_puts(self) -> bool:
        """Whether it is not sealed, and its disk has not failed; asking wakes nothing."""
        return not (self.role is _READER or self._failure or self.durability.failure)

    @property
    def failure(self) -> str:
        """What its disk failed of, or a sync of it: its topic has to go on in a new segment."""
        return self._failure or self.durability.failure

    @property
    def pointer_high(self) -> int | None:
        """Pointer of the newest record, None when there is none; asking wakes nothing."""
        return self.last_pointer if self.count else None

    @property
    def is_awake(self) -> bool:
        """Whether its files are open."""
        return self._reader is not None

    # ---- puts ------------------------------------------------------------------------------------

    def append(  # noqa: C901, PLR0912, PLR0915 - the hot path, where each call more would be felt
        self, messages: Messages, now_us: int, put: PutKey | None = None, place: int = 0
    ) -> int:
        """Store a batch, all of it or nothing, and return the pointer of its last message.

        Its pointers are consecutive, from max(`now_us`, last one given + 1). A sequenced put, which
        `put` names, that is stored already is not stored again, and its pointer is the same.
        `place` is that of a batch of a replicated topic in its stream.

        Raises:
            RepeatedPut: it is stored, and its pointer is not known any more.
            SequenceGap: it is not the next one of its producer.
            ProducerFenced: its producer has put with a greater epoch since.
            InvalidMessage: a message is empty or too large, or there is none.
            SegmentSealed: this is a reader.
            StorageFull: no room on the disk, or 2^40 bytes in the segment.
            WriteFailed: another failure of the disk.
            ReadFailed: the files could not be opened again.
            PointerOutOfRange: pointers would exceed 56 bits.
        """
        if self.role is _READER:
            raise SegmentSealed(self.path)
        if put is not None and (stored := (self.receipts or Producers()).find(put)) is not None:
            return stored
        writer, options = self._writer or self._wake_writer(), self.options
        index = writer.index
        # What nodes have agreed on gets its own pointers again, when it has to be stored anew.
        given = 0 if place else self.given_pointer
        pointer = max(now_us, self.last_pointer + 1, given + 1)
        count = len(messages)
        last_pointer = pointer + count - 1
        if last_pointer > POINTER_MAX:
            raise PointerOutOfRange(last_pointer)
        offset = self.size_bytes
        starts = None
        if count == 1:
            data = encode_record(messages[0], pointer, options.message_max)
        else:
            data, starts = encode_records(messages, pointer, options.message_max)
        end = offset + len(data)
        if end > OFFSET_MAX:
            raise StorageFull(self.path + "_data", "it would exceed 2^40 - 1 bytes")
        if (self.count - index.flushed_count) * ENTRY_BYTES >= WAITING_BYTES_MAX:
            self.flush()
        receipts = None
        if put is not None or place:
            receipts = self._write_receipt(put, last_pointer, end, data, place)
        # The last step that may fail: from here on data, index and sums go together.
        try:
            try:
                if end <= writer.direct_end:
                    writer.file.write_at(data, offset)
                    writer.flushed_bytes = writer.lock_cell[0] = end
                else:
                    writer.append(data, count)
            except (OSError, StorageError) as error:
                self._refuse(writer, error, receipts)
            if receipts is not None:
                receipts.confirm()
            sums = writer.sums
            sums.update(data)
            if starts is None:
                index.add((pointer, offset, count, len(data) // count))
            else:
                pointers = np.arange(pointer, last_pointer + 1, dtype=np.uint64)
                index.add(encode_entries(pointers, starts + np.uint64(offset)))
            if self.pointer_low is None:
                self.pointer_low = pointer
            self.last_pointer = last_pointer
            self.count += count
            self.size_bytes = end
            if end >= sums.cut_at:
                sums.cut(end, self.count, last_pointer)
        except BaseException as error:
            writer.note_cut_short(error)
            raise
        return last_pointer

    def append_records(self, entries: bytes, data: bytes) -> int:
        """Store records of another copy of the topic, with the pointers that they have there.

        Return the pointer of the last one. Nothing tells their place until `set_place`.

        Args:
            entries: of an index, one for each record.
            data: the records.

        Raises:
            CorruptRecord: they do not go together, or not behind what is here; nothing is stored.
            SegmentSealed, StorageFull, WriteFailed, ReadFailed: as `append`.
        """
        if self.role is _READER:
            raise SegmentSealed(self.path)
        pointers, offsets = decode_entries(entries)
        count = len(pointers)
        starts = np.append(offsets - offsets[:1], np.uint64(len(data))).astype(np.int64)
        is_behind = count > 0 and int(pointers[0]) > self.last_pointer
        if not is_behind or not are_sound(pointers, starts, memoryview(data)).all():
            raise CorruptRecord(self.path + "_data", self.size_bytes)
        writer = self._writer or self._wake_writer()
        offset = self.size_bytes
        if offset + len(data) > OFFSET_MAX:
            raise StorageFull(self.path + "_data", "it would exceed 2^40 - 1 bytes")
        self.flush()
        try:
            try:
                writer.append(data, count)
            except (OSError, StorageError) as error:
                self._refuse(writer, error, None)
            writer.sums.update(data)
            writer.index.add(
                encode_entries(pointers, starts[:-1].astype(np.uint64) + np.uint64(offset))
            )
            self.pointer_low = int(pointers[0]) if self.pointer_low is None else self.pointer_low
            self.last_pointer = int(pointers[-1])
            self.count += count
            self.size_bytes = offset + len(data)
            writer.sums.cut(self.size_bytes, self.count, self.last_pointer)
        except BaseException as error:
            writer.note_cut_short(error)
            raise
        return self.last_pointer

    def pass_place(self, place: int) -> None:
        """Note that it goes up to a place of its stream where nothing was to be stored.

        Raises:
            SegmentSealed, StorageFull, WriteFailed, ReadFailed: as `append`.
        """
        if self.role is _READER:
            raise SegmentSealed(self.path)
        if self._writer is None:
            self._wake_writer()
        self._receipts_of_own().write_place(place, self.last_pointer, self.size_bytes)

    def set_place(self, place: int, puts: Iterable[tuple[PutKey, int]] = ()) -> None:
        """Note up to which place of its stream it goes, and what is known of producers.

        All of its data must be durable. What it knew before is forgotten. With `PLACE_UNKNOWN`, who
        finds it so is told that its data goes on behind what receipts tell.

        Raises:
            StorageFull, WriteFailed: it is as it was.
        """
        earlier = [earlier_receipt(put, pointer) for put, pointer in puts]
        earlier.append(place_alone(place, self.last_pointer))
        self.receipts = self._files.make_receipts(earlier, self.size_bytes)

    def known_puts(self) -> list[tuple[PutKey, int]]:
        """Return all puts of producers that it knows of, and their pointers.

        Raises:
            ReadFailed: the receipts cannot be read.
        """
        return [] if self.receipts is None else self.receipts.known()

    def _write_receipt(
        self, put: PutKey | None, pointer: int, end: int, data: bytes | memoryview, place: int
    ) -> Receipts:
        """Write the receipt of a batch: who is killed before its data follows leaves neither."""
        receipts = self._receipts_of_own()
        receipts.write(put, pointer, end, data, place)
        return receipts

    def _receipts_of_own(self) -> Receipts:
        """Return its receipts, which are made where there are none."""
        if self.receipts is None:
            self.receipts = self._files.make_receipts([], self.size_bytes)
        return self.receipts

    def place(self) -> int:
        """Return up to where in the stream of a replicated topic it goes; 0: that is not known.

        Raises:
            ReadFailed: the receipts cannot be read.
        """
        return 0 if self.receipts is None else self.receipts.place()

    def _refuse(
        self, writer: SegmentWriter, error: OSError | StorageError, receipts: Receipts | None
    ) -> None:
        """Raise what a batch is refused for, as if it had never come."""
        failure = writer.failed(error) if isinstance(error, OSError) else error
        if receipts is not None:
            receipts.take_back()
        if failure is error:
            raise failure
        raise failure from error

    def last_put(self, producer: bytes) -> LastPut | None:
        """Return the newest sequenced put of a producer onto the topic; of its newest segment only.

        Raises:
            ReadFailed: the receipts cannot be read.
        """
        return None if self.receipts is None else self.receipts.last(producer)

    def newest_puts(self, count: int) -> list[tuple[bytes, LastPut]]:
        """Return producers with their newest puts, the one that put last first, as `last_put`.

        Raises:
            ReadFailed: the receipts cannot be read.
        """
        return [] if self.receipts is None else self.receipts.newest(count)

    def flush(self) -> None:
        """Hand everything to the kernel: buffered data, then waiting index entries and sums.

        Raises:
            StorageFull: no room on the disk.
            WriteFailed: another failure.
        """
        if self._writer is not None:
            self._writer.flush(self.pointer_high or 0)

    def skip_to(self, pointer: int, ordinal: int = 0) -> None:
        """Give no pointer up to this one, and no ordinal before that: they were what is gone had.

        Where they do not go on behind the last record, it takes no more: see `has_gap_behind`.
        """
        self.given_pointer = max(self.given_pointer, pointer)
        self.lost_count += max(ordinal - self.next_ordinal, 0)

    def begin_at(self, ordinal: int) -> None:
        """Be told the ordinal of its first record, since nothing else tells it.

        Its sums are, too, if the disk takes that; else it is found out anew at the next start.
        """
        self.base_maybe = ordinal
        with contextlib.suppress(StorageError):
            self._files.write_base(ordinal)

    # ---- reads -----------------------------------------------------------------------------------

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
            return reader.find(pointer, limit, bytes_max, *(visible or self.flushed_extent()))
        return self._read_verified(pointer, limit, bytes_max, visible)

    def next(self, pointer: int, visible: Visible | None = None) -> tuple[int, bytes] | None:
        """Read the message that follows a pointer, and its pointer; None when nothing follows.

        Raises:
            PointerOutOfRange, ReadFailed, CorruptRecord: as `read`.
        """
        reader = self._reader_behind(pointer)
        if reader is None:
            return None
        if self._verification is not None:
            self._read_verified(pointer, 1, 1, visible)
            reader = self._reader or self._wake()
        return reader.next(pointer, *(visible or self.flushed_extent()))

    def read_range(
        self, pointer: int, last: int, limit: int, bytes_max: int, visible: Visible | None = None
    ) -> IndexedSlice | None:
        """Find the records that follow `pointer` up to `last`, as `read` does, with their entries.

        Raises:
            PointerOutOfRange, ReadFailed, CorruptRecord: as `read`.
        """
        visible = self._visible_up_to(pointer, last, visible)
        found = None if visible is None else self.read(pointer, limit, bytes_max, visible)
        if found is None:
            return None
        assert self._reader is not None
        stop = found.number + found.record_count
        entries = self._reader.index.entries(found.number, stop)
        is_compared_once = self._verification is None or self._verification.is_once
        return IndexedSlice(entries, found, self.base + found.number, is_compared_once)

    def span(
        self, pointer: int, last: int, limit: int, bytes_max: int, visible: Visible | None = None
    ) -> FileSlice | None:
        """Find records as `read_range` does, by the index alone: the data is not compared.

        Raises:
            PointerOutOfRange, ReadFailed, CorruptRecord: as `read`.
        """
        visible = self._visible_up_to(pointer, last, visible)
        if visible is None or limit <= 0:
            return None
        assert self._reader is not None
        return self._reader.find(pointer, limit, bytes_max, *visible)

    def ordinal_of(self, pointer: int) -> int:
        """Return the ordinal of the first record behind a pointer; where none is, the next one.

        Raises:
            PointerOutOfRange, ReadFailed, CorruptRecord: as `read`.
        """
        if self._reader_behind(pointer) is None:
            return self.base + self.count
        found = self._index_reader().index.search(pointer)
        return self.base + (self.count if found is None else found[0])

    def pointer_at(self, ordinal: int) -> int | None:
        """Return the pointer of the record with an ordinal, or of its first; None behind its last.

        Raises:
            ReadFailed, CorruptRecord: as `read`.
        """
        number = max(ordinal - self.base, 0)
        return self._index_reader().index.entry(number)[0] if number < self.count else None

    def _index_reader(self) -> RecordReader:
        """Wake to look things up in the index, which is compared with its sums first."""
        if self._verification is not None:
            try:
                self._verification.open()
            except CorruptRecord:
                self._mend()
        return self._reader or self._wake()

    def _visible_up_to(self, pointer: int, last: int, visible: Visible | None) -> Visible | None:
        """Wake to read behind `pointer`, and tell what may be found up to `last`.

        None, and no waking, where nothing follows. The index is compared with its sums first.
        """
        if pointer >= last or self._reader_behind(pointer) is None:
            return None
        reader = self._index_reader()
        extent = visible or self.flushed_extent()
        return extent if last >= self.last_pointer else reader.extent_up_to(last, *extent)

    def _reader_behind(self, pointer: int) -> RecordReader | None:
        """Wake to read behind a pointer; None, and no waking, when nothing follows it."""
        if not 0 <= pointer <= POINTER_MAX:
            raise PointerOutOfRange(pointer)
        if pointer >= self.last_pointer or self.count == 0:
            return None
        return self._reader or self._wake()

    def _read_verified(
        self, pointer: int, limit: int, bytes_max: int, visible: Visible | None
    ) -> FileSlice | None:
        """Find records as `read` does, and no more of them than were compared with their sums."""
        try:
            return self._find_verified(pointer, limit, bytes_max, visible)
        except CorruptRecord as error:
            if error.path.endswith("_data"):
                raise
        self._mend()
        return self._find_verified(pointer, limit, bytes_max, visible)

    def _find_verified(
        self, pointer: int, limit: int, bytes_max: int, visible: Visible | None
    ) -> FileSlice | None:
        reader = self._reader or self._wake()
        extent = visible or self.flushed_extent()
        verification = self._verification
        if verification is None:
            return reader.find(pointer, limit, bytes_max, *extent)
        found = verification.find(reader, pointer, limit, bytes_max, *extent)
        if verification.is_over:
            self._verification = None
        return found

    def flushed_extent(self) -> tuple[int, int]:
        """Write what is buffered, and tell how many records and bytes can be read."""
        writer = self._writer
        if writer is None or writer.buffered_count == 0:
            return self.count, self.size_bytes
        # On a full disk readers still get what was written before.
        with contextlib.suppress(StorageError):
            writer.flush_data()
        return self.count - writer.buffered_count, writer.flushed_bytes

    def _verify(self) -> None:
        """From now on compare what is read with the sums, as `verify` asks for.

        After a failed sync it is each time: the kernel holds pages that it could not write for
        clean, and when it has dropped them, it reads what was on the disk before.
        """
        if self.options.verify != "never":
            is_once = self.options.verify == "once" and not self.durability.has_failed
            self._verification = self._files.verification(is_once=is_once)

    def _mend(self) -> None:
        """Make index and sums anew where they do not fit, as a thorough recovery does."""
        if self._is_cut_short():
            raise ReadFailed(self.path, "a step of writing it was cut short")
        with self.durability.ending:
            self._recover()

    def _recover(self) -> None:
        self.hibernate()
        mode, base, next_ordinal = self.options.recovery, self.base_maybe, self.next_ordinal
        extent = self._files.recover(mode, is_thorough=True, base=base)
        if extent is None:
            raise ReadFailed(self.path, "its files are gone, or were those of another segment")
        known_damage = self.damage
        self._take(extent)
        self.skip_to(0, next_ordinal)
        self.damage += known_damage
        if self.receipts is not None:
            self.receipts.forget()
        if not self.is_writer:
            self.durability.found(extent)
            return
        if self.has_gap_behind:
            self.fail("messages at its end are lost")
        # First: what may fail below is tried again by the next put, whose sync counts from here.
        self.durability.begin(extent)
        self._files.lock(self.size_bytes)
        self._own_receipts()
        self._begin_writing()

    # ---- durability ------------------------------------------------------------------------------

    def begin_sync(self, shared: SharedSync | None = None) -> Callable[[], None]:
        """Write what waits; return what makes all data, sums and names durable, in any thread.

        Where nobody waits for that it may be `shared` with others.

        The index is not made so, it can be made from the data. Both raise StorageError. What was
        not durable before the latter did may then never be, as `durability.has_failed` tells from
        then on; but after NoDescriptors it may be tried again. Batches may be appended meanwhile,
        but the segment is to hibernate or be sealed afterwards only. What makes something else of a
        sealed one waits while its end is written.
        """
        if self.role is not Role.WRITER:
            return self.durability.readers_sync(self._reader, shared)
        if self._is_cut_short():
            raise WriteFailed(self.path, "a step of writing it was cut short")
        writer = self._writer or self._wake_writer()
        sync = writer.begin_sync(self.pointer_high or 0, self.receipts)
        extent = self._extent(writer.sums.state)
        return self.durability.writers_sync(sync, writer.sums, extent, self.receipts, shared)

    def sync(self) -> None:
        """Make all data durable, here and now; raises as `begin_sync`."""
        self.begin_sync()()

    def receipts_for(self, timestamp: int) -> list[Receipt]:
        """Return what the next segment is to be told of, which is durable from then on.

        For that can be taken back no more; only of a sealed segment.

        Raises:
            StorageError: as `begin_sync`.
        """
        if self.receipts is None:
            return []
        self.make_durable()  # what comes behind a hole is cut off, durable or not
        return self.receipts.earlier(timestamp)

    def make_durable(self) -> None:
        """Make all data of a sealed segment durable, and what comes before it.

        Raises:
            StorageError: as `begin_sync`.
        """
        if self.durability.is_to_end:
            self.durability.sync_in_order(self._reader)

    def fail(self, reason: str) -> None:
        """Note that its disk has failed: the topic is to go on in a new segment."""
        self._failure = reason

    def lose(self, reason: str) -> None:
        """Be a reader of files that are not there any more, with nothing left to write or to cut.

        Its topic is to go on in a new segment; what was in this one cannot be read.
        """
        self.fail(reason)
        self._forget_files()
        self.role = Role.READER
        self.durability.found(self._extent(self._sums))

    def begin_cut(self, failure: str) -> Callable[[], None]:
        """Give up what no good sync has covered, and be a reader of the rest; for a failed writer.

        Only what nobody was promised may be given up. Returns what makes the new end durable, in
        any thread: on files that are opened anew, since those that failed are not believed again.
        Both raise StorageError; what was given up may then be back after the next start.
        """
        self.fail(failure)
        given = self.last_pointer, self.next_ordinal
        self._forget_files()
        self.durability.begin_anew()
        self._take(self.durability.extent)
        self.skip_to(*given)
        if self.receipts is not None:
            self.receipts.rewind()
        self.seal()
        return self.begin_sync()

    def distrust(self) -> None:
        """Of a reader of which a sync has failed: compare what is read with the sums each time."""
        if not self.is_writer:
            self._verify()

    # ---- life ------------------------------------------------------------------------------------

    def seal(self) -> None:
        """Become a reader: write what waits, and cut the files to their exact size.

        They stay locked until the next sync, or `close`: only of a locked segment is it known that
        a power cut may have torn it.

        Raises:
            StorageFull: no room for what waits.
            WriteFailed: another failure.
            ReadFailed: the files could not be opened again.
        """
        if self._is_cut_short():
            self._leave_to_recovery()
        if self.role is Role.READER:
            return
        if self.role is Role.IDLE_WRITER:
            self._files.unlock()
            self.role = Role.READER
            self.durability.found(self._extent(self._sums))
            self._files.note_sealed(self.durability.extent)
            return
        has_receipts = self.receipts is not None and self.receipts.path == self.path
        if has_receipts or not self._is_at_rest:
            writer = self._writer or self._wake_writer()
            writer.finish(self.pointer_high or 0, self.receipts)
            self._sums = writer.sums.state
            self._writer = None
        self.role = Role.READER
        self._is_at_rest = False
        self.durability.seal(self._extent(self._sums))
        if self.durability.has_failed:
            self.distrust()

    def unseal(self) -> None:
        """Become the writer again; only the newest segment of a topic may.

        One whose last messages are lost fails instead: the topic is to go on in a new segment.

        Raises:
            StorageFull: no room for a lock file; the segment is still a reader.
            WriteFailed: another failure; likewise.
            ReadFailed: its sums, or the files of another program's segment, cannot be read.
            FormatNotSupported: a newer version has written it.
            TopicDamaged: with `recovery="strict"`, data of the topic was found to be damaged.
        """
        with self.durability.ending:
            if self.is_writer:
                return
            self.check_damage()
            if self.has_gap_behind:
                self.fail("messages at its end are lost")
            else:
                self._become_writer()

    def _become_writer(self) -> None:
        self._forget_files()
        sums = self.durability.extent.sums
        is_closed = sums is not None and bool(sums.flags & Flag.CLEAN)
        is_idle = is_closed and not self.durability.is_locked
        if sums is None:
            sums = self._files.adopt(self.base_maybe)
        else:
            self._files.check_format()
        self._files.lock(self.size_bytes)
        self._own_receipts()
        if is_idle:
            self.role = Role.IDLE_WRITER
        else:
            self._begin_writing()
        self._sums = sums
        self.durability.begin(self._extent(sums))

    def follow(self, before: "Segment") -> None:
        """Take into account what was recovered of the segment before it, as this one was."""
        if self.count == 0:
            # Files of others may have names that are less than pointers before them. So may one of
            # ours that could neither be made nor removed: more was put in front of it then.
            self.last_pointer = max(self.last_pointer, before.last_pointer)
            are_known = self.base_maybe is not None and before.base_maybe is not None
            if are_known and self.base < before.next_ordinal:
                self.begin_at(before.next_ordinal)
        if self.receipts is None:
            self.receipts = before.receipts
        self.come_behind(before.first_damage)

    def keep_receipts(self) -> None:
        """Have receipts of its own, where those of a segment before it tell who numbers puts.

        Raises:
            StorageFull, WriteFailed: the disk did not take them.
            ReadFailed: those before cannot be read.
        """
        receipts = self.receipts
        if receipts is not None and receipts.path != self.path:
            earlier = receipts.earlier(self.last_pointer)
            self.receipts = self._files.keep_receipts(earlier, self.size_bytes)

    def come_behind(self, damage: tuple[str, str] | None) -> None:
        """Be told which segment before it is damaged or gone, and what was found there."""
        self._damage_before = damage or self._damage_before

    def hibernate(self) -> None:
        """Write what waits and close the files; the next request opens them again by itself.

        Raises:
            StorageFull: no room for what waits; the segment stays awake.
            WriteFailed: another failure; likewise.
        """
        if self._is_cut_short():
            self._leave_to_recovery()
        if self._writer is not None:
            self._writer.rest(self.pointer_high or 0)
            self._is_at_rest = True
        self._forget_files()

    def close(self) -> None:
        """Seal, sync and hibernate; what lies on disk then is complete.

        After a sync that failed it stays locked, and the next start looks what is there.

        Raises:
            StorageFull, WriteFailed, ReadFailed: as `seal`.
        """
        self.seal()
        self.make_durable()
        self.hibernate()

    def destroy(self) -> None:
        """Remove the files; the segment is an empty reader from then on, slices go on to work.

        Raises:
            WriteFailed: a file cannot be removed.
        """
        self.durability.leave()
        self._forget_files()
        self.role = Role.READER
        self.count = self.size_bytes = 0
        self.pointer_low = None
        self.receipts = None
        self._files.remove()

    def is_in_place(self) -> bool:
        """Return whether the data file has its name still; of one that is not open, some file."""
        return self._files.is_in_place(None if self._reader is None else self._reader.file)

    def check_damage(self) -> None:
        """Refuse to go on behind damage where that was asked for.

        Raises:
            TopicDamaged: with `recovery="strict"`, it was found to be damaged.
        """
        damage = self.first_damage
        if damage and self.options.recovery == "strict":
            raise TopicDamaged(*damage)

    @property
    def first_damage(self) -> tuple[str, str] | None:
        """Which segment is damaged, this one or one before it, and what was found there."""
        own = (self.path, self.damage[0]) if self.damage else None
        return self._damage_before or own

    def _is_cut_short(self) -> bool:
        return self._writer is not None and self._writer.is_cut_short

    def _leave_to_recovery(self) -> None:
        """Have no more to do with the files, which alone tell what is in them; they stay locked."""
        assert self._writer is not None
        self._writer.flush_data()  # of this it is known what is written
        self._forget_files()
        self.role = Role.READER
        self.durability.leave()

    # ---- files -----------------------------------------------------------------------------------

    def _extent(self, sums: SumState | None) -> Extent:
        """Return what it holds, and where its sums go on."""
        low, high = self.pointer_low or 0, self.pointer_high or 0
        return Extent(self.count, self.size_bytes, low, high, sums, self.damage, self.base_maybe)

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
        self.role = Role.WRITER

    def _wake(self) -> RecordReader:
        """Open the files to read."""
        if self.role is Role.WRITER:
            try:
                self._open_writer()
            except ReadFailed as error:
                if not self._is_at_rest or isinstance(error.__cause__, FileNotFoundError):
                    raise
                # The disk may have become read-only while it slept, and all of it is written.
        self._reader = self._reader or self._files.open_reader(self.count)
        return self._reader

    def _wake_writer(self) -> SegmentWriter:
        if self.role is Role.IDLE_WRITER:
            self._begin_writing()
        return self._open_writer()

    def _open_writer(self) -> SegmentWriter:
        assert self._sums is not None
        extent = self.count, self.size_bytes, self._sums
        self._reader, writer = self._files.open_writer(
            *extent, self.options.waiting_count_max, is_size_exact=self._is_at_rest
        )
        self._writer, self._is_at_rest = writer, False
        return writer

    def _forget_files(self) -> None:
        if self._writer is not None:
            self._sums = self._writer.sums.state
        if self._verification is not None:
            self._verification.forget()
        if self.receipts is not None:
            self.receipts.close()
        self._reader = self._writer = None
