"""The replica of one partition: what nodes agree on goes into this node's copy of it, in order.

A put is published to the stream of the partition, and answered when it has come back and is stored
here. The copy says by its receipts up to which place of the stream it goes, so that a replica that
begins anew, after whatever has ended the last one, goes on exactly there.

    FOLLOWING   entries are stored as they come
    STALLED     this node's disk does not take them; it is tried again every second
    FETCHING    the stream has forgotten what comes next: another node has it
    CUT_OFF     the stream is not there
"""

import contextlib
import logging
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple, cast
from weakref import proxy

from poe.actors import NO_REPLY, ActorRef, Call, Error, Exit, GenServer, Mailslot, Stop, Work
from poe.actors.alarm_clock import AlarmClock
from poe.broker.appendix.message import (
    AgreedBatch,
    Applied,
    Apply,
    FindPlace,
    FindPuts,
    GetRange,
    PassPlace,
    Put,
    Sync,
)
from poe.broker.appendix.server import REGISTRY
from poe.broker.registry.copy_messages import (
    BeginSegment,
    CopyFailed,
    CopyWriter,
    DropCopy,
    EnsureCopy,
    TrimCopy,
    TrimDue,
)
from poe.broker.registry.routing_table import RoutingTable
from poe.broker.requests.listing import describe_route
from poe.broker.requests.log_messages import DescribeReplica, TrimLog, VerifyLog
from poe.cluster.log.comparing import COMPARER_SUP, find_file, hash_file, segment_of
from poe.cluster.log.engine import (
    ENTRY_MAX_BYTES,
    Entries,
    Entry,
    Forgotten,
    LogEngine,
    Lost,
    NotStored,
    Stored,
    StreamState,
)
from poe.cluster.log.engine_door import Ask
from poe.cluster.log.entry import (
    PutEntry,
    TrimEntry,
    decode_entry,
    encode_batch,
    encode_put,
    encode_trim,
)
from poe.cluster.log.fetching import Fetching, FetchParts
from poe.cluster.log.gathering import WAIT_MAX_S, Gathering, Shared
from poe.cluster.log.peer_frames import (
    READ_BYTES_MAX,
    CopyDescription,
    CopyRecords,
    DescribeCopy,
    HashCopy,
    Question,
    ReadCopy,
    encode_answer,
    encode_error,
)
from poe.cluster.log.pending_puts import TRY_S, Answer, Effect, PendingPuts, Publish
from poe.errors import (
    ActorDead,
    CopyIsBehind,
    CopyNotFetched,
    NoQuorum,
    PoeError,
    PutTooLarge,
    RemoteProtocolError,
    StorageError,
    SyncFailed,
)
from poe.storage import PLACE_UNKNOWN, Messages
from poe.supervision import start_dynamic_child
from poe.topic_name import topic_text
from poe.topic_properties import is_reserved

logger = logging.getLogger("poe.cluster")

RETRY_S: Final = 1.0
"""Until a disk that did not take something is tried again."""
LOOK_AGAIN_S: Final = 0.5
"""Until it is looked again whether somebody leads a stream that nobody has led."""
_HEAD_BYTES: Final = 64
PUT_MAX_BYTES: Final = ENTRY_MAX_BYTES - _HEAD_BYTES
"""The largest put onto a replicated topic, with 4 bytes for each message."""
_TICK_S: Final = 0.02
_READ_COUNT: Final = 1 << 20


class State(Enum):
    """How a replica is."""

    FOLLOWING = "following"
    STALLED = "stalled"
    FETCHING = "fetching"
    CUT_OFF = "cut off"


class Alarm(Enum):
    """What a replica has asked time for."""

    PUBLISH = "something is to be published again"
    RETRY = "what the disk did not take is to be tried again"
    LOOK = "it is to be looked again whether somebody leads the stream"


class StreamSlots(dict[str, Mailslot]):
    """Who takes what comes of a stream; any thread of an engine may look."""

    def __init__(self) -> None:
        super().__init__()
        self.fetching: set[str] = set()
        """Streams whose replica has its copy fetched: it answers no other node meanwhile."""


@dataclass(frozen=True, slots=True)
class ReplicaParts:
    """What a replica works with."""

    topic: bytes
    stream: str
    me: str
    """Name of this node, as the engine knows it."""
    engine: LogEngine
    door: ActorRef
    slots: StreamSlots
    routes: RoutingTable
    origin: bytes
    """Which life of which node this is."""
    check_sizes: Callable[[Messages], None]
    """Refuses messages that this node takes from nobody."""
    folder: Path
    """That of the node."""


class PeerQuestion(NamedTuple):
    """Sent to a replica: what another node asks of it."""

    question: Question
    answer: Callable[[bytes], None]


class _Looked(NamedTuple):
    """Whether somebody leads the stream."""

    is_led: bool


class _Told(NamedTuple):
    number: int
    outcome: Stored | NotStored


_UNLED: Final = NotStored(is_sure=True, why="nobody leads the stream")
_STANDS_STILL: Final = NotStored(is_sure=True, why="the copy of this node stands still")


class Replica(GenServer):
    """Keeps the copy of one partition, and takes puts onto it.

    It traps exits: who waits for a put is told that it may be stored, however the replica ends.
    """

    trap_exits = True

    def init(self, parts: ReplicaParts) -> None:
        """Begin where the copy ends."""
        self._parts = parts
        self._slot = Mailslot(self)
        self._puts = PendingPuts(topic_text(parts.topic))
        self._gathering = Gathering()
        self._writer: ActorRef | None = None
        self._place = 0
        self._state = State.STALLED
        self._why = ""
        # No other life has the same: what was under way to one that was killed is not for this one.
        self._follow_id = int.from_bytes(parts.origin[:4]) << 32
        self._publishing = AlarmClock(self, Alarm.PUBLISH)
        self._retrying = AlarmClock(self, Alarm.RETRY)
        self._applied_count = 0
        self._damage = ""
        """What the copy was found to be; a segment that sleeps has forgotten it."""
        self._is_whole = False
        """Whether the copy goes exactly up to its place; not while it is fetched in part."""
        self._is_led = True
        """Whether somebody leads the stream."""
        self._stood_why = ""
        """Why it has stood still since it took something last; each try is not logged."""
        self._missed_place = 0
        """Of what has come, and the disk did not take; behind its place, it has since."""
        self._is_looking = False
        self._fetch_parts = FetchParts(
            parts.topic, parts.stream, parts.me, parts.engine, parts.door, parts.routes
        )
        self._fetching = Fetching(cast("GenServer", proxy(self)), self._fetch_parts)
        self._hashing: dict[Work, Callable[[bytes], None]] = {}
        """What reads a file for another node, and how that is answered."""
        parts.slots[parts.stream] = self._slot
        self._slot.post(Alarm.RETRY)  # what is to be fetched may take long

    def describe_role(self) -> str:
        """Return which partition it is of, and how it is."""
        return f"{topic_text(self._parts.topic):.60}: {self._state.value} at {self._place}"

    def terminate(self, reason: Any) -> None:  # noqa: ANN401 - as `GenServer`
        """Let nobody wait for ever."""
        del reason
        if not self._is_replaced():
            self._parts.engine.unfollow(self._parts.stream)
            del self._parts.slots[self._parts.stream]
        self._carry_out(self._puts.give_up())
        while self._gathering:
            error = NoQuorum(f"topic {topic_text(self._parts.topic)}")
            self._carry_out([Answer(self._gathering.take(), error)])

    # ---- messages -------------------------------------------------------------------------------

    def handle_call(self, request: Any, caller: Call) -> Any:  # noqa: ANN401
        """Take puts and trims; say how it is."""
        match request:
            case Put(messages, put_id):
                return self._put(messages, put_id, caller)
            case TrimLog(pointer):
                number = self._puts.next_number()
                payload = encode_trim(self._parts.origin, number, pointer)
                self._carry_out([self._puts.add(number, payload, caller, self.monotonic_s())])
                return NO_REPLY
            case DescribeReplica():
                return self._describe()
            case DescribeCopy():
                return self._describe_own()
            case VerifyLog():
                parts = self._fetch_parts, self._parts.folder, self.ref
                return start_dynamic_child(self, COMPARER_SUP, *parts)
        return super().handle_call(request, caller)

    async def handle_cast(self, message: Any) -> None:  # noqa: ANN401
        """Hear of the copy from the topic registry."""
        match message:
            case TrimDue(pointer):
                # All nodes propose the same; stored twice it does nothing the second time.
                number = self._puts.next_number()
                payload = encode_trim(self._parts.origin, number, pointer)
                self._carry_out([self._puts.add(number, payload, None, self.monotonic_s())])
            case CopyFailed(why):
                self._damage = why
                await self._make_anew(why)
            case _:
                super().handle_cast(message)

    async def handle_info(self, message: Any) -> Stop | None:  # noqa: ANN401
        """Take what the engine brings, and the time."""
        match message:
            case Entries() | Forgotten() | Lost():
                if message.follow_id == self._follow_id:  # else it was asked for before
                    await self._hear(message)
            case _Told() | _Looked():
                self._note(message)
            case PeerQuestion(question, answer):
                await self._answer(question, answer)
            case Alarm():
                await self._ring(message)
            case Work(result=result):
                self._hashing.pop(message)(encode_answer(result))
            case Exit(reason=reason):
                return Stop(reason)
            case _:
                super().handle_info(message)
        return None

    def _note(self, told: _Told | _Looked) -> None:
        """Take what has become of a try to publish something, or of a look at the stream."""
        if isinstance(told, _Looked):
            self._is_looking, self._is_led = False, told.is_led
            if not told.is_led:
                self.send_after(LOOK_AGAIN_S, Alarm.LOOK)
            return
        now_s = self.monotonic_s()
        stands_still = told.outcome is _STANDS_STILL
        effects = self._puts.told(
            told.number, told.outcome, now_s, self._place, stands_still=stands_still
        )
        self._carry_out(effects)
        self._tick_later()
        # What stands still is this copy: the engine has nothing to say of that.
        if isinstance(told.outcome, NotStored) and not stands_still:
            self._look()

    async def _ring(self, alarm: Alarm) -> None:
        match alarm:
            case Alarm.PUBLISH:
                self._publishing.rang()
                self._carry_out(self._puts.due(self.monotonic_s()))
                self._publish_gathered()
                self._tick_later()
            case Alarm.RETRY:
                self._retrying.rang()
                if self._state is State.STALLED:
                    await self._begin()
            case Alarm.LOOK:
                self._look()

    async def _hear(self, event: Entries | Forgotten | Lost) -> None:
        match event:
            case Entries(stream, follow_id, entries):
                await self._take(entries)
                self._parts.engine.taken(stream, follow_id, entries[-1].place)
            case Forgotten(_, _, first_place):
                await self._fetch(first_place)
            case Lost():
                self._be(State.CUT_OFF, "its stream is not there")

    # ---- puts -----------------------------------------------------------------------------------

    def _put(self, messages: Messages, put_id: Any, caller: Call) -> Any:  # noqa: ANN401
        if not is_reserved(self._parts.topic):  # as large as it comes: what is known of a group
            try:
                self._parts.check_sizes(messages)
            except PoeError as error:
                return Error(error)
        batch = encode_batch(messages)
        if len(batch) > PUT_MAX_BYTES:
            return Error(PutTooLarge(len(batch), PUT_MAX_BYTES))
        if put_id is None:
            self._gathering.add(caller, batch, len(messages), self.monotonic_s())
            self._publish_gathered()
        else:
            number = self._puts.next_number()
            payload = encode_put(self._parts.origin, number, batch, put_id)
            self._carry_out([self._puts.add(number, payload, caller, self.monotonic_s())])
        return NO_REPLY

    def _publish_gathered(self) -> None:
        """Publish what has waited for others, as far as it is time for that."""
        now_s = self.monotonic_s()
        while self._gathering.is_due(now_s):
            shared = self._gathering.take()
            number = self._puts.next_number()
            payload = encode_put(self._parts.origin, number, shared.batch)
            self._carry_out([self._puts.add(number, payload, shared, now_s)])
        if self._gathering:
            self._tick_later()

    def _look(self) -> None:
        """Find out whether somebody leads the stream."""
        if not self._is_looking:
            self._is_looking = True
            told = partial(_post_look, self._slot)
            self._parts.engine.stream_state(self._parts.stream, TRY_S, told)

    def _carry_out(self, effects: Iterable[Effect]) -> None:
        for effect in effects:
            match effect:
                case Publish(number, _) if (why_not := self._why_not_publish()) is not None:
                    self._slot.post(_Told(number, why_not))
                case Publish(number, payload):
                    stream = self._parts.stream
                    name = entry_name(self._parts.origin, stream, number)
                    told = partial(_post, self._slot, number)
                    self._parts.engine.publish(stream, name, payload, TRY_S, told)
                case Answer(Shared(parts) as shared, outcome):
                    self._gathering.end(shared)
                    for part in parts:
                        self._answer_put(part.caller, outcome, part.behind_count)
                case Answer(Call() as caller, outcome):
                    self._answer_put(caller, outcome, 0)

    def _why_not_publish(self) -> NotStored | None:
        """Return why nothing is published now: what never was is stored nowhere for sure.

        What this copy cannot store is not answered; and where none of all copies can, as when disks
        of one size are full, the stream would forget what no node has.
        """
        if self._state is not State.FOLLOWING or self._place < self._missed_place:
            return _STANDS_STILL
        return None if self._is_led else _UNLED

    def _answer_put(self, caller: Call, outcome: int | PoeError, behind_count: int) -> None:
        if isinstance(outcome, PoeError):
            self.reply_error(caller, outcome)
        else:
            self.reply(caller, outcome - behind_count)

    def _tick_later(self) -> None:
        """Look in a moment at what has to be published again, or has waited for long enough."""
        waits_s = [WAIT_MAX_S] if self._gathering else []
        retry_s = self._puts.wait_s(self.monotonic_s())
        if retry_s is not None:
            waits_s.append(retry_s)
        if waits_s:
            self._publishing.ring_after(max(min(waits_s), _TICK_S))

    # ---- the copy -------------------------------------------------------------------------------

    async def _begin(self) -> None:
        """Follow the stream from where the copy ends."""
        self._writer = None
        try:
            found = await self._ensure(None)
            place = 0
            if found is not None:
                place = await self.call(found.ref, FindPlace(), timeout_s=None)
                # What has no place was made by the first entry, unless there was something before.
                has_begun = found.count > 0 or found.base > 0
                is_unknown = (not place and has_begun) or place == PLACE_UNKNOWN
                self._damage = found.damage or self._damage
                if self._damage:
                    self._place = 0 if is_unknown else place
                    await self._make_anew(self._damage)
                    return
                if is_unknown:
                    # What the stream remembers comes from there; who has nothing has no more of it.
                    await self._fetch(await self._first_place())
                    return
        except PoeError as error:
            self._stall(error)
            return
        self._place = place
        self._follow()

    def _is_replaced(self) -> bool:
        """Return whether another replica has begun, since the supervisor of this one was killed.

        This one ends when it is done with what it awaits, and is to leave alone what is the next
        one's by now.
        """
        return self._parts.slots.get(self._parts.stream) is not self._slot

    def _follow(self) -> None:
        if self._is_replaced():
            return
        self._carry_out(self._puts.passed(self._place, self.monotonic_s()))
        self._follow_id += 1
        self._is_whole = True
        self._be(State.FOLLOWING, "")
        self._parts.engine.follow(self._parts.stream, self._place, self._follow_id)
        # From now on, or it would be ahead without a bound until the first of it is stored.
        self._parts.engine.taken(self._parts.stream, self._follow_id, self._place)

    async def _ensure(self, first_us: int | None) -> CopyWriter | None:
        found: CopyWriter | None = await self.call(
            REGISTRY, EnsureCopy(self._parts.topic, first_us), timeout_s=None
        )
        self._writer = None if found is None else found.ref
        return found

    async def _make_anew(self, why: str) -> None:
        """Delete a copy that cannot be trusted, and make it anew from what others have.

        Where nobody has it, what is here stays and can be read, and it is tried again. Meanwhile no
        other node is to take it for what its own can be made of.
        """
        self._stop_following()
        self._is_whole = False
        place = 0 if self._place == PLACE_UNKNOWN else self._place
        try:
            forgotten = await self._first_place() - 1
        except PoeError as error:
            self._stall(CopyNotFetched(self._parts.topic, f"{why}; {error}"))
            return
        with self._asking_others():
            is_lost = forgotten and not await self._fetching.is_elsewhere(max(place, forgotten))
        if is_lost:
            self._stall(CopyNotFetched(self._parts.topic, f"{why}; no other node has more of it"))
            return
        logger.error("the copy of topic %s is made anew: %s", topic_text(self._parts.topic), why)
        self._parts.routes.events.add(
            "copy_anew", child=topic_text(self._parts.topic), reason=why, ref=str(self.ref)
        )
        try:
            await self.call(REGISTRY, DropCopy(self._parts.topic), timeout_s=None)
        except PoeError as error:
            self._stall(error)
            return
        self._writer, self._place, self._damage = None, 0, ""
        self._follow()

    async def _drop(self, error: PoeError) -> None:
        """Delete a copy that cannot be made whole, and begin anew in a while."""
        with contextlib.suppress(PoeError):  # what is still there is not trusted the next time
            await self.call(REGISTRY, DropCopy(self._parts.topic), timeout_s=None)
        self._stall(error)

    def _stall(self, error: PoeError) -> None:
        """Try again in a while; nothing that comes meanwhile is taken."""
        why = re.sub(r"\d+", "", str(error))  # how much room is left differs at each look
        if why != self._stood_why:
            self._stood_why = why
            logger.error("topic %s stands still: %s", topic_text(self._parts.topic), error)
        self._stop_following()
        self._be(State.STALLED, str(error))
        self._retrying.ring_after(RETRY_S)

    def _stop_following(self) -> None:
        self._follow_id += 1
        if not self._is_replaced():
            self._parts.engine.unfollow(self._parts.stream)

    def _be(self, state: State, why: str) -> None:
        self._state, self._why = state, why

    async def _fetch(self, first_place: int) -> None:
        """Have another node give what the stream does not, then follow it."""
        self._stop_following()
        self._is_whole = False
        self._be(State.FETCHING, f"the stream is to be followed from {first_place} on")
        events, topic = self._parts.routes.events, topic_text(self._parts.topic)
        logger.warning("the copy of topic %s is fetched from another node", topic)
        began_s = self.monotonic_s()
        try:
            with self._asking_others():
                self._place = await self._fetching.fetch(first_place - 1)
        except CopyNotFetched as error:
            if first_place <= 1:
                await self._make_anew("no other node has more of it")
            else:
                self._stall(error)
            return
        except SyncFailed as error:
            # What was synced in vain is not synced again: that would say nothing of what is there.
            await self._drop(error)
            return
        except PoeError as error:
            self._stall(error)
            return
        events.add(
            "copy_fetched", child=topic, ref=str(self.ref), away_s=self.monotonic_s() - began_s
        )
        await self._ensure(None)
        self._follow()

    @contextlib.contextmanager
    def _asking_others(self) -> Iterator[None]:
        """Have other nodes be refused at once meanwhile: two that ask each other would wait."""
        fetching, stream = self._parts.slots.fetching, self._parts.stream
        fetching.add(stream)
        try:
            yield
        finally:
            fetching.discard(stream)

    async def _first_place(self) -> int:
        """Return from where on the stream remembers what there was; 1: all.

        Raises:
            PoeError: it is not told now.
        """
        look = partial(self._parts.engine.stream_state, self._parts.stream, TRY_S)
        state: StreamState = await self.call(self._parts.door, Ask(look), timeout_s=None)
        return max(state.first_place, 1)

    # ---- other nodes ----------------------------------------------------------------------------

    async def _answer(self, question: Question, answer: Callable[[bytes], None]) -> None:
        """Tell another node of this copy, or why not."""
        try:
            if isinstance(question, HashCopy):
                # A thread reads the file, and this goes on.
                parts = self._parts
                path = await find_file(self, parts.routes, parts.topic, parts.folder, question)
                work = Work(self, partial(hash_file, path, question.size_bytes))
                self._hashing[work] = answer
                return
            answer(encode_answer(await self._tell(question)))
        except PoeError as error:
            answer(encode_error(str(error)))

    async def _tell(self, question: Question) -> CopyDescription | CopyRecords:
        match question:
            case DescribeCopy():
                return await self._describe_copy()
            case ReadCopy(_, after, last):
                return await self._read(after, last)
        msg = f"a replica is not asked for {type(question).__name__}"
        raise RemoteProtocolError(msg)

    async def _describe_own(self) -> CopyDescription | Error:
        try:
            return await self._describe_copy()
        except PoeError as error:
            return Error(error)

    async def _describe_copy(self) -> CopyDescription:
        """Return what there is of this copy: who fetches it takes what is left out for trimmed.

        Raises:
            PoeError: it is not whole, or this node cannot serve all of it now.
        """
        topic = self._parts.topic
        if not self._is_whole or (self._place == 0 and self._writer is not None):
            raise CopyIsBehind(topic)
        if topic not in self._parts.routes:
            # There may be one all the same: the registry has begun anew, and could not read it.
            await self.call(REGISTRY, EnsureCopy(topic), timeout_s=None)
        route = self._parts.routes.get(topic)
        if route is None:
            return CopyDescription(self._place, (), ())
        rows = await describe_route(self, route)
        if len(rows) < len(route.refs):
            raise CopyIsBehind(topic)
        segments = tuple(segment_of(info) for _, info in rows)
        puts = await self.call(route.writer, FindPuts(), timeout_s=None)
        return CopyDescription(self._place, segments, tuple(puts))

    async def _read(self, after: int, last: int) -> CopyRecords:
        route = self._parts.routes.get(self._parts.topic)
        if route is None:
            return CopyRecords(b"", b"")
        request = GetRange(after, last, _READ_COUNT, READ_BYTES_MAX)
        found = await self.call(route.reader(after), request, timeout_s=None)
        if found is None:
            return CopyRecords(b"", b"")
        return CopyRecords(found.entries, found.records.read())

    # ---- what nodes have agreed on --------------------------------------------------------------

    async def _take(self, entries: Sequence[Entry]) -> None:
        """Store what has come; where that fails, all of the rest comes again later."""
        run: list[tuple[Entry, PutEntry]] = []
        try:
            for entry in entries:
                if entry.place <= self._place:
                    continue
                try:
                    decoded = decode_entry(entry.payload)
                except RemoteProtocolError as error:
                    logger.error("topic %s: %s", topic_text(self._parts.topic), error)
                    continue
                if isinstance(decoded, PutEntry):
                    run.append((entry, decoded))
                else:
                    await self._store(run)
                    run = []
                    await self._trim(entry, decoded)
            await self._store(run)
            self._stood_why = ""
            self._publish_gathered()
        except (StorageError, ActorDead) as error:
            missed = (each.place for each in entries if each.place > self._place)
            self._missed_place = next(missed, 0)
            self._stall(error)

    async def _store(self, run: list[tuple[Entry, PutEntry]]) -> None:
        """Store puts, in one call as far as the segment reaches."""
        while run:
            if self._writer is None:
                await self._ensure(run[0][0].time_us)
            assert self._writer is not None
            batches = [
                AgreedBatch(entry.place, entry.time_us, put.messages, put.put_id)
                for entry, put in run
            ]
            done: Applied = await self.call(self._writer, Apply(batches), timeout_s=None)
            for (entry, put), outcome in zip(run, done.outcomes, strict=False):
                self._place = entry.place
                if put.origin == self._parts.origin:
                    self._carry_out(self._puts.applied(put.number, outcome))
            self._applied_count += len(done.outcomes)
            run = run[len(done.outcomes) :]
            if done.is_full:
                # What the next one is told of is durable. A thread sees to that here, or the
                # registry would, and all topics wait for the disk with it.
                await self.call(self._writer, Sync(), timeout_s=None)
                if self._is_replaced():
                    return
                request = BeginSegment(self._parts.topic)
                begun: CopyWriter = await self.call(REGISTRY, request, timeout_s=None)
                self._writer = begun.ref

    async def _trim(self, entry: Entry, trim: TrimEntry) -> None:
        request = TrimCopy(self._parts.topic, trim.pointer)
        gone = await self.call(REGISTRY, request, timeout_s=None)
        # The segment that was written to may have gone, and got a successor.
        await self._ensure(None)
        if self._writer is not None:
            await self.call(self._writer, PassPlace(entry.place), timeout_s=None)
        self._place = entry.place
        if trim.origin == self._parts.origin:
            self._carry_out(self._puts.applied(trim.number, gone))

    def _describe(self) -> dict[str, Any]:
        return {
            "state": self._state.value,
            "why": self._why,
            "place": self._place,
            "waiting": len(self._puts),
            "applied": self._applied_count,
            "stream": self._parts.stream,
        }


def busy_row(state: str, stream: str, why: str) -> dict[str, Any]:
    """Return what `DescribeReplica` would answer of one that does not answer now."""
    return {
        "state": state, "why": why, "place": 0, "waiting": 0, "applied": 0, "stream": stream
    }  # fmt: skip


def entry_name(origin: bytes, stream: str, number: int) -> str:
    """Return under which name something is published, however often it is."""
    return f"{origin.hex()}-{stream[-8:]}-{number}"


def _post_look(slot: Mailslot, told: StreamState | PoeError) -> None:
    slot.post(_Looked(not isinstance(told, PoeError) and told.leader != ""))


def _post(slot: Mailslot, number: int, outcome: Stored | NotStored) -> None:
    slot.post(_Told(number, outcome))
