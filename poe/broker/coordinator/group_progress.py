"""How far a group is, in messages and seconds, and how it is set somewhere else."""

from typing import Any

from poe.broker.groups.state import GroupState
from poe.broker.registry.routing_table import RoutingTable
from poe.broker.requests.listing import let_others, newest_pointer
from poe.broker.requests.request_handler import RequestHandler
from poe.errors import UnknownTopic


class GroupProgress:
    """Compares what a group has done with what its topics hold."""

    __slots__ = ("_handler", "_routes", "_state", "units_by_topic")

    def __init__(self, handler: RequestHandler, routes: RoutingTable, state: GroupState) -> None:
        self._handler = handler
        self._routes = routes
        self._state = state
        self.units_by_topic: dict[bytes, tuple[bytes, ...]] = {}

    @property
    def units(self) -> list[bytes]:
        """All partition topics of the group."""
        return [unit for units in self.units_by_topic.values() for unit in units]

    async def reset(
        self,
        to: str | int | dict[bytes, int],
        units: tuple[bytes, ...],
        *,
        dry: bool,
        force: bool,
        now_us: int,
    ) -> dict[bytes, list[Any]]:
        """Move where units go on; return the old and the new pointer of each, and the distance.

        That is in messages, and negative where they will come again. `to` is a word, a time in
        microseconds, or a pointer for each unit; `dry` moves nothing.

        Raises:
            GroupActive: there are members, and no force.
            UnknownTopic: a unit is none of the group.
            PoeError: a topic cannot be read.
        """
        moved: dict[bytes, list[Any]] = {}
        own = set(self.units)
        for number, unit in enumerate(to if isinstance(to, dict) else units or self.units):
            await let_others(self._handler.actor, number)
            if unit not in own:
                raise UnknownTopic(unit)
            old = self._state.floor(unit)
            new = to[unit] if isinstance(to, dict) else await self._place(unit, to)
            distance = await self._ordinal(unit, new) - await self._ordinal(unit, old or 0)
            moved[unit] = [old, new, distance]
        if not dry:
            places = {unit: new for unit, (_, new, _) in moved.items()}
            self._state.reset(places, now_us, force=force)
        return moved

    async def ends(self) -> dict[bytes, int]:
        """Return the newest pointer of each unit; none is woken for that.

        Raises:
            PoeError: a topic cannot be read.
        """
        ends = {}
        for number, unit in enumerate(self.units):
            await let_others(self._handler.actor, number)
            ends[unit] = await self._newest(unit)
        return ends

    async def lag(self, now_us: int) -> dict[bytes, dict[str, Any]]:
        """Return how far behind each unit is: in messages, exactly, and in seconds."""
        told = {}
        for number, unit in enumerate(self.units):
            await let_others(self._handler.actor, number)
            told[unit] = await self._lag(unit, now_us)
        return told

    async def _lag(self, unit: bytes, now_us: int) -> dict[str, Any]:
        position = self._state.floor(unit)
        newest = await self._newest(unit)
        done = await self._ordinal(unit, position or 0)
        messages = max(0, await self._ordinal(unit, newest) - done)
        first = await self._handler.next(unit, position or 0) if messages else None
        seconds = 0.0 if first is None else max(0, now_us - first[0]) / 1e6
        return {"position": position, "newest": newest, "messages": messages, "seconds": seconds}

    async def _place(self, unit: bytes, to: str | int) -> int:
        if to == "oldest":
            return 0
        if to == "newest":
            return await self._newest(unit)
        # A pointer is a time: what came at that very microsecond is still to be read.
        return max(0, int(to) - 1)

    async def _newest(self, unit: bytes) -> int:
        return await newest_pointer(self._handler.actor, self._routes, unit)

    async def _ordinal(self, unit: bytes, pointer: int) -> int:
        """Return how many messages a topic ever had up to a pointer."""
        try:
            return await self._handler.ordinal(unit, pointer)
        except UnknownTopic:  # nobody has put anything onto it yet
            return 0
