"""Which units a group has: the partitions of its topics, named or by a pattern."""

from collections.abc import AsyncGenerator, Iterable
from contextlib import aclosing
from typing import Final

from poe.actors import GenServer
from poe.broker.groups.options import GroupDefinition, matches
from poe.broker.registry.routing_table import RoutingTable
from poe.broker.requests.listing import Page, pages
from poe.topic_properties import is_reserved

_TURN_COUNT: Final = 1000
"""Topics that are compared with a pattern before others have their turn."""


class GroupTopics:
    """Finds the units of groups; holds nothing but the table of topics."""

    __slots__ = ("_routes",)

    def __init__(self, routes: RoutingTable) -> None:
        self._routes = routes

    @property
    def version(self) -> tuple[int, int]:
        """Return another value as soon as units may be others."""
        properties = self._routes.properties
        return self._routes.turnover_count, 0 if properties is None else properties.changes_count

    async def units(
        self, group: GroupDefinition, actor: GenServer
    ) -> dict[bytes, tuple[bytes, ...]]:
        """Return the partitions of a group's topics; in a name, `*` stands for anything.

        A topic that does not exist yet has the partition that its first put will make. Where there
        are patterns, `actor` looks at the topics in turns, and others are served in between.
        """
        patterns = [each for each in group.topics if b"*" in each]
        found = {each: self._partitions(each) for each in group.topics if b"*" not in each}
        turn_count = max(1, _TURN_COUNT // max(1, len(patterns)))
        for begin in _begins(patterns):
            async with aclosing(self._topics(begin, turn_count, actor)) as topics:
                async for topic in topics:
                    if topic in found or topic == group.unmatched_topic:
                        continue
                    if any(matches(pattern, topic) for pattern in patterns):
                        found[topic] = self._partitions(topic)
        return found

    def _partitions(self, topic: bytes) -> tuple[bytes, ...]:
        properties = self._routes.properties
        described = None if properties is None else properties.find(topic)
        return (topic,) if described is None else described.partition_topics()

    async def _topics(
        self, begin: bytes, turn_count: int, actor: GenServer
    ) -> AsyncGenerator[bytes, None]:
        """Yield the topics whose names begin so, and those of partitions whose names do."""
        properties = self._routes.properties
        told: set[bytes] = set()
        wanted = Page(after=_before(begin))
        async with aclosing(pages(actor, self._routes, wanted, turn_count)) as all_pages:
            async for names in all_pages:
                for name in names:
                    if not name.startswith(begin):
                        if name > begin:
                            return
                        continue
                    holder = None if properties is None else properties.holder(name)
                    topic = name if holder is None else holder.name
                    if topic not in told and not is_reserved(topic):
                        told.add(topic)
                        yield topic


def _begins(patterns: Iterable[bytes]) -> list[bytes]:
    """Return what patterns begin with, but for what begins with another one of these."""
    begins: list[bytes] = []
    for begin in sorted({each.partition(b"*")[0] for each in patterns}):
        if not begins or not begin.startswith(begins[-1]):
            begins.append(begin)
    return begins


def _before(begin: bytes) -> bytes:
    """Return a name that is less than all that begin so."""
    return begin[:-1] + bytes([begin[-1] - 1]) + b"\xff" if begin and begin[-1] else b""
