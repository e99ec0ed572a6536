"""Which units a group has: the partitions of its topics, named or by a pattern."""

from collections.abc import Iterator
from itertools import takewhile

from poe.broker.groups.options import GroupDefinition, matches
from poe.broker.registry.routing_table import RoutingTable
from poe.topic_properties import is_reserved

_PAGE_COUNT = 500


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

    def units(self, group: GroupDefinition) -> dict[bytes, tuple[bytes, ...]]:
        """Return the partitions of a group's topics; in a name, `*` stands for anything.

        A topic that does not exist yet has the partition that its first put will make.
        """
        found: dict[bytes, tuple[bytes, ...]] = {}
        for topic in group.topics:
            for name in self._matching(topic) if b"*" in topic else (topic,):
                if group.reads(name):
                    found[name] = self._partitions(name)
        return found

    def _partitions(self, topic: bytes) -> tuple[bytes, ...]:
        properties = self._routes.properties
        described = None if properties is None else properties.find(topic)
        return (topic,) if described is None else described.partition_topics()

    def _matching(self, pattern: bytes) -> Iterator[bytes]:
        """Yield the topics that a pattern stands for; partitions are told as their topic."""
        begin = pattern.partition(b"*")[0]
        properties = self._routes.properties
        told: set[bytes] = set()
        for name in takewhile(lambda each: each.startswith(begin), self._from(begin)):
            holder = None if properties is None else properties.holder(name)
            topic = name if holder is None else holder.name
            if topic not in told and matches(pattern, topic) and not is_reserved(topic):
                told.add(topic)
                yield topic

    def _from(self, begin: bytes) -> Iterator[bytes]:
        """Yield the topics that are not less than some bytes, sorted."""
        after = begin[:-1] + bytes([begin[-1] - 1]) + b"\xff" if begin and begin[-1] else b""
        while names := self._routes.page(after, _PAGE_COUNT):
            yield from (name for name in names if name >= begin)
            after = names[-1]
