"""What makes a segment last: syncs, and the receipts that tell what was put into it before."""

import contextlib
from collections.abc import Callable
from functools import partial

from poe.errors import NoDescriptors, StorageError, WriteFailed
from poe.storage.producers import LastPut, Producers, PutKey
from poe.storage.range_segment import RangeSegment
from poe.storage.receipt_file import Receipt
from poe.storage.recovery import Extent
from poe.storage.segment_writer import SegmentWriter
from poe.storage.sum_file import SumState


class DurableSegment(RangeSegment):
    """A segment as its syncs and its sequenced puts see it; `Segment` has its life and its puts.

    Always, of a writer: where it has receipts, no sequenced put is in the data without one.
    """

    __slots__ = ()

    def last_put(self, producer: bytes) -> LastPut | None:
        """Tell the newest sequenced put of a producer onto the topic; only the newest segment can.

        Raises:
            ReadFailed: the receipts cannot be read.
        """
        return None if self.receipts is None else self.receipts.last(producer)

    def begin_sync(self) -> Callable[[], None]:
        """Write what waits; return what makes all data, sums and names durable, in any thread.

        The index is not made so, it can be made from the data. Both raise StorageError. What was
        not durable before the latter did may then never be, as `has_failed_to_sync` tells from
        then on, and `failure`; but after NoDescriptors it may be tried again. Batches may be
        appended meanwhile, but the segment is to hibernate or be sealed afterwards only.
        """
        if self.is_writer and not self.is_idle:
            writer = self._writer or self._wake_writer()
            sync = writer.begin_sync(self.pointer_high or 0, self.receipts)
            return partial(self._sync, sync, self._extent(writer.sums.state))
        has_receipts = self.receipts is not None and self.receipts.path == self.path
        reader = self._reader or self._wake()
        sync = self._files.begin_sync(reader, has_receipts=has_receipts)
        return partial(self._sync, sync, self._synced)

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
        if self.is_locked and not self.has_failed_to_sync:
            self.sync()
        return self.receipts.earlier(timestamp)

    def _sync(self, sync: Callable[[], None], extent: Extent) -> None:
        try:
            sync()
            if not self._are_names_synced:
                self._files.sync_names()
                self._are_names_synced = True
        except NoDescriptors:
            raise  # to open the folder, once data and sums were synced: all can be done again
        except Exception as error:
            # The kernel may have dropped what it could not write; the next sync would not tell.
            self.has_failed_to_sync = True
            self.failure = str(error)
            raise
        self._synced = extent
        if self.receipts is not None:
            self.receipts.note_synced()
        if self.is_locked:
            # Should that fail, it is harmless, and `close` tries again.
            with contextlib.suppress(WriteFailed):
                self._files.unlock()
                self.is_locked = False

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
