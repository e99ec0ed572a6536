"""The buffer of a downtime on disk: batches that no broker takes yet, kept across restarts.

    spool = Spool("spool")
    spool.append(batch)  # no broker can be reached
    while (spooled := spool.take()) is not None:  # one is back
        ...  # send it
        spool.done(spooled)  # it is delivered

Strategy: a batch is one message of a slab log; a mark tells how far they are done with. What was
never sent gets, as its number, an epoch to itself. So batches may be dropped, and be sent again
after a crash, without a gap or a repetition: see docs/decisions/0022.

Layout of a message of the log: a msgpack array
    1, topic, partition, put id (24 bytes, see `PutId`), size, messages
where a message is its bytes or an array of value, key and headers.
"""

import contextlib
import logging
from collections import Counter
from pathlib import Path
from typing import NamedTuple, Self
from uuid import uuid4

import msgpack  # type: ignore[import-untyped]  # it ships no type hints

from poe.client.producer.payload import Message, Messages
from poe.client.producer.producer_options import Drop, ProducerOptions, TopicOptions
from poe.client.producer.transport import OutgoingBatch
from poe.client.spool.spool_damage import SpoolDamage
from poe.client.spool.spool_mark import MARK_FILE, SpoolMark
from poe.errors import (
    FormatNotSupported,
    OptionError,
    PoeError,
    ReadFailed,
    SegmentLocked,
    StorageError,
)
from poe.option import check_option
from poe.protocol import PutId
from poe.protocol.put import PUT_ID_SIZE
from poe.storage import Files, RealFiles
from poe.storage.failure import reading
from poe.storage.foreign import foreign_names
from poe.storage.slab_log import CorruptSlabRecord, EndOfLog, OutOfBounds, Reader, Writer, expire
from poe.storage.slab_log.record import HEADER_BYTES

_VERSION = 1
_TYPES = [int, bytes, int, bytes, int, list]
_SLAB_BYTES = 10 * 1024 * 1024
_SLABS_COUNT_MIN = 8
_MESSAGE_MAX = 2**32 - 1
_EPOCH_MAX = 2**32 - 1
_FILES_OF_AN_EMPTY_LOG = {"writer.lock", f"{0:020}.sum", f"{0:020}.slab", MARK_FILE + "_new"}

_log = logging.getLogger(__name__)


class SpooledBatch(NamedTuple):
    """A batch in the spool."""

    address: int
    """Where it lies; those of later batches are greater."""

    batch: OutgoingBatch
    """Its `put_id` is never None."""


class Appended(NamedTuple):
    """What became of a batch, and of others for its sake."""

    address: int | None
    """Where it lies; None: it was dropped itself."""

    dropped: list[SpooledBatch]
    """What had to go, in order; this may include the batch itself, if it has an address."""


class Spool:
    """The batches of one producer that are not delivered yet; one thread at a time may call it.

    Always, of addresses in the log:

        done with <= taken and not done with <= not taken yet < end

    Batches come out in the order in which they went in, those of earlier lives first. Who sends
    them must not send the first of an epoch of a partition before the last of the one before is
    answered. Then `RepeatedPut`, and for a sequence of 0 `ProducerFenced`, mean that a batch was
    delivered before.

    Life: it makes the folder, or opens what an earlier life has left there, and holds its lock. A
    batch survives the end of the process from `append` on, and with `fsync` a power cut.
    """

    def __init__(
        self,
        path: str | Path | Files,
        *,
        bytes_max: int = 1 << 30,
        drop: Drop = "oldest",
        fsync: bool = False,
    ) -> None:
        """Open the spool in a folder, which is made when missing.

        Args:
            path: the folder, or a file layer in its place.
            bytes_max: bytes of batches at which some are dropped; the files may take a slab (an
                eighth of this, or 10 MiB) and some percent for checksums more.
            drop: which batches go then.
            fsync: whether batches survive a power cut.

        Raises:
            OptionError: the folder cannot be used, or holds something else; nothing is changed.
            SegmentLocked: another process uses the folder.
            FormatNotSupported: a newer version, or another program, has written there.
            ReadFailed: it cannot be read.
            StorageFull: no room to make or repair it.
            WriteFailed: making or repairing it failed for another reason.
        """
        check_option(TopicOptions, "downtime_drop", drop)
        check_option(ProducerOptions, "spool_bytes", bytes_max)
        self._files = files = _open_folder(path)
        self._bytes_max = bytes_max
        self._drop = drop
        self._slab_bytes = min(_SLAB_BYTES, bytes_max // _SLABS_COUNT_MIN + 1)
        try:
            self._writer = Writer(files, self._slab_bytes, message_max=_MESSAGE_MAX, fsync=fsync)
        except SegmentLocked as error:
            way_out = "stop it, or use another spool_dir"
            raise SegmentLocked(files.base, error.owner, way_out) from error
        except OptionError as error:
            raise OptionError("spool_dir", files.base, error.allowed) from error
        self.producer = uuid4().bytes
        """Of the numbers that batches get here."""
        self.count = 0
        """Messages that are neither delivered nor dropped."""
        self.counts: Counter[tuple[bytes, int]] = Counter()
        """The same by topic and partition."""
        self._epoch = 0
        self._peeked: SpooledBatch | None = None
        self._dropped: list[SpooledBatch] = []
        """What was dropped for room, and is to be told with the next batch that is appended."""
        """What `take` gives next, if it was read already."""
        self._rewind_to: int | None = None
        """Where the reader has to go first."""
        self._taken: dict[int, None] = {}
        self._delivered: set[int] = set()
        """Addresses of batches that are delivered, with some before them that are not."""
        self.damage = SpoolDamage(files.base)
        self._dropped_epoch: object = None
        try:
            self._reader = Reader(files)
            self._mark = SpoolMark(files, self._reader.address, self._writer.address)
            self._trimmed = self._reader.address
            self._count_all()
        except BaseException:  # Ctrl-C, too, since all that is there is read
            self._writer.release()  # or the error would keep the lock
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def path(self) -> str:
        """The folder."""
        return self._files.base

    @property
    def size(self) -> int:
        """Bytes from the oldest batch that is not done with to the end."""
        return self._writer.address - self._mark.address

    @property
    def end(self) -> int:
        """Where the next batch will lie."""
        return self._writer.address

    def is_done_to(self, address: int) -> bool:
        """Return whether all before an address is delivered or dropped."""
        return self._mark.address >= address

    @property
    def is_empty(self) -> bool:
        """Return whether all is delivered or dropped."""
        return self.size == 0

    def count_lost(self, topic: bytes, partition: int, count: int) -> None:
        """Note how many messages were in a damaged place, unless all was counted anew."""
        count = min(count, self.counts[topic, partition])
        self.count -= count
        self.counts[topic, partition] -= count

    def append(self, batch: OutgoingBatch) -> Appended:
        """Add a batch; where there is no room, drop the oldest, or else this one.

        Without a put id it was never sent, and gets one. With one it may have been: it keeps it,
        and those of its epoch and partition are appended one behind the other. They are dropped
        together, since without the first the others could not be stored. What is taken and not
        done with is never dropped, this one goes instead.

        Raises:
            StorageFull: no room on the disk; the batch was not taken, and nothing dropped.
            WriteFailed: another failure of the disk; likewise.
            SyncFailed: an earlier sync failed, so the spool takes nothing more; likewise.
            LogClosed: the spool is closed.
        """
        batch = self._with_id(batch)
        content = _encode(batch)
        size = HEADER_BYTES + len(content)
        is_over = self.size + size > self._bytes_max
        is_first_to_go = self._drop == "newest" or self._taken or size > self._bytes_max
        if (is_over and is_first_to_go) or _epoch_of(batch) == self._dropped_epoch:
            self._dropped_epoch = _epoch_of(batch)
            return Appended(None, [])
        self._add_count(batch, 1)
        address = None
        try:
            address = self._write(content)
            if is_over:
                self._make_room()
            appended = Appended(address, self._dropped)
        except BaseException:  # a signal's, too
            self._add_count(batch, -1)
            if address is not None:
                self._delivered.add(address)  # it comes again, as another one
            raise
        self._dropped = []
        return appended

    def take(self) -> SpooledBatch | None:
        """Return the next batch; None where there is none.

        Raises:
            ReadFailed: it cannot be read; the next call tries again.
        """
        taken = self._pop()
        if taken is not None:
            self._taken[taken.address] = None
        self._release()
        return taken

    def rewind(self) -> None:
        """Begin again with the oldest batch that was taken and is not done with."""
        self._taken.clear()
        self._peeked = None
        self._rewind_to = self._mark.address

    def done(self, spooled: SpooledBatch) -> None:
        """Note that a batch that was taken is delivered, or will never be."""
        address = spooled.address
        if address < self._mark.address or address in self._delivered:
            return
        self._taken.pop(address, None)
        self._delivered.add(address)
        self._add_count(spooled.batch, -1)
        self._release()

    def close(self) -> None:
        """Let other processes use the folder; what is not done with stays there."""
        self._trim()
        try:
            self._writer.close()
        except StorageError as error:
            # All was flushed; the next life only has to look for its end.
            _log.warning("spool %s was not closed in good order: %s", self._files.base, str(error))
            self._writer.release()

    def forget(self) -> None:
        """Let go of the copy of the lock that a fork has made; the parent still holds it."""
        self._writer.release()

    # ---- inside -------------------------------------------------------------------------------

    def _with_id(self, batch: OutgoingBatch) -> OutgoingBatch:
        if batch.put_id is not None:
            return batch
        if self._epoch == _EPOCH_MAX:
            self.producer, self._epoch = uuid4().bytes, 0
        self._epoch += 1
        return batch._replace(put_id=PutId(self.producer, self._epoch, 0))

    def _add_count(self, batch: OutgoingBatch, times: int) -> None:
        self.count += times * len(batch.messages)
        self.counts[batch.topic, batch.partition] += times * len(batch.messages)

    def _write(self, content: bytes) -> int:
        """Write a message of the log, whole or not at all."""
        address = self._writer.address
        try:
            self._writer.write(content)
            self._writer.flush()
        except BaseException as error:
            self._writer.discard()
            if self._writer.address == address:
                raise
            if not isinstance(error, StorageError):  # a signal's: it comes again, as another one
                self._delivered.add(address)
                raise
            # It is there, but not synced: the next one is refused, or syncs it, too. A log that
            # kept the error itself would keep this spool, and its lock.
            _log.error("spool %s: %s", self._files.base, str(error))
        return address

    def _make_room(self) -> None:
        """Drop the oldest batches, as far as they can be read."""
        try:
            while (oldest := self._peek()) is not None:
                epoch = _epoch_of(oldest.batch)
                is_room = self._writer.address - oldest.address <= self._bytes_max
                if is_room and epoch != self._dropped_epoch:
                    break
                self._dropped_epoch = epoch
                self._peeked = None
                self._add_count(oldest.batch, -1)
                self._dropped.append(oldest)
        except StorageError as error:
            _log.error("spool %s is too large: %s", self._files.base, str(error))
        self._release()

    def _pop(self) -> SpooledBatch | None:
        popped, self._peeked = self._peek(), None
        return popped

    def _peek(self) -> SpooledBatch | None:
        """Read the next batch, behind what is damaged or delivered already.

        Raises:
            ReadFailed: it cannot be read, or the folder is gone.
        """
        try:
            return self._read_on()
        except OptionError as error:
            raise ReadFailed(self._files.base, "its files are gone") from error

    def _read_on(self) -> SpooledBatch | None:
        if self._rewind_to is not None:
            self._reader.seek(self._rewind_to)
            self._rewind_to = None
        while self._peeked is None:
            address = self._reader.address
            try:
                content = self._reader.read()
            except EndOfLog:
                return None
            except CorruptSlabRecord as error:
                self._skip(address, error.next_address, error)
            except OutOfBounds as error:
                self._skip(address, error.lowest, error)
            else:
                if address not in self._delivered:
                    self._peeked = SpooledBatch(address, _decode(content, self._files.base))
        return self._peeked

    def _skip(self, address: int, next_address: int, error: PoeError) -> None:
        if address not in self._delivered:
            self.damage.note(address, next_address, error)
        self._reader.seek(next_address)

    def _release(self) -> None:
        """Let go of what is done with."""
        if not self._taken and self._rewind_to is None and self._reader.address in self._delivered:
            with contextlib.suppress(StorageError):  # then the next `take` tells
                self._peek()
        next_ = self._reader.address if self._peeked is None else self._peeked.address
        oldest = next(iter(self._taken), next_)
        if oldest == self._mark.address or self._rewind_to is not None:
            return
        self._mark.move(oldest)
        self._delivered = {each for each in self._delivered if each >= oldest}
        if self.is_empty:  # also of what was damaged since it was counted
            self.count = 0
            self.counts.clear()
        if oldest - self._trimmed >= self._slab_bytes:
            self._trim()

    def _trim(self) -> None:
        """Remove the slabs whose batches are all done with."""
        self._trimmed = self._mark.address
        try:
            expire(self._files, address_min=self._mark.address)
        except PoeError as error:
            _log.warning(
                "spool %s: slabs that are done with stay: %s", self._files.base, str(error)
            )

    def _count_all(self) -> None:
        """Count what an earlier life has left; skip what is damaged of it."""
        self.rewind()
        while (found := self._pop()) is not None:
            self._add_count(found.batch, 1)
        self.rewind()
        self._peek()
        self._release()


def _open_folder(path: str | Path | Files) -> Files:
    """Open a folder that is empty or a spool's.

    Raises:
        OptionError: it is something else, or cannot be used.
        ReadFailed: it cannot be read.
    """
    if not isinstance(path, str | Path):
        files = path
    elif not str(path):
        raise OptionError("spool_dir", path, "a folder, '.' for the current one")
    else:
        try:
            files = RealFiles.at(Path(path))
        except OptionError as error:
            raise OptionError("spool_dir", str(path), error.allowed) from error
    with reading(files.base):
        entries = files.list_folder("")
        strange = foreign_names(entries, lambda entry: entry.name in _FILES_OF_AN_EMPTY_LOG)
        # What a crash leaves of a spool that was being made holds nothing.
        if files.size(f"{0:020}.slab"):
            strange.append(f"{0:020}.slab")
    if strange and all(entry.name != MARK_FILE for entry in entries):
        allowed = f"an empty folder, or that of a spool (there is {min(strange)!r} in it)"
        raise OptionError("spool_dir", files.base, allowed)
    return files


def _id_of(batch: OutgoingBatch) -> PutId:
    assert batch.put_id is not None
    return batch.put_id


def _epoch_of(batch: OutgoingBatch) -> object:
    producer, epoch, _ = _id_of(batch)
    return batch.topic, batch.partition, producer, epoch


def _encode(batch: OutgoingBatch) -> bytes:
    topic, partition, messages, _, size = batch
    fields = (_VERSION, topic, partition, _id_of(batch).encode(), size, messages)
    return msgpack.packb(fields)  # type: ignore[no-any-return]


def _decode(content: bytes, path: str) -> OutgoingBatch:
    """Return a batch from the log.

    Raises:
        FormatNotSupported: the checksums are right, so this is what was written, and not by us.
    """
    with contextlib.suppress(ValueError, TypeError, msgpack.UnpackException):
        version, topic, partition, put_id, size, messages = msgpack.unpackb(content)
        types = list(map(type, (version, topic, partition, put_id, size, messages)))
        if types == _TYPES and version == _VERSION and len(put_id) == PUT_ID_SIZE and messages:
            found: Messages = messages
            if set(map(type, messages)) != {bytes}:
                found = [Message(*each) for each in messages]
            return OutgoingBatch(topic, partition, found, PutId.decode(memoryview(put_id)), size)
    raise FormatNotSupported(path, f"a batch that begins with {content[:8].hex()}")
