"""The writer of a slab log: takes messages, gives their addresses, and fills slab after slab.

Strategy: `write` only puts the message into a buffer; its address follows from the sizes alone.
`flush` takes the buffer apart into batches of 512 KiB at most, and each is encoded, hashed and
written at once. So a message costs a fraction of what its own record and write would.
"""

import os
from collections import deque
from collections.abc import Sequence
from itertools import accumulate
from pathlib import Path
from typing import Self

from poe.errors import OptionError, SyncFailed
from poe.storage.failure import writing
from poe.storage.files import Files, OpenFile
from poe.storage.real_files import RealFiles
from poe.storage.slab_log.errors import LogClosed, MessageTooLarge
from poe.storage.slab_log.record import (
    HEADER_BYTES,
    LENGTH_MAX,
    Batch,
    Bytes,
    Rows,
    as_bytes,
    as_rows,
    count_within,
    encode,
)
from poe.storage.slab_log.recovery import recover
from poe.storage.slab_log.slab_name import find_slabs, refuse_empty, warn_of_strays
from poe.storage.slab_log.slab_sum import Flag
from poe.storage.slab_log.slab_writer import SlabWriter, sync_slabs
from poe.storage.slab_log.writer_lock import lock_log, note_boot

_BATCH_BYTES = 512 * 1024
_BUFFER_BYTES = 256 * 1024


class Writer:
    """The one writer of a log; owns its lock. One thread at a time may call it.

    Always:

        slab.end + buffered bytes == address

    Life: it opens the log, made when missing, and repairs what the last writer left; the first one
    after a reboot makes that durable before it builds on it. What `write` returned is in memory;
    after `flush` it survives the end of the process, after `sync` a power cut. `close` flushes and
    releases the lock; a writer that is dropped releases it, too, and what was not flushed is gone.

    Source: queuefka.go, Writer.
    """

    __slots__ = (
        "_buffer_bytes_max",
        "_files",
        "_flush_at",
        "_lock",
        "_message_max",
        "_must_sync",
        "_pid",
        "_singles",
        "_slab",
        "_slab_size_hint",
        "_sync_failure_reason",
        "_unsynced_start",
        "_waiting",
        "_written_count",
        "address",
    )

    def __init__(
        self,
        path: str | Path | Files,
        slab_size_hint: int = 10 * 1024 * 1024,
        *,
        message_max: int = 16 * 1024 * 1024,
        buffer_bytes_max: int = _BUFFER_BYTES,
        fsync: bool = False,
    ) -> None:
        """Open a log.

        Args:
            path: its folder, or a file layer in its place.
            slab_size_hint: a slab that exceeds this many bytes is the last but one.
            message_max: bytes of the largest message that is taken.
            buffer_bytes_max: with this much in the buffer, the next write flushes it first.
            fsync: whether each flush makes what it writes durable.

        Raises:
            OptionError: the folder cannot be used, or a number is out of range.
            SegmentLocked: the log has a writer already.
            ReadFailed: the newest slab cannot be read.
            StorageFull: no room to make or repair it.
            WriteFailed: making or repairing it failed for another reason.
            SyncFailed: the first writer after a reboot could not make durable what it found.
            NoDescriptors: the process may open no more files; to be tried again.
        """
        for key, value, limit in (
            ("slab_size_hint", slab_size_hint, 2**63),
            ("message_max", message_max, LENGTH_MAX),
            ("buffer_bytes_max", buffer_bytes_max, 2**40),
        ):
            if not 1 <= value <= limit:
                raise OptionError(key, value, f"1 to {limit} (bytes)")
        refuse_empty(path)
        self._files = RealFiles.at(Path(path)) if isinstance(path, str | Path) else path
        self._slab_size_hint = slab_size_hint
        self._message_max = message_max
        self._buffer_bytes_max = buffer_bytes_max
        self._must_sync = fsync
        self._pid = os.getpid()
        self._lock: OpenFile | None
        self._lock, is_this_boot = lock_log(self._files)
        try:
            self._slab = self._begin(is_this_boot=is_this_boot)
        except BaseException:  # who keeps the error keeps this writer, too, but not its lock
            self._lock = None
            raise
        # Not the error itself: its traceback refers to this writer, which would keep its lock when
        # it is dropped.
        self._sync_failure_reason: str | None = None
        # What an earlier writer left may not be durable either.
        self._unsynced_start = 0
        self._singles: list[bytes] = []
        """Messages that follow those of `_waiting`."""
        self._waiting: deque[Batch] = deque()
        self._written_count = 0
        """Messages of the first batch in `_waiting` that are written."""
        self.address: int = self._slab.end
        """Where the next message goes; an address to read on from."""
        self._flush_at = self.address + buffer_bytes_max

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def write(self, message: Bytes) -> int:
        """Take a message, and return its address.

        Raises:
            MessageTooLarge: it is larger than `message_max`.
            StorageFull: the buffer is full, and there is no room on the disk for what is in it.
            WriteFailed: the buffer is full and cannot be written for another reason.
            SyncFailed: with `fsync`: a sync failed, now or before.
            NoDescriptors: with `fsync`: the process may open no more files; to be tried again.
            LogClosed: the writer is closed, or the copy that a fork has made of one.
        """
        if type(message) is not bytes:
            message = as_bytes(message)
        length = len(message)
        if length > self._message_max:
            raise MessageTooLarge(length, self._message_max)
        address = self.address
        if address >= self._flush_at:
            self.flush()
        # In this order, so that no signal, such as Ctrl-C, comes between: it does behind calls.
        self.address = address + HEADER_BYTES + length
        self._singles.append(message)
        return address

    def write_many(self, messages: Sequence[Bytes] | Rows) -> Sequence[int]:
        """Take all of the messages or none, and return their addresses.

        A matrix of bytes holds one message a row; it is the fastest, then messages of one size.

        Raises:
            MessageTooLarge, StorageFull, WriteFailed, SyncFailed, LogClosed: as `write`.
        """
        rows = as_rows(messages)
        if rows is not None:
            count, length = rows.shape
            stride = HEADER_BYTES + length
            ends: Sequence[int] = range(self.address, self.address + count * stride + 1, stride)
        else:
            singles = list(map(as_bytes, messages))
            length = max(map(len, singles), default=0)
            sizes = (HEADER_BYTES + len(message) for message in singles)
            ends = list(accumulate(sizes, initial=self.address))
        if length > self._message_max:
            raise MessageTooLarge(length, self._message_max)
        if self.address >= self._flush_at:
            self.flush()
        if rows is not None:
            self._gather()
            self._waiting += [rows]  # no call, see `write`
        else:
            self._singles += singles
        self.address = ends[-1]
        return ends[:-1]

    def flush(self) -> None:
        """Hand all that is in the buffer to the kernel; on an error what is left stays there.

        Raises:
            StorageFull: no room on the disk.
            WriteFailed: another failure of the disk.
            SyncFailed: with `fsync`: a sync failed, now or before.
            NoDescriptors: with `fsync`: the process may open no more files; to be tried again.
            LogClosed: the writer is closed, or the copy that a fork has made of one.
        """
        if not self._is_open():
            raise LogClosed(self._files.base)
        if self._sync_failure_reason is not None:
            raise SyncFailed(self._files.base, self._sync_failure_reason)
        self._gather()
        while self._waiting:
            self._write_batch(self._waiting[0])
        self._flush_at = self.address + self._buffer_bytes_max
        if self._must_sync:
            self._make_durable()

    def sync(self) -> None:
        """Make all that was written durable.

        Raises:
            SyncFailed: it is in the log, but may be lost in a power cut. The kernel may have
                dropped what it could not write, so that no later sync would be true: this writer
                only closes from now on. Open another, and write again what must not be lost.
            NoDescriptors: it is in the log, but may be lost, since the process may open no more
                files; the next sync tries again.
            StorageFull: no room on the disk for what is in the buffer.
            WriteFailed: it cannot be written for another reason.
            LogClosed: the writer is closed, or the copy that a fork has made of one.
        """
        self.flush()
        if not self._must_sync:
            self._make_durable()

    def discard(self) -> None:
        """Forget what is in the buffer: after a flush that raised, what it could not write."""
        self._singles = []
        self._waiting.clear()
        self._written_count = 0
        self.address = self._slab.end

    def close(self) -> None:
        """Flush, and let others write; on an error the writer stays open, but after a SyncFailed.

        Raises:
            StorageFull, WriteFailed, NoDescriptors, SyncFailed: as `flush`; or the last sync has
                failed.
        """
        if not self._is_open():
            return
        try:
            self.flush()
            self._slab.cut()
            self._slab.mark(Flag.CLEAN)
            if self._must_sync:
                self._make_durable()
        except SyncFailed:
            self.release()
            raise
        self.release()

    def release(self) -> None:
        """Let others write, without a flush: what is in the buffer is gone, as after a kill."""
        self._lock = None
        # The next write has to ask for a flush, which knows that the writer is closed.
        self._flush_at = 0

    def _begin(self, *, is_this_boot: bool) -> SlabWriter:
        """Open the newest slab, or make the first one; settle what is older than this boot."""
        with writing(self._files.base):
            starts = find_slabs(self._files)
            warn_of_strays(self._files)
        slab = recover(self._files, starts[-1]) if starts else SlabWriter.create(self._files, 0)
        if not is_this_boot:
            if starts:
                slab.settle()
            assert self._lock is not None
            note_boot(self._lock, self._files.process_id, self._files.boot_id)
        return slab

    def _is_open(self) -> bool:
        """Return whether it may write; the copy that a fork has made may not, nor close anything.

        What it wrote would lie where the other process writes, too.
        """
        return self._lock is not None and self._pid == os.getpid()

    def _gather(self) -> None:
        """Queue the single messages behind the batches."""
        if self._singles:
            rows = as_rows(self._singles)
            self._waiting += [self._singles if rows is None else rows]  # no call, see `write`
            self._singles = []

    def _write_batch(self, batch: Batch) -> None:
        """Write as much of the first batch as one entry covers."""
        if self._slab.end - self._slab.start > self._slab_size_hint:
            self._roll()
        slab, first = self._slab, self._written_count
        room_bytes = min(_BATCH_BYTES, slab.start + self._slab_size_hint - slab.end)
        count = count_within(batch, first, room_bytes)
        some = batch[first : first + count]
        is_all = first + count == len(batch)
        data = encode(some)
        end = slab.end + len(data)
        try:
            slab.append(data, end - HEADER_BYTES - len(some[-1]), count)
        finally:
            if slab.end == end:  # also where a signal's exception comes just behind it
                self._written_count = 0 if is_all else first + count
                if is_all:
                    self._waiting.popleft()

    def _roll(self) -> None:
        """Go on in a new slab."""
        full = self._slab
        # Made first: should that fail, nothing has changed.
        self._slab = SlabWriter.create(self._files, full.end, full.log_id)
        full.mark(Flag.SEALED)

    def _make_durable(self) -> None:
        """Sync all slabs that may not be durable; the newest is the last."""
        try:
            if self._unsynced_start < self._slab.start:
                sync_slabs(self._files, self._unsynced_start, self._slab.start)
                self._unsynced_start = self._slab.start
            self._slab.sync()
        except SyncFailed as error:
            self._sync_failure_reason = error.reason
            raise
