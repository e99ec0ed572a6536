"""How far groups are behind: asked for now and then, whoever looks, and however often."""

import asyncio
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, contextmanager, suppress
from typing import Any, Final, Protocol

from poe.broker.requests.log_groups import UNREACHED
from poe.errors import CallTimeout, ConnectionClosed, PoeError, RemoteProtocolError

GROUPS_MAX: Final = 50
"""Groups of which is asked, first ones by name."""
_FRESH_S: Final = 4.0
_TIME_S: Final = 10.0
"""So long is asked at most: a group may wait for nodes that are down."""

Units = Mapping[bytes, Mapping[str, Any]]
"""Of a group by partition, as the op `group_lag` answers."""


Lagging = Mapping[str, Units]
"""By group."""
BROKEN: Final = (CallTimeout, ConnectionClosed, RemoteProtocolError)
"""After these a connection is not used again."""


@contextmanager
def tolerant(on_refused: Callable[[PoeError], object] = lambda _: None) -> Iterator[None]:
    """Pass over what the node refuses, but not over that after which a connection is lost.

    Args:
        on_refused: called with what it refuses.

    Raises:
        PoeError: one of `BROKEN`, so that whoever has lent the connection takes it for what it is.
    """
    try:
        yield
    except BROKEN:
        raise
    except PoeError as error:
        on_refused(error)


class Asked(Protocol):
    """Whoever answers control operations."""

    async def control(self, op: str, **arguments: Any) -> Any:  # noqa: ANN401 - as the op has it
        """Return what one answers."""


class Lags:
    """Belongs to one event loop, and to one identity."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._asked_s = float("-inf")
        self._found: Lagging = {}
        self._asking = asyncio.Lock()
        self.is_whole = True
        """Whether `ask` has asked for all groups, the last time that it has learnt anything.

        One that refuses counts: it was deleted meanwhile, or this user may not know.
        """

    async def ask(self, node: Callable[[], AbstractAsyncContextManager[Asked]]) -> Lagging:
        """Return lags by group and partition, of a few seconds ago at most.

        Raises:
            PoeError: the node cannot be asked.
        """
        async with self._asking:  # who comes meanwhile gets the same, and no older ones
            if self._clock() >= self._asked_s + _FRESH_S:
                self._found, self.is_whole = await self._find(node)
                self._asked_s = self._clock()
            return self._found

    async def _find(
        self, node: Callable[[], AbstractAsyncContextManager[Asked]]
    ) -> tuple[Lagging, bool]:
        found: dict[str, Units] = {}
        is_whole = False
        # Over a connection of its own: an answer that is not waited for holds up those behind it.
        with suppress(TimeoutError, CallTimeout):
            async with asyncio.timeout(_TIME_S), node() as connection:
                rows = await connection.control("groups")
                reached = sorted(str(each["group"]) for each in rows if each["mode"] != UNREACHED)
                for group in reached[:GROUPS_MAX]:
                    with tolerant():  # it was deleted meanwhile, or this user may not know
                        found[group] = await connection.control("group_lag", group=group)
                is_whole = len(rows) == len(reached) <= GROUPS_MAX
        return found, is_whole


def lag_of(units: Units) -> tuple[int, float]:
    """Return how many messages a group is behind in all, and how many seconds at most."""
    rows = units.values()
    messages = sum(row["messages"] or 0 for row in rows)
    return messages, max((row["seconds"] or 0 for row in rows), default=0)


def behind(lags: Lagging) -> list[dict[str, Any]]:
    """Return the groups that are behind, those that are most first."""
    rows = []
    for group, units in lags.items():
        messages, seconds = lag_of(units)
        if messages:
            rows.append({"group": group, "messages": messages, "seconds": seconds})
    return sorted(rows, key=lambda row: -row["messages"])


def of_topic(lags: Lagging, partitions: Iterable[bytes]) -> list[dict[str, Any]]:
    """Return the groups that read some partitions, and how far behind each is there."""
    wanted = set(partitions)
    rows = []
    for group, units in lags.items():
        own = {unit: row for unit, row in units.items() if unit in wanted}
        if own:
            messages, seconds = lag_of(own)
            rows.append({"group": group, "messages": messages, "seconds": seconds})
    return rows
