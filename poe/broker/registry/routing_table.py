"""Which appendix server answers for (topic, pointer): a table that is read without a message.

The topic registry alone writes it, in single steps; connections and the embedded API read it. It
outlives the registry, as an ETS table with an heir would, so that a restart of the registry does
not leave its readers with nothing. What all who read topics must know stands here, too.
"""

import time
from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from typing import Any, Final, NamedTuple

from poe.actors import ActorRef
from poe.broker.appendix.counters import Counters
from poe.broker.registry.log_groups_table import LogGroupsTable
from poe.broker.registry.present import Present
from poe.broker.registry.queue_table import QueueTable
from poe.errors import NotATopic, StorageError
from poe.storage import Event, Removals, Store, TopicDescriptions
from poe.supervision.event_ring import EventRing
from poe.topic_name import NamePolicy
from poe.topic_properties import is_reserved

_CLOCK_KNOWN_S: Final = 60.0


class ClockAhead(NamedTuple):
    """How far the clock of this node is ahead of those of the other nodes of its cluster."""

    ahead_s: float
    """Not less than 0."""

    found_s: float
    """When that was found, by the monotonic clock."""

    def is_valid(self, monotonic_s: float) -> bool:
        """Return whether it was found lately: a clock drifts, and follows one that was set."""
        return monotonic_s - self.found_s < _CLOCK_KNOWN_S


class Route:
    """The appendix servers of one topic, oldest first; the last one is the writer.

    Always:

        len(bounds) == len(refs) - 1
        bounds never fall; bounds[i] is the newest pointer of refs[i], a sealed reader
    """

    __slots__ = ("bounds", "refs")

    def __init__(self) -> None:
        self.refs: list[ActorRef] = []
        self.bounds: list[int] = []

    @property
    def writer(self) -> ActorRef:
        """Return the appendix server that takes puts."""
        return self.refs[-1]

    def reader(self, pointer: int) -> ActorRef:
        """Return the first one whose newest pointer is greater than `pointer`, else the writer."""
        return self.refs[bisect_right(self.bounds, pointer)]


class RoutingTable(dict[bytes, Route]):
    """Routes by topic. Read from any thread; written by the topic registry.

    A dictionary, since each request looks into it.
    """

    def __init__(self) -> None:  # noqa: PLR0915 - one for each thing that readers must know
        super().__init__()
        self._names: list[bytes] = []  # of the routes, sorted
        self.failures: dict[bytes, StorageError] = {}
        """Topics that cannot be served, and so have no route, and why; the store's own table."""
        self._resting_names: list[bytes] = []
        self.resting: Mapping[bytes, tuple[Event, ...]] = {}
        """Topics that nobody has asked for, and so have no route yet, and the events of their
        segments; the store's own table, which only becomes smaller."""
        self.waking: set[bytes] = set()
        """Topics that neither rest nor are out of service any more, and will have a route."""
        self.listings_count = 0
        """How many are being told of all topics just now."""
        self.released_s: dict[bool, float] = {}
        """When all segments were asked last to let their files go, urgently and not."""
        self.removals: Removals | None = None
        """What was removed of topics; the store's own notes, None before the registry is there."""
        self.properties: TopicDescriptions | None = None
        """What topics have; the store's own, which the registry alone changes. None as above."""
        self.read_only: dict[bytes, str] = {}
        """Topics that take no messages, and what their disk has failed of."""
        self.names: NamePolicy = "strict"
        """Which names topics may have; the store's policy."""
        self.are_gaps_skipped = False
        """Whether reads go on behind damaged records, as `on_corrupt` says."""
        self.gaps_count = 0
        """How often a read has gone on behind damaged records."""
        self.store_health: Callable[[], dict[str, Any]] = dict
        """Tells what is wrong with the store as a whole; its own."""
        self.free_bytes: Callable[[], int | None] = _unknown
        """Tells the room on the store's disk, as it was lately."""
        self.turnover_count = 0
        """How often a topic has come, or gone."""
        self.topics_of_group: Callable[[str], tuple[bytes, ...]] = _no_topics
        """Tells the topics of a group, and patterns of them; none of one that is not known."""
        self.queues: QueueTable | None = None
        """What queues there are across nodes; None where this one is in no cluster."""
        self.replicas: dict[bytes, ActorRef] | None = None
        """Who takes puts onto the partitions of replicated topics, which the registry of these
        alone changes; None where this node has no engine for them."""
        self.clock_ahead: ClockAhead | None = None
        """How far this node's clock is ahead of the others'; None: that is not known."""
        self.log_groups: LogGroupsTable | None = None
        """Which groups of replicated topics there are; None as above."""
        self.is_own_group: Callable[[str], bool] = _is_any
        """Tells whether a group is this node's own, or may be; nobody else is asked of it."""
        self.is_catalog_known = True
        """Whether this node knows which topics are replicated; until then a put makes none."""
        self.unnoted: set[bytes] = set()
        """Replicated topics that cannot be here yet, and their partitions; none such is made."""
        self.counters = Counters()
        """What was done since the node has started."""
        self.events = EventRing(lambda: time.time_ns() // 1000)
        """What has happened lately."""
        self.present = Present()
        """Who is connected."""
        self.options: Mapping[str, Mapping[str, Any]] = {}
        """The options that the node goes by, and where each came from; no secrets."""
        self.is_closing = False
        """Whether the listener is about to end: nobody may wait for news any more."""

    def take_from(self, store: Store) -> None:
        """Take over what the store knows of its topics; it goes on to change.

        Those that it has read have no servers yet: who asks for one is not to find nothing.
        """
        self.waking = set(store.topics.loaded)
        self.failures = store.failed
        self.resting = store.topics.resting
        self._resting_names = sorted(self.resting)
        self.removals = store.removals
        self.properties = store.properties
        self.names = store.names
        self.turnover_count += 1
        self.store_health = store.health
        self.free_bytes = lambda: store.space.free_bytes

    def leave_store(self) -> None:
        """Let go of the store, which is closed: who keeps a node that has stopped keeps no file."""
        self.failures = {}
        self.resting = {}
        self._resting_names = []
        self.removals = self.properties = None
        self.store_health = dict
        self.free_bytes = _unknown
        self.topics_of_group = _no_topics
        self.queues = self.replicas = self.log_groups = None

    def health(self) -> dict[str, Any]:
        """Return what is not as it should be."""
        return {
            "gaps_count": self.gaps_count,
            "read_only": sorted(self.read_only),
            **self.store_health(),
        }

    def check_partition(self, topic: bytes) -> bool:
        """Return whether a topic without a route is a partition that nobody has put onto yet.

        Raises:
            PropertyMismatch: it would be a partition that its topic has not got.
            NotATopic: it is a queue.
        """
        if self.queue(topic) is not None:
            raise NotATopic(topic)
        if self.properties is None:
            return False
        self.properties.check(topic)
        return self.properties.holder(topic) is not None

    def topics(self) -> list[bytes]:
        """Return all topics, sorted; those that rest and that cannot be served, too.

        The node's own are left out.
        """
        names = self.keys() | self.failures.keys() | self.resting.keys() | self.waking
        return sorted(each for each in names if not is_reserved(each))

    def page(self, after: bytes, count: int, *, are_all: bool = False) -> list[bytes]:
        """Return the next topics behind one, sorted: `count` at most, and fewer at the end only.

        The node's own are left out, unless `are_all`.
        """
        found: list[bytes] = []
        while len(found) < count:
            wanted_count = count - len(found)
            names = self._page(after, wanted_count)
            found += [each for each in names if are_all or not is_reserved(each)]
            if len(names) < wanted_count:
                break
            after = names[-1]
        return found

    def _page(self, after: bytes, count: int) -> list[bytes]:
        begin = bisect_right(self._names, after)
        others = [name for name in [*self.failures, *self.waking] if name > after]
        resting = islice(self._resting_behind(after), count)
        return sorted({*self._names[begin : begin + count], *others, *resting})[:count]

    def is_without_route(self, topic: bytes) -> bool:
        """Return whether a topic is there that has no route until the registry is asked for it."""
        return topic in self.failures or topic in self.resting or topic in self.waking

    def _resting_behind(self, after: bytes) -> Iterator[bytes]:
        names = self._resting_names
        begin = bisect_right(names, after)
        return (names[at] for at in range(begin, len(names)) if names[at] in self.resting)

    def is_topic(self, topic: bytes) -> bool:
        """Return whether a name is that of a topic of this node, whether it has a route or not.

        That of one with several partitions never has: only these are put onto.
        """
        if topic in self or self.is_without_route(topic):
            return True
        known = self.properties
        return known is not None and bool(known.find(topic) or known.holder(topic))

    def queue(self, name: bytes) -> ActorRef | None:
        """Return the actor of a queue; None where there is none, or a topic of the node's own."""
        ref = None if self.queues is None else self.queues.actor(name)
        return None if ref is None or self.is_topic(name) else ref

    def is_newest(self, topic: bytes, ref: ActorRef) -> bool:
        """Return whether nothing lies behind what `ref` holds: it is the writer, or all is gone."""
        route = self.get(topic)
        return route is None or route.refs[-1] is ref

    def clear(self) -> None:
        """Forget everything; the registry does so before it recovers."""
        super().clear()
        self._names.clear()

    def remove(self, topic: bytes) -> list[ActorRef]:
        """Take a topic out, and return its appendix servers; none where it has no route."""
        route = self.pop(topic, None)
        if route is None:
            return []
        del self._names[bisect_left(self._names, topic)]
        self.turnover_count += 1
        return route.refs

    def add(self, topic: bytes, ref: ActorRef, bound: int | None) -> None:
        """Append a writer; `bound` is the newest pointer of the one it follows, 0 of an empty one.

        It is None where it follows none.
        """
        known = self.get(topic)
        route = Route()
        if known is not None and bound is not None:
            route.refs = [*known.refs, ref]
            route.bounds = [*known.bounds, max([bound, *known.bounds[-1:]])]
        else:
            route.refs = [ref]
        if known is None:
            insort(self._names, topic)
            self.turnover_count += 1
        # A new object, so that a reader in another thread never sees half a change.
        self[topic] = route

    def replace(self, topic: bytes, old: ActorRef, new: ActorRef, bound: int | None) -> None:
        """Put a restarted appendix server in the place of the one that died.

        `bound` is its newest pointer now: repair may have cut records, and then readers must find
        the way to the next segment.
        """
        known = self[topic]
        at = known.refs.index(old)
        route = Route()
        route.refs = [*known.refs[:at], new, *known.refs[at + 1 :]]
        route.bounds = list(known.bounds)
        if at < len(route.bounds):
            below = route.bounds[at - 1] if at else 0
            route.bounds[at] = max(bound or 0, below)
        self[topic] = route

    def drop(self, topic: bytes, reader: ActorRef) -> None:
        """Take a reader out; what others hold stays."""
        known = self[topic]
        number = known.refs.index(reader)
        route = Route()
        route.refs = known.refs[:number] + known.refs[number + 1 :]
        route.bounds = known.bounds[:number] + known.bounds[number + 1 :]
        self[topic] = route

    def sorted_items(self) -> list[tuple[bytes, Route]]:
        """Return topics and routes as they are now, sorted."""
        return sorted(self.items())


def _unknown() -> None:
    return None


def _is_any(_group: str) -> bool:
    return True


def _no_topics(_group: str) -> tuple[bytes, ...]:
    return ()
