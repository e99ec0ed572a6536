"""Leases of a group in mode `shared`: what to read for whom, and who waits for more.

Messages are not touched: the state says which range comes next, an appendix server finds it, and a
connection sends it from the file. Who finds nothing may wait; one actor a unit looks out for news.
"""

import logging
from collections.abc import Awaitable, Callable, Collection
from contextlib import suppress
from itertools import count
from typing import Any, NamedTuple

from poe.actors import NO_REPLY, ActorRef, Call, GenServer, Timer
from poe.actors.server_cell import cell_of_actor
from poe.broker.coordinator.dead_letters import DeadLetters
from poe.broker.coordinator.look_ahead import LookAhead
from poe.broker.coordinator.unit_watch import News, UnitWatch
from poe.broker.groups.lease import Lease as HeldLease
from poe.broker.groups.lease import Sought
from poe.broker.groups.state import GroupState
from poe.broker.requests.listing import let_others, reached_pointer
from poe.broker.requests.request_handler import WAIT_SLICE_S, RequestHandler
from poe.errors import CorruptRecord, GroupFenced, PoeError
from poe.protocol.leases import Failed, Lease, LeaseRequest
from poe.record import ENTRY_BYTES
from poe.storage import IndexedSlice

logger = logging.getLogger("poe.broker")


_PAUSE_S = 1.0
"""From one try of a unit that cannot be read to the next, if somebody waits."""


class Leased(NamedTuple):
    """The answer to a `LeaseRequest`: the lease, and where its messages lie."""

    lease: Lease
    found: IndexedSlice | None


class LeasePollEnded(NamedTuple):
    """Sent to the group: the time of a member that waits is over."""

    caller: Call


class _Poll(NamedTuple):
    request: LeaseRequest
    lost: tuple[int, ...]
    timer: Timer


class Leasing:
    """The leases of one group, whose actor alone calls it; of other modes it refuses all.

    Always: who waits is in `_polls`, first come, first served.
    """

    __slots__ = (
        "_actor",
        "_ahead",
        "_cell",
        "_dead_letters",
        "_handler",
        "_is_of_log",
        "_polls",
        "_shared",
        "_state",
        "_watched",
        "_watches",
    )

    def __init__(
        self,
        actor: GenServer,
        handler: RequestHandler,
        state: GroupState,
        *,
        is_of_log: bool = False,
    ) -> None:
        self._actor = actor
        self._cell = cell_of_actor(actor)
        self._handler = handler
        self._state = state
        self._shared = state.shared
        self._is_of_log = is_of_log
        self._dead_letters = DeadLetters(handler, state, is_of_log=is_of_log)
        self._ahead = LookAhead()
        self._polls: dict[Call, _Poll] = {}
        self._watches: dict[bytes, ActorRef] = {}
        self._watched: set[bytes] = set()

    def acknowledge(self, request: LeaseRequest, now_us: int) -> tuple[int, ...]:
        """Take what a member tells of its leases; return those that it does not hold any more.

        Raises:
            GroupError, OptionError: it is wrong; nothing was taken.
        """
        if not (request.done or request.failed):
            return ()
        return tuple(self._shared.acknowledge(request.done, request.failed, now_us))

    def at_hand(self, request: LeaseRequest, lost: tuple[int, ...], now_us: int) -> Leased | None:
        """Lease what comes next, as `take` does, where nothing has to be waited for.

        None where something has, or may have: nothing was leased then.

        Raises:
            PoeError: as `take`, which raises it again.
        """
        if not request.limit:
            return None
        shared = self._shared
        self._state.hear(request.member, now_us)
        if not request.wait_s and shared.has_idle:
            return None
        sought = shared.want(request.member, request.limit, request.bytes_max, now_us)
        if sought is None:
            return None
        found = self._ahead.take(sought)
        if found is None:
            route = self._handler.routes.get(sought.unit)
            if route is None:
                return None
            call = self._cell.call_leaf(route.reader(sought.after), self._ahead.question(sought))
            if call.value is None:
                return None
            found = self._ahead.share(sought, call.value)
        records = found.records
        lease = shared.hand_out(
            sought, records.last_pointer, records.record_count, records.length, now_us
        )
        return None if lease is None else _told(lease, found, lost, now_us)

    async def take(
        self, request: LeaseRequest, caller: Call, lost: tuple[int, ...], now_us: int
    ) -> Any:  # noqa: ANN401
        """Answer a member with another lease, or have it wait.

        Args:
            request: what it asks for; what it tells was taken.
            caller: who is to be answered.
            lost: what `acknowledge` has returned.
            now_us: the time.

        Raises:
            GroupFenced: it is no member.
            PoeError: messages cannot be read.
        """
        shared = self._shared
        if not request.limit:
            return Leased(Lease(lost=lost), None)
        self._state.hear(request.member, now_us)
        if not request.wait_s:
            # Nobody may be looking out for it: what has come is found by looking.
            for unit, _ in list(shared.idle_units()):
                shared.arrived(unit)
        leased = await self._find(request, lost, now_us)
        if leased is None and request.wait_s and self._handler.is_wanted:
            wait_s = min(request.wait_s, WAIT_SLICE_S)
            timer = self._actor.send_after(wait_s, LeasePollEnded(caller))
            self._polls[caller] = _Poll(request, lost, timer)
            return NO_REPLY
        return leased or self._nothing(request, lost)

    @property
    def has_work(self) -> bool:
        """Whether somebody waits for messages, or messages are to be buried now."""
        return bool(self._polls) or (self._shared.is_any_dying and not self._dead_letters.wait_s)

    @property
    def wait_s(self) -> float | None:
        """How long dead letters wait for another try, where their topic has refused one."""
        return self._dead_letters.wait_s if self._shared.is_any_dying else None

    async def go_on(self, now_us: int, write: Callable[[], Awaitable[None]]) -> None:
        """Do what a change, which is written, brings about: `write` writes what that changes.

        Raises:
            PoeError: dead letters cannot be put now, or what has changed be written.
        """
        if self._polls:
            await self._serve(now_us)
            await write()
        await self._dead_letters.bury(now_us, write)

    async def _serve(self, now_us: int) -> None:
        """Answer those who wait with what is there now, and look out for the rest.

        Raises:
            PoeError: messages cannot be read; who waited for them was told.
        """
        for caller, poll in list(self._polls.items()):
            if caller.is_done:  # who asked is gone
                self._end(caller)
                continue
            if not self._shared.has_work:
                continue
            try:
                leased = await self._find(poll.request, poll.lost, now_us)
            except PoeError as error:
                self._end(caller)
                self._actor.reply_error(caller, error)
                continue
            if leased is None and not self._handler.is_wanted:  # the node is about to stop
                leased = self._nothing(poll.request, poll.lost)
            if leased is not None:
                self._end(caller)
                self._actor.reply(caller, leased)
        if self._polls:
            await self._look_out()

    def take_back(self, lease: Lease, now_us: int) -> None:
        """Have somebody else get messages that their member is not told of."""
        if lease.id:
            given_back = Failed(lease.id, lease.after, lease.last, "release")
            self._shared.acknowledge([], [given_back], now_us)

    def end_poll(self, caller: Call) -> None:
        """Tell a member that nothing has come in its time."""
        if caller in self._polls:
            request, lost, _ = self._polls[caller]
            self._end(caller)
            self._actor.reply(caller, self._nothing(request, lost))

    def _nothing(self, request: LeaseRequest, lost: tuple[int, ...]) -> Leased:
        """Return that nothing has come, and what of the group keeps it back."""
        why = None
        with suppress(GroupFenced):  # its next request is told so
            why = self._shared.why_nothing(request.member)
        return Leased(Lease(lost=lost, why="" if why is None else str(why)), None)

    def watch_only(self, units: Collection[bytes]) -> None:
        """Have no units watched but these: topics may come and go for ever."""
        for unit in self._watches.keys() - units:
            self._actor.cast(self._watches.pop(unit), None)
            self._watched.discard(unit)

    def hear(self, news: News) -> None:
        """Hear that a unit may have more."""
        self._watched.discard(news.unit)
        self._shared.arrived(news.unit)

    async def _find(
        self, request: LeaseRequest, lost: tuple[int, ...], now_us: int
    ) -> Leased | None:
        """Lease what comes next to a member, of what can be read; None where nothing does.

        Raises:
            GroupFenced: it is no member.
            PoeError: nothing else does, and a unit has just turned out not to be readable.
        """
        shared, bytes_max = self._shared, request.bytes_max
        failure: PoeError | None = None
        looks = count()
        while (sought := shared.want(request.member, request.limit, bytes_max, now_us)) is not None:
            if looked := next(looks):  # of thousands of units none may have anything
                await let_others(self._actor, looked)
            try:
                found = self._ahead.take(sought) or await self._read(sought)
            except PoeError as error:
                if isinstance(error, CorruptRecord) and (error.pointer or 0) > sought.after:
                    self._skip(sought, error, error.pointer or 0, now_us)
                    continue
                self._put_aside(sought, now_us)
                failure = failure or error
                continue
            if found is None:
                if await self._is_gone(sought):
                    shared.nothing(sought)
                else:
                    self._put_aside(sought, now_us)
                continue
            records, found_count = found.records, len(found.entries) // ENTRY_BYTES
            lease = shared.leased(sought, records.last_pointer, found_count, records.length, now_us)
            if lease is None:  # somebody else was faster while this one was read
                continue
            return _told(lease, found, lost, now_us)
        if failure is not None:
            raise failure
        return None

    async def _read(self, sought: Sought) -> IndexedSlice | None:
        """Find messages: mostly by one call, which is done at once."""
        asked, call = self._ahead.question(sought), None
        route = self._handler.routes.get(sought.unit)
        if route is not None:
            call = self._actor.call(route.reader(sought.after), asked, timeout_s=None)
        found = call.value if call is not None and call.is_done else None
        if found is None:
            found = await self._handler.get_range(sought.unit, asked, call)
        return None if found is None else self._ahead.share(sought, found)

    async def _is_gone(self, sought: Sought) -> bool:
        """Return whether messages that somebody has had are there no more, since none was found.

        Another node has handed them out, maybe, and the copy of this one is behind.
        """
        if sought.returned is None or not self._is_of_log:
            return True
        actor, routes = self._handler.actor, self._handler.routes
        if await reached_pointer(actor, routes, sought.unit) < sought.last:
            return False
        # The copy has got there only now, maybe, behind the read that found nothing.
        return await self._read(sought) is None

    def _skip(self, sought: Sought, error: CorruptRecord, pointer: int, now_us: int) -> None:
        """Go on behind damage: nobody can work on it, and all would wait for it."""
        logger.error("group %s skips damage: %s", self._state.definition.name, error)
        lease = self._shared.leased(sought, min(pointer, sought.last), 1, 0, now_us)
        if lease is not None:
            self._shared.acknowledge([(lease.id, None)], [], now_us)

    def _put_aside(self, sought: Sought, now_us: int) -> None:
        """Have others come before a unit that cannot be read, and try it again in a while."""
        self._shared.put_aside(sought, _PAUSE_S, now_us)
        if sought.unit not in self._watched:
            self._watched.add(sought.unit)
            self._actor.send_after(_PAUSE_S, News(sought.unit))

    async def _look_out(self) -> None:
        """Have each unit that has nothing watched, since somebody waits for it."""
        for unit, pointer in self._shared.idle_units():
            if unit in self._watched:
                continue
            if unit not in self._watches:
                watch = await self._actor.start_link(
                    UnitWatch, self._actor.ref, unit, self._handler.routes
                )
                assert watch is not None
                self._watches[unit] = watch
            self._watched.add(unit)
            self._actor.cast(self._watches[unit], pointer)

    def _end(self, caller: Call) -> None:
        self._polls.pop(caller).timer.cancel()


def _told(held: HeldLease, found: IndexedSlice, lost: tuple[int, ...], now_us: int) -> Leased:
    left_s = (held.deadline_us - now_us) / 1e6
    told = Lease(held.id, held.unit, held.after, held.last, held.attempts, left_s, lost)
    return Leased(told, found)
