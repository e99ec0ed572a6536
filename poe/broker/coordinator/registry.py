"""The registry of groups: which there are, and where in `poe.groups` their state begins.

It reads that topic once, when it starts, and decodes nothing of a group before somebody asks for
it: then it starts the group's actor. What is not needed any more is trimmed.
"""

import logging
import os
from collections.abc import Callable
from operator import itemgetter
from typing import Any, Final, NamedTuple, cast
from weakref import proxy

from poe.actors import ActorRef, Call, Error, GenServer
from poe.broker.appendix.message import GetRange, ReleaseWaiting
from poe.broker.coordinator.fenced_log import (
    FENCED_WRITER,
    HANDOVER_S,
    Append,
    Confirm,
    Fence,
)
from poe.broker.coordinator.group import SnapshotTaken
from poe.broker.coordinator.group_floors import GroupFloors
from poe.broker.coordinator.group_log import GROUPS_TOPIC, Entry, GroupHistory, Kind, encode
from poe.broker.coordinator.group_progress import GroupProgress
from poe.broker.coordinator.group_topics import GroupTopics
from poe.broker.groups.journal import generation_at
from poe.broker.groups.options import (
    GroupDefinition,
    GroupOptions,
    Mode,
    check_patterns,
    matches,
)
from poe.broker.groups.state import GroupState
from poe.broker.registry.log_groups_table import LOG_GROUPS_TOPIC
from poe.broker.registry.queue_table import QueueTable
from poe.broker.registry.routing_table import RoutingTable
from poe.broker.registry.topic_registry import RegistryOptions, Trim
from poe.broker.requests.groups import (
    DeleteGroup,
    EndGroup,
    FindGroup,
    ForgetUnits,
    GroupRequest,
    ListGroups,
    address_of,
    is_for_queue,
    log_address_of,
)
from poe.broker.requests.listing import reached_pointer
from poe.broker.requests.logs import trim_log
from poe.broker.requests.queue_messages import QUEUES
from poe.broker.requests.request_handler import RequestHandler
from poe.broker.requests.slices import read_records
from poe.errors import (
    ActorDead,
    CorruptGroup,
    CorruptRecord,
    GroupFull,
    GroupMismatch,
    PoeError,
    UnknownGroup,
)
from poe.protocol import RANGE_COUNT_MAX, IndexedRecords
from poe.record import POINTER_MAX
from poe.storage import Clock, Messages
from poe.supervision import start_dynamic_child
from poe.topic_name import folder_name

logger = logging.getLogger("poe.broker")

GROUP_SUP: Final = "group_sup"
LOG_GROUP_SUP: Final = "log_group_sup"
GROUPS_MAX: Final = 1000
_READ_BYTES = 8 * 1024 * 1024
_TRIM_S = 30.0
_LOG_SEGMENTS = 3
"""With more of them, groups that have not changed for long are written anew, so that old ones can
go."""
_TRIM = object()


class GroupParts(NamedTuple):
    """What groups work with."""

    routes: RoutingTable
    clock: Clock
    check_sizes: Callable[[Messages], None]
    """Refuses messages that no topic would take."""
    floors: GroupFloors
    fence: Fence | None = None
    """Of the groups of replicated topics; None: they are this node's own."""
    topics_max: int = RegistryOptions().topics_max
    """Topics in all, and as many for which something may wait."""
    wall: Clock | None = None
    """As `NodeParts.wall`."""


class GroupRegistry(GenServer):
    """Knows all groups, and starts their actors when they are asked for.

    Always: `_groups` has a history for each group that exists; once its actor was started, the
    history holds no more than where it begins.
    """

    async def init(self, parts: GroupParts) -> None:
        """Read what is known of groups."""
        self._parts = parts
        is_own = parts.fence is None
        self._log = GROUPS_TOPIC if is_own else LOG_GROUPS_TOPIC
        self._address_of = address_of if is_own else log_address_of
        self._group_sup = GROUP_SUP if is_own else LOG_GROUP_SUP
        self._handler = RequestHandler(cast("GenServer", proxy(self)), parts.routes)
        self._groups: dict[str, GroupHistory] = {}
        self._is_log_read = False
        self.send_after(_TRIM_S, _TRIM)
        if not is_own:
            return  # nobody waits for a majority before somebody asks
        try:
            await self._read_groups()
        except PoeError as error:  # the node serves all else; who asks for a group has it read
            logger.error("topic %s cannot be read: %s", self._log.decode(), error)

    async def handle_call(self, request: Any, caller: Call) -> Any:  # noqa: ANN401
        """Find, make, list and delete groups."""
        try:
            if not self._is_log_read:
                await self._read_groups()
            match request:
                case FindGroup():
                    return await self._find(request)
                case ListGroups():
                    return await self._list()
                case DeleteGroup(name, force):
                    return await self._delete(name, force=force)
                case ForgetUnits(topic, units):
                    return await self._forget(topic, units)
        except PoeError as error:
            return Error(error)
        return super().handle_call(request, caller)

    def handle_cast(self, message: Any) -> None:  # noqa: ANN401
        """Hear of a snapshot: what was before the one before it is needed no more."""
        if isinstance(message, ReleaseWaiting):
            for name in self._groups:
                self.cast(self._address_of(name), message)
            if self._queues is not None:
                self.cast(QUEUES, message)
        elif isinstance(message, SnapshotTaken) and message.name in self._groups:
            self._groups[message.name].note_snapshot(message.pointer)

    async def handle_info(self, message: Any) -> None:  # noqa: ANN401
        """Trim the log now and then."""
        if message is not _TRIM:
            super().handle_info(message)
            return
        self.send_after(_TRIM_S, _TRIM)
        try:
            if self._is_log_read:
                await self._trim()
        except PoeError as error:
            logger.error("topic %s is not trimmed: %s", self._log.decode(), error)

    # ---- groups ---------------------------------------------------------------------------------

    @property
    def _queues(self) -> QueueTable | None:
        """What else there is for groups to take from, which is for this node's own alone."""
        return self._parts.routes.queues if self._parts.fence is None else None

    async def _list(self) -> list[dict[str, Any]]:
        rows = [each.summary() for each in self._groups.values()]
        if self._queues is not None:
            rows += await self.call(QUEUES, ListGroups(), timeout_s=None)
        return sorted(rows, key=itemgetter("group"))

    def _is_of_queue(self, name: str) -> bool:
        """Return whether a group takes from a queue; one of the node's own topics comes first."""
        queues = self._queues
        return queues is not None and name not in self._groups and bool(queues.topics(name))

    async def _find(self, wanted: FindGroup) -> ActorRef:
        name = wanted.name
        running = self.whereis(self._address_of(name))
        if running is None:
            await self._recall(name)
        if name not in self._groups:
            is_own = self._parts.fence is None
            if self._is_of_queue(name) or (is_own and is_for_queue(self._parts.routes, wanted)):
                ref: ActorRef = await self.call(QUEUES, wanted, timeout_s=None)
                return ref
            if wanted.mode is None or not wanted.may_create:
                raise UnknownGroup(name)
            return await self._create(wanted)
        if wanted.is_new:
            raise GroupMismatch(name, "name", "a new group", "in use")
        if wanted.mode is not None:
            self._groups[name].check(wanted.mode, wanted.topics)
        return running or await self._start(name, await self._restored(name))

    async def _create(self, wanted: FindGroup) -> ActorRef:
        if len(self._groups) >= GROUPS_MAX:
            raise GroupFull(wanted.name, "groups_max", GROUPS_MAX)
        assert wanted.mode is not None
        now_us = self._parts.clock.now_us()
        definition = GroupDefinition(
            name=wanted.name,
            id=os.urandom(16),
            mode=cast("Mode", wanted.mode),  # checked there
            topics=wanted.topics,
            options=GroupOptions.from_map(wanted.options or {}),
            created_us=now_us,
        )
        check_patterns(definition.topics)
        routes = self._parts.routes
        topics = [each for each in definition.topics if b"*" not in each]
        if definition.mode == "shared" and definition.options.on_dead == "keep":
            topics.append(definition.dead_letter_topic)
        for topic in topics:  # what can never be there would be waited for without a word
            if not routes.is_topic(topic):
                folder_name(topic, routes.names)
        state = GroupState.create(definition, now_us, generation_at(await self._log_us()))
        if definition.options.start == "newest":
            await self._begin_at_end(state, now_us)
        history = GroupHistory()
        self._groups[wanted.name] = history
        try:
            history.add(await self._write_snapshot(state))
        except PoeError:
            del self._groups[wanted.name]
            raise
        return await self._start(wanted.name, state)

    async def _begin_at_end(self, state: GroupState, now_us: int) -> None:
        """Have a new group begin behind what its topics hold now."""
        routes = self._parts.routes
        progress = GroupProgress(self._handler, routes, state)
        progress.units_by_topic = await GroupTopics(routes).units(state.definition, self)
        state.reset(await progress.ends(), now_us)

    async def _recall(self, name: str) -> None:
        """Read what the log has of a group that has run, and has crashed: maybe of being deleted.

        Raises:
            CorruptGroup: the log has lost it.
        """
        history = self._groups.get(name)
        if history is None or history.entries:
            return
        found = await self._read_log(history.first_pointer - 1, name)
        if name not in found:
            raise CorruptGroup(name)
        if found[name].is_deleted:
            self._drop(name)
        else:
            self._groups[name] = found[name]

    async def _restored(self, name: str) -> GroupState:
        """Return the state of a group that does not run, as the log has it."""
        log_us, now_us = await self._log_us(), self._parts.clock.now_us()
        state = self._groups[name].restore(now_us, max(0, log_us - now_us))
        state.restarted(now_us, generation_at(log_us))
        return state

    async def _log_us(self) -> int:
        """Return the time of the log, behind whose generation a life of a group begins.

        The clock may have been set back since: the generations of a group that is deleted, and
        those that a power cut took, were ahead of it.
        """
        return await reached_pointer(self, self._parts.routes, self._log)

    async def _start(self, name: str, state: GroupState) -> ActorRef:
        parts = self._parts
        topics = GroupTopics(parts.routes)
        arguments = state, topics, parts.routes, parts.clock, parts.fence
        ref = await start_dynamic_child(self, self._group_sup, *arguments)
        assert ref is not None
        parts.floors.follow(state)
        self._groups[name].forget_entries()
        return ref

    async def _delete(self, name: str, *, force: bool) -> None:
        if self._is_of_queue(name):
            await self.call(QUEUES, DeleteGroup(name, force), timeout_s=None)
            return
        if name not in self._groups:
            raise UnknownGroup(name)
        try:
            ref = await self._find(FindGroup(name))
        except CorruptGroup:
            if not force:
                raise
            await self._put(encode(Kind.DELETED, name, b"", None))
        else:
            try:
                await self.call(ref, EndGroup(force=force), timeout_s=None)
            except ActorDead:  # nobody can say whether that is written but the log
                await self._recall(name)
                raise
        self._drop(name)

    def _drop(self, name: str) -> None:
        """Know a group no more, which is deleted."""
        del self._groups[name]
        self._parts.floors.forget(name)
        if self._queues is not None:
            self._queues.remove_group(name)

    async def _forget(self, topic: bytes, units: tuple[bytes, ...]) -> None:
        """Have the groups forget units that may know them; what fails is said, and stays."""
        for name, history in list(self._groups.items()):
            topics = history.summary()["topics"]
            if any(matches(pattern, each) for pattern in topics for each in (topic, *units)):
                try:
                    ref = await self._find(FindGroup(name))
                    await self.call(ref, GroupRequest("forget", {"units": units}), timeout_s=None)
                except PoeError as error:
                    logger.error("group %s does not forget topic %r: %s", name, topic, error)

    # ---- the log --------------------------------------------------------------------------------

    async def _read_groups(self) -> None:
        if self._parts.fence is not None:
            await self._begin_claim()
        found = await self._read_log(0)
        self._groups = {name: each for name, each in found.items() if not each.is_deleted}
        self._is_log_read = True
        for name, history in self._groups.items():
            if self.whereis(self._address_of(name)) is not None:  # it goes on writing
                history.forget_entries()
        self._parts.floors.know(self._groups)

    async def _begin_claim(self) -> None:
        """Wait until nobody else writes to the log, or answers for its groups.

        Raises:
            NoQuorum: another node coordinates.
        """
        fence = self._parts.fence
        assert fence is not None
        await self.call(FENCED_WRITER, Confirm(), timeout_s=None)
        if not fence.is_alone:
            await self.sleep(HANDOVER_S)
            fence.is_alone = True

    async def _read_log(self, pointer: int, only: str | None = None) -> dict[str, GroupHistory]:
        """Return what the log tells from behind a pointer on, of all groups or of one.

        Of those that are deleted, too.
        """
        groups: dict[str, GroupHistory] = {}
        while True:
            wanted = GetRange(pointer, POINTER_MAX, RANGE_COUNT_MAX, _READ_BYTES)
            try:
                found = await self._handler.get_range(self._log, wanted)
                if found is None:
                    return groups
                records = read_records(self._log, found)
            except CorruptRecord as error:
                logger.error("topic %s is damaged: %s", self._log.decode(), error)
                if error.pointer is None or error.pointer <= pointer:
                    raise  # which groups there are is not known
                pointer = error.pointer
                continue
            pointer = int(records.pointers[-1])
            for entry in _entries(records):
                if entry.kind != Kind.CLAIM and only in {None, entry.name}:
                    groups.setdefault(entry.name, GroupHistory()).add(entry)

    async def _write_snapshot(self, state: GroupState) -> Entry:
        state.take_changes()  # the snapshot has them
        message = encode(
            Kind.SNAPSHOT, state.definition.name, state.definition.id, state.snapshot()
        )
        pointer = await self._put(message)
        entry = Entry.decode(pointer, message)
        assert entry is not None
        return entry

    async def _put(self, message: bytes) -> int:
        if self._parts.fence is None:
            return await self._handler.put(self._log, [message])
        pointer: int = await self.call(FENCED_WRITER, Append(message), timeout_s=None)
        return pointer

    async def _trim(self) -> None:
        """Delete the segments of the log that nobody needs; renew what keeps an old one alive."""
        route = self._parts.routes.get(self._log)
        if route is None or not route.bounds:
            return
        # Without groups all that is there now: of the cluster's log it may be deleted later, when
        # there are others, which another node has made.
        end = route.bounds[-1] + 1
        first = min((each.first_pointer for each in self._groups.values()), default=end)
        if first > route.bounds[0]:
            await self._let_go(first - 1)
        elif len(route.bounds) > _LOG_SEGMENTS:
            await self._renew(route.bounds[0])

    async def _let_go(self, pointer: int) -> None:
        """Delete segments of the log with nothing behind a pointer.

        Of the cluster's log also where another node coordinates by now: what nobody needed before
        nobody needs again.
        """
        if self._parts.fence is None:
            await self._handler.ask_registry(Trim(self._log, pointer))
        else:
            await trim_log(self._handler, self._log, pointer)

    async def _renew(self, bound: int) -> None:
        """Write snapshots of the groups that need something up to a pointer."""
        old = [name for name, each in self._groups.items() if each.first_pointer <= bound]
        for name in old:
            try:
                ref = await self._find(FindGroup(name))
                await self.call(ref, GroupRequest("snapshot", {}), timeout_s=None)
            except PoeError as error:
                logger.error("group %s keeps old messages of its log: %s", name, error)


def _entries(records: IndexedRecords) -> list[Entry]:
    decoded = (Entry.decode(*each) for each in records.pairs())
    return [each for each in decoded if each is not None]
