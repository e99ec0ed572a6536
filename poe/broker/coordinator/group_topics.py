"""Which units a group has: the partitions of its topics, named or by a pattern."""

from collections.abc import Iterable, Iterator
from itertools import takewhile

from poe.broker.groups.options import matches
from poe.broker.registry.routing_table import RoutingTable
from poe.topic_properties import is_reserved

_PAGE_COUNT = 500


class GroupTopics:
    """Finds the units of groups; holds nothing but the table of topics."""

    __slots__ = ("_routes",)

    def __init__(self, routes: RoutingTable) -> None:
        self._routes = routes

    def units(self, topics: Iterable[bytes]) -> dict[bytes, tuple[bytes, ...]]:
        """Return the partitions of topics; in a name, `*` stands for anything.

        A topic that does not exist yet has the partition that its first put will make.
        """
        found: dict[bytes, tuple[bytes, ...]] = {}
        for topic in topics:
            for name in self._matching(topic) if b"*" in topic else (topic,):
                found[name] = (name,)
        return found

    def _matching(self, pattern: bytes) -> Iterator[bytes]:
        begin = pattern.partition(b"*")[0]
        for name in takewhile(lambda each: each.startswith(begin), self._from(begin)):
            if matches(pattern, name) and not is_reserved(name):
                yield name

    def _from(self, begin: bytes) -> Iterator[bytes]:
        """Yield the topics that are not less than some bytes, sorted."""
        after = begin[:-1] + bytes([begin[-1] - 1]) + b"\xff" if begin and begin[-1] else b""
        while names := self._routes.page(after, _PAGE_COUNT):
            yield from (name for name in names if name >= begin)
            after = names[-1]
