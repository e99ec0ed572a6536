"""The registry of queues: which there are, who runs them, and what other nodes know of them.

A queue is made by its first put, here or anywhere: its record travels with the messages, and by
gossip. Its actor is started anew, with the copies that it had, when it ends. What comes from other
nodes is decoded here, and goes to the queue that it is of.

Layout of `node.queues`, in the frame of `node_file.py` with magic "poe-queu": [version: 1, records]
of the queues that outlive the process, as they are told, and of what was deleted. Their messages
lie in topics of their own.
"""

import logging
import random
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Final, cast
from weakref import proxy

from poe.actors import NO_REPLY, ActorRef, Call, Error, GenServer, Reason
from poe.actors import Down as ActorDown
from poe.broker.appendix.message import ReleaseWaiting
from poe.broker.log_limit import ONCE_A_MINUTE
from poe.broker.registry.queue_table import QueueTable
from poe.broker.registry.routing_table import RoutingTable
from poe.broker.registry.topic_registry import Delete
from poe.broker.requests import arguments as arg
from poe.broker.requests.groups import DeleteGroup, FindGroup, ListGroups
from poe.broker.requests.queue_messages import (
    ClusterRequest,
    DeleteQueue,
    DescribeQueue,
    FindQueue,
    ListQueues,
)
from poe.broker.requests.request_handler import RequestHandler
from poe.cluster.actor_messages import (
    FABRIC,
    MEMBERS,
    BuryLetters,
    CountsOfQueue,
    DescribeMembers,
    FabricMetrics,
    ForgetMember,
    FramesHeard,
    FramesOfQueue,
    GroupsOfQueue,
    HandedOver,
    HandOver,
    LeaveCluster,
    ListNodes,
    MakeGroup,
    MembersHeard,
    MembersKnown,
    NodesChanged,
    NodesKnown,
    ReportOfQueue,
    TellNodes,
)
from poe.cluster.directory import QUEUES_MAX
from poe.cluster.frames import QueueFrame, Store, decode
from poe.cluster.identity import NodeRef, Peer
from poe.cluster.members.membership import Down, Fenced, MemberGone, PaceChanged, Up
from poe.cluster.node_file import read_node_file, write_node_file
from poe.cluster.node_frames import (
    RECORDS_MAX,
    DirectoryDigest,
    MembersTold,
    RecordsTold,
    encode_digest,
    encode_records,
    is_of_members,
    is_of_node,
)
from poe.cluster.node_frames import decode as decode_of_node
from poe.cluster.options import ClusterOptions
from poe.cluster.queue.ledger import AT_MOST_ONCE, define
from poe.cluster.queue_actor import QueueParts
from poe.cluster.queue_log import LOG_TOPIC_PREFIX
from poe.cluster.queue_record import GroupRecord, QueueRecord
from poe.cluster.shelf import Shelf
from poe.errors import (
    ActorDead,
    CorruptIdentity,
    GroupFull,
    GroupMismatch,
    InvalidTopicName,
    OptionError,
    PoeError,
    QueueExists,
    QueueMismatch,
    RemoteProtocolError,
    StorageError,
    TooFewNodes,
    UnknownGroup,
    UnknownQueue,
)
from poe.protocol.maps import take_text
from poe.storage import Clock, Files
from poe.supervision import start_dynamic_child, terminate_child
from poe.supervision.backoff import Backoff
from poe.supervision.restart_delays import RestartDelays, RestartDue
from poe.topic_name import folder_name
from poe.topic_properties import is_reserved

logger = logging.getLogger("poe.cluster")

QUEUE_SUP: Final = "queue_sup"
QUEUES_FILE: Final = "node.queues"
_MAGIC: Final = b"poe-queu"
_VERSION: Final = 1
_GOSSIP_S: Final = 10.0
_BACKOFF: Final = Backoff(first_s=0.05, max_s=5.0, reset_after_s=60.0)
"""Of a queue that ends again and again; its supervisor starts temporary children, none anew."""
_EARLY_MAX: Final = 64
"""Frames of a node that are kept until it is told to be there."""
_EARLY_BYTES_MAX: Final = 64 * 1024 * 1024
_EARLY_OVERHEAD_BYTES: Final = 1024
"""Of all nodes together, with what keeping them takes."""
_HAND_OVER_S: Final = 1.0
"""How long all queues together may take to hand over what nobody else holds."""
_FAREWELL_S: Final = 0.05
"""How long a node that leaves lets the others hear of it."""
_GOSSIP = object()
_US: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class QueuesParts:
    """What queues work with."""

    options: ClusterOptions
    me: Peer
    routes: RoutingTable
    files: Files
    clock: Clock
    shelf: Shelf
    clock_offset_us: int = 0


class Queues(GenServer):
    """Knows all queues, and starts their actors.

    Always: each queue of the directory has an actor, or one that is about to be started.
    """

    trap_exits = True

    async def init(self, parts: QueuesParts) -> None:
        """Begin with the queues that are written down, and those that outlived a crash."""
        shelf = parts.shelf
        if shelf.clock_offset_us is None:
            # It stays: a clock that is set back would have what a queue says taken for old news.
            shelf.clock_offset_us = parts.clock.now_us() - int(self.monotonic_s() * _US)
        self._parts = replace(parts, clock_offset_us=shelf.clock_offset_us)
        self._handler = RequestHandler(cast("GenServer", proxy(self)), parts.routes)
        self._table = parts.routes.queues = QueueTable()
        self._directory = parts.shelf.directory
        self._refs: dict[bytes, ActorRef] = {}
        self._names: dict[ActorRef, bytes] = {}
        self._groups: dict[str, GroupRecord] = {}
        self._delays = RestartDelays(self)
        self._counts: Counter[str] = Counter()
        """Of what happened here, and of queues that have ended, as far as that was asked for."""
        self._queue_counts: dict[ActorRef, Counter[str]] = {}
        """What queues have said last."""
        self._early: dict[NodeRef, list[bytes]] = {}
        self._early_bytes = 0
        """Of frames that were kept so since the last gossip."""
        self._leaver: Call | None = None
        """Who waits until this node may leave."""
        self._is_leaving = False
        """Whether it leaves when it ends."""
        self._handing_over: set[ActorRef] = set()
        """Queues that are at that, before."""
        self._dice = random.Random(parts.me.incarnation)  # noqa: S311 - whom to tell next
        known: NodesKnown = await self.call(MEMBERS, ListNodes())
        self._fenced = known.fenced
        self._live = {peer.ref: peer for peer in known.live}
        self._slow = set(known.slow)
        self._members = set(known.members)
        self._gone = {each.node: each for each in known.gone}
        self._directory.join(read_queues(parts.files))
        for record in self._directory.records():
            if record.deleted_us:  # the last life may have ended in the midst of that
                await self._drop_log(record)
        for record in self._directory.there():
            await self._start(record.name)
        self.send_after(_GOSSIP_S, _GOSSIP)

    def describe_role(self) -> str:
        """Return how many queues there are."""
        count = len(self._refs)
        return "1 queue" if count == 1 else f"{count} queues"

    # ---- messages -------------------------------------------------------------------------------

    async def handle_call(self, request: Any, caller: Call) -> Any:  # noqa: ANN401
        """Find, make, list and delete queues and their groups; answer for the cluster."""
        try:
            if self._fenced is not None and not isinstance(request, ClusterRequest):
                raise self._fenced
            if isinstance(request, ClusterRequest) and request.op == "leave":
                return self._prepare_to_leave(caller)
            return await self._serve(request)
        except PoeError as error:
            return Error(error)

    async def _serve(self, request: Any) -> Any:  # noqa: ANN401
        match request:
            case FindQueue():
                answer: Any = await self._find(request)
            case ListQueues():
                answer = [await self._ask(name, DescribeQueue()) for name in sorted(self._refs)]
            case DeleteQueue(name):
                await self._delete(name)
                answer = None
            case FindGroup():
                answer = await self._find_group(request)
            case ListGroups():
                answer = [
                    {"group": name, "mode": "shared", "topics": [self._groups[name].queue]}
                    for name in sorted(self._groups)
                ]
            case DeleteGroup(name, force):
                await self._delete_group(name, force=force)
                answer = None
            case ClusterRequest(op, arguments):
                answer = await self._of_cluster(op, arguments)
        return answer

    async def handle_cast(self, message: Any) -> None:  # noqa: ANN401
        """Hear other nodes, what has become of them, and of groups."""
        match message:
            case FramesHeard(sender, frames):
                if sender not in self._live:
                    frames = self._hear_early(sender, frames)
                await self._hear(sender, frames)
            case Up() | Down() | PaceChanged() | MemberGone() | MembersKnown():
                self._note(message)
                self._tell_queues(message)
                if isinstance(message, Up):
                    await self._hear(message.peer.ref, self._early.pop(message.peer.ref, []))
            case GroupsOfQueue() | BuryLetters() | HandedOver():
                await self._hear_queue(message)
            case Fenced(error):
                await self._fence(error)
            case ReleaseWaiting():
                for ref in self._refs.values():
                    self.cast(ref, message)

    async def _hear_queue(self, message: GroupsOfQueue | BuryLetters | HandedOver) -> None:
        match message:
            case GroupsOfQueue(queue, groups):
                self._note_groups(queue, groups)
            case BuryLetters():
                await self._bury(message)
            case HandedOver(ref):
                self._note_handed_over(ref)

    async def handle_info(self, message: Any) -> None:  # noqa: ANN401
        """Tell a node now and then which queues are known; start anew what has ended."""
        match message:
            case ActorDown():
                self._ended(message.ref, message.reason)
                self._note_handed_over(message.ref)
            case RestartDue(bytes(queue)):
                is_wanted = self._delays.is_valid(message) and queue not in self._refs
                if is_wanted and self._directory.find(queue) is not None:
                    await self._start(queue)
            case _ if message is _GOSSIP:
                self.send_after(_GOSSIP_S, _GOSSIP)
                self._early.clear()
                self._early_bytes = 0
                if self._live:
                    self._send([self._dice.choice(sorted(self._live))])
            case _:
                super().handle_info(message)

    # ---- queues ---------------------------------------------------------------------------------

    async def _find(self, wanted: FindQueue) -> ActorRef:
        name = wanted.name
        record = self._directory.find(name)
        if record is None:
            if wanted.properties is None:
                raise UnknownQueue(name)
            record = self._new_record(name, wanted.properties)
            live_count = 1 + len(self._live)
            if wanted.is_for_put and record.copies > live_count:
                raise TooFewNodes(record.copies, live_count)  # it would be refused ever after
            if record.persist:
                self._save(record)  # on an error there is no such queue
            await self._take([record])
        elif wanted.is_new:
            raise QueueExists(name)
        else:
            for key, value in (wanted.properties or {}).items():
                has = getattr(record, key, None)
                if has != value:
                    raise QueueMismatch(name, key, value, has)
        ref = self._refs.get(name)
        if ref is None:
            raise UnknownQueue(name)
        return ref

    def _new_record(self, name: bytes, properties: dict[str, Any]) -> QueueRecord:
        """Return the record of a queue that is made now.

        Raises:
            InvalidTopicName, OptionError, GroupFull: no queue may be so.
        """
        folder_name(name, self._parts.routes.names)
        if not self._directory.has_room_for(name):
            raise GroupFull("queues", "queues_max", QUEUES_MAX)
        deleted = self._directory.get(name)
        now_us = self._now_us()
        values = {"copies": self._parts.options.copies, **properties}
        for key, kind in _KINDS.items():
            if key in values and type(values[key]) is not kind:
                raise OptionError(key, values[key], f"a value of type {kind.__name__}")
        record = QueueRecord(
            name=name,
            created_us=max(now_us, 0 if deleted is None else deleted.deleted_us + 1),
            created_by=self._parts.me.ref.id,
            **values,
        )
        record.check()
        if record.persist:
            folder_name(LOG_TOPIC_PREFIX + name, self._parts.routes.names)
        return record

    async def _take(self, records: Iterable[QueueRecord]) -> None:
        """Join records, do what they say, and tell the others of what is new."""
        changed = self._directory.join(records)
        if not changed:
            return
        if any(each.persist for each in changed):
            try:
                self._save()
            except StorageError as error:  # the next change of one is another try
                logger.error("queues that outlive the process are not written down: %s", error)
        self._send(list(self._live), changed)
        for record in changed:
            if record.deleted_us:
                await self._end(record)
            elif (ref := self._refs.get(record.name)) is None:
                await self._start(record.name)
            else:
                self.cast(ref, record)

    async def _start(self, name: bytes) -> None:
        parts, record = self._parts, self._directory.find(name)
        assert record is not None
        if self._fenced is not None:
            return
        changes: list[Any] = [MembersKnown(tuple(sorted(self._members))), *self._gone.values()]
        changes += [Up(peer) for peer in self._live.values()]
        changes += [PaceChanged(ref, "slow") for ref in sorted(self._slow)]
        queue = QueueParts(
            record, parts.me, parts.shelf.copies(name), parts.routes, parts.shelf,
            parts.clock_offset_us, NodesChanged(tuple(changes)),
        )  # fmt: skip
        try:
            ref = await start_dynamic_child(self, QUEUE_SUP, queue)
        except PoeError as error:
            logger.error("queue %r cannot be started: %s", name, error)
            self._delays.begin(name, _BACKOFF)
            return
        assert ref is not None
        self.monitor(ref)
        self._refs[name], self._names[ref] = ref, name
        self._table.add(name, ref)
        if self._live and not record.persist and (self._is_leaving or self._leaver is not None):
            # Clients are served until their connections end: this queue, too, is to hold nothing.
            self.cast(ref, HandOver(_HAND_OVER_S))

    def _ended(self, ref: ActorRef, reason: object) -> None:
        name = self._forget(ref)
        if name is None or self._refs.get(name) != ref:
            return
        del self._refs[name]
        logger.error("queue %r has ended (%s); it is started anew with its copies", name, reason)
        self._counts["queues restarted"] += 1
        self._delays.begin(name, _BACKOFF)

    def _forget(self, ref: ActorRef) -> bytes | None:
        """Forget whose queue an actor was, but for what it has counted, and return its name."""
        self._counts.update(self._queue_counts.pop(ref, {}))
        return self._names.pop(ref, None)

    async def _delete(self, name: bytes) -> None:
        record = self._directory.find(name)
        if record is None:
            raise UnknownQueue(name)
        await self._take([record.deleted(self._now_us())])

    async def _end(self, record: QueueRecord) -> None:
        """Stop a queue that was deleted, and drop what it holds."""
        name = record.name
        ref = self._refs.pop(name, None)
        if ref is not None:
            self._forget(ref)
            with suppress(PoeError):
                await terminate_child(self, QUEUE_SUP, ref)
        self._table.remove(name)
        self._delays.forget(name)
        self._groups = {key: each for key, each in self._groups.items() if each.queue != name}
        self._parts.shelf.drop(name)
        await self._drop_log(record)

    async def _drop_log(self, record: QueueRecord) -> None:
        """Delete what was written of a queue that was deleted; else it would be the next one's.

        Its record may be of no log, as that of the other side of a split is younger.
        """
        topic = LOG_TOPIC_PREFIX + record.name
        if self._parts.routes.is_topic(topic):
            try:
                await self._handler.ask_registry(Delete(topic))
            except PoeError as error:
                logger.error("topic %r of a deleted queue stays: %s", topic, error)

    async def _ask(self, name: bytes, request: object) -> Any:  # noqa: ANN401 - as it answers
        ref = self._refs.get(name)
        if ref is None:
            raise UnknownQueue(name)
        return await self.call(ref, request)

    def _save(self, *new: QueueRecord) -> None:
        """Write down the queues that outlive the process, and those that are about to be known.

        So is what was deleted, whatever it was, and whatever was made since by its name: a node
        that was away would have a queue come back that was deleted before.

        Raises:
            StorageError: they cannot be.
        """
        records = self._directory.as_told((*self._directory.records(), *new))
        told = [each for each in records if each.persist or each.deleted_us]
        write_node_file(self._parts.files, QUEUES_FILE, _MAGIC, [_VERSION, told])

    # ---- groups ---------------------------------------------------------------------------------

    async def _find_group(self, wanted: FindGroup) -> ActorRef:
        name = wanted.name
        known = self._groups.get(name)
        if wanted.mode is None or (known is None and not wanted.may_create):
            if known is None:
                raise UnknownGroup(name)
            return await self._find(FindQueue(known.queue))
        if wanted.mode != "shared":
            raise GroupMismatch(name, "mode", wanted.mode, "shared")
        if known is not None:
            if wanted.is_new:
                raise GroupMismatch(name, "name", "a new group", "in use")
            if wanted.topics != (known.queue,):
                raise GroupMismatch(name, "topics", list(wanted.topics), [known.queue])
            return await self._find(FindQueue(known.queue))
        (queue,) = wanted.topics
        ref = await self._find(FindQueue(queue, {}))
        record = GroupRecord(
            queue, name, dict(wanted.options or {}), self._now_us(), self._parts.me.ref.id
        )
        self._check_delivery(record)
        record = await self.call(ref, MakeGroup(record))
        self._note_groups(queue, (*self._groups_of(queue), record))
        return ref

    def _check_delivery(self, record: GroupRecord) -> None:
        """Refuse to hand out dead letters at most once: no node is their origin, to keep count.

        Raises:
            OptionError: so it is asked for; or an option is wrong.
        """
        if define(record)[1] != AT_MOST_ONCE:
            return
        for each in self._groups.values():
            if define(each)[0].dead_letter_topic == record.queue:
                allowed = f"at-least-once: the queue has dead letters, of group {each.name!r:.80}"
                raise OptionError("delivery", AT_MOST_ONCE, allowed)

    async def _delete_group(self, name: str, *, force: bool) -> None:
        known = self._groups.get(name)
        if known is None:
            raise UnknownGroup(name)
        await self._ask(known.queue, MakeGroup(known.deleted(self._now_us()), force))
        rest = tuple(each for each in self._groups_of(known.queue) if each.name != name)
        self._note_groups(known.queue, rest)

    def _groups_of(self, queue: bytes) -> tuple[GroupRecord, ...]:
        return tuple(each for each in self._groups.values() if each.queue == queue)

    def _note_groups(self, queue: bytes, groups: Iterable[GroupRecord]) -> None:
        """Know all groups of a queue; of two that have one name the older one is found by it."""
        if queue not in self._refs:
            return
        now = {each.name: each for each in groups}
        for each in self._groups_of(queue):
            if each.name not in now:
                del self._groups[each.name]
                self._table.remove_group(each.name)
        for name, record in now.items():
            known = self._groups.get(name, record)
            first = min(known, record, key=lambda each: (each.created_us, each.created_by))
            self._groups[name] = record if known.queue == queue else first
            self._table.add_group(name, self._groups[name].queue)

    async def _bury(self, asked: BuryLetters) -> None:
        """Have the queue for dead letters hold some; without it they are asked for again."""
        try:
            name = asked.letters.queue
            if self._directory.find(name) is None:
                properties = {"copies": asked.like.copies, "persist": asked.like.persist}
                await self._take([self._new_record(name, properties)])
            self.cast(await self._find(FindQueue(name)), asked)
        except PoeError as error:
            logger.error("dead letters wait: %s", error, extra=ONCE_A_MINUTE)

    # ---- other nodes ----------------------------------------------------------------------------

    def _note(self, change: Up | Down | PaceChanged | MemberGone | MembersKnown) -> None:
        match change:
            case Up(peer):
                self._live[peer.ref] = peer
                self._members.add(peer.ref.id)
                self._gone.pop(peer.ref.id, None)
                self._send([peer.ref])
            case Down(ref):
                self._live.pop(ref, None)
                self._slow.discard(ref)
            case PaceChanged(ref, pace):
                (self._slow.discard if pace == "ok" else self._slow.add)(ref)
            case MemberGone(node):
                self._members.discard(node)
                self._gone[node] = change
            case MembersKnown(nodes):
                self._members.update(nodes)

    def _tell_queues(self, change: Any) -> None:  # noqa: ANN401
        told = NodesChanged((change,))
        for ref in self._refs.values():
            self.cast(ref, told)

    async def _hear(self, sender: NodeRef, frames: list[bytes]) -> None:
        """Give each queue its frames, in order; what cannot be read is counted and told."""
        by_queue: dict[bytes, list[QueueFrame]] = {}
        for body in frames:
            try:
                if is_of_node(body):
                    await self._hear_node(sender, body)
                else:
                    frame = decode(body)
                    by_queue.setdefault(frame.queue, []).append(frame)
            except RemoteProtocolError as error:
                self._counts["frames refused"] += 1
                logger.warning("node %s sent nonsense: %s", sender, error, extra=ONCE_A_MINUTE)
        for queue, heard in by_queue.items():
            await self._give(sender, queue, heard)

    def _hear_early(self, sender: NodeRef, frames: list[bytes]) -> list[bytes]:
        """Return what may be heard of a node that is no peer: what it knows of members.

        The rest is kept a while, as a node is often heard before it is told to be there.
        """
        now = [each for each in frames if is_of_members(each)]
        rest = [each for each in frames if not is_of_members(each)]
        early = self._early.get(sender, [])
        size = sum(map(len, rest))
        has_room = len(early) + len(rest) <= _EARLY_MAX
        if rest and has_room and self._early_bytes + size <= _EARLY_BYTES_MAX:
            self._early[sender] = early + rest
            self._early_bytes += size + _EARLY_OVERHEAD_BYTES
        else:
            self._counts["frames of strangers"] += len(rest)
        return now

    async def _give(self, sender: NodeRef, queue: bytes, frames: list[QueueFrame]) -> None:
        store = next((each for each in frames if isinstance(each, Store)), None)
        if queue not in self._refs and store is not None:
            await self._take(self._admit([store.record]))
        ref = self._refs.get(queue)
        if ref is None:
            self._counts["frames of unknown queues"] += len(frames)
        else:
            self.cast(ref, FramesOfQueue(sender, frames))

    async def _hear_node(self, sender: NodeRef, body: bytes) -> None:
        match decode_of_node(body):
            case MembersTold(members):
                self.cast(MEMBERS, MembersHeard(sender, members))
            case RecordsTold(records, is_answer):
                await self._take(self._admit(records))
                missing = [] if is_answer else self._directory.beyond(records)
                self._send_records([sender], missing, is_answer=True)
            case DirectoryDigest(digest):
                if digest != self._directory.digest():
                    self._send([sender], self._directory.records())

    def _admit(self, records: Sequence[QueueRecord]) -> list[QueueRecord]:
        """Return those of queues that this node can have: the others are counted."""
        admitted = [each for each in records if self._may_be_here(each)]
        self._counts["queues refused"] += len(records) - len(admitted)
        return admitted

    def _may_be_here(self, record: QueueRecord) -> bool:
        if is_reserved(record.name):
            return False
        try:
            if record.persist:
                folder_name(LOG_TOPIC_PREFIX + record.name, self._parts.routes.names)
        except InvalidTopicName:
            return False
        return True

    def _send(self, nodes: list[NodeRef], records: list[QueueRecord] | None = None) -> None:
        """Tell nodes of records; None: a digest, for which who knows other ones tells all."""
        if records is not None:
            self._send_records(nodes, records, is_answer=len(records) < len(self._directory))
        elif nodes:
            self.cast(FABRIC, TellNodes(tuple(nodes), encode_digest(self._directory.digest())))

    def _send_records(
        self, nodes: list[NodeRef], records: list[QueueRecord], *, is_answer: bool
    ) -> None:
        told = self._directory.as_told(records) if nodes else []
        for begin in range(0, len(told), RECORDS_MAX):
            frame = encode_records(told[begin : begin + RECORDS_MAX], is_answer=is_answer)
            self.cast(FABRIC, TellNodes(tuple(nodes), frame))

    async def _fence(self, error: PoeError) -> None:
        """Leave the cluster: queues are served here no more, the node's own topics are."""
        self._fenced = error
        for name, ref in list(self._refs.items()):
            del self._refs[name]
            self._forget(ref)
            with suppress(PoeError):
                await terminate_child(self, QUEUE_SUP, ref)
        self._table.clear()
        self._live.clear()
        self._groups.clear()

    # ---- the cluster ----------------------------------------------------------------------------

    async def _of_cluster(self, op: str, arguments: dict[str, Any]) -> Any:  # noqa: ANN401
        """Answer one of the ops of a cluster, as plain values."""
        match op:
            case "cluster":
                return await self._status()
            case "cluster_members":
                meant = take_text(arguments, "node", op) if "node" in arguments else None
                return await self.call(MEMBERS, DescribeMembers(meant))
            case "cluster_forget":
                return await self.call(MEMBERS, ForgetMember(take_text(arguments, "node", op)))
        only = arg.topic(arguments) if "topic" in arguments else None
        names = sorted(self._refs) if only is None else [only]
        return [
            {"queue": name, **row}
            for name in names
            for row in await self._ask(name, ReportOfQueue())
        ]

    def _prepare_to_leave(self, caller: Call) -> Any:  # noqa: ANN401 - as `handle_call`
        """Hand over what nobody else holds.

        Who takes it says so by way of this actor, which goes on meanwhile therefore.
        """
        self._leaver = caller
        for name, ref in sorted(self._refs.items()) if self._live else ():
            record = self._directory.find(name)
            if record is not None and not record.persist:
                self._handing_over.add(ref)
                self.cast(ref, HandOver(_HAND_OVER_S))
        self._go_on_leaving()
        return NO_REPLY

    def _note_handed_over(self, ref: ActorRef) -> None:
        self._handing_over.discard(ref)  # who has ended hands nothing over either
        self._go_on_leaving()

    def _go_on_leaving(self) -> None:
        """Answer who wants this node to leave, if nothing is to be handed over any more."""
        if self._leaver is not None and not self._handing_over:
            self.reply(self._leaver, None)
            self._leaver, self._is_leaving = None, True

    async def terminate(self, reason: Reason) -> None:
        """Leave, if that is wanted, where nothing of this node outlives it.

        Not before its clients are gone: the others hear nothing of it any more, and what was put
        here would wait for them in vain.
        """
        del reason
        records = self._directory.records()
        if self._is_leaving and not any(each.persist and not each.deleted_us for each in records):
            with suppress(PoeError):  # then the others see that it is down
                await self.call(MEMBERS, LeaveCluster())
            if self._live:
                await self.sleep(_FAREWELL_S)

    async def _status(self) -> dict[str, Any]:
        me, options = self._parts.me, self._parts.options
        members = await self.call(MEMBERS, DescribeMembers())
        for ref in list(self._names):
            with suppress(PoeError):
                self._queue_counts[ref] = Counter(await self.call(ref, CountsOfQueue()))
        counts = sum(self._queue_counts.values(), self._counts)
        try:
            fabric = await self.call(FABRIC, FabricMetrics())
        except ActorDead:
            fabric = {}
        return {
            "cluster": options.cluster,
            "node": me.ref.id.hex(),
            "epoch": me.ref.epoch,
            "name": me.name,
            "zone": me.zone,
            "locator": me.locator,
            "state": "joined" if self._fenced is None else "fenced",
            "why": "" if self._fenced is None else str(self._fenced),
            "members": sum(each["state"] == "joined" for each in members),
            "live": sum(each["liveness"] not in {"down", "out"} for each in members),
            "queues": len(self._refs),
            "groups": len(self._groups),
            "counts": dict(sorted(counts.items())),
            "fabric": fabric,
            "events": [list(each) for each in self._parts.shelf.events],
        }

    def _now_us(self) -> int:
        return self._parts.clock_offset_us + int(self.monotonic_s() * _US)


_KINDS: Final[dict[str, type]] = {
    "copies": int, "persist": bool, "bytes_max": int, "messages_max": int, "on_full": str,
}  # fmt: skip


def read_queues(files: Files) -> list[QueueRecord]:
    """Return the queues of a node that outlived its last process.

    Raises:
        CorruptIdentity: the file is damaged.
        StorageError: it cannot be read.
    """
    value: Any = read_node_file(files, QUEUES_FILE, _MAGIC)
    if value is None:
        return []
    try:
        match value:
            case [1, records]:
                return [QueueRecord(*each) for each in records]
    except TypeError:
        pass
    path = f"{files.base}/{QUEUES_FILE}"
    raise CorruptIdentity(path, "it holds no records of queues")
