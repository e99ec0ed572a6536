"""The appendix server: the actor that owns one segment.

It turns puts into one append per frame and gets into file slices. Its role is writer (`w`), reader
(`r`) or hibernating reader (`h`). Nobody else touches its segment, so a put, a read and the sealing
of the segment can never run into each other.

Source: appendix_server.erl; the index process and the sleep/wake handshake are gone, since a
`Segment` opens its files again by itself.
"""

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal, NamedTuple

from poe.actors import NO_REPLY, Call, Error, Exit, GenServer, Reason, Stop, Timer, Work, is_orderly
from poe.actors.work import DISK_THREADS
from poe.broker.appendix.counters import TopicCounter
from poe.broker.appendix.group_sync import GroupSync, SyncAlarm
from poe.broker.appendix.message import (
    MOVED,
    AgreedBatch,
    AppendRecords,
    Applied,
    Apply,
    CheckLimits,
    CopyDamaged,
    Describe,
    FindLastPut,
    FindPlace,
    FindProducers,
    FindPuts,
    Finish,
    Get,
    GetRange,
    GetSpan,
    LimitReached,
    Next,
    Ordinal,
    PassPlace,
    PointerAt,
    Put,
    ReleaseFiles,
    ReleaseWaiting,
    Seal,
    SegmentInfo,
    SetPlace,
    Sync,
    Touched,
    Unseal,
    WaitFor,
)
from poe.broker.appendix.sync_rounds import SyncRounds
from poe.errors import (
    CorruptRecord,
    OptionError,
    PoeError,
    ProducerFenced,
    ReadFailed,
    RepeatedPut,
    SequenceGap,
    StorageError,
    WriteFailed,
)
from poe.option import Range, check_options
from poe.record import RECORD_HEADER_BYTES
from poe.storage import Clock, FreeSpace, PointerBound, Segment, SegmentOptions
from poe.topic_name import topic_text

logger = logging.getLogger("poe.broker")

REGISTRY = "topic_registry"
"""Name of the topic registry; casts go there, whoever holds the name."""

_FLUSH_DELAY_S = 0.05
"""The longest time that index and sums trail the data; with `ack="memory"`, that a message waits to
be written."""

_RETRY_DELAY_S = 1.0
"""Pause before a failed background flush is tried again."""

_SEALED_WAIT_S = 0.05
"""Longest wait for news at a writer that is sealed."""

_OVERSHOOT = 2
"""A writer at this multiple of its limits does not wait for the next tick to say so."""

_IDLE_TICK = object()
_FLUSH_TICK = object()


@dataclass(frozen=True, slots=True, kw_only=True)
class AppendixOptions:
    """When an appendix server is full, when it hibernates, and what its readers see.

    Raises:
        OptionError: on construction, naming the option and what is allowed.
    """

    count_limit: Annotated[int, Range(1, unit="messages")] = 100_000
    """Messages in a segment; a fast producer may double it, and a batch is not divided."""

    size_limit: Annotated[int, Range(1, 2**40 - 1, unit="bytes")] = 67_108_864
    """Bytes in a segment; looked at as `count_limit`."""

    worker_timeout: Annotated[float, Range(is_above=True, unit="seconds")] = 1.0
    """Seconds without a request until hibernation."""

    sync_interval: Annotated[float, Range(0, unit="seconds")] = 1.0
    """Seconds until what was put is synced, unasked: what a power cut may cost; 0 is never."""

    read: Literal["flushed", "synced"] = "flushed"
    """What consumers see: all that is acknowledged, or only what no power cut undoes."""

    on_corrupt: Literal["close", "skip"] = "close"
    """What consumers get of damaged records: an error, at which clients of the original close, or
    nothing; the gap is counted and logged."""

    def __post_init__(self) -> None:
        """Reject limits that no segment could keep."""
        check_options(self)
        if self.read == "synced" and not self.sync_interval:
            raise OptionError("sync_interval", 0, "more than 0 (seconds) with read synced")

    def is_full(self, segment: Segment) -> bool:
        """Return whether a segment is at one of its limits."""
        is_full = segment.count >= self.count_limit or segment.size_bytes >= self.size_limit
        return is_full or (segment.receipts is not None and segment.receipts.is_full)


class Configure(NamedTuple):
    """Go by other options from now on.

    Answers whether all is as they say: a segment that holds messages keeps its `ack` for as long as
    it is written to, since what they were acknowledged for is not to change.
    """

    options: AppendixOptions
    segment: SegmentOptions


class AppendixServer(GenServer):
    """Owns one segment from `init` to its end.

    Started by the topic registry through appendix_sup, and linked to both. It traps exits so that
    it can close its files; when the registry dies it closes and ends, and the next registry opens
    the segment again from what is on disk.
    """

    trap_exits = True

    def init(  # noqa: PLR0913, PLR0917 - a topic, a segment of it, and what all servers share
        self,
        topic: bytes,
        segment: Segment,
        options: AppendixOptions,
        clock: Clock,
        space: FreeSpace,
        bound: PointerBound,
        rounds: SyncRounds,
        counter: TopicCounter,
        is_copy: bool = False,  # noqa: FBT001, FBT002 - by place, as the others
    ) -> None:
        """Take over a recovered segment; `is_copy`: of a topic that nodes agree on.

        One of such a topic takes what they have agreed on, from its replica, and no puts; nor does
        it tell when it is full, since all nodes begin the next segment at the same message.
        """
        self._is_copy = is_copy
        self._counter = counter
        counter.take(segment)
        self._space = space
        self._bound = bound
        self._is_touched = False
        self._topic = topic
        self._segment = segment
        self._ack = segment.options.ack
        self._options = options
        self._clock = clock
        self._flush_timer: Timer | None = None
        self._sync = GroupSync(self, segment, options.sync_interval, rounds)
        if options.read == "synced":
            self._sync.hide_unsynced()
        self._waiting: dict[Call, Timer] = {}
        self._is_used = False
        self._is_ticking = False
        self._reported_full = False
        self._overshoot_count = _OVERSHOOT * options.count_limit
        self._overshoot_bytes = _OVERSHOOT * options.size_limit

    def _configure(self, wanted: Configure) -> bool:
        """Go by other options, as far as that can be while the segment is written to."""
        segment, sync, old = self._segment, self._sync, self._options
        has_other_ack = wanted.segment.ack != self._ack
        is_all = not (has_other_ack and segment.is_writer and segment.count)
        if has_other_ack and is_all:
            if wanted.segment.ack == "fsync" and segment.is_writer:
                # A power cut that took of that would take with it what is acknowledged here.
                segment.durability.sync_before()
            sync.finish()
            segment.hibernate()  # it may keep what is put in memory, or may not any more
            segment.options, self._ack = wanted.segment, wanted.segment.ack
        self._options = options = wanted.options
        self._overshoot_count = _OVERSHOOT * options.count_limit
        self._overshoot_bytes = _OVERSHOOT * options.size_limit
        self._reported_full = False
        if options.read != old.read:
            sync.hide_from_now() if options.read == "synced" else sync.show_all()
            self._release_waiting()
        if self._is_due():
            self._touch()
        return is_all

    def handle_call(self, request: Any, caller: Call) -> Any:  # noqa: ANN401
        """Serve one request of `appendix_message`; storage errors go to the caller."""
        kind = type(request)
        if kind is Describe:
            return self._describe()
        self._is_used = True
        if not self._is_ticking:
            self._tick_later()
        try:
            if kind is Put:
                return self._put(request, caller)
            if kind is Get:
                found = self._segment.read(
                    request.pointer, request.limit, request.bytes_max, self._sync.visible
                )
                if found is not None:
                    self._counter.read_count += found.record_count
                    self._counter.read_bytes += found.length
                return found
            if kind is Next:
                message = self._segment.next(request.pointer, self._sync.visible)
                if message is not None:
                    self._counter.read_count += 1
                    self._counter.read_bytes += len(message[1]) + RECORD_HEADER_BYTES
                return message
            return self._serve(request, caller)
        except StorageError as error:
            return self._refuse(error, request, caller)

    def _refuse(self, error: StorageError, request: object, caller: Call) -> Any:  # noqa: ANN401
        """Answer what the disk did not let be, and see to it that the topic goes on."""
        is_put = type(request) is Put
        is_lost = isinstance(error, ReadFailed) and isinstance(error.__cause__, FileNotFoundError)
        if is_put and is_lost and not self._space.is_gone:
            # It slept, so that nobody has looked for its files.
            self._segment.lose("its files are not there any more")
            self._go_on_elsewhere("are gone")
            return self._sync.send_on(caller)
        # What another node has sent says nothing of what is here.
        is_damaged = isinstance(error, CorruptRecord) and type(request) is not AppendRecords
        if is_damaged or (is_lost and self._is_copy):
            logger.error("topic %r is damaged: %s", self._topic, error)
            if self._is_copy:
                self.cast(REGISTRY, CopyDamaged(self._topic, str(error)))
        elif is_put and isinstance(error, WriteFailed | ReadFailed) and not is_lost:
            # The next put goes elsewhere. A full disk is another matter: it gets room. Of one that
            # slept the files may be closed to writers by now.
            logger.error("%s", error)
            self._segment.fail(str(error))
        return Error(error)

    def handle_cast(self, message: Any) -> None:  # noqa: ANN401
        """Take what is told to all segments, and its own reminder to sync a group of puts."""
        if isinstance(message, SyncAlarm):
            self._sync.ring(message)
        elif isinstance(message, ReleaseWaiting):
            self._release_waiting()
        elif isinstance(message, ReleaseFiles):
            if message.is_urgent or not self._is_used:
                self._hibernate()
        elif isinstance(message, CheckLimits):
            self._is_touched = False
            self._look_for_file()
            self._report_full()
            if self._is_due():
                self._touch()

    def handle_info(self, message: Any) -> Stop | None:  # noqa: ANN401
        """Take its own timers, the end of a sync, and the end of the registry."""
        if isinstance(message, Work):
            if message is self._sync.work:  # else it was waited for
                self._end_sync()
        elif message is _IDLE_TICK:
            self._idle_tick()
        elif message is _FLUSH_TICK:
            self._flush_timer = None
            self._flush()
        elif isinstance(message, SyncAlarm):
            self._sync.ring(message)
        elif isinstance(message, _Expired):
            if self._waiting.pop(message.caller, None) is not None:
                self.reply(message.caller, False)
        elif isinstance(message, Exit):
            return Stop(message.reason)
        else:
            super().handle_info(message)
        return None

    def terminate(self, reason: Reason) -> None:
        """Close the files, so that the next start finds nothing to repair.

        At an orderly end the store closes the segment, with all others at once.
        """
        self._release_waiting()
        self._sync.finish()
        self._counter.let_go(self._segment.path)
        if not is_orderly(reason) or not self._hibernate():
            self._segment.close()

    # ---- requests -----------------------------------------------------------------------------

    def _put(self, request: Put, caller: Call) -> Any:  # noqa: ANN401, C901 - the hot path
        segment = self._segment
        if self._is_copy:
            return MOVED  # the registry tells who takes puts
        if self._space.is_refusing:
            self._space.check(segment.path, self.monotonic_s())
        if not segment.takes_puts:
            return self._sync.send_on(caller) if segment.failure else MOVED
        now_us = self._clock.now_us()
        pointer = segment.append(request.messages, now_us, request.put_id)
        if pointer > self._bound.quiet_until:
            self._note_given(pointer, now_us)
        if not self._is_touched:
            self._touch()
        sync = self._sync
        if not sync.is_due:
            sync.mark_dirty()
        if self._waiting and sync.visible is None:
            self._release_waiting()
        answer: Any = pointer
        if self._ack == "fsync":
            # Before anything that syncs: should that fail, only who waits is told of what is cut.
            answer = sync.join(caller, pointer)
        elif self._flush_timer is None:
            self._flush_timer = self.send_after(_FLUSH_DELAY_S, _FLUSH_TICK)
        too_many = segment.count >= self._overshoot_count
        if (too_many or segment.size_bytes >= self._overshoot_bytes) and not self._reported_full:
            self._reported_full = True
            self._report_full()
        return answer

    def _note_given(self, pointer: int, now_us: int) -> None:
        """Note that a pointer was given; have the bound raised where it is too low already."""
        if self._bound.given(pointer, now_us):
            Work(self, self._bound.raise_it, DISK_THREADS, outlives_actor=True)

    def _apply(self, batches: Sequence[AgreedBatch]) -> Applied:
        """Store what nodes have agreed on, until the segment is full or the disk takes no more.

        What was stored is found by its place, and is not stored again. Whether it is full is looked
        at before each batch, so that all nodes find the same, however batches come to them.
        """
        segment, options = self._segment, self._options
        if self._space.is_refusing:
            self._space.check(segment.path, self.monotonic_s())
        segment.place()  # what is known of producers counts, too
        outcomes: list[int | PoeError] = []
        is_full = False
        for batch in batches:
            is_full = segment.count > 0 and options.is_full(segment)
            if is_full:
                break
            try:
                outcomes.append(self._append_agreed(batch))
            except StorageError:
                if not outcomes:
                    raise
                break
        self._note_applied()
        return Applied(outcomes, is_full)

    def _append_agreed(self, batch: AgreedBatch) -> int | PoeError:
        """Store a batch; where it is stored already, or refused, note that its place is passed.

        Else a copy behind many of these would go back when it is opened anew, to where its stream
        may not remember them any more.
        """
        segment = self._segment
        outcome: int | PoeError
        place, time_us, messages, put_id = batch
        try:
            outcome = segment.append(messages, time_us, put_id, place)
        except (RepeatedPut, SequenceGap, ProducerFenced) as error:
            outcome = error
        if put_id is not None and segment.place() != place:
            segment.pass_place(place)
        return outcome

    def _note_applied(self) -> None:
        """Have what was stored synced in a while, and who waits for it hear of it."""
        sync = self._sync
        if not self._is_touched:
            self._touch()
        if not sync.is_due:
            sync.mark_dirty()
        if self._waiting and sync.visible is None:
            self._release_waiting()
        if self._flush_timer is None:
            self._flush_timer = self.send_after(_FLUSH_DELAY_S, _FLUSH_TICK)

    def _report_full(self, *, is_just_synced: bool = False) -> None:
        """Ask for a successor when one is due, but not during a sync: sealing would wait for it.

        One that is told of sequenced puts waits for a sync of them. Most of it is done before.
        """
        segment = self._segment
        if self._sync.work or not self._is_due():
            return
        if segment.receipts is None or is_just_synced or not self._sync.is_due:
            self.cast(REGISTRY, LimitReached(self._topic, self.ref))
        else:
            self._sync.sync_early()

    def _look_for_file(self) -> None:
        """Have the topic go on in a new segment when the file that was put into lost its name.

        Looked for where something was put since the last time, and when the whole folder is back,
        for which there is no new segment while it is gone.
        """
        segment = self._segment
        if self._space.is_gone:
            self._touch()
            return
        if not segment.takes_puts or segment.is_in_place():
            return
        segment.fail("its data file was removed, renamed or replaced")
        self._go_on_elsewhere("can be read as long as it is open")

    def _go_on_elsewhere(self, messages: str) -> None:
        """Have the topic go on in a new segment; `messages` says what becomes of those of this."""
        segment = self._segment
        logger.error("segment %s: %s; %d messages %s",
                     segment.path, segment.failure, segment.count, messages)  # fmt: skip
        self.cast(REGISTRY, LimitReached(self._topic, self.ref))

    def _touch(self) -> None:
        """Have the registry look at the limits at its next tick."""
        self._is_touched = True
        self.cast(REGISTRY, Touched(self.ref))

    def _is_due(self) -> bool:
        """Return whether it is a writer that is due to be sealed."""
        segment = self._segment
        return segment.takes_puts and not self._is_copy and self._options.is_full(segment)

    # ---- durability ---------------------------------------------------------------------------

    def _end_sync(self) -> None:
        """Answer those who waited for a sync, and begin the next one; after a failure, rotate."""
        sync = self._sync
        sync.end()
        has_failed = self._segment.failure != ""
        if sync.visible is not None or has_failed:
            self._release_waiting()
        if not has_failed:
            self._report_full(is_just_synced=True)
        elif sync.work is None:
            # Told once: what comes of it is tried again by puts, not for each topic at each tick.
            self.cast(REGISTRY, LimitReached(self._topic, self.ref))
        sync.begin_gathered()
        if not self._is_ticking:
            self._tick_later()  # a segment that slept was woken to be synced
        if self._sync.work is None and self._flush_timer is None:
            # The sums of what came meanwhile have waited.
            self._flush_timer = self.send_after(_FLUSH_DELAY_S, _FLUSH_TICK)

    def _flush(self) -> None:
        """Write what puts have left waiting; on a full disk it goes on waiting."""
        try:
            self._segment.flush()
        except StorageError as error:
            logger.error("%s keeps what was put in memory: %s", self._segment.path, error)
            self._flush_timer = self.send_after(_RETRY_DELAY_S, _FLUSH_TICK)

    # ---- hibernation --------------------------------------------------------------------------

    def _tick_later(self) -> None:
        self._is_ticking = True
        self.send_after(self._options.worker_timeout, _IDLE_TICK)

    def _idle_tick(self) -> None:
        """Hibernate when no request came since the last tick.

        One timer at a time and no clock on the hot path: it begins after one to two times
        `worker_timeout`.
        """
        self._is_ticking = False
        if self._is_used or self._waiting or self._sync.work is not None:
            self._is_used = False
            self._tick_later()
        elif not self._hibernate():
            self._tick_later()

    def _hibernate(self) -> bool:
        """Close the files, if the disk lets us; the next request opens them again by itself."""
        if self._sync.work is not None:
            return False
        try:
            self._segment.hibernate()
        except StorageError as error:
            logger.error("%s stays awake: %s", self._segment.path, error)
            return False
        return True

    # ---- other requests -----------------------------------------------------------------------

    def _serve(self, request: Any, caller: Call) -> Any:  # noqa: ANN401, C901 - each answers
        """Serve a request that is not on the hot path."""
        match request:
            case GetRange() | Ordinal() | PointerAt():
                answer = self._look_up(request)
            case WaitFor():
                answer = self._wait_for(request, caller)
            case FindLastPut() | FindProducers():
                answer = self._tell_of_puts(request, caller)
            case Seal():
                self._sync.finish()
                self._segment.seal()
                self._sync.mark_dirty()
                self._release_waiting()
                answer = self._segment.pointer_high
            case Unseal():
                self._sync.finish()
                if not self._segment.failure:
                    self._segment.unseal()
                    self._reported_full = False
                answer = None
            case Sync():
                answer = self._when_synced(caller, None)
            case Finish():
                answer = self._finish(caller)
            case Configure():
                answer = self._configure(request)
            case Apply() | PassPlace() | SetPlace() | FindPlace() | FindPuts() | AppendRecords():
                answer = self._serve_replica(request)
            case _:
                answer = super().handle_call(request, caller)
        return answer

    def _serve_replica(self, request: Any) -> Any:  # noqa: ANN401 - each answers
        """Serve what the replica of a copy asks for."""
        segment = self._segment
        match request:
            case Apply(batches):
                return self._apply(batches)
            case FindPlace():
                return segment.place()
            case FindPuts():
                return segment.known_puts()
            case AppendRecords(entries, data):
                if self._space.is_refusing:
                    self._space.check(segment.path, self.monotonic_s())
                pointer = segment.append_records(entries, data)
                self._note_applied()
                return pointer
            case PassPlace(place):
                segment.pass_place(place)
                self._note_applied()
                return None
            case SetPlace(place, puts):
                return segment.set_place(place, puts)

    def _look_up(self, request: GetRange | Ordinal | PointerAt) -> Any:  # noqa: ANN401 - each answers
        match request:
            case Ordinal(pointer):
                return self._segment.ordinal_of(pointer)
            case PointerAt(ordinal):
                return self._segment.pointer_at(ordinal)
            case GetRange(pointer, last, limit, bytes_max):
                visible = self._sync.visible
                if type(request) is GetSpan:
                    return self._segment.span(pointer, last, limit, bytes_max, visible)
                found = self._segment.read_range(pointer, last, limit, bytes_max, visible)
                if found is not None:
                    self._counter.read_count += found.records.record_count
                    self._counter.read_bytes += found.records.length
                return found

    def _when_synced(self, caller: Call, answer: object) -> Any:  # noqa: ANN401
        """Answer when all that was put is durable."""
        is_wanted = self._sync.is_dirty or self._sync.work is not None
        return self._sync.join(caller, answer) if is_wanted else answer

    def _tell_of_puts(self, request: FindLastPut | FindProducers, caller: Call) -> Any:  # noqa: ANN401
        if isinstance(request, FindLastPut):
            return self._find_last_put(request, caller)
        return self._segment.newest_puts(request.count)

    def _find_last_put(self, request: FindLastPut, caller: Call) -> Any:  # noqa: ANN401
        """Return a put when its producer could have been told: with `fsync`, once it is synced."""
        segment = self._segment
        if not segment.takes_puts:
            return self._sync.send_on(caller) if segment.failure else MOVED
        found = segment.last_put(request.producer)
        return found if self._ack != "fsync" or found is None else self._when_synced(caller, found)

    def _finish(self, caller: Call) -> Any:  # noqa: ANN401
        """Seal, and answer when all who wait for a sync are answered, and none is left to do.

        What a sync has failed for stays as it is.
        """
        segment, sync = self._segment, self._sync
        if segment.failure:
            return None
        if sync.work is None:
            segment.seal()
        return sync.join(caller, None) if sync.has_to_finish else None

    def describe_role(self) -> str:
        """Return the role, and the topic as `poe status` does."""
        return f"{self._role()} {topic_text(self._topic)}"

    def _role(self) -> str:
        segment = self._segment
        if segment.takes_puts:
            return "w"
        return "r" if segment.is_awake else "h"

    def _describe(self) -> SegmentInfo:
        segment = self._segment
        return SegmentInfo(
            segment.path,
            self._role(),
            segment.count,
            segment.size_bytes,
            segment.pointer_low,
            segment.pointer_high,
            segment.base,
        )

    def _wait_for(self, request: WaitFor, caller: Call) -> Any:  # noqa: ANN401
        segment = self._segment
        sync = self._sync
        newest = segment.pointer_high or 0 if sync.visible is None else sync.visible_pointer
        if newest > request.pointer:
            return True
        timeout_s = request.timeout_s
        if not segment.is_writer:
            # Sealed: for a new writer, which the table is about to name; or since the disk is full,
            # which lasts. Answered MOVED at once, who waits would ask again at once, for ever.
            timeout_s = min(timeout_s, _SEALED_WAIT_S)
        self._waiting[caller] = self.send_after(timeout_s, _Expired(caller))
        return NO_REPLY

    def _release_waiting(self) -> None:
        """Let everybody who waits for news ask again."""
        waiting, self._waiting = self._waiting, {}
        for caller, timer in waiting.items():
            timer.cancel()
            self.reply(caller, MOVED)


class _Expired(NamedTuple):
    """The deadline of a `WaitFor` has passed."""

    caller: Call
