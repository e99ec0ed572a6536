"""The actor of one queue on one node: carries calls, frames and times to it, and its effects out.

It decides nothing. Its copies are not its own, nor is what it knows of groups: whoever starts it
anew after a crash hands them in, and the rest is learned from other nodes.
"""

import logging
import random
from collections import Counter
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from poe.actors import NO_REPLY, ActorRef, Call, Error, GenServer
from poe.actors.alarm_clock import AlarmClock
from poe.broker.appendix.message import ReleaseWaiting
from poe.broker.log_limit import ONCE_A_MINUTE
from poe.broker.registry.routing_table import RoutingTable
from poe.broker.requests.groups import GroupRequest, Undelivered
from poe.broker.requests.queue_messages import (
    QUEUES,
    BrowseQueue,
    DescribeQueue,
    HeldRecords,
    QueuePut,
    QueueStored,
)
from poe.cluster.actor_messages import (
    FABRIC,
    BuryLetters,
    CountsOfQueue,
    FramesOfQueue,
    GroupsOfQueue,
    HandedOver,
    HandOver,
    LettersBuried,
    MakeGroup,
    MembersKnown,
    NodesChanged,
    ReportOfQueue,
    TellNodes,
)
from poe.cluster.browse import browse
from poe.cluster.frames import QueueFrame, encode
from poe.cluster.identity import NodeRef, Peer
from poe.cluster.members.membership import Down, MemberGone, PaceChanged, Up
from poe.cluster.queue.copies import Copies
from poe.cluster.queue.effects import (
    Answer,
    Bury,
    Event,
    HandingOver,
    PutDone,
    PutResult,
    Tell,
    Trim,
    Write,
)
from poe.cluster.queue.group_share import LeasedCopies
from poe.cluster.queue.queue import BestEffortQueue
from poe.cluster.queue_log import LOG_TOPIC_PREFIX, Append, Appended, LetGo, QueueLog, read_log
from poe.cluster.queue_record import GroupRecord, QueueRecord
from poe.cluster.shelf import Shelf
from poe.errors import (
    GroupActive,
    PoeError,
    PutUnconfirmed,
    QueueBusy,
    TooFewNodes,
    UnderCopies,
)
from poe.protocol.leases import LeaseRequest
from poe.topic_name import topic_text

logger = logging.getLogger("poe.cluster")

_TICK = object()
_US: Final = 1_000_000
_TICK_MIN_US: Final = 500
_BURIAL_US: Final = 4_000_000
_TOLD_MAX: Final = 8
_TOLD_US: Final = 60_000_000
"""Events of a kind, and for how long; of more the log and the counts tell."""


@dataclass(frozen=True, slots=True)
class QueueParts:
    """What a queue works with."""

    record: QueueRecord
    me: Peer
    copies: Copies
    routes: RoutingTable
    shelf: Shelf
    clock_offset_us: int
    """The wall clock less the monotonic one, when the node was started: so it never jumps."""
    nodes: NodesChanged
    """Which nodes there are."""


@dataclass(slots=True)
class _Burial:
    """Dead letters that are being held."""

    asked: BuryLetters
    left_count: int
    """Batches that are not on as many nodes as they ought to be."""


class _Asker(NamedTuple):
    """Who waits for a lease, and of which group."""

    caller: Call
    group: str


def _is_gone(token: object) -> bool:
    """Return whether who waits for a lease is not there any more."""
    return isinstance(token, _Asker) and token.caller.is_done


class QueueActor(GenServer):
    """Runs a `BestEffortQueue`."""

    async def init(self, parts: QueueParts) -> None:
        """Begin with what is held already, and with what was written down of it."""
        self._parts = parts
        self._alarm = AlarmClock(self, _TICK)
        self._writes = Append([], [])
        self._is_writing = False
        self._log: ActorRef | None = None
        self._left_count = 0
        """Batches that are being handed over."""
        self._told: Counter[str] = Counter()
        """How often something of a kind has happened since a time."""
        self._told_since_us = 0
        now_us = self._now_us()
        dice = random.Random()  # noqa: S311 - which nodes get copies
        self._queue = BestEffortQueue(
            parts.record, parts.me.ref, parts.me.zone, now_us, dice, parts.copies, _is_gone
        )
        if parts.record.persist:
            await self._recover()
        self._heed(parts.nodes)
        self._settle()

    async def _recover(self) -> None:
        topic = LOG_TOPIC_PREFIX + self._parts.record.name
        routes, pointer = self._parts.routes, 0
        async for pointer, message in read_log(self, topic, routes):  # noqa: B007 - the last one
            self._queue.recover(message, self._now_us())
        self._log = await self.start_link(QueueLog, self.ref, topic, routes, pointer)
        self._queue.recovered(self._now_us())

    def describe_role(self) -> str:
        """Return which queue it is, and how much of it is here."""
        copies = self._queue.copies
        return f"{topic_text(self._parts.record.name):.60}: {copies.messages_count} held"

    # ---- messages -------------------------------------------------------------------------------

    def handle_call(self, request: Any, caller: Call) -> Any:  # noqa: ANN401
        """Take what clients ask, by way of a connection."""
        try:
            answer = self._serve(request, caller)
        except PoeError as error:
            answer = Error(error)
        self._settle()
        return answer

    def _serve(self, request: Any, caller: Call) -> Any:  # noqa: ANN401
        queue, now_us = self._queue, self._now_us()
        match request:
            case QueuePut(messages, deadline_s, copies):
                until_us = now_us + int(deadline_s * _US)
                queue.put(messages, caller, now_us, copies=copies, deadline_us=until_us)
                return NO_REPLY
            case LeaseRequest():
                if self._parts.routes.is_closing:
                    request = request._replace(wait_s=0.0)
                queue.serve(request.group, request, _Asker(caller, request.group), now_us)
                return NO_REPLY
            case GroupRequest():
                queue.serve(request.group, request, caller, now_us)
                return NO_REPLY
            case MakeGroup(record, force):
                return self._make_group(record, now_us, force=force)
        return self._look(request)

    def _look(self, request: Any) -> Any:  # noqa: ANN401
        queue = self._queue
        match request:
            case BrowseQueue():
                return browse(queue.record.name, queue.copies, request)
            case DescribeQueue():
                made_by = queue.record.created_by.hex()
                return {**queue.describe(), **queue.record._asdict(), "created_by": made_by}
            case ReportOfQueue():
                return queue.report()
        assert isinstance(request, CountsOfQueue)
        return queue.counters()

    def _make_group(self, record: GroupRecord, now_us: int, *, force: bool) -> GroupRecord:
        if record.deleted_us and not force:
            members = self._queue.describe()["groups"].get(record.name, {}).get("members", ())
            if members:
                raise GroupActive(record.name, len(members))
        return self._queue.make_group(record, now_us)

    def handle_cast(self, message: Any) -> None:  # noqa: ANN401
        """Hear other nodes, and what has become of them."""
        match message:
            case FramesOfQueue(sender, frames):
                for frame in frames:
                    self._queue.hear(sender, frame, self._now_us())
            case NodesChanged():
                self._heed(message)
            case QueueRecord():
                self._queue.join_record(message)
            case Undelivered(lease, group):
                self._queue.undelivered(group, lease, self._now_us())
            case ReleaseWaiting():
                self._queue.release_waiting(self._now_us())
            case HandOver() | BuryLetters() | LettersBuried():
                self._hear_registry(message)
            case Appended(numbers, error):
                self._is_writing = False
                self._wrote(numbers, error)
        self._settle()

    def _hear_registry(self, message: HandOver | BuryLetters | LettersBuried) -> None:
        match message:
            case HandOver(deadline_s):
                self._hand_over(deadline_s)
            case BuryLetters():
                self._hold_letters(message)
            case LettersBuried(group, number):
                self._queue.buried(group, number, self._now_us())

    def handle_info(self, message: Any) -> None:  # noqa: ANN401
        """Do what time has brought."""
        if message is not _TICK:
            super().handle_info(message)
            return
        now_us = self._now_us()
        self._alarm.rang()
        # Most often what it was armed for has happened since.
        due_us = self._queue.next_deadline_us()
        if due_us is not None and due_us <= now_us:
            self._queue.tick(now_us)
            self._settle()
        else:
            self._arm()

    def _heed(self, nodes: NodesChanged) -> None:
        queue, now_us = self._queue, self._now_us()
        for change in nodes.changes:
            match change:
                case Up(peer):
                    queue.peer_up(peer, now_us)
                case Down(ref):
                    queue.peer_down(ref, now_us)
                case PaceChanged(ref, pace):
                    queue.peer_pace(ref, now_us, is_slow=pace != "ok")
                case MemberGone(node):
                    queue.forget(node, now_us)
                case MembersKnown(ids):
                    queue.know_members(ids)

    def _hand_over(self, deadline_s: float) -> None:
        now_us = self._now_us()
        until_us = now_us + int(deadline_s * _US)
        token = HandingOver(self.ref)
        self._left_count = self._queue.hand_over(token, now_us, deadline_us=until_us)
        if not self._left_count:
            self.cast(QUEUES, HandedOver(self.ref))

    def _hold_letters(self, letters: BuryLetters) -> None:
        """Hold dead letters of another queue; what fails it asks for again."""
        found = letters.letters
        now_us = self._now_us()
        burial = _Burial(letters, len(found.batches))
        try:
            for batch in found.batches:
                until_us = now_us + _BURIAL_US
                self._queue.hold(found.stream, batch, burial, now_us, deadline_us=until_us)
        except TooFewNodes as error:
            logger.error("dead letters wait: %s", error, extra=ONCE_A_MINUTE)

    def _note_burial(self, burial: "_Burial", result: PutResult) -> None:
        burial.left_count -= result.state == "ok"
        if not burial.left_count:
            source, _, letters = burial.asked
            self.cast(source, LettersBuried(letters.group, letters.number))

    def _wrote(self, numbers: list[int], error: PoeError | None) -> None:
        now_us = self._now_us()
        for number in numbers:
            if error is None:
                self._queue.written(number, now_us)
            else:
                self._queue.write_failed(number, error, now_us)

    # ---- what follows ---------------------------------------------------------------------------

    def _settle(self) -> None:
        """Carry out what the queue asks for."""
        frame: QueueFrame | None = None
        nodes: list[NodeRef] = []
        for effect in self._queue.take_effects():
            if type(effect) is Tell:
                # One frame for several nodes comes in a row: it is encoded once.
                if effect.frame is not frame:
                    self._send(frame, nodes)
                    frame, nodes = effect.frame, []
                nodes.append(effect.node)
            else:
                self._carry_out(effect)
        self._send(frame, nodes)
        if self._writes.numbers and not self._is_writing and self._log is not None:
            self._is_writing = True
            self.cast(self._log, self._writes)
            self._writes = Append([], [])
        self._tell_groups()
        self._arm()

    def _carry_out(self, effect: Any) -> None:  # noqa: ANN401
        match effect:
            case PutDone(token, result):
                self._end_put(token, result)
            case Bury():
                self.cast(QUEUES, BuryLetters(self.ref, self._queue.record, effect))
            case Answer(_Asker() as asker, LeasedCopies() as leased):
                self._answer_lease(asker, leased)
            case Answer(Call() | _Asker() as asker, value):
                self._answer(asker if isinstance(asker, Call) else asker.caller, value)
            case Write(number, message):
                self._writes.numbers.append(number)
                self._writes.messages.append(message)
            case Trim(number):
                if self._log is not None:
                    self.cast(self._log, LetGo(number))
            case Event(kind, detail):
                self._tell(kind, detail)

    def _tell(self, kind: str, detail: str) -> None:
        """Tell people; of what happens all the time no more than leaves room for the rest."""
        name, now_us = self._parts.record.name, self._now_us()
        logger.warning("queue %r: %s: %s", name, kind, detail, extra=ONCE_A_MINUTE)
        if now_us - self._told_since_us >= _TOLD_US:
            self._told.clear()
            self._told_since_us = now_us
        self._told[kind] += 1
        if self._told[kind] <= _TOLD_MAX:
            self._parts.shelf.events.append((now_us, kind, f"queue {name!r:.80}: {detail}"))

    def _end_put(self, token: object, result: PutResult) -> None:
        match token:
            case Call():
                self._answer_put(token, result)
            case _Burial():
                self._note_burial(token, result)
            case HandingOver():
                self._left_count -= 1
                if not self._left_count:
                    self.cast(QUEUES, HandedOver(self.ref))

    def _answer_put(self, caller: Call, result: PutResult) -> None:
        record = self._queue.record
        match result.state:
            case "ok":
                self.reply(caller, QueueStored(result.pointer, result.made))
            case "under":
                self.reply_error(caller, UnderCopies(result.wanted, result.made))
            case "busy":
                held_count = self._queue.copies.messages_count
                limit, maximum = "bytes_max", record.bytes_max
                if held_count + result.pointer - result.first >= record.messages_max:
                    limit, maximum = "messages_max", record.messages_max
                self.reply_error(caller, QueueBusy(record.name, limit, maximum))
            case "none":
                # Who was asked and said nothing may hold them, or write them just now; pointers
                # begin at the time of the put.
                waited_s = round(max(self._now_us() - result.first, 0) / _US, 1)
                self.reply_error(caller, PutUnconfirmed(topic_text(record.name), waited_s))

    def _answer(self, caller: Call, value: object) -> None:
        if isinstance(value, PoeError):
            self.reply_error(caller, value)
        else:
            self.reply(caller, value)

    def _answer_lease(self, asker: _Asker, leased: LeasedCopies) -> None:
        lease, found = leased
        if asker.caller.is_done:  # who asked is gone, and nobody else tells of that
            self.cast(self.ref, Undelivered(lease, asker.group))
            return
        held = None if found is None else HeldRecords(found.entries, found.records)
        self.reply(asker.caller, (lease, held))

    def _send(self, frame: QueueFrame | None, nodes: list[NodeRef]) -> None:
        if frame is not None and nodes:
            self.cast(FABRIC, TellNodes(tuple(nodes), encode(frame)))

    def _tell_groups(self) -> None:
        """Tell the registry of groups that have changed, whoever told this queue of them."""
        groups = self._queue.take_groups()
        if groups is not None:
            self.cast(QUEUES, GroupsOfQueue(self._queue.record.name, tuple(groups)))

    def _arm(self) -> None:
        """Have the queue be ticked when it wants to be."""
        due_us = self._queue.next_deadline_us()
        if due_us is not None:
            self._alarm.ring_after(max(due_us - self._now_us(), _TICK_MIN_US) / _US)

    def _now_us(self) -> int:
        """Return the time; after it was held up, nobody is taken for silent who was not heard."""
        now_us = self._parts.clock_offset_us + int(self.monotonic_s() * _US)
        if self._alarm.take_lateness():
            self._queue.excuse(now_us)
        return now_us
