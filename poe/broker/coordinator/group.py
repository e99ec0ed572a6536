"""One group: the actor that owns its state, writes down what changes, and answers its members.

The rules are those of `GroupState`, which knows neither files nor clocks. A change is answered when
it is written to the topic `poe.groups`, as durable as that topic is.

Should it crash, nothing is lost but members and leases: the next one reads the topic. Should the
disk refuse a change, who asked is told, and it is written before anything else is answered.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, cast
from weakref import proxy

from poe.actors import NO_REPLY, SHUTDOWN, ActorExit, Call, Error, GenServer, Stop, Timer
from poe.actors.alarm_clock import AlarmClock
from poe.actors.server_cell import cell_of_actor
from poe.broker.appendix.message import Put, ReleaseWaiting
from poe.broker.coordinator.fenced_log import FENCED_WRITER, Append, Fence
from poe.broker.coordinator.group_log import GROUPS_TOPIC, Kind, encode
from poe.broker.coordinator.group_progress import GroupProgress
from poe.broker.coordinator.group_topics import GroupTopics
from poe.broker.coordinator.leasing import Leased, LeasePollEnded, Leasing
from poe.broker.coordinator.unit_watch import News
from poe.broker.groups.state import GroupState
from poe.broker.registry.routing_table import RoutingTable
from poe.broker.requests.groups import (
    GROUPS,
    REPLICATED_GROUPS,
    EndGroup,
    GroupRequest,
    Undelivered,
    address_of,
    log_address_of,
)
from poe.broker.requests.request_handler import RequestHandler
from poe.errors import ActorDead, GroupActive, GroupMismatch, NoQuorum, PoeError, SyncFailed
from poe.protocol.leases import LeaseRequest
from poe.storage import Clock

logger = logging.getLogger("poe.broker")

_SNAPSHOT_BYTES_MIN = 16 * 1024
"""A group that is smaller is written anew as if it were so large."""
_SNAPSHOT_RATIO = 4
"""Changes may be so many times as large as the snapshot they follow."""
_UNITS_US = 1_000_000
"""How often new topics and partitions are looked for."""
_RETRY_S = 1.0
"""Pause before what a disk has refused is tried again."""
_DEADLINE = object()


class SnapshotTaken(NamedTuple):
    """Cast to the registry: what is older than the snapshot before is needed no more."""

    name: str
    pointer: int


@dataclass(slots=True)
class _Heartbeat:
    """A member that waits to be told something new."""

    said: dict[str, Any]
    """The arguments of `GroupState.tell`, but for the time."""

    timer: Timer


class _HeartbeatDue(NamedTuple):
    """A heartbeat that was held back is to be answered."""

    member: bytes


class Group(GenServer):
    """Owns the state of one group.

    Always: what was answered is written; `_unwritten` is what is not, unless `_is_snapshot_due`:
    then a snapshot is to be written, and that before anything else.
    """

    def init(
        self,
        state: GroupState,
        topics: GroupTopics,
        routes: RoutingTable,
        clock: Clock,
        fence: Fence | None = None,
    ) -> None:
        """Take over a state that was just made, or restored; with a fence, of replicated topics."""
        name = state.definition.name
        self.register(address_of(name) if fence is None else log_address_of(name))
        self._fence = fence
        self._state = state
        self._named = state.definition.name, state.definition.id
        self._topics = topics
        self._clock = clock
        self._routes = routes
        self._own_cell = cell_of_actor(self)
        self._handler = RequestHandler(cast("GenServer", proxy(self)), routes)
        self._progress = GroupProgress(self._handler, routes, state)
        self._leasing: Leasing | None = None
        if state.definition.mode == "shared":
            is_of_log = fence is not None
            self._leasing = Leasing(
                cast("GenServer", proxy(self)), self._handler, state, is_of_log=is_of_log
            )
        self._unwritten: list[list[Any]] = []
        self._is_snapshot_due = False
        self._changes_bytes = 0
        self._snapshot_bytes = _SNAPSHOT_BYTES_MIN
        self._units_at_us = 0
        self._units_version = 0, 0
        self._alarm = AlarmClock(self, _DEADLINE)
        self._heartbeats: dict[bytes, tuple[Call, _Heartbeat]] = {}

    def describe_role(self) -> str:
        """Return the mode and the name of the group."""
        definition = self._state.definition
        return f"{definition.mode} {definition.name}"

    # ---- messages -------------------------------------------------------------------------------

    def handle_call(self, request: LeaseRequest | GroupRequest | EndGroup, caller: Call) -> Any:  # noqa: ANN401
        """Carry out a request of a member, or of who looks after the group.

        Most leases are answered at once: coroutines would cost them as much as the group's rules.
        """
        now_us = self._now_us()
        if type(request) is LeaseRequest:
            return self._lease(request, caller, now_us)
        return self._carry_out(cast("GroupRequest | EndGroup", request), caller, now_us)

    def _lease(self, request: LeaseRequest, caller: Call, now_us: int) -> Any:  # noqa: ANN401
        """Answer with a lease, or return what is to be waited for before."""
        leasing = self._leasing
        if leasing is None:
            definition = self._state.definition
            return Error(GroupMismatch(definition.name, "mode", "shared", definition.mode))
        lost, leased, begun = None, None, None
        if not (self._unwritten or self._is_snapshot_due or self._is_to_look(now_us)):
            try:
                lost = leasing.acknowledge(request, now_us)
                leased = leasing.at_hand(request, lost, now_us)
            except PoeError:  # it is raised there once more, and told
                leased = None
        if leased is not None:
            begun = self._begin_write()
            is_written = not (self._unwritten or self._is_snapshot_due)
            if is_written and not self._has_consequences(request, leased):
                return leased
        return self._lease_waiting(leasing, request, caller, now_us, (lost, leased, begun))

    async def _lease_waiting(
        self,
        leasing: Leasing,
        request: LeaseRequest,
        caller: Call,
        now_us: int,
        done: tuple[tuple[int, ...] | None, Leased | None, Call | None],
    ) -> Any:  # noqa: ANN401
        """Answer with a lease; of what was done for it already it is None what was not."""
        lost, leased, begun = done
        answer: Any = leased
        is_first = leased is not None
        try:
            if leased is None:
                if self._is_to_look(now_us):
                    now_us = await self._look_for_units()
                if lost is None:
                    lost = leasing.acknowledge(request, now_us)
                answer = await leasing.take(request, caller, lost, now_us)
                leased = answer if type(answer) is Leased else None
            await self._write(begun, is_first=is_first)
        except PoeError as error:
            if leased is not None:
                leasing.take_back(leased.lease, now_us)
            answer, leased = Error(error), None
        if leased is None or self._has_consequences(request, leased):
            await self._go_on(now_us)
        return answer

    def _has_consequences(self, request: LeaseRequest, leased: Leased) -> bool:
        """Return whether a lease may bring something about for others, or an earlier deadline."""
        assert self._leasing is not None
        is_sooner = not self._alarm.rings_within(leased.lease.left_s)
        return is_sooner or bool(request.failed) or self._leasing.has_work

    async def _carry_out(self, request: GroupRequest | EndGroup, caller: Call, now_us: int) -> Any:  # noqa: ANN401
        if isinstance(request, EndGroup):
            return await self._end(request)
        try:
            if self._is_to_look(now_us):
                now_us = await self._look_for_units()
            answer = await self._serve(request, caller, now_us)
            await self._write()
        except PoeError as error:
            answer = Error(error)
        await self._go_on(now_us)
        return answer

    async def handle_cast(self, message: Any) -> None:  # noqa: ANN401
        """Hear that a unit has news, a lease nobody, or that nobody may wait any more."""
        if isinstance(message, News):
            await self._hear(message)
        elif isinstance(message, Undelivered):
            if self._leasing is not None:  # else another group had this name
                now_us = self._now_us()
                self._leasing.take_back(message.lease, now_us)
                await self._go_on(now_us)
        elif isinstance(message, ReleaseWaiting):
            now_us = self._now_us()
            for member in list(self._heartbeats):
                await self._answer_heartbeat(member, now_us)
            await self._go_on(now_us)

    async def handle_info(self, message: Any) -> None:  # noqa: ANN401
        """Take the deadline of a session, a lease or a retry, and the end of a poll."""
        now_us = self._now_us()
        if message is _DEADLINE:
            self._alarm.rang()
            self._state.expire(now_us)
            await self._go_on(now_us)
        elif isinstance(message, LeasePollEnded):
            assert self._leasing is not None
            self._leasing.end_poll(message.caller)
        elif isinstance(message, News):
            await self._hear(message)
        elif isinstance(message, _HeartbeatDue):
            await self._answer_heartbeat(message.member, now_us)
            await self._go_on(now_us)
        else:
            super().handle_info(message)

    async def _hear(self, news: News) -> None:
        assert self._leasing is not None
        # A unit that its topic has not got any more is not to be read.
        now_us = self._now_us()
        if self._is_to_look(now_us):
            now_us = await self._look_for_units()
        self._leasing.hear(news)
        await self._go_on(now_us)

    async def _go_on(self, now_us: int) -> None:
        """Do what a change brings about for others, and set the alarm for the next one."""
        try:
            await self._write()
            if self._leasing is not None and self._leasing.has_work:
                await self._leasing.go_on(now_us, self._write)
            if self._heartbeats:
                for member in self._state.take_news():
                    await self._answer_heartbeat(member, now_us)
                await self._write()  # in case that was refused
        except PoeError as error:
            logger.error("group %s: %s", self._state.definition.name, error)
            self._alarm.ring_after(_RETRY_S)
            return
        deadline_us = self._state.next_deadline_us()
        if deadline_us is not None:
            self._alarm.ring_after(max(0, deadline_us - now_us) / 1e6)
        letters_s = None if self._leasing is None else self._leasing.wait_s
        if letters_s is not None:
            self._alarm.ring_after(letters_s)

    def _now_us(self) -> int:
        """Return the time; after it was held up, nobody is taken for silent who was not heard."""
        now_us = self._clock.now_us()
        if self._alarm.take_lateness():
            self._state.excuse(now_us)
        return now_us

    def _is_to_look(self, now_us: int) -> bool:
        """Return whether topics may have changed since a while; asked with each lease."""
        has_looked = now_us - self._units_at_us < _UNITS_US
        return not has_looked and self._topics.version != self._units_version

    async def _look_for_units(self) -> int:
        """Take new topics and partitions in; return the time then: many topics take a while."""
        self._units_version = self._topics.version
        units = await self._topics.units(self._state.definition, self)
        self._units_at_us = now_us = self._clock.now_us()
        if units != self._progress.units_by_topic:
            self._set_units(units, now_us)
        return now_us

    def _set_units(self, units: dict[bytes, tuple[bytes, ...]], now_us: int) -> None:
        self._progress.units_by_topic = units
        self._state.set_units(units, now_us)
        if self._leasing is not None:
            self._leasing.watch_only(set(self._progress.units))

    # ---- the log --------------------------------------------------------------------------------

    def _begin_write(self) -> Call | None:
        """Begin to write what has changed, nothing before it being unwritten.

        Mostly it is done then. Else `_write` goes on from what is returned.
        """
        self._unwritten = self._state.take_changes()
        route = self._routes.get(GROUPS_TOPIC)
        if not self._unwritten or route is None or self._fence is not None:
            return None
        message = self._message()
        begun = self._own_cell.call_leaf(route.writer, Put([message]))
        if type(begun.value) is int:
            self._note_written(message)
        return begun

    async def _write(self, begun: Call | None = None, *, is_first: bool = False) -> None:
        """Write what has changed to the log.

        Args:
            begun: a call that may have done so.
            is_first: what is unwritten was not tried before, but by `begun`.

        Raises:
            PoeError: it could not be written; the next time it is tried again.
        """
        was_refused = bool(self._unwritten) and not is_first
        self._unwritten += self._state.take_changes()
        if self._unwritten and not self._is_snapshot_due:
            message = self._message()
            if was_refused and len(message) > self._changes_bytes_max:
                # They would pile up as long as the disk refuses them; a snapshot has all of them.
                self._is_snapshot_due = True
            else:
                await self._put(message, begun)
                self._note_written(message)
        if self._is_snapshot_due:
            self._unwritten = []
            await self._write_snapshot()

    def _message(self) -> bytes:
        """Return what tells of the changes that are not written."""
        number = self._state.changes_count - len(self._unwritten)
        return encode(Kind.CHANGES, *self._named, self._unwritten, number)

    @property
    def _changes_bytes_max(self) -> int:
        return _SNAPSHOT_RATIO * self._snapshot_bytes

    def _note_written(self, message: bytes) -> None:
        self._unwritten = []
        self._changes_bytes += len(message)
        self._is_snapshot_due = self._changes_bytes > self._changes_bytes_max

    async def _write_snapshot(self) -> None:
        message = encode(Kind.SNAPSHOT, *self._named, self._state.snapshot())
        pointer = await self._put(message)
        self._is_snapshot_due = False
        self._changes_bytes = 0
        self._snapshot_bytes = max(len(message), _SNAPSHOT_BYTES_MIN)
        registry = GROUPS if self._fence is None else REPLICATED_GROUPS
        self.cast(registry, SnapshotTaken(self._state.definition.name, pointer))

    async def _end(self, request: EndGroup) -> Stop | Error:
        """Write that the group is deleted, and nothing behind that."""
        definition, members = self._state.definition, self._state.members_count
        try:
            if members and not request.force:
                raise GroupActive(definition.name, members)
            await self._put(encode(Kind.DELETED, *self._named, None))
        except PoeError as error:
            return Error(error)
        return Stop(SHUTDOWN, reply=None)

    async def _put(self, message: bytes, begun: Call | None = None) -> int:
        """Append to the log: mostly by one call, which is done at once, or has begun already.

        Where nobody can say whether it was written, the log is asked, by the next start.
        """
        if self._fence is not None:
            return await self._append(message)
        messages, route = [message], self._routes.get(GROUPS_TOPIC)
        if begun is None and route is not None:
            begun = self.call(route.writer, Put(messages), timeout_s=None)
            if begun.is_done and type(begun.value) is int:
                return begun.value
        try:
            return await self._handler.put(GROUPS_TOPIC, messages, begun)
        except (ActorDead, SyncFailed) as error:
            raise ActorExit(error) from error

    async def _append(self, message: bytes) -> int:
        """Append to the log of the cluster; who coordinates no more ends, and so do its groups."""
        try:
            pointer: int = await self.call(FENCED_WRITER, Append(message), timeout_s=None)
        except NoQuorum as error:  # it is another node's now
            raise ActorExit(SHUTDOWN) from error
        except ActorDead as error:
            raise ActorExit(error) from error
        return pointer

    # ---- requests -------------------------------------------------------------------------------

    async def _serve(self, request: GroupRequest, caller: Call, now_us: int) -> Any:  # noqa: ANN401
        """Carry out one of the control operations, or what the registry asks."""
        state, arguments = self._state, request.arguments
        match request.op:
            case "group_heartbeat":
                answer = await self._heartbeat(caller, arguments, now_us)
            case "group_leave":
                answer = None
                if arguments["last"] is not None:
                    state.ordered.commit(**arguments["last"], now_us=now_us)
                state.leave(arguments["member"], now_us)
                await self._answer_heartbeat(arguments["member"], now_us)
            case "group_reset":
                answer = await self._progress.reset(**arguments, now_us=now_us)
                for member in list(self._heartbeats):
                    await self._answer_heartbeat(member, now_us)
            case "group_lag":
                answer = await self._progress.lag(now_us)
            case "forget":
                state.forget(arguments["units"], now_us)
                self._set_units(await self._topics.units(state.definition, self), now_us)
                answer = None
            case "snapshot":
                await self._write()
                await self._write_snapshot()
                answer = None
            case op:
                answer = _ANSWERS[op](state, now_us=now_us, **arguments)
        return answer

    async def _heartbeat(self, caller: Call, arguments: dict[str, Any], now_us: int) -> Any:  # noqa: ANN401
        """Answer a heartbeat, or hold the answer back until there is something to say."""
        # The request stays as it is: should this actor crash, the next one is asked the same.
        said = {name: value for name, value in arguments.items() if name != "wait_s"}
        told = self._state.heartbeat(**said, now_us=now_us)
        wait_s = min(arguments["wait_s"], self._state.definition.options.beat_s)
        has_news = told.revoke or set(told.keep) != set(said["owned"])
        if not wait_s or has_news or self._routes.is_closing:
            return told._asdict()
        member = said["member"]
        await self._answer_heartbeat(member, now_us)  # one that is held back already
        timer = self.send_after(wait_s, _HeartbeatDue(member))
        self._heartbeats[member] = caller, _Heartbeat(said, timer)
        return NO_REPLY

    async def _answer_heartbeat(self, member: bytes, now_us: int) -> None:
        """Answer one that was held back, if there is one; it was counted when it came.

        What it tells is written before: it may be that the log has refused that until now.
        """
        caller, held = self._heartbeats.pop(member, (None, None))
        if caller is None or held is None:
            return
        held.timer.cancel()
        try:
            told = self._state.tell(**held.said, now_us=now_us)
            await self._write()
        except PoeError as error:
            self.reply_error(caller, error)
        else:
            self.reply(caller, told._asdict())


_ANSWERS: dict[str, Callable[..., Any]] = {
    "group_join": lambda state, info, now_us: state.join(info, now_us)._asdict(),
    "group_commit": lambda state, **arguments: state.ordered.commit(**arguments),
    "group_positions": lambda state, **_: state.ordered.positions(),
    "group_extend": lambda state, **arguments: state.shared.extend(**arguments),
    "group_pause": GroupState.pause,
    "group_resume": GroupState.resume,
    "group": lambda state, now_us, **_: state.describe() | {"now_us": now_us},
    "group_create": lambda state, now_us, **_: state.describe() | {"now_us": now_us},
}
"""What a state answers to the operations that need nothing else."""
