"""The files of one segment by name: making, recovering, locking, opening and removing them."""

import contextlib
import errno
from collections.abc import Callable
from dataclasses import replace
from functools import partial

from poe.errors import FormatNotSupported
from poe.record import ENTRY_BYTES
from poe.storage.failure import reading, writing
from poe.storage.files import Files, OpenFile
from poe.storage.formats.hashed import FILE_HEADER_BYTES, FileHeader
from poe.storage.formats.receipt_file import Receipt
from poe.storage.formats.segment_lock import make_lock
from poe.storage.formats.store_meta import Event, Kind, StoreMeta
from poe.storage.formats.sum_file import SUM_MAGIC, Flag, SumState, chain_seed, closing
from poe.storage.recovery.recovery import NO_STORE, Extent, RecoveryMode, adopt, open_maybe, recover
from poe.storage.segment.receipts import Receipts
from poe.storage.segment.record_reader import RecordReader
from poe.storage.segment.segment_writer import SegmentWriter
from poe.storage.segment.verification import Verification
from poe.topic_name import folder_bytes

# In the order of removal. The index first, which can be made from the data: until that goes, too, a
# removal that nothing tells of leaves a whole segment. Without sums it would have lost its hashes.
_SUFFIXES = ("_index", "_data", "_sum", "_seq", "_lock")


class SegmentFiles:
    """Where the files of a segment are; `path` is theirs, less `_data`. It opens none by itself.

    `topic` is the name of the topic's folder, under which sums and events know the segment: what a
    folder holds is the same whatever the policy for names.
    """

    __slots__ = ("_meta", "_store_id", "files", "path", "timestamp", "topic")

    def __init__(self, files: Files, path: str, meta: StoreMeta | None) -> None:
        """Name the files of a segment of a store, or of none."""
        folder, _, timestamp = path.rpartition("/")
        self.files = files
        self.path = path
        self.topic = folder_bytes(folder.rpartition("/")[2])
        self.timestamp = int(timestamp)
        self._meta = meta
        self._store_id = NO_STORE if meta is None else meta.store_id

    def make(
        self, earlier: list[Receipt], after_pointer: int, base: int, *, is_synced: bool
    ) -> tuple[Extent, Receipts | None]:
        """Make the files of an empty segment, locked; their names survive power cuts if asked to.

        The ordinals of its records begin at `base`. It has receipts where there are `earlier` ones,
        and then all names survive power cuts. Where the messages up to `after_pointer` are lost in
        one, all of it is, too.

        Raises:
            StorageFull: no room; nothing is left behind.
            WriteFailed: another failure; nothing is left behind.
        """
        files, path = self.files, self.path
        receipts = None
        with writing(path):
            # First, and outside of the cleaning up: should it be there, nothing may be touched.
            files.open(path + "_data", "x+")
            try:
                make_lock(files, path + "_lock", 0)
                files.open(path + "_index", "w+")
                header = FileHeader(self._store_id, self.timestamp, after_pointer, base)
                files.open(path + "_sum", "w+").write_at(header.encode(SUM_MAGIC), 0)
                if earlier:
                    receipts = self._make_receipts(earlier, 0)
                if is_synced:
                    self._sync_names()
            except BaseException:  # Ctrl-C, too
                for suffix in _SUFFIXES:
                    with contextlib.suppress(OSError):
                        files.unlink(path + suffix)
                raise
        self._note(Event(Kind.CREATE, self.topic, self.timestamp))
        seed = chain_seed(self._store_id, self.topic, self.timestamp)
        sums = SumState(FILE_HEADER_BYTES, seed, 0)
        return Extent(0, 0, 0, 0, sums, base=base), receipts

    def recover(
        self,
        mode: RecoveryMode,
        *,
        is_thorough: bool = False,
        before_pointer: int | None = None,
        base: int | None = None,
        removed_high: int = 0,
    ) -> Extent | None:
        """Make the files trustworthy and unlocked, see `recovery.recover`."""
        event = self._last_event()
        if event is not None and event.pointer_high >= removed_high:
            removed_high = 0  # it was closed since
        extent = recover(
            self.files,
            self.path,
            self._store_id,
            mode=mode,
            is_thorough=is_thorough,
            noted=None if event is None else event.kind,
            is_after_power_cut=self._meta is not None and self._meta.is_after_power_cut,
            before_pointer=before_pointer,
            base=base,
            removed_high=removed_high,
        )
        if extent is not None:
            self.note_sealed(extent)
        return extent

    def sealed_extent(self, base: int | None = None) -> Extent | None:
        """Return what a sealed segment holds by its event, the sizes of its files, its sums' end.

        `base` is that of sums which do not tell it. None when there is no event, or something is
        another. The end of the sums is chained to all before it: of the files of another segment it
        is another, whatever their sizes.

        Raises:
            ReadFailed: a file cannot be looked at.
        """
        event = self._last_event()
        if event is None or event.kind is not Kind.SEAL or not event.sum_bytes:  # it is damaged
            return None
        expected = {
            "_data": event.size_bytes,
            "_index": event.record_count * ENTRY_BYTES,
            "_sum": event.sum_bytes,
        }
        with reading(self.path):
            for suffix, size_bytes in expected.items():
                if self.files.size(self.path + suffix) != size_bytes:
                    return None
            file = self.files.open(self.path + "_sum", "r")
            if file.read_at(8, event.sum_bytes - 8) != event.chain.to_bytes(8, "big"):
                return None
            with contextlib.suppress(FormatNotSupported):  # whoever reads or writes it is told
                stored = self._header_of(file)
                if stored is None:
                    return None
                base = base if stored.base is None else stored.base
        sums = SumState(event.sum_bytes, event.chain, Flag.CLEAN)
        numbers = event.record_count, event.size_bytes, event.pointer_low, event.pointer_high
        return Extent(*numbers, sums, base=base)

    def write_base(self, base: int) -> None:
        """Have the sums tell the ordinal of the first record, where there are any.

        What a power cut takes of that is found out anew. Those of a newer version are left alone.

        Raises:
            ReadFailed, StorageFull, WriteFailed: they cannot be read or written.
        """
        file = self.open_sums()
        with writing(self.path + "_sum"), contextlib.suppress(FormatNotSupported):
            header = None if file is None else self._header_of(file)
            if file is not None and header is not None:
                file.write_at(replace(header, base=base).encode(SUM_MAGIC), 0)

    def _header_of(self, sums: OpenFile) -> FileHeader | None:
        return FileHeader.decode(sums.read_at(FILE_HEADER_BYTES, 0), self.path + "_sum", SUM_MAGIC)

    def note_sealed(self, extent: Extent) -> None:
        """Note for the next start what a closed segment holds; a damaged one is looked at anew."""
        sums = extent.sums
        if sums is None:
            return
        numbers = extent.size_bytes, extent.count, extent.pointer_low, extent.pointer_high
        end = (0, 0) if extent.damage else (sums.size_bytes, sums.chain)
        event = Event(Kind.SEAL, self.topic, self.timestamp, *numbers, *end)
        if event != self._last_event():  # as after a start, where nothing has come since
            self._note(event)

    def has_receipts(self) -> bool:
        """Look whether it has receipts of sequenced puts.

        Raises:
            ReadFailed: nobody can tell.
        """
        with reading(self.path + "_seq"):
            return self.files.size(self.path + "_seq") is not None

    def receipts(self) -> Receipts:
        """Return the receipts of sequenced puts, which are there."""
        return Receipts(self.files, self.path, self._store_id)

    def make_receipts(self, earlier: list[Receipt], size_bytes: int) -> Receipts:
        """Make receipts of a locked segment that has so much data, none of which has any.

        On an error it has none.

        Raises:
            StorageFull: no room for them.
            WriteFailed: another failure.
        """
        with writing(self.path + "_seq"):
            try:
                return self._make_receipts(earlier, size_bytes)
            except OSError:
                # Nobody would go on in it, and data behind it would be taken for suspicious.
                with contextlib.suppress(OSError):
                    self.files.unlink(self.path + "_seq")
                raise

    def keep_receipts(self, earlier: list[Receipt], size_bytes: int) -> Receipts:
        """Make receipts of a segment that is not written to, before those it goes by are removed.

        Raises:
            StorageFull: no room for them.
            WriteFailed: another failure.
        """
        with writing(self.path + "_seq"):
            receipts = Receipts.make(self.files, self.path, self._store_id, earlier, size_bytes)
            self.files.sync_folder(self.path.rpartition("/")[0])
        return receipts

    def verification(self, *, is_once: bool) -> Verification:
        """Return what compares the data with its sums before it is read."""
        return Verification(self.files, self.path, self._store_id, is_once=is_once)

    def adopt(self, base: int | None = None) -> SumState:
        """Make sums for a segment of another program, see `recovery.adopt`."""
        return adopt(self.files, self.path, self._store_id, base)

    def is_in_place(self, data: OpenFile | None) -> bool:
        """Look whether the data file has its name still, or any; what cannot be seen has it."""
        path = self.path + "_data"
        with contextlib.suppress(OSError):
            if data is None:
                return self.files.size(path) is not None
            return self.files.is_in_place(path, data)
        return True

    def check_format(self) -> None:
        """Refuse sums of a newer version: with its event, a segment may not have been opened yet.

        Raises:
            FormatNotSupported: a newer version has written them.
            ReadFailed: they cannot be opened or read.
        """
        path = self.path + "_sum"
        with reading(path):
            self._header_of(self.files.open(path, "r"))

    def open_reader(self, count: int) -> RecordReader:
        """Open data and index of a segment of `count` records for reading.

        Raises:
            ReadFailed: a file cannot be opened.
        """
        with reading(self.path):
            return RecordReader.open(self.files, self.path, "r", count)

    def open_writer(
        self,
        count: int,
        size_bytes: int,
        sums: SumState,
        buffer_count_max: int,
        *,
        is_size_exact: bool = False,
    ) -> tuple[RecordReader, SegmentWriter]:
        """Open everything for writing behind `size_bytes` of data, which are `count` records.

        With `is_size_exact` nothing may lie behind them.

        Raises:
            ReadFailed: a file cannot be opened; or its cause is a FileNotFoundError, which also
                tells that the data is another file's, by its size.
        """
        with reading(self.path):
            reader = RecordReader.open(self.files, self.path, "r+", count)
            found_bytes = reader.file.size()
            if found_bytes < size_bytes or (is_size_exact and found_bytes != size_bytes):
                # Somebody has put it there: nothing may be written behind what is not there.
                reason = f"it has {found_bytes} bytes, not {size_bytes}"
                raise FileNotFoundError(errno.ENOENT, reason, self.path + "_data")
            writer = SegmentWriter(
                self.files,
                self.path,
                reader,
                sums,
                size_bytes=size_bytes,
                buffer_count_max=buffer_count_max,
            )
        return reader, writer

    def open_sums(self) -> OpenFile | None:
        """Open the sums of a segment for writing; None where it has none.

        Raises:
            ReadFailed: they cannot be opened.
        """
        with reading(self.path):
            return open_maybe(self.files, self.path + "_sum", "r+")

    def begin_sync(self, reader: RecordReader | None, sums: OpenFile | None) -> Callable[[], None]:
        """Return what makes a segment that is not written to durable, in any thread.

        `reader` has data and index, if those are open.

        Raises:
            ReadFailed: a file cannot be opened. What is returned raises WriteFailed.
        """
        with reading(self.path):
            opened = reader or RecordReader.open(self.files, self.path, "r", 0)
            receipts = open_maybe(self.files, self.path + "_seq", "r+")
        # The sums last, which say that the others are durable.
        files = [opened.file, opened.index.file, *filter(None, [receipts, sums])]
        return partial(self._sync, files)

    def write_end(
        self, sum_file: OpenFile, sums: SumState, size_bytes: int, pointer_high: int
    ) -> SumState:
        """Write, in any thread, that a segment all of which is durable was closed.

        Raises:
            StorageFull: no room for it.
            WriteFailed: another failure.
        """
        content, ended = closing(sums, size_bytes, pointer_high)
        with writing(self.path + "_sum"):
            sum_file.write_at(content, sums.size_bytes)
        return ended

    def sync_end(self, sum_file: OpenFile) -> None:
        """Make durable what `write_end` wrote.

        Raises:
            WriteFailed: the disk did not take it.
        """
        with writing(self.path + "_sum"):
            sum_file.sync()

    def lock(self, size_bytes: int) -> None:
        """Make the lock file, which need not survive a power cut yet.

        Raises:
            StorageFull: no room for it.
            WriteFailed: another failure.
        """
        with writing(self.path + "_lock"):
            make_lock(self.files, self.path + "_lock", size_bytes)

    def sync_lock(self) -> None:
        """Make the lock file survive a power cut.

        Without it, recovery would trust an index that a power cut has torn.

        Raises:
            WriteFailed: the disk did not take it.
        """
        with writing(self.path + "_lock"):
            self._sync_lock()

    def sync_names(self) -> None:
        """Make the names of the files, and of the topic's folder, survive a power cut.

        Raises:
            WriteFailed: the disk did not take them.
        """
        with writing(self.path):
            self._sync_names()

    def unlock(self) -> None:
        """Remove the lock file.

        Raises:
            WriteFailed: it cannot be removed.
        """
        with writing(self.path + "_lock"):
            self.files.unlink(self.path + "_lock")

    def remove(self) -> None:
        """Remove all files; should that be interrupted, the next start goes on with it.

        The folder is not synced, for which all topics would wait: a power cut may bring the segment
        back, which is as old as it was, and goes again at the next look.

        Raises:
            WriteFailed: a file cannot be removed.
        """
        if not self.is_being_removed():
            self._note(Event(Kind.TOMBSTONE, self.topic, self.timestamp))
        with writing(self.path):
            for suffix in _SUFFIXES:
                self.files.unlink(self.path + suffix)
        self._note(Event(Kind.GONE, self.topic, self.timestamp))

    def is_being_removed(self) -> bool:
        """Return whether an earlier run was about to remove the files."""
        event = self._last_event()
        return event is not None and event.kind is Kind.TOMBSTONE

    def _make_receipts(self, earlier: list[Receipt], size_bytes: int) -> Receipts:
        receipts = Receipts.make(self.files, self.path, self._store_id, earlier, size_bytes)
        # With all names, or a message could outlive its receipt; and with the lock, or after a
        # power cut nobody would look whether one did.
        self._sync_lock()
        return receipts

    def _sync_lock(self) -> None:
        self.files.open(self.path + "_lock", "r+").sync()
        self.files.sync_folder(self.path.rpartition("/")[0])

    def _sync_names(self) -> None:
        folder = self.path.rpartition("/")[0]
        self.files.sync_folder(folder)
        self.files.sync_folder(folder.rpartition("/")[0])

    def _sync(self, files: list[OpenFile]) -> None:
        with writing(self.path):
            for file in files:
                file.sync()

    def _last_event(self) -> Event | None:
        return None if self._meta is None else self._meta.live.get((self.topic, self.timestamp))

    def _note(self, event: Event) -> None:
        if self._meta is not None:
            self._meta.add(event)
