"""How far groups are behind: asked for now and then, whoever looks, and however often."""

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import Any, Final, Protocol

from poe.errors import PoeError

GROUPS_MAX: Final = 50
"""Groups of which is asked, first ones by name."""
_FRESH_S: Final = 4.0

Units = Mapping[bytes, Mapping[str, Any]]
"""Of a group by partition, as the op `group_lag` answers."""


class Asked(Protocol):
    """Whoever answers control operations."""

    async def control(self, op: str, **arguments: Any) -> Any:  # noqa: ANN401 - as the op has it
        """Return what one answers."""


class Lags:
    """Belongs to one event loop, and to one identity."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._asked_s = float("-inf")
        self._found: Mapping[str, Units] = {}
        self._asking = asyncio.Lock()
        self.is_whole = True
        """Whether there were no more groups than are asked for."""

    async def ask(self, connection: Asked) -> Mapping[str, Units]:
        """Return lags by group and partition, of a few seconds ago at most."""
        async with self._asking:  # who comes meanwhile gets the same, and no older ones
            if self._clock() >= self._asked_s + _FRESH_S:
                self._found = await self._find(connection)
                self._asked_s = self._clock()
            return self._found

    async def _find(self, connection: Asked) -> Mapping[str, Units]:
        groups = sorted(str(each["group"]) for each in await connection.control("groups"))
        self.is_whole = len(groups) <= GROUPS_MAX
        found: dict[str, Units] = {}
        for group in groups[:GROUPS_MAX]:
            with suppress(PoeError):  # it was deleted meanwhile, or this user may not know
                found[group] = await connection.control("group_lag", group=group)
        return found


def lag_of(units: Units) -> tuple[int, float]:
    """Return how many messages a group is behind in all, and how many seconds at most."""
    rows = units.values()
    messages = sum(row["messages"] or 0 for row in rows)
    return messages, max((row["seconds"] or 0 for row in rows), default=0)


def behind(lags: Mapping[str, Units]) -> list[dict[str, Any]]:
    """Return the groups that are behind, those that are most first."""
    rows = []
    for group, units in lags.items():
        messages, seconds = lag_of(units)
        if messages:
            rows.append({"group": group, "messages": messages, "seconds": seconds})
    return sorted(rows, key=lambda row: -row["messages"])


def of_topic(lags: Mapping[str, Units], partitions: Iterable[bytes]) -> list[dict[str, Any]]:
    """Return the groups that read some partitions, and how far behind each is there."""
    wanted = set(partitions)
    rows = []
    for group, units in lags.items():
        own = {unit: row for unit, row in units.items() if unit in wanted}
        if own:
            messages, seconds = lag_of(own)
            rows.append({"group": group, "messages": messages, "seconds": seconds})
    return rows
