"""A segment: turns batches of messages into records in files, and pointers into slices of them.

It owns `<timestamp>_data`, `_index`, `_sum`, for sequenced puts `_seq` and, while it is a writer,
`_lock`. It never reads the clock and never decides when to rotate, hibernate or expire; its owner
does.
Strategy: data goes to the file at once, index entries and sums follow in larger pieces, and what
hibernates is a few numbers.
"""

from collections.abc import Callable
from typing import Self

import numpy as np

from poe.errors import (
    PointerOutOfRange,
    SegmentSealed,
    StorageFull,
    TopicDamaged,
)
from poe.storage.files import Files
from poe.storage.formats.index import OFFSET_MAX
from poe.storage.formats.receipt_file import PutKey
from poe.storage.formats.record import POINTER_MAX, Messages, Numbers, encode_record, encode_records
from poe.storage.formats.store_meta import StoreMeta
from poe.storage.formats.sum_file import Flag
from poe.storage.segment.durable_segment import DurableSegment
from poe.storage.segment.segment_files import SegmentFiles
from poe.storage.segment.segment_options import SegmentOptions


class Segment(DurableSegment):
    """A run of records with rising pointers; a writer takes more of them, a reader does not.

    Always:

        timestamp <= pointer_low <= pointer_high      (the pointers are None while it is empty)
        flushed bytes + buffered bytes == size_bytes  (nothing is buffered but with ack="memory")

    Life: `create` makes a writer, `open` a reader. `seal` and `unseal` change the role, `hibernate`
    closes the files until the next request opens them by itself, `destroy` removes them. A
    `FileSlice` outlives all of this. One thread at a time may call it. On an error it is as before.

    Source: appendix_server.erl; its process and its index process are one object here.
    """

    __slots__ = ()

    @classmethod
    def create(  # noqa: PLR0913
        cls,
        files: Files,
        folder: str,
        timestamp: int,
        options: SegmentOptions,
        meta: StoreMeta | None = None,
        *,
        before: DurableSegment | None = None,
    ) -> Self:
        """Make the files of an empty segment in the folder of its topic, and be its writer.

        No pointer of the segment will be less than `timestamp`, which names the files. It knows the
        sequenced puts that the segment `before` it knows, which was sealed and synced.

        Raises:
            StorageFull: no room; nothing is left behind.
            WriteFailed: another failure; nothing is left behind.
        """
        place = SegmentFiles(files, f"{folder}/{timestamp}", meta)
        is_synced = options.ack == "fsync"
        earlier = [] if before is None else before.receipts_for(timestamp)
        # With "fsync" what is in front of the new segment is durable, if it was acknowledged.
        after_pointer = 0 if before is None or is_synced else before.pending_pointer
        extent, receipts = place.make(earlier, after_pointer, is_synced=is_synced)
        segment = cls(place, timestamp, options, extent)
        segment._before = before
        if before is not None:
            before._after = segment  # noqa: SLF001 - of its own class
        segment.is_writer = True
        segment._are_names_synced = is_synced
        segment.receipts = receipts
        if before is not None and before.receipts is not None:
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
    ) -> Self | None:
        """Recover a segment as far as needed, as a hibernating reader; None without a data file.

        Where `is_locked` is known to be false, a segment that the store has noted as sealed is
        taken as it is; where `has_receipts` is, receipts are not looked for. `before_pointer` is
        that of the last message before it.

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
        extent = None if is_locked else place.sealed_extent()
        extent = extent or place.recover(options.recovery, before_pointer=before_pointer)
        if extent is None:
            return None
        segment = cls(place, timestamp, options, extent)
        if has_receipts and place.has_receipts():
            segment.receipts = place.receipts()
        return segment

    def append(  # noqa: C901, PLR0912 - the hot path, where each call more would be felt
        self, messages: Messages, now_us: int, put: PutKey | None = None
    ) -> int:
        """Store a batch, all of it or nothing, and return the pointer of its last message.

        Its pointers are consecutive, from max(`now_us`, last one given + 1). A sequenced put, which
        `put` names, that is stored already is not stored again, and its pointer is the same.

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
        if not self.is_writer:
            raise SegmentSealed(self.path)
        if put is not None and (stored := self._find(put)) is not None:
            return stored
        writer, options = self._writer or self._wake_writer(), self.options
        index = writer.index
        pointer = max(now_us, self.last_pointer + 1, self.given_pointer + 1)
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
        # The last step that may fail: from here on data, index and sums go together.
        if put is None:
            writer.data.append(data, count)
        else:
            self._append_with_receipt(writer, put, last_pointer, data, count)
        sums = writer.sums
        sums.update(data)
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
        self.size_bytes = size_bytes = offset + len(data)
        if size_bytes >= sums.cut_at:
            sums.cut(size_bytes, self.count, last_pointer)
        return last_pointer

    def skip_to(self, pointer: int) -> None:
        """Give no pointer up to this one, which was given to what is gone."""
        self.given_pointer = max(self.given_pointer, pointer)

    def begin_cut(self, failure: str) -> Callable[[], None]:
        """Give up what no good sync has covered, and be a reader of the rest; for a failed writer.

        Only what nobody was promised may be given up. Returns what makes the new end durable, in
        any thread: on files that are opened anew, since those that failed are not believed again.
        Both raise StorageError; what was given up may then be back after the next start.
        """
        self.failure = failure
        self.given_pointer = max(self.given_pointer, self.last_pointer)
        self._forget_files()
        self.has_failed_to_sync = False
        self._take(self._synced)
        if self.receipts is not None:
            self.receipts.rewind()
        self.seal()
        return self.begin_sync()

    def seal(self) -> None:
        """Become a reader: write what waits, and cut the files to their exact size.

        They stay locked until the next sync, or `close`: only of a locked segment is it known that
        a power cut may have torn it.

        Raises:
            StorageFull: no room for what waits.
            WriteFailed: another failure.
            ReadFailed: the files could not be opened again.
        """
        if not self.is_writer:
            return
        if self.is_idle:
            self._files.unlock()
            self.is_writer = self.is_idle = False
            self._files.note_sealed(self._extent(self._sums))
            return
        has_receipts = self.receipts is not None and self.receipts.path == self.path
        if has_receipts or not self._is_at_rest:
            writer = self._writer or self._wake_writer()
            writer.finish(self.pointer_high or 0, self.receipts)
            self._sums = writer.sums.state
            self._writer = None
        self.is_locked = True
        self.is_writer = self._is_all_synced = self._is_at_rest = False
        if self.has_failed_to_sync:
            self.distrust()

    def distrust(self) -> None:
        """Of a reader of which a sync has failed: compare what is read with the sums each time."""
        if not self.is_writer:
            self._verify()

    def unseal(self) -> None:
        """Become the writer again; only the newest segment of a topic may.

        Raises:
            StorageFull: no room for a lock file; the segment is still a reader.
            WriteFailed: another failure; likewise.
            ReadFailed: its sums, or the files of another program's segment, cannot be read.
            FormatNotSupported: a newer version has written it.
            TopicDamaged: with `recovery="strict"`, data of the topic was found to be damaged.
        """
        with self._ending:
            if not self.is_writer:
                self._become_writer()

    def _become_writer(self) -> None:
        self.check_damage()
        self._forget_files()
        self._is_all_synced = False
        sums = self._sums
        is_closed = sums is not None and bool(sums.flags & Flag.CLEAN) and not self.is_locked
        if self._sums is None:
            self._sums = self._files.adopt()
        else:
            self._files.check_format()
        self._files.lock(self.size_bytes)
        self._own_receipts()
        if not is_closed:
            self._begin_writing()
        self.is_locked = False
        self.is_idle = is_closed
        self.is_writer = True
        self._synced = self._extent(self._sums)

    def is_in_place(self) -> bool:
        """Tell whether the data file has its name still; one that is not open may have it."""
        return self._reader is None or self._files.is_in_place(self._reader.file)

    def check_damage(self) -> None:
        """Refuse to go on behind damage where that was asked for.

        Raises:
            TopicDamaged: with `recovery="strict"`, it was found to be damaged.
        """
        if self.damage and self.options.recovery == "strict":
            raise TopicDamaged(self.damaged_path, self.damage[0])

    def close(self) -> None:
        """Seal, sync and hibernate; what lies on disk then is complete.

        After a sync that failed it stays locked, and the next start looks what is there.

        Raises:
            StorageFull: no room for what waits.
            WriteFailed: another failure.
            ReadFailed: the files could not be opened again.
        """
        self.seal()
        if self.is_locked and not self.has_failed_to_sync:
            self._sync_in_order()
        self.hibernate()

    def destroy(self) -> None:
        """Remove the files; the segment is an empty reader from then on, slices go on to work.

        Raises:
            WriteFailed: a file cannot be removed.
        """
        self.leave()
        self._forget_files()
        self.is_writer = False
        self.count = self.size_bytes = 0
        self.pointer_low = None
        self.receipts = None
        self._files.remove()

    def leave(self) -> None:
        """Have nothing more to do with the files, for which another object is about to stand.

        A thread may still sync for this one, and must not remove the lock of the other. Nor does it
        keep those before it, which may be gone, as long as the one behind it is not synced.
        """
        with self._ending:
            self.is_locked = False
            self._before = self._after = None


def _consecutive(first: int, count: int) -> Numbers:
    return np.arange(first, first + count, dtype=np.uint64)
