"""The registry of replicated topics: which the cluster has, and who keeps their copies here.

It owns the engine. The catalog says which topics there are; each node does what that says: it has
the topic described, and starts a replica for each of its partitions. A replica that ends is started
anew.
"""

import contextlib
import logging
import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple

from poe.actors import ActorRef, Call, Error, Exit, GenServer, Mailslot, Stop
from poe.actors import Down as ActorDown
from poe.broker.appendix.server import REGISTRY
from poe.broker.registry.copy_messages import InstallTopic
from poe.broker.registry.routing_table import RoutingTable
from poe.broker.registry.topic_registry import Delete
from poe.broker.requests.log_groups import NOT_HERE, PING
from poe.broker.requests.log_messages import (
    AlterLog,
    CreateLog,
    DeleteLog,
    DescribeLogs,
    DescribeReplica,
    ForgetLogNode,
    MoveLog,
)
from poe.cluster.log.claims import CLAIM_KEY, Claim, Claims
from poe.cluster.log.engine import (
    CatalogChanged,
    Connected,
    Disconnected,
    EngineEvent,
    EngineState,
    Entries,
    Forgotten,
    LogEngine,
    Lost,
    PeerAsked,
    StreamState,
)
from poe.cluster.log.engine_door import Ask, EngineDoor
from poe.cluster.log.entry import ORIGIN_BYTES
from poe.cluster.log.log_groups import PeerQuestion as GroupQuestion
from poe.cluster.log.peer_frames import (
    HasTopic,
    KnowsRecord,
    Whether,
    decode_known,
    decode_question,
    encode_answer,
    encode_error,
    encode_question,
)
from poe.cluster.log.record import LogRecord, key_of
from poe.cluster.log.replica import (
    PeerQuestion,
    ReplicaParts,
    State,
    StreamSlots,
    busy_row,
)
from poe.errors import (
    ActorDead,
    CallTimeout,
    NoQuorum,
    PoeError,
    RemoteProtocolError,
    TooFewNodes,
    TopicExists,
    UnknownNode,
    UnknownTopic,
)
from poe.storage import Clock, Messages
from poe.supervision import start_dynamic_child, terminate_child
from poe.supervision.backoff import Backoff
from poe.supervision.restart_delays import RestartDelays, RestartDue
from poe.topic_name import topic_text
from poe.topic_properties import TopicDescription, TopicProperties

logger = logging.getLogger("poe.cluster")

REPLICA_SUP: Final = "replica_sup"
LOOK_S: Final = 5.0
"""What a look at the engine may take, and the making of a stream."""
KNOWN_S: Final = 2.0
"""How long a topic that is made waits for the other nodes to have it."""
PROBE_PAUSE_S: Final = 0.3
"""Until it is tried again to hear all that the catalog has."""
_PROBE_PREFIX: Final = "node-"
_SEEN: Final = b"seen"
_KNOWN_PAUSE_S: Final = 0.02
_STREAM_LOOK_S: Final = 1.0
_REPLICA_LOOK_S: Final = 1.0
_BRIEF_LOOK_S: Final = 1.0
"""Who asks in brief waits no longer: for metrics, which are told where nobody leads, too."""
_REMOVE_AGAIN_S: Final = 1.0
RESTARTS: Final = Backoff(first_s=0.05, max_s=5.0, reset_after_s=60.0)
"""How long a replica that has ended waits to be started anew."""


@dataclass(frozen=True, slots=True)
class _RemoveDue:
    """A deleted topic is to be removed, which the disk did not let be."""

    record: LogRecord


@dataclass(frozen=True, slots=True)
class LogParts:
    """What the log of a node works with."""

    engine: LogEngine
    me: str
    """Name of this node, as the engine knows it."""
    folder: Path
    """That of the node."""
    routes: RoutingTable
    clock: Clock
    check_sizes: Callable[[Messages], None]
    bytes_max: int
    """What a stream remembers."""
    count_limit: int
    size_limit: int
    """Of the segments of topics that do not say it themselves."""
    claims: Claims
    """Who coordinates the groups of replicated topics."""
    restarts: Backoff = RESTARTS
    slots: StreamSlots = field(default_factory=StreamSlots)


class _Probed(NamedTuple):
    """What came of a probe of the catalog: its revision, or an error."""

    outcome: int | PoeError | None
    """None: it is to be tried again."""


def _as_asked(request: object, error: PoeError) -> PoeError:
    """Return an error by the name that a topic has for who asks; the engine has others."""
    match request:
        case CreateLog(topic) | AlterLog(topic) | DeleteLog(topic) if isinstance(error, NoQuorum):
            return NoQuorum(f"topic {topic_text(topic)}", is_in_doubt=error.is_in_doubt)
    return error


def _post_probe(slot: Mailslot, outcome: int | PoeError) -> None:
    slot.post(_Probed(outcome))


class _Undeleted(NamedTuple):
    """The engine did not delete a stream; it is tried again in a while."""

    stream: str


def _post_undeleted(slot: Mailslot, stream: str, error: PoeError | None) -> None:
    if error is not None:
        slot.post(_Undeleted(stream))


class Logs(GenServer):
    """Knows all replicated topics; registered as `LOGS`.

    Always: each partition of a topic that the catalog has, and that could be installed here, has a
    replica, or one that is about to be started; what could not is about to be tried again.

    It traps exits: however it ends, but for a kill, nobody takes puts from then on.
    """

    trap_exits = True

    async def init(self, parts: LogParts) -> None:
        """Begin to reach the engine."""
        self._parts = parts
        self._engine = parts.engine
        self._slot = Mailslot(self)
        self._slots = parts.slots
        self._slots.clear()  # replicas of a life that was killed may not have ended yet
        door = await self.start_link(EngineDoor)
        assert door is not None
        self._door = door
        self._records: dict[str, LogRecord] = {}
        self._revisions: dict[str, int] = {}
        self._done: dict[str, int] = {}
        """Up to which revision of each key this node has done what the catalog says."""
        self._refs: dict[bytes, ActorRef] = {}
        self._topics: dict[ActorRef, bytes] = {}
        self._streams: dict[bytes, str] = {}
        self._unsure: dict[str, list[LogRecord]] = {}
        """By key, topics that this node has made streams for, and that may not be agreed on."""
        self._refused: dict[bytes, PoeError] = {}
        """Topics of the catalog that cannot be here, and why."""
        self._delays = RestartDelays(self)
        self._connected = ""
        self._why = "it has not been reached yet"
        self._probe_key = _PROBE_PREFIX + parts.me
        self._probed = 0
        """Revision of what this node has written to the catalog of its own."""
        parts.routes.replicas = {}
        parts.routes.unnoted.clear()
        parts.routes.is_catalog_known = False
        self._engine.open(self._hear)

    def terminate(self, reason: Any) -> None:  # noqa: ANN401 - as `GenServer`
        """Have nobody take puts, or make topics by them, until the next life."""
        del reason
        self._parts.routes.replicas = {}
        self._parts.routes.is_catalog_known = False

    def describe_role(self) -> str:
        """Return how many partitions there are."""
        count = len(self._refs)
        replicas = "1 replica" if count == 1 else f"{count} replicas"
        return f"{replicas}, engine {self._connected or 'not reached'}"

    def _hear(self, event: EngineEvent) -> None:
        """Take what any thread brings; what is of a stream goes to its replica at once."""
        if isinstance(event, Entries | Forgotten | Lost):
            slot = self._slots.get(event.stream)
            if slot is not None:
                slot.post(event)
        elif isinstance(event, PeerAsked):
            self._take_question(event)
        else:
            self._slot.post(event)

    # ---- messages -------------------------------------------------------------------------------

    async def handle_call(self, request: Any, caller: Call) -> Any:  # noqa: ANN401
        """Make, change and delete replicated topics; tell of them."""
        answer: Any = None
        try:
            match request:
                case CreateLog(topic, properties):
                    answer = await self._create(topic, properties)
                case AlterLog(topic, changes):
                    answer = await self._alter(topic, changes)
                case DeleteLog(topic):
                    await self._delete(topic)
                case DescribeLogs(has_streams):
                    answer = await self._describe(has_streams=has_streams)
                case MoveLog(topics, node):
                    await self._move(topics, node)
                case ForgetLogNode(node):
                    await self._forget(node)
                case _:
                    answer = super().handle_call(request, caller)
        except PoeError as error:
            answer = Error(_as_asked(request, error))
        return answer

    async def handle_info(self, message: Any) -> Stop | None:  # noqa: ANN401, C901 - one case each
        """Do what the catalog says; start anew what has ended."""
        match message:
            case CatalogChanged():
                await self._take(message)
            case Connected(version):
                self._connected, self._why = version, ""
                logger.info("the engine of the replicated log, %s, is reached", version)
                self._probe()
            case _Probed():
                self._take_probe(message)
            case Disconnected(why):
                if self._connected:
                    logger.warning("the engine of the replicated log is not reached: %s", why)
                self._connected, self._why = "", why
            case ActorDown():
                self._ended(message.ref, message.reason)
            case _RemoveDue(record):
                await self._remove_again(record)
            case _Undeleted():
                self._delays.begin(message, self._parts.restarts)
            case RestartDue(child):
                if self._delays.is_valid(message):
                    await self._try_again(child)
            case Exit(reason=reason):
                return Stop(reason)
            case _:
                super().handle_info(message)
        return None

    async def _remove_again(self, record: LogRecord) -> None:
        """Remove a topic that was deleted, unless there is one of its name by now."""
        known = self._records.get(record.key)
        if known is None or known.is_deleted:
            await self._remove(record)
        else:
            await self._install(known)

    async def _try_again(self, child: object) -> None:
        """Start the replica of a partition, install the topic of a key, or delete a stream."""
        if isinstance(child, bytes):
            if child not in self._refs:
                await self._start(child)
        elif isinstance(child, str):
            known = self._records.get(child)
            if known is not None and not known.is_deleted:
                await self._install(known)
        elif isinstance(child, _Undeleted):
            self._delete_streams([child.stream])

    def _take_question(self, asked: PeerAsked) -> None:
        """Answer another node, or have a replica do so; in any thread.

        Not in this actor's turn: two nodes that make topics at once would wait for each other.
        """
        if asked.payload[:1] == PING:
            groups = self._parts.claims.slot
            if groups is None:
                asked.answer(NOT_HERE)
            else:
                groups.post(GroupQuestion(asked.payload, asked.answer))
            return
        try:
            question = decode_question(asked.payload)
        except RemoteProtocolError as error:
            asked.answer(encode_error(str(error)))
            return
        if isinstance(question, KnowsRecord):
            is_done = self._done.get(question.key, 0) >= question.revision
            asked.answer(encode_answer(Whether(is_done)))
            return
        if isinstance(question, HasTopic):
            asked.answer(encode_answer(Whether(self._has_own(question.topic))))
            return
        slot = self._slots.get(question.stream)
        if question.stream in self._slots.fetching:
            asked.answer(encode_error("its copy is fetched just now"))
        elif slot is None:
            asked.answer(encode_error("this node has no replica of that partition"))
        else:
            slot.post(PeerQuestion(question, asked.answer))

    def _has_own(self, topic: str) -> bool:
        """Return whether this node alone has a topic by a name in hexadecimal."""
        try:
            name = bytes.fromhex(topic)
        except ValueError:
            return False
        store = self._parts.routes.properties
        found = None if store is None else store.find(name)
        if found is not None:
            return not found.properties.is_replicated
        return key_of(name) not in self._records and self._parts.routes.is_topic(name)

    # ---- what clients ask -----------------------------------------------------------------------

    async def _create(self, topic: bytes, properties: TopicProperties) -> TopicDescription:
        key = key_of(topic)
        known = self._records.get(key)
        is_here = self._parts.routes.is_topic(topic)
        if is_here or (known is not None and not known.is_deleted):
            raise TopicExists(topic)
        state: EngineState = await self._ask(partial(self._engine.state, LOOK_S))
        live = sum(state.nodes.values())
        if live < properties.replicas:
            raise TooFewNodes(properties.replicas, live)
        if not state.leader:
            raise NoQuorum(key)
        own = properties.as_map()
        own["count_limit"] = properties.count_limit or self._parts.count_limit
        own["size_limit"] = properties.size_limit or self._parts.size_limit
        agreed = TopicProperties.from_map(own)
        record = self._tried(key, agreed)
        if record is None:
            created_us = self._parts.clock.now_us()
            if known is not None:
                created_us = max(created_us, known.description.created_us + 1)
            record = LogRecord.new(topic, created_us, agreed)
        await self._check_here(record)
        await self._check_elsewhere({topic, *record.streams()}, state)
        tried = self._unsure.setdefault(key, [])
        if record not in tried:
            tried.append(record)
        for stream in record.streams().values():
            replicas, bytes_max = agreed.replicas, self._parts.bytes_max
            await self._ask(partial(self._engine.make_stream, stream, replicas, bytes_max))
        await self._agree(record)
        return self._found(topic)

    def _tried(self, key: str, properties: TopicProperties) -> LogRecord | None:
        """Return what was to be made before, and could not be: it has streams already."""
        unsure = self._unsure.get(key, ())
        return next((each for each in unsure if each.description.properties == properties), None)

    async def _check_here(self, record: LogRecord) -> None:
        """Have nothing agreed on that this node could not have, nor any other one."""
        await self.call(REGISTRY, InstallTopic(record.description, is_dry=True), timeout_s=None)

    async def _check_elsewhere(self, names: Iterable[bytes], state: EngineState) -> None:
        """Have no copy refused by a node, since it has a topic of its own by one of the names.

        Raises:
            TopicExists: one that is reached has.
        """
        for name, is_there in sorted(state.peers.items()):
            if is_there and name != self._parts.me:
                await self._check_free_at(name, names)

    async def _check_free_at(self, node: str, names: Iterable[bytes]) -> None:
        for topic in sorted(names):
            answer = await self._ask_node(node, encode_question(HasTopic(topic.hex())))
            if answer is None:
                return
            with contextlib.suppress(RemoteProtocolError):  # an older one does not know
                if decode_known(answer):
                    raise TopicExists(topic, node)

    async def _alter(self, topic: bytes, changes: Any) -> TopicDescription:  # noqa: ANN401
        known = self._known(topic)
        altered = known.description.altered(changes)
        if altered is known.description:
            return altered
        record = LogRecord(altered)
        new = record.streams().keys() - known.streams().keys()
        await self._check_here(record)
        if new:
            await self._check_elsewhere(new, await self._ask(partial(self._engine.state, LOOK_S)))
        for part, stream in record.streams().items():
            if part in new:
                replicas, bytes_max = altered.properties.replicas, self._parts.bytes_max
                await self._ask(partial(self._engine.make_stream, stream, replicas, bytes_max))
        await self._agree(record)
        return self._found(topic)

    async def _delete(self, topic: bytes) -> None:
        known = self._known(topic)
        await self._agree(LogRecord(known.description, is_deleted=True))

    async def _agree(self, record: LogRecord) -> None:
        """Have the nodes agree on a record, and do here what it says.

        Raises:
            NoQuorum: a majority may agree on it later, or does so already.
        """
        key = record.key
        put = partial(self._engine.put_catalog, key, record.encode(), self._revisions.get(key, 0))
        try:
            revision: int = await self._ask(put)
        except NoQuorum as error:
            raise NoQuorum(key, is_in_doubt=True) from error
        await self._take(CatalogChanged(key, record.encode(), revision))
        await self._wait_known(KnowsRecord(key, revision))

    async def _wait_known(self, question: KnowsRecord) -> None:
        """Wait a while until the other nodes that are reached have done the same.

        Who makes a topic at one node and puts onto it at another one finds it there.
        """
        try:
            state: EngineState = await self._ask(partial(self._engine.state, LOOK_S))
        except NoQuorum:  # it is agreed on: who is told otherwise would try it again
            return
        waiting = [name for name, there in state.peers.items() if there and name != self._parts.me]
        until_s = self.monotonic_s() + KNOWN_S
        payload = encode_question(question)
        while waiting and self.monotonic_s() < until_s:
            for name in list(waiting):
                answer = await self._ask_node(name, payload)
                with contextlib.suppress(RemoteProtocolError):
                    if answer is None or decode_known(answer):
                        waiting.remove(name)
            if waiting:
                await self.sleep(_KNOWN_PAUSE_S)

    def _known(self, topic: bytes) -> LogRecord:
        known = self._records.get(key_of(topic))
        if known is None or known.is_deleted:
            raise UnknownTopic(topic)
        return known

    def _found(self, topic: bytes) -> TopicDescription:
        refused = self._refused.get(topic)
        if refused is not None:
            raise refused
        return self._known(topic).description

    async def _ask(self, begin: Callable[[Callable[[Any], None]], None]) -> Any:  # noqa: ANN401
        """Await what the engine is asked."""
        return await self.call(self._door, Ask(begin), timeout_s=None)

    async def _ask_node(self, node: str, payload: bytes) -> bytes | None:
        """Return what another node answers; None: nothing."""
        with contextlib.suppress(UnknownNode):
            answer: bytes | None = await self._ask(
                partial(self._engine.ask, node, payload, KNOWN_S)
            )
            return answer
        return None

    # ---- the catalog ----------------------------------------------------------------------------

    def _probe(self) -> None:
        """Write something of this node's own, behind which all that there is has been heard."""
        if self._parts.routes.is_catalog_known:
            return
        key = self._probe_key
        told = partial(_post_probe, self._slot)
        self._engine.put_catalog(key, _SEEN, self._revisions.get(key, 0), told)

    def _take_probe(self, probed: _Probed) -> None:
        match probed.outcome:
            case None:
                self._probe()
            case PoeError():
                self.send_after(PROBE_PAUSE_S, _Probed(None))
            case revision:
                self._probed = revision
                self._look_whether_all_is_heard()

    def _look_whether_all_is_heard(self) -> None:
        """From then on a put may make a topic of this node alone."""
        if 0 < self._probed <= self._revisions.get(self._probe_key, 0):
            self._parts.routes.is_catalog_known = True

    async def _take(self, changed: CatalogChanged) -> None:
        """Do what a record says; again is fine."""
        if changed.revision <= self._revisions.get(changed.key, 0):
            return
        if changed.key == CLAIM_KEY:
            try:
                self._parts.claims.hear(Claim.decode(changed.value, changed.revision))
            except RemoteProtocolError as error:
                logger.error("%s", error)
            return
        if changed.key.startswith(_PROBE_PREFIX):
            self._revisions[changed.key] = changed.revision
            self._look_whether_all_is_heard()
            return
        try:
            record = LogRecord.decode(changed.value)
        except RemoteProtocolError as error:
            logger.error("%s", error)
            return
        before = self._records.get(changed.key)
        self._records[changed.key] = record
        self._revisions[changed.key] = changed.revision
        is_other = before is not None and before.description.id != record.description.id
        self._delete_lost(record)
        if before is not None and not before.is_deleted and (record.is_deleted or is_other):
            await self._remove(before)
            self._delete_streams(before.streams().values())
        if not record.is_deleted:
            await self._install(record)
        elif before is None:
            await self._remove_old(record.description.name)
            # Who was about to do so may have ended, and all others with it.
            self._delete_streams(record.streams().values())
        self._done[changed.key] = changed.revision

    async def _install(self, record: LogRecord) -> None:
        topic = record.description.name
        known = self._parts.routes.properties
        found = None if known is None else known.find(topic)
        if found is not None and found.id != record.description.id:
            await self._remove_old(topic)
        try:
            await self.call(REGISTRY, InstallTopic(record.description), timeout_s=None)
        except PoeError as error:
            if str(error) != str(self._refused.get(topic)):
                logger.error("topic %s has no copy here: %s", topic_text(topic), error)
            # Until it passes, as what holds its name is deleted, no put makes another one of it.
            self._refused[topic] = error
            self._parts.routes.unnoted |= {topic, *record.streams()}
            self._delays.begin(record.key, self._parts.restarts)
            return
        self._refused.pop(topic, None)
        self._parts.routes.unnoted -= {topic, *record.streams()}
        for part, stream in record.streams().items():
            self._streams[part] = stream
            if part not in self._refs:
                await self._start(part)

    async def _remove_old(self, topic: bytes) -> None:
        """Remove what has a name that was deleted, maybe twice, while this node was away."""
        known = self._parts.routes.properties
        found = None if known is None else known.find(topic)
        if found is not None and found.properties.is_replicated:
            await self._remove(LogRecord(found))

    async def _remove(self, record: LogRecord) -> None:
        topic = record.description.name
        self._refused.pop(topic, None)
        self._parts.routes.unnoted -= {topic, *record.streams()}
        for part in record.streams():
            self._streams.pop(part, None)
            ref = self._refs.pop(part, None)
            (self._parts.routes.replicas or {}).pop(part, None)
            if ref is not None:
                del self._topics[ref]
                await terminate_child(self, REPLICA_SUP, ref)
        known = self._parts.routes.properties
        found = None if known is None else known.find(topic)
        if found is None or found.id != record.description.id:
            return
        try:
            await self.call(REGISTRY, Delete(topic), timeout_s=None)
        except UnknownTopic:
            pass
        except PoeError as error:
            logger.error("topic %s, which was deleted, is still here: %s", topic_text(topic), error)
            self.send_after(_REMOVE_AGAIN_S, _RemoveDue(record))

    def _delete_lost(self, agreed: LogRecord) -> None:
        """Delete streams of topics that never will be, since another one of the name is."""
        for record in self._unsure.pop(agreed.key, ()):
            if record.description.id != agreed.description.id:
                self._delete_streams(record.streams().values())

    def _delete_streams(self, streams: Iterable[str]) -> None:
        """Have streams of the engine deleted, however often it takes; each node does so.

        Only of topics that the catalog has had, and has no more, or that another one came before:
        it may be heard late, and what is not in it yet may come.
        """
        for stream in streams:
            told = partial(_post_undeleted, self._slot, stream)
            self._engine.delete_stream(stream, told)

    # ---- replicas -------------------------------------------------------------------------------

    async def _start(self, topic: bytes) -> None:
        stream = self._streams.get(topic)
        if stream is None:
            return
        parts = ReplicaParts(
            topic,
            stream,
            self._parts.me,
            self._engine,
            self._door,
            self._slots,
            self._parts.routes,
            os.urandom(ORIGIN_BYTES),
            self._parts.check_sizes,
            self._parts.folder,
        )
        try:
            ref = await start_dynamic_child(self, REPLICA_SUP, parts)
        except PoeError as error:
            logger.error("the replica of %s does not start: %s", topic_text(topic), error)
            self._delays.begin(topic, self._parts.restarts)
            return
        assert ref is not None
        self.monitor(ref)
        self._refs[topic] = ref
        self._topics[ref] = topic
        assert self._parts.routes.replicas is not None
        self._parts.routes.replicas[topic] = ref

    def _ended(self, ref: ActorRef, reason: Any) -> None:  # noqa: ANN401
        topic = self._topics.pop(ref, None)
        if topic is None:
            return
        logger.error("the replica of %s has ended: %r", topic_text(topic), reason)
        del self._refs[topic]
        (self._parts.routes.replicas or {}).pop(topic, None)
        self._delays.begin(topic, self._parts.restarts)

    async def _move(self, topics: Sequence[bytes], node: str) -> None:
        for topic in topics:
            stream = self._streams.get(topic)
            if stream is None:
                raise UnknownTopic(topic)
            try:
                await self._ask(partial(self._engine.lead, stream, node))
            except NoQuorum as error:
                what = f"who leads topic {topic_text(topic)}"
                raise NoQuorum(what, is_in_doubt=True) from error

    async def _forget(self, node: str) -> None:
        with contextlib.suppress(UnknownNode):  # it had no server, or was forgotten before
            await self._ask(partial(self._engine.forget_node, node))

    async def _stream_state(self, stream: str) -> dict[str, Any]:
        """Return what the engine tells of a stream, or why it tells nothing."""
        try:
            state: StreamState = await self._ask(
                partial(self._engine.stream_state, stream, _STREAM_LOOK_S)
            )
        except PoeError as error:
            return {"leader": "", "engine_why": str(error)}
        return {
            "leader": state.leader,
            "first_place": state.first_place,
            "last_place": state.last_place,
            "engine_bytes": state.size_bytes,
            "behind": dict(state.replicas),
        }

    async def _describe_replica(
        self, topic: bytes, ref: ActorRef, until_s: float
    ) -> dict[str, Any]:
        """Return how a replica is; one that is at something that takes long is not waited for."""
        stream = self._streams[topic]
        if self.monotonic_s() > until_s:
            return busy_row("busy", stream, "there was no time to ask it")
        if stream in self._slots.fetching:
            return busy_row(State.FETCHING.value, stream, "another node gives what is missing")
        try:
            row: dict[str, Any] = await self.call(ref, DescribeReplica(), timeout_s=_REPLICA_LOOK_S)
        except CallTimeout:
            return busy_row("busy", stream, f"it has not answered for {_REPLICA_LOOK_S} s")
        return row

    async def _describe(self, *, has_streams: bool) -> dict[str, Any]:
        told: dict[bytes, dict[str, Any]] = {}
        until_s = self.monotonic_s() + (LOOK_S if has_streams else _BRIEF_LOOK_S)
        for topic, ref in sorted(self._refs.items()):
            try:
                told[topic] = await self._describe_replica(topic, ref, until_s)
            except ActorDead:
                continue
            if has_streams and self.monotonic_s() < until_s:
                told[topic] |= await self._stream_state(self._streams[topic])
        refused = {topic: str(error) for topic, error in sorted(self._refused.items())}
        engine: dict[str, Any] = {"version": self._connected, "why": self._why}
        engine |= {"leader": "", "nodes": {}, "bytes": 0}
        try:
            look_s = LOOK_S if has_streams else _BRIEF_LOOK_S
            state: EngineState = await self._ask(partial(self._engine.state, look_s))
            engine |= {
                "leader": state.leader,
                "nodes": dict(state.nodes),
                "bytes": state.size_bytes,
            }
        except PoeError as error:
            engine["why"] = engine["why"] or str(error)
        claim = self._parts.claims.newest
        groups = {"node": "", "claim": 0}
        if claim is not None:
            groups = {"node": claim.node, "claim": claim.revision}
        return {"engine": engine, "topics": told, "refused": refused, "groups": groups}
