"""What makes a segment last: syncs, and the receipts that tell what was put into it before."""

import contextlib
from collections.abc import Callable
from functools import partial

from poe.errors import NoDescriptors, StorageError, StorageFull
from poe.storage.files import OpenFile
from poe.storage.formats.receipt_file import PutKey, Receipt
from poe.storage.formats.sum_file import Flag, SumState
from poe.storage.recovery.recovery import Extent
from poe.storage.segment.producers import LastPut, Producers
from poe.storage.segment.range_segment import RangeSegment
from poe.storage.segment.segment_files import SegmentFiles
from poe.storage.segment.segment_options import SegmentOptions
from poe.storage.segment.segment_writer import SegmentWriter
from poe.storage.segment.sum_writer import SumWriter
from poe.storage.shared_sync import SharedSync, SyncTicket


class DurableSegment(RangeSegment):
    """A segment as its syncs and its sequenced puts see it; `Segment` has its life and its puts.

    Always, of a writer: where it has receipts, no sequenced put is in the data without one.
    """

    __slots__ = ("_after", "_are_names_synced", "_before", "_is_all_synced", "owner")

    def __init__(
        self, files: SegmentFiles, timestamp: int, options: SegmentOptions, extent: Extent
    ) -> None:
        """Stand for recovered files."""
        super().__init__(files, timestamp, options, extent)
        self._are_names_synced = False
        # The segment before it in the topic, until that is durable, or known never to be.
        self._before: DurableSegment | None = None
        self._after: DurableSegment | None = None
        self._is_all_synced = False
        self.owner: object = None
        """Who has it synced, for whoever has that of the segment before it."""

    @property
    def is_behind_others(self) -> bool:
        """Whether all of a sealed segment is durable, and it ends once the one before it has."""
        return self.is_locked and self._is_all_synced and not self._is_before_durable()

    def take_next(self) -> object:
        """Return the owner of the next segment, if that waits for the end of this one; once."""
        after, self._after = self._after, None
        return after.owner if after is not None and after.is_locked else None

    @property
    def pending_pointer(self) -> int:
        """Pointer of the last message in the topic, while a power cut may take it; else 0."""
        if not self.is_locked or self.has_failed_to_sync:
            return 0
        return self.pointer_high or (self._before.pending_pointer if self._before else 0)

    def last_put(self, producer: bytes) -> LastPut | None:
        """Tell the newest sequenced put of a producer onto the topic; only the newest segment can.

        Raises:
            ReadFailed: the receipts cannot be read.
        """
        return None if self.receipts is None else self.receipts.last(producer)

    def begin_sync(self, shared: SharedSync | None = None) -> Callable[[], None]:
        """Write what waits; return what makes all data, sums and names durable, in any thread.

        Where nobody waits for that it may be `shared` with others.

        The index is not made so, it can be made from the data. Both raise StorageError. What was
        not durable before the latter did may then never be, as `has_failed_to_sync` tells from
        then on, and `failure`; but after NoDescriptors it may be tried again. Batches may be
        appended meanwhile, but the segment is to hibernate or be sealed afterwards only. What makes
        something else of a sealed one waits while its end is written.
        """
        if self.is_writer and not self.is_idle:
            writer = self._writer or self._wake_writer()
            sync = writer.begin_sync(self.pointer_high or 0, self.receipts)
            then = partial(self._note_synced, writer.sums, self._extent(writer.sums.state))
            return partial(self._sync, sync, then, _ticket_of(shared))
        sum_file = self._files.open_sums()
        sync = _nothing
        if not self._is_all_synced:
            reader = self._reader or self._wake()
            has_receipts = self.receipts is not None and self.receipts.path == self.path
            sync = self._files.begin_sync(reader, sum_file, has_receipts=has_receipts)
        return partial(self._sync, sync, partial(self._end, sum_file), _ticket_of(shared))

    def sync(self) -> None:
        """Make all data durable, here and now; raises as `begin_sync`."""
        self.begin_sync()()

    def _sync_in_order(self) -> None:
        """Make all of a sealed segment durable, and what comes before it, so that it can end."""
        waiting = [self]
        while not waiting[-1]._is_before_durable():  # noqa: SLF001 - of its own class
            assert waiting[-1]._before is not None  # noqa: SLF001
            waiting.append(waiting[-1]._before)  # noqa: SLF001
        for segment in reversed(waiting):
            segment.sync()

    def receipts_for(self, timestamp: int) -> list[Receipt]:
        """Return what the next segment is to be told of, which is durable from then on.

        For that can be taken back no more; only of a sealed segment.

        Raises:
            StorageError: as `begin_sync`.
        """
        if self.receipts is None:
            return []
        if self.is_locked and not self.has_failed_to_sync:
            self._sync_in_order()  # what comes behind a hole is cut off, durable or not
        return self.receipts.earlier(timestamp)

    def _sync(
        self,
        sync: Callable[[], None],
        then: Callable[[], None],
        ticket: SyncTicket | None,
    ) -> None:
        try:
            if ticket is None or not ticket.is_synced():
                if not self._are_names_synced:
                    self._files.sync_names()
                sync()
            self._are_names_synced = True
            then()
        except NoDescriptors:
            raise  # to open the folder, before anything was synced: all can be done again
        except Exception as error:
            # The kernel may have dropped what it could not write; the next sync would not tell.
            self.has_failed_to_sync = True
            self.failure = str(error)
            raise

    def _note_all_synced(self, extent: Extent) -> None:
        self._synced = extent
        if self.receipts is not None:
            self.receipts.note_synced()

    def _note_synced(self, sums: SumWriter, extent: Extent) -> None:
        """Have the sums of a writer say what is durable, which all before the segment must be.

        In this order: as soon as the sync is over, a flush writes the entry that says so.
        """
        if self._is_before_durable():
            sums.note_synced()
        sums.end_sync()
        self._note_all_synced(extent)

    def _end(self, sum_file: OpenFile | None) -> None:
        """Say of a sealed segment, all of which is durable, that it ends here, and unlock it.

        Only then: what a power cut leaves behind is known by that, whatever becomes of the lock.
        And only when the segment before it has ended: what comes behind a hole proves nothing.
        """
        # A full disk costs nothing here, and the next sync tries again. After another failure of it
        # nobody knows what the sums say, as after any sync that failed.
        with self._ending, contextlib.suppress(StorageFull):
            self._is_all_synced = not self.is_writer  # an idle one may go on
            if not self.is_to_end or not self._is_before_durable():
                return
            ended = self._write_end(sum_file)
            if ended is not self._sums and sum_file is not None:
                self._files.sync_end(sum_file)
            self._unlock(ended)

    def _write_end(self, sum_file: OpenFile | None) -> SumState | None:
        """Write that it ends here, if nothing says so yet, and return what its sums are then."""
        sums = self._sums
        if sums is None or sum_file is None or sums.flags & Flag.CLEAN:
            return sums
        return self._files.write_end(sum_file, sums, self.size_bytes, self.pointer_high or 0)

    def _unlock(self, ended: SumState | None) -> None:
        """Note that it has ended, and have the lock go; one that stays is the next start's."""
        self._sums = ended
        self._files.note_sealed(self._extent(ended))
        with contextlib.suppress(StorageError):
            self._files.unlock()
            self.is_locked = False

    # ---- many at once, see `closing.py` ---------------------------------------------------------

    @property
    def is_to_end(self) -> bool:
        """Whether it is sealed, and can end once all of it is durable; in any thread."""
        return self.is_locked and not self.has_failed_to_sync

    def end_behind_sync(self) -> SumState | None:
        """Write that it ends here: all that was written to the disk before is durable now.

        Returns what its sums are once that is durable, too, for `unlock_behind_sync`.

        Raises:
            ReadFailed: the sums cannot be opened.
            StorageFull, WriteFailed: the disk does not take it.
        """
        self._are_names_synced = True
        self._note_all_synced(self._extent(self._sums))
        sum_file = self._files.open_sums()
        with self._ending:
            return self._write_end(sum_file)

    def unlock_behind_sync(self, ended: SumState | None) -> None:
        """Be closed: what `end_behind_sync` wrote is durable, too."""
        with self._ending:
            self._is_all_synced = True
            if self.is_to_end and self._is_before_durable():
                self._unlock(ended)

    def _is_before_durable(self) -> bool:
        """Tell whether nothing in front of the segment is lost in a power cut, as far as it may."""
        before = self._before
        if before is not None and (not before.is_locked or before.has_failed_to_sync):
            before = self._before = None
        return before is None

    def _extent(self, sums: SumState | None) -> Extent:
        """Tell what it holds, and where its sums go on."""
        low, high = self.pointer_low or 0, self.pointer_high or 0
        return Extent(self.count, self.size_bytes, low, high, sums, self.damage)

    def _find(self, put: PutKey) -> int | None:
        """Tell the pointer of a sequenced put that is stored; None where it is the next one."""
        return (self.receipts or Producers()).find(put)

    def _append_with_receipt(
        self, writer: SegmentWriter, put: PutKey, pointer: int, data: bytes | memoryview, count: int
    ) -> None:
        """Write the receipt of a batch, then the batch: who is killed in between leaves neither."""
        if self.receipts is None:
            self.receipts = self._files.make_receipts([], self.size_bytes)
        self.receipts.write(put, pointer, self.size_bytes + len(data), data)
        try:
            writer.data.append(data, count)
        except StorageError:
            self.receipts.take_back()
            raise
        self.receipts.confirm()

    def _wake_writer(self) -> SegmentWriter:
        if self.is_idle:
            self._begin_writing()
        self._wake()
        assert self._writer is not None
        return self._writer


def _nothing() -> None:
    """Sync what is durable already."""


def _ticket_of(shared: SharedSync | None) -> SyncTicket | None:
    return None if shared is None else shared.ticket()
