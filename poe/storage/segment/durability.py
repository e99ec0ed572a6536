"""How far a segment has come on its way to the disk: what a power cut would leave of it.

Segments of a topic become durable in their order, since what comes behind a hole is cut off. A
thread waits for the disk while the segment goes on. Strategy: such a thread changes what is here,
and nothing else of a segment.
"""

import contextlib
import threading
from collections.abc import Callable
from dataclasses import replace
from enum import Enum, auto
from functools import partial

from poe.errors import NoDescriptors, StorageError, StorageFull
from poe.storage.files import OpenFile
from poe.storage.formats.sum_file import Flag, SumState
from poe.storage.recovery.recovery import Extent
from poe.storage.segment.receipts import Receipts
from poe.storage.segment.record_reader import RecordReader
from poe.storage.segment.segment_files import SegmentFiles
from poe.storage.segment.sum_writer import SumWriter
from poe.storage.shared_sync import SharedSync


class Stage(Enum):
    """How far it has come."""

    FOUND = auto()
    """A reader that has no lock; whether all of it is durable was not looked at."""

    WRITTEN = auto()
    """A writer's."""

    SEALED = auto()
    """It takes no more, and is locked until it has ended: only of a locked segment is it known that
    a power cut may have torn it."""

    SYNCED = auto()
    """Sealed, and all of it is durable: it ends when those before it have, and there is room."""

    ENDED = auto()
    """All of it is durable, the sums say so, and it is not locked."""


_SEALED = frozenset({Stage.SEALED, Stage.SYNCED})


class Durability:
    """What of one segment is durable, and what makes more of it so.

    Always: it ends behind the segment before it, if that is still to end.

    One thread at a time may call it; what it returns may be called in another one. `ending` is held
    by a thread that ends the segment, and by whoever makes something else of it: an end that came
    later would take the lock, and the last entry of the sums, of that.
    """

    __slots__ = (
        "_after",
        "_are_names_synced",
        "_before",
        "_files",
        "_owner",
        "ending",
        "extent",
        "failure",
        "stage",
    )

    def __init__(self, files: SegmentFiles, extent: Extent) -> None:
        """Stand for the files of a segment as they were found, or made."""
        self._files = files
        self._owner: object = None
        # The segment before it in the topic, until that is durable, or known never to be.
        self._before: Durability | None = None
        self._after: Durability | None = None
        self._are_names_synced = False
        self.ending = threading.Lock()
        self.stage = Stage.FOUND
        self.failure = ""
        """What a sync has failed of, in whatever thread: nobody knows what is durable, and the lock
        stays for the next start. Beside the stage, which the segment goes on to change."""
        self.extent = extent
        """Of a writer what the last sync has covered; of a reader all of it."""

    @property
    def is_locked(self) -> bool:
        """Whether a reader has a lock; a writer of which a sync has failed, too."""
        return self.is_to_end or self.has_failed

    @property
    def is_to_end(self) -> bool:
        """Whether it is sealed, and can end once all of it is durable; in any thread."""
        return not self.failure and self.stage in _SEALED

    @property
    def is_behind_others(self) -> bool:
        """Whether all of a sealed segment is durable, and it ends once the one before it has."""
        is_synced = self.stage is Stage.SYNCED and not self.failure
        return is_synced and self._pending_before() is not None

    @property
    def has_failed(self) -> bool:
        """Whether a sync of it has failed."""
        return self.failure != ""

    @property
    def pending_pointer(self) -> int:
        """Pointer of the last message in the topic, while a power cut may take it; else 0.

        Only of a segment that is sealed.
        """
        if not self.is_to_end:
            return 0
        return self.extent.pointer_high or (self._before.pending_pointer if self._before else 0)

    # ---- what becomes of the segment -----------------------------------------------------------

    def follow(self, before: "Durability") -> None:
        """Come behind another segment, which is sealed."""
        self._before = before
        before._after = self  # noqa: SLF001 - of its own class

    def belong_to(self, owner: object) -> None:
        """Note who has it synced, for whoever has that of the segment before it."""
        self._owner = owner

    def take_next(self) -> object:
        """Return the owner of the next segment, if that waits for the end of this one; once."""
        after, self._after = self._after, None
        return after._owner if after is not None and after.is_locked else None  # noqa: SLF001

    def begin(self, extent: Extent, *, are_names_synced: bool = False) -> None:
        """Be a writer's, all of which is as durable as it will be."""
        self.extent = extent
        self._are_names_synced = self._are_names_synced or are_names_synced
        self.stage = Stage.WRITTEN

    def found(self, extent: Extent) -> None:
        """Be a reader's whose files are as a start finds them."""
        self.extent = extent
        self.stage = Stage.FOUND

    def seal(self, extent: Extent) -> None:
        """Be a reader's that was a writer's: it is to end."""
        self.extent = extent
        self.stage = Stage.SEALED

    def begin_anew(self) -> None:
        """Be a writer's again after a sync that failed, with what the one before it covered."""
        self.failure = ""
        self.stage = Stage.WRITTEN

    def leave(self) -> None:
        """Have nothing more to do with the files, for which another object is about to stand.

        A thread may still sync for this one, and must not remove the lock of the other. Nor does it
        keep those before it, which may be gone, as long as the one behind it is not synced.
        """
        with self.ending:
            self.failure = ""
            self.stage = Stage.ENDED
            self._before = self._after = None

    # ---- syncs -----------------------------------------------------------------------------------

    def writers_sync(
        self,
        sync: Callable[[], None],
        sums: SumWriter,
        extent: Extent,
        receipts: Receipts | None,
        shared: SharedSync | None,
    ) -> Callable[[], None]:
        """Return what makes a writer durable, up to an extent; see `Segment.begin_sync`.

        `sync` makes its open files so; its sums, and its receipts, are told of it then.
        """

        def note() -> None:
            # In this order: as soon as the sync is over, a flush writes the entry that says so.
            if self._pending_before() is None:
                sums.note_synced()
            sums.end_sync()
            if self.stage is Stage.WRITTEN and not self.failure:
                self.extent = extent
            if receipts is not None:
                receipts.note_synced()

        return self._with_names(sync, note, shared)

    def readers_sync(
        self, reader: RecordReader | None, shared: SharedSync | None = None
    ) -> Callable[[], None]:
        """Return what makes a reader durable, and ends it; see `Segment.begin_sync`.

        `reader` has its files, if those are open.

        Raises:
            ReadFailed: a file cannot be opened.
        """
        sum_file = self._files.open_sums()
        sync = _nothing
        if self.failure or self.stage not in (Stage.SYNCED, Stage.ENDED):
            sync = self._files.begin_sync(reader, sum_file)
        return self._with_names(sync, partial(self._end, sum_file), shared)

    def sync_before(self) -> None:
        """Make durable what comes before it.

        Raises:
            StorageError: as `Segment.begin_sync`.
        """
        before = self._pending_before()
        if before is not None:
            before.sync_in_order(None)

    def sync_in_order(self, reader: RecordReader | None) -> None:
        """Make all of a sealed segment durable, and what comes before it, so that it can end.

        Raises:
            StorageError: as `Segment.begin_sync`.
        """
        waiting = [self]
        while (before := waiting[-1]._pending_before()) is not None:  # noqa: SLF001 - its own class
            waiting.append(before)
        while len(waiting) > 1:
            waiting.pop().readers_sync(None)()
        self.readers_sync(reader)()

    def _with_names(
        self,
        sync: Callable[[], None],
        then: Callable[[], None],
        shared: SharedSync | None,
    ) -> Callable[[], None]:
        """Return what syncs names and files, unless others share that, and then notes it."""
        ticket = None if shared is None else shared.ticket()

        def run() -> None:
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
                self.failure = str(error) or type(error).__name__
                raise

        return run

    # ---- the end ---------------------------------------------------------------------------------

    def end_behind_sync(self) -> SumState | None:
        """Write that it ends here: all that was written to the disk before is durable now.

        Returns what its sums are once that is durable, too, for `note_behind_sync`.

        Raises:
            ReadFailed: the sums cannot be opened.
            StorageFull, WriteFailed: the disk does not take it.
        """
        self._are_names_synced = True
        sum_file = self._files.open_sums()
        with self.ending:
            return self._write_end(sum_file)

    def note_behind_sync(self, ended: SumState | None) -> bool:
        """Note that it has ended: what `end_behind_sync` wrote is durable, too.

        Returns whether it has; `unlock` is to follow then.
        """
        with self.ending:
            if not self._is_next_to_end():
                return False
            self._note(ended)
            self.stage = Stage.ENDED
            return True

    def unlock(self) -> None:
        """Have the lock go of a segment that is noted as ended; else its own close tries again."""
        with self.ending:
            try:
                self._files.unlock()
            except StorageError:
                self.stage = Stage.SYNCED

    def _end(self, sum_file: OpenFile | None) -> None:
        """Say of a sealed segment, all of which is durable, that it ends here, and unlock it.

        Only then: what a power cut leaves behind is known by that, whatever becomes of the lock.
        And only when the segment before it has ended: what comes behind a hole proves nothing.
        """
        # A full disk costs nothing here, and the next sync tries again. After another failure of it
        # nobody knows what the sums say, as after any sync that failed.
        with self.ending, contextlib.suppress(StorageFull):
            if not self._is_next_to_end():
                return
            ended = self._write_end(sum_file)
            if ended is not self.extent.sums and sum_file is not None:
                self._files.sync_end(sum_file)
            self._note(ended)
            # A lock that stays is the next start's.
            with contextlib.suppress(StorageError):
                self._files.unlock()
                self.stage = Stage.ENDED

    def _is_next_to_end(self) -> bool:
        """Note that all of it is durable; tell whether that goes for what is before it, too."""
        if self.failure:
            return False
        if self.stage is Stage.FOUND:
            self.stage = Stage.ENDED
        elif self.stage is Stage.SEALED:
            self.stage = Stage.SYNCED
        return self.stage is Stage.SYNCED and self._pending_before() is None

    def _write_end(self, sum_file: OpenFile | None) -> SumState | None:
        """Write that it ends here, if nothing says so yet, and return what its sums are then."""
        extent, sums = self.extent, self.extent.sums
        if sums is None or sum_file is None or sums.flags & Flag.CLEAN:
            return sums
        return self._files.write_end(sum_file, sums, extent.size_bytes, extent.pointer_high)

    def _note(self, ended: SumState | None) -> None:
        """Note that it has ended."""
        self.extent = replace(self.extent, sums=ended)
        self._files.note_sealed(self.extent)

    def _pending_before(self) -> "Durability | None":
        """Return what is in front of the segment, while a power cut may take of that."""
        if self._before is not None and not self._before.is_to_end:
            self._before = None
        return self._before


def _nothing() -> None:
    """Sync what is durable already."""
