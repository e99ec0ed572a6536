"""Reads what a group gives one of its members: units come and go, positions are the group's own.

A unit is a partition, by the name of its own topic. Where the group has been there it is read from
the group's position on; `start` is for units where it never was. What cannot be told is an error,
never a place to begin.
"""

import asyncio
import logging
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any, NamedTuple

from poe.client.consumer.hand import Hand
from poe.client.consumer.poe_source import PartitionReader
from poe.client.consumer.source import (
    ConsumerOptions,
    ConsumerStatistics,
    Fetched,
    Start,
)
from poe.client.consumer.turns import Turn, Turns
from poe.client.group.membership import MemberInfo, Membership, Reach, senseless
from poe.client.local_server import AnyServer
from poe.client.server_order import ServerOrder
from poe.errors import GroupFenced, PoeError, PropertyMismatch

_log = logging.getLogger(__name__)

_LOOK_S = 2.0
"""A group looks for partitions at heartbeats, and no more than once within this."""
_UNKNOWN = -1


class _Unit:
    """A unit that the member owns, from its grant to when it is given up or lost."""

    def __init__(
        self, name: bytes, place: tuple[bytes, int], reader: PartitionReader, begin: int
    ) -> None:
        self.name = name
        self.topic, self.partition = place
        self.reader = reader
        self.fetched = begin
        """Pointer of the last message that was fetched; of all of these, that of the one before
        the first where there was none."""
        self.dealt = begin
        self.committed = begin
        """What the group knows; `_UNKNOWN` while it is being told, or where that has failed."""
        self.is_leaving = False
        self.is_free = asyncio.Event()
        """Set while no message of it is in somebody's hands."""
        self.is_free.set()


class _Fetch(NamedTuple):
    """What a fetch has returned."""

    fetched: Fetched
    unit: _Unit
    begin: int
    """Pointer of the message before."""


class GroupSource:
    """The messages of the units of one member; see `Source`.

    It looks into the hand of its consumer for how far that is: what was handed out before the last
    time of asking is dealt with.
    """

    def __init__(
        self,
        servers: Sequence[AnyServer],
        topics: Sequence[bytes],
        options: ConsumerOptions,
        hand: Hand,
    ) -> None:
        assert options.group is not None
        self.statistics = ConsumerStatistics()
        self._servers = servers
        self._options = options
        self._hand = hand
        self._membership = Membership(
            Reach(ServerOrder(servers), options.timeout_s, options.request_timeout_s),
            MemberInfo(
                group=options.group,
                mode="ordered",
                topics=topics,
                instance=options.instance,
                options=options.group_options,
            ),
            self,
            self._note_lost_connection,
        )
        self._units: dict[bytes, _Unit] = {}
        self._turns: Turns[PartitionReader] = Turns()
        self._turning: asyncio.Task[Turn[PartitionReader] | None] | None = None
        # Up to two: one may be in hand, and one wait to be.
        self._fetches: list[_Fetch] = []
        self._news = asyncio.Event()
        self._failure: PoeError | None = None
        self._committing: asyncio.Task[None] | None = None
        self._leaving: set[asyncio.Task[None]] = set()
        self._created: datetime | None = None

    # ---- for the consumer ---------------------------------------------------------------------

    async def open(self, start: Start) -> Mapping[bytes, int]:
        """Join the group, or once that was done, go to other places in the units there are.

        Raises:
            GroupMismatch: the group is of another mode, or of other topics.
            PoeError: another refusal, or no server could be reached.
        """
        if self._committing is None:
            await self._membership.open()
            self._committing = asyncio.create_task(self._commit_often())
        else:
            # All of them: what was fetched ahead of a unit, and not handed out, is forgotten.
            await asyncio.gather(
                *(self._move(each, _place_of(each, start)) for each in self._units.values())
            )
        return {unit.name: unit.dealt for unit in self._units.values()}

    async def fetch(self) -> Fetched | None:
        """Return what follows in the unit whose turn it is; see `Source`.

        Raises:
            GroupFenced: another start of the same instance is the member now.
            CorruptRecord, InvalidEnvelope, MessagesLost, PoeError: see `Source`.
        """
        while True:
            self._news.clear()
            if self._failure is not None:
                failure, self._failure = self._failure, None
                raise failure
            try:
                turn = await self._next_turn()
            except PropertyMismatch as error:
                # Its topic was made, maybe anew, with other partitions: the group tells of them.
                if error.name != "partitions" or not await self._has_news(self._patience_s()):
                    raise
                continue
            if turn is not None:
                unit = next((u for u in self._units.values() if u.reader is turn.reader), None)
                if unit is not None:
                    return self._fetched(unit, turn.fetched)
            elif not self._news.is_set() and not await self._wait_for_units():
                return None

    async def admit(self, fetched: Fetched) -> bool:
        """Return whether messages may be handed out, which are no longer where the unit has gone.

        Raises:
            PoeError: they were to be committed before, and could not be.
        """
        unit = next(each.unit for each in self._fetches if each.fetched is fetched)
        last = fetched.pointers[-1]
        if self._options.commit == "before" and self._is_owned(unit):
            self._news.clear()
            try:
                await self._tell({unit: last})
            except GroupFenced:  # it joins anew, and others may have the unit by now
                await self._has_news(self._patience_s())
            return unit.committed == last and self._is_owned(unit)
        return self._is_owned(unit)

    def note_dealt(self) -> None:
        """Note how far the consumer is with what it has in hand."""
        hand, is_before = self._hand, self._options.commit == "before"
        for fetched, unit, begin in self._fetches:
            if fetched is hand.fetched:
                count = hand.count if is_before else hand.dealt_count
                unit.dealt = fetched.pointers[count - 1] if count else begin
                if hand.dealt_count == hand.count:
                    unit.is_free.set()
                else:
                    unit.is_free.clear()

    def unit_of(self, fetched: Fetched) -> bytes:
        """Return the unit of what was fetched last, or before."""
        return next(each.unit.name for each in self._fetches if each.fetched is fetched)

    async def commit(self, data: bytes = b"") -> dict[bytes, int]:
        """Tell the group how far each unit is; return what of that it has taken.

        Raises:
            GroupFenced: the group knows this member no more, which joins anew by itself.
            PoeError: another refusal, or no server could be reached.
        """
        self.note_dealt()
        return await self._commit(self._units.values(), data)

    async def close(self) -> None:
        """Commit what is dealt with, leave the group, and let go of all connections."""
        tasks = [*self._leaving, *(each for each in (self._committing, self._turning) if each)]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        sent = {} if self._options.commit == "manual" else _uncommitted(self._units.values())
        await self._membership.close(**(self._said(sent) if sent else {}))
        await self._turns.close()

    # ---- for the membership -------------------------------------------------------------------

    def owned(self) -> list[bytes]:
        """Return the units that it works on."""
        return list(self._units)

    async def heard(self, granted: Mapping[bytes, Sequence[Any]], revoke: Sequence[bytes]) -> bool:
        """Begin with what it may own now, and give up what it is to; see `Work`."""
        leaving = [
            self._units[each]
            for each in revoke
            if each in self._units and not self._units[each].is_leaving
        ]
        for unit in leaving:
            unit.is_leaving = True
            await self._turns.remove(unit.reader)
            task = asyncio.create_task(self._hand_over(unit))
            self._leaving.add(task)
            task.add_done_callback(self._leaving.discard)
        # One that it has still been giving up is told again, once it has.
        new = [name for name in granted if name not in self._units]
        for name in new:  # one by one: where one fails, none may begin behind our back
            await self._begin(name, *granted[name])
        if new or leaving:
            self._news.set()
        return bool(new)

    async def lost(self) -> None:
        """Let go of all units: others may have them by now."""
        lost, self._units = list(self._units.values()), {}
        for unit in lost:
            self._withdraw(unit)
            unit.is_free.set()
            if not unit.is_leaving:
                await self._turns.remove(unit.reader)
        self._news.set()

    def failed(self, error: PoeError) -> None:
        """Have the next fetch raise it."""
        self._failure = error
        self._news.set()

    # ---- inside -------------------------------------------------------------------------------

    async def _next_turn(self) -> Turn[PartitionReader] | None:
        """Return the next turn; None at the end, and when there are news to look at."""
        if self._turning is None:
            self._turning = asyncio.create_task(self._turns.next())
        news = asyncio.ensure_future(self._news.wait())
        try:
            await asyncio.wait((self._turning, news), return_when=asyncio.FIRST_COMPLETED)
        finally:
            news.cancel()
        if not self._turning.done():
            return None
        turning, self._turning = self._turning, None
        return turning.result()

    async def _wait_for_units(self) -> bool:
        """Wait for news; without `follow` not where there are units, nor for ever, without any."""
        if self._options.follow:
            return await self._has_news(None)
        are_there = not all(unit.is_leaving for unit in self._units.values())
        return not are_there and await self._has_news(self._membership.beat_s)

    def _patience_s(self) -> float:
        """Return how long to wait for news that are to come."""
        return _LOOK_S + 2 * self._membership.beat_s

    async def _has_news(self, limit_s: float | None) -> bool:
        try:
            async with asyncio.timeout(limit_s):
                await self._news.wait()
        except TimeoutError:
            return False
        return True

    def _fetched(self, unit: _Unit, fetched: Fetched) -> Fetched:
        fetched = fetched._replace(topic=unit.topic)
        in_hand = [each for each in self._fetches if each.fetched is self._hand.fetched]
        self._fetches = [*in_hand, _Fetch(fetched, unit, unit.fetched)]
        unit.fetched = fetched.pointers[-1]
        return fetched

    def _is_owned(self, unit: _Unit) -> bool:
        return self._units.get(unit.name) is unit and not unit.is_leaving

    async def _begin(
        self, name: bytes, topic: bytes, partition: int, position: Sequence[Any] | None
    ) -> None:
        """Read a unit from where the group is in it.

        Raises:
            PoeError: a refusal, or no server could be reached.
        """
        start = await self._first_place(name) if position is None else position[0]
        reader = self._reader(name, partition)
        self._units[name] = _Unit(name, (topic, partition), reader, await reader.begin(start))
        self._turns.add(reader)

    def _reader(self, name: bytes, partition: int) -> PartitionReader:
        return PartitionReader(self._servers, name, partition, self._options, self.statistics)

    async def _first_place(self, name: bytes) -> Start:
        """Return where to begin in a unit in which the group has never been."""
        start = self._options.start
        if isinstance(start, Mapping):
            return start.get(name, "oldest")
        if start != "newest":
            return start
        # The newest message of this moment would be too late: others may have come before a
        # partition was granted, or while no member was there.
        if self._created is None:
            told = await self._membership.ask("group")
            try:
                self._created = datetime.fromtimestamp(told["created_us"] / 1e6, UTC)
            except (TypeError, KeyError, ValueError, OverflowError) as error:
                raise senseless("group", told) from error
        return self._created

    async def _move(self, unit: _Unit, start: Start) -> None:
        """Read a unit from another place on; where that fails, it is read as before."""
        if unit.is_leaving:
            return
        reader = self._reader(unit.name, unit.partition)
        try:
            begin = await reader.begin(start)
        except BaseException:
            await reader.close()
            raise
        if not self._is_owned(unit):  # it has gone meanwhile
            await reader.close()
            return
        before, unit.reader = unit.reader, reader
        unit.dealt = unit.fetched = begin
        self._turns.add(reader)
        await self._turns.remove(before)

    def _withdraw(self, unit: _Unit) -> None:
        """Hand nothing more of a unit out."""
        if any(each.unit is unit and each.fetched is self._hand.fetched for each in self._fetches):
            self._hand.withdraw()
        self.note_dealt()

    async def _hand_over(self, unit: _Unit) -> None:
        """Give a unit up as soon as what was handed out of it is dealt with, or time is over."""
        self._withdraw(unit)
        with suppress(TimeoutError):
            async with asyncio.timeout(self._options.handover_s):
                await unit.is_free.wait()
        if self._options.commit != "manual":
            await self._commit_if_possible((unit,))
        if self._units.get(unit.name) is unit:
            del self._units[unit.name]
        self._membership.hurry()

    async def _commit_often(self) -> None:
        """Commit what is dealt with, again and again; with other options there is nothing to do."""
        while self._options.commit == "after":
            await asyncio.sleep(self._options.commit_interval_s)
            self.note_dealt()
            await self._commit_if_possible(self._units.values())

    async def _commit_if_possible(self, units: Iterable[_Unit]) -> None:
        try:
            await self._commit(units)
        except PoeError as error:  # what is not committed comes again
            _log.warning("group %s: nothing is committed: %s", self._options.group, error)

    async def _commit(self, units: Iterable[_Unit], data: bytes = b"") -> dict[bytes, int]:
        return await self._tell(_uncommitted(units, data), data)

    async def _tell(self, sent: Mapping[_Unit, int], data: bytes = b"") -> dict[bytes, int]:
        if not sent:
            return {}
        for unit in sent:
            unit.committed = _UNKNOWN
        said = self._said(sent, data)
        told: dict[bytes, int] = await self._membership.ask("group_commit", **said)
        for unit, pointer in sent.items():
            if unit.name in told:
                unit.committed = pointer
        return told

    def _said(self, sent: Mapping[_Unit, int], data: bytes = b"") -> dict[str, object]:
        """Return what a commit of these pointers says."""
        positions = {unit.name: [pointer, data] for unit, pointer in sent.items()}
        return {"generation": self._membership.generation, "positions": positions}

    def _note_lost_connection(self) -> None:
        self.statistics.reconnect_count += 1


def _place_of(unit: _Unit, start: Start) -> Start:
    """Return where a unit is to be read on from; where nothing is said of it, from where it is."""
    return start.get(unit.name, unit.dealt) if isinstance(start, Mapping) else start


def _uncommitted(units: Iterable[_Unit], data: bytes = b"") -> dict[_Unit, int]:
    """Return how far units are of which the group does not know that; with data, all of them."""
    return {each: each.dealt for each in units if data or each.dealt != each.committed}
