"""Makes what was put onto one segment durable: a sync at a time, shared by all who wait for it.

A thread waits for the disk, and the appendix server goes on meanwhile. Whatever is put during a
sync waits for the next one, which begins when half of those who put lately are there, or a moment
later. The others put while it runs: neither the disk nor this thread waits for the other for long.
What nobody waits for is synced, too, `sync_interval` after it was put.

When a sync fails, what was put with `ack="fsync"` and is not acknowledged is cut off, and those who
wait for it are told that the topic has moved: they still hold their messages, and put them onto
its next segment. Messages that were acknowledged before their sync are never cut off.
"""

import logging
from enum import Enum, auto
from typing import Any, cast
from weakref import proxy

from poe.actors import NO_REPLY, ActorRef, Call, GenServer, Timer, Work
from poe.actors.work import DISK_THREADS
from poe.broker.appendix.message import MOVED
from poe.broker.appendix.sync_rounds import SyncRounds
from poe.errors import NoDescriptors, StorageError, SyncFailed, WriteFailed
from poe.storage import Segment

logger = logging.getLogger("poe.broker")

_GATHER_S = 0.001
"""The longest time that a group waits for others to join it."""


class SyncAlarm(Enum):
    """Sent to the appendix server, which gives it to `GroupSync.ring`."""

    GATHERED = auto()
    """A group has waited for others to join it."""
    UNASKED = auto()
    """Something was put that nobody waits for."""
    FIRST = auto()
    """The segment before it has ended, so that it may, too."""


class GroupSync:
    """The syncs of one segment, for its appendix server, which says when something was put.

    Always:

        a sync that fails is the last of the files that were open for it
        visible_pointer <= pointer of the last message that a sync covered
    """

    __slots__ = (
        "_enough",
        "_gathering",
        "_group",
        "_interval_s",
        "_is_cutting",
        "_is_retry",
        "_moved",
        "_rounds",
        "_segment",
        "_server",
        "_sync_began_s",
        "_syncing",
        "_timer",
        "_to_be_visible",
        "is_dirty",
        "is_due",
        "visible",
        "visible_pointer",
        "work",
    )

    def __init__(
        self, server: GenServer, segment: Segment, interval_s: float, rounds: SyncRounds
    ) -> None:
        # Weakly: it is a part of the server, and ends with it.
        self._server: GenServer = cast("GenServer", proxy(server))
        self._segment = segment
        self._interval_s = interval_s
        self._rounds = rounds
        self._timer: Timer | None = None
        self._gathering: Timer | None = None
        self._enough = 1
        self._group: list[tuple[Call, object]] = []
        self._syncing: list[tuple[Call, object]] = []
        self._moved: list[Call] = []
        self._is_cutting = False
        self._sync_began_s = 0.0
        self._is_retry = segment.is_retry  # and no sync has gone well since
        self._to_be_visible = (0, 0, 0)
        self.work: Work | None = None
        """A sync, or what makes a cut durable; nothing else may change the files meanwhile."""
        self.is_dirty = segment.count > 0
        segment.durability.belong_to(server.ref)
        self.is_due = False
        """Something was put since the last sync began."""
        self.visible: tuple[int, int] | None = None
        """Records and bytes that consumers may see; None stands for all of them."""
        self.visible_pointer = 0

    def hide_unsynced(self) -> None:
        """From now on show consumers only what is synced; what is there already is synced first.

        Raises:
            StorageError: the disk did not take it.
        """
        segment = self._segment
        self.visible = (0, 0)
        if segment.count:
            self._to_be_visible = _extent(segment)
            segment.begin_sync()()
            segment.hibernate()
            self.is_dirty = False
            self._show()

    def hide_from_now(self) -> None:
        """From now on show consumers only what is synced; what they could see they still can."""
        self.visible = self._segment.flushed_extent()
        count, _, pointer = _extent(self._segment)
        # Of what waits in memory behind the visible, the pointer would be too high. With 0, who
        # waits for news waits for the next sync.
        self.visible_pointer = pointer if self.visible[0] == count else 0

    def show_all(self) -> None:
        """From now on show consumers all that was put."""
        self.visible = None

    def mark_dirty(self) -> None:
        """Note that something was put."""
        self.is_dirty = self.is_due = True
        if self._timer is None and self._interval_s:
            self._timer = self._server.send_after(self._interval_s, SyncAlarm.UNASKED)

    def join(self, caller: Call, answer: object) -> Any:  # noqa: ANN401 - the runtime's directive
        """Answer after the next sync to begin, which covers all that was put before."""
        self._group.append((caller, answer))
        if self.work is None:
            if len(self._group) == self._enough:
                # Behind the puts that are already on their way.
                self._server.cast(self._server.ref, SyncAlarm.GATHERED)
            elif len(self._group) < self._enough:
                self._gather()
        return NO_REPLY

    def begin_gathered(self) -> None:
        """Sync for the group that waits: if it is large enough, or else in a moment."""
        if len(self._group) >= self._enough:
            self.begin()
        elif self._group:
            self._gather()

    def _gather(self) -> None:
        if self._gathering is None:
            self._gathering = self._server.send_after(_GATHER_S, SyncAlarm.GATHERED)

    def send_on(self, caller: Call) -> Any:  # noqa: ANN401 - the runtime's directive
        """Answer that the topic has moved, once the disk has made up its mind.

        Before, sealing would wait for it, and with it the registry.
        """
        if self.work is None:
            return MOVED
        self._moved.append(caller)
        return NO_REPLY

    def begin(self) -> None:
        """Sync for the group that waits, if one does and no sync runs."""
        if self._gathering is not None:
            self._gathering.cancel()
            self._gathering = None
        if self._group and self.work is None:
            self._sync()

    def sync_unasked(self) -> None:
        """Sync what nobody waits for, so that a power cut costs little."""
        self._timer = None
        if not self.is_dirty or self._segment.durability.has_failed:
            return
        if self.work is None and not self._segment.durability.is_behind_others:
            self._sync()
        else:
            self.mark_dirty()

    def sync_early(self) -> None:
        """Sync what was put, unless a sync runs or has failed."""
        if self.work is None and not self._segment.durability.has_failed:
            self._sync()

    def end(self) -> None:
        """Answer those who waited for the work that has ended.

        After a sync that failed the kernel may have dropped what it could not write, and a second
        one would not tell. Whatever is put from now on has to go to a new segment, on files of its
        own.
        """
        work, self.work = self.work, None
        assert work is not None
        error = work.error
        if self._is_cutting:
            self._is_cutting = False
            if error is None:
                self._end_cut()
            else:
                self._refuse(str(error))
        elif isinstance(error, NoDescriptors):
            self._put_off(error)
        elif error is not None:
            if not self._cut(str(error)):
                self._refuse(str(error))
        else:
            self._rounds.syncs.add(self._server.monotonic_s() - self._sync_began_s)
            self._note_synced()
            group, self._syncing = self._syncing, []
            # After a sync that nobody waited for, the next one to ask is enough.
            self._enough = max((len(group) + len(self._group) + 1) // 2, 1)
            for caller, answer in group:
                self._server.reply(caller, answer)
        if self.work is None:
            self._tell_moved()

    def _tell_moved(self) -> None:
        """Answer those who hold their messages until the disk has made up its mind."""
        moved, self._moved = self._moved, []
        for caller in moved:
            self._server.reply(caller, MOVED)

    def _note_synced(self) -> None:
        self._is_retry = False
        if self._segment.durability.is_locked:
            self.mark_dirty()  # it waits for the segment before it to be durable, or for room
        else:
            owner = cast("ActorRef | None", self._segment.durability.take_next())
            if owner is not None:
                self._server.cast(owner, SyncAlarm.FIRST)
        if self.visible is not None:
            self._show()

    def ring(self, alarm: SyncAlarm) -> None:
        """Do what an alarm of this object's own reminds of."""
        match alarm:
            case SyncAlarm.GATHERED:
                self.begin()
            case SyncAlarm.UNASKED:
                self.sync_unasked()
            case SyncAlarm.FIRST:
                if self.is_dirty and not self._segment.is_writer:
                    self.sync_early()

    @property
    def has_to_finish(self) -> bool:
        """Whether `finish` would wait for the disk."""
        is_hidden = self.visible is not None and self.is_dirty
        return self.work is not None or bool(self._group) or is_hidden

    def finish(self) -> None:
        """Answer all who wait for a sync before anything else happens.

        Where consumers see only what is synced, the rest is synced, too: nobody will do it later.
        Once, since a full disk may refuse the end of a segment each time.
        """
        self._withdraw()
        self._end_all()
        # What is left where all can be seen is to end the segment: whoever has it next does that.
        if self.visible is not None and self.visible != _extent(self._segment)[:2]:
            self.sync_unasked()
            self._end_all()

    def _withdraw(self) -> None:
        """Take back the sync of a sealed segment that nobody waits for, if it has yet to begin.

        It would wait for others to share it, in this thread, where hundreds of segments expire in a
        second each for as long. Whoever has the segment next syncs it, or removes it.
        """
        work = self.work
        if work is None or self._syncing or self._is_cutting or self._segment.is_writer:
            return
        if work.withdraw():
            self.work = None
            self.mark_dirty()
            self._tell_moved()

    def _end_all(self) -> None:
        """Wait for the sync that runs, and for those that others wait for."""
        self.begin()
        while self.work is not None:
            self.work.wait()
            self.end()
            self.begin()

    def _sync(self) -> None:
        """Have a thread sync all that was put so far, for all who wait."""
        self._syncing, self._group = self._group, []
        if self._segment.durability.has_failed:
            self._refuse("an earlier sync of it failed")
            return
        self._to_be_visible = _extent(self._segment)
        try:
            # Who waits is told of success, and so has a sync of his own.
            sync = self._segment.begin_sync(None if self._syncing else self._rounds.shared)
        except StorageError as error:
            if not (isinstance(error, WriteFailed) and self._cut(str(error))):
                self._put_off(error)
        else:
            self.is_dirty = self.is_due = False
            self._sync_began_s = self._server.monotonic_s()
            self.work = Work(self._server, sync, DISK_THREADS if self._syncing else self._rounds)

    def _cut(self, reason: str) -> bool:
        """Begin to cut off what waited for a sync that failed, and what came meanwhile.

        False where that is not allowed.
        """
        segment = self._segment
        if segment.options.ack != "fsync" or not segment.is_writer:
            return False
        logger.error("%s is cut behind its last good sync: %s", segment.path, reason)
        self._syncing += self._group
        self._group = []
        try:
            cut = segment.begin_cut(reason)
        except StorageError as error:
            self._refuse(str(error))
        else:
            if self.visible is not None:
                self.visible = min(self.visible, _extent(segment)[:2])
            self._is_cutting = True
            self.work = Work(self._server, cut, DISK_THREADS)
        return True

    def _end_cut(self) -> None:
        """Have what was cut off put again; but not for ever, if one segment after another fails."""
        segment = self._segment
        if self._is_retry:
            self._refuse(segment.failure)
            return
        self.is_dirty = self.is_due = False
        group, self._syncing = self._syncing, []
        for caller, answer in group:
            if answer is None:  # what it wanted to be durable was there before the cut
                self._server.reply_error(caller, SyncFailed(segment.path, segment.failure))
            else:
                self._server.reply(caller, MOVED)

    def _put_off(self, error: StorageError) -> None:
        """Refuse a sync of which nothing has failed that could not be tried again."""
        self.mark_dirty()
        if isinstance(error, NoDescriptors):
            # Who asked for a sync may ask again; what was put is there, and may not be put again.
            asked = [caller for caller, answer in self._syncing if answer is None]
            self._syncing = [each for each in self._syncing if each[1] is not None]
            for caller in asked:
                self._server.reply_error(caller, error)
        self._refuse(str(error))

    def _refuse(self, reason: str) -> None:
        self.is_dirty = True
        if self._segment.durability.has_failed:
            # It is acknowledged, and no sync will ever cover it. Hidden, it would be lost.
            self.visible = None
            self._segment.distrust()
        failed = SyncFailed(self._segment.path, reason)
        logger.error("%s", failed)
        group, self._syncing = self._syncing, []
        for caller, _ in group:
            self._server.reply_error(caller, failed)

    def _show(self) -> None:
        count, size_bytes, pointer = self._to_be_visible
        if self.visible is None or count > self.visible[0]:  # more may have been seen before
            self.visible, self.visible_pointer = (count, size_bytes), pointer


def _extent(segment: Segment) -> tuple[int, int, int]:
    """Return the records, the bytes and the last pointer of a segment."""
    return segment.count, segment.size_bytes, segment.pointer_high or 0
