"""The copies of replicated topics on this node: segments that are the same on all nodes.

On behalf of the topic registry it does what the replica of a partition asks for, in the order of
the stream that the nodes agree on. Nothing here goes by this node's clock, limits or history.
"""

from collections.abc import Iterable
from itertools import pairwise

from poe.actors import ActorRef, GenServer
from poe.broker.appendix.message import Seal, Unseal
from poe.broker.registry.appendix_servers import AppendixServers
from poe.broker.registry.copy_messages import (
    CLOCKS,
    BeginSegment,
    CompareClocks,
    CopyFailed,
    CopyRequest,
    CopyWriter,
    DropCopy,
    EnsureCopy,
    TrimCopy,
    TrimDue,
)
from poe.broker.registry.expiry import Expiry
from poe.broker.registry.routing_table import RoutingTable
from poe.broker.registry.topic_opening import TopicOpening
from poe.broker.registry.topic_settings import Retention
from poe.errors import NoLogEngine, NoQuorum, PoeError
from poe.storage import POINTER_MAX, Segment, Store
from poe.topic_name import topic_text


class TopicCopies:
    """Carries out what replicas ask of the topic registry."""

    __slots__ = ("_going", "_opening", "_registry", "_routes", "_servers", "_store")

    def __init__(
        self,
        registry: GenServer,
        store: Store,
        routes: RoutingTable,
        servers: AppendixServers,
        opening: TopicOpening,
    ) -> None:
        self._registry = registry
        self._store = store
        self._routes = routes
        self._servers = servers
        self._opening = opening
        self._going: dict[bytes, list[Segment]] = {}
        """By topic whose last trim is not durable yet, segments of which files are still there."""

    def check_may_be_own(self, topic: bytes) -> None:
        """Refuse to make a topic of this node alone that may be replicated.

        A node that was away, or begins with nothing, has yet to hear which topics are. What it has
        heard of it may not have been able to note.

        Raises:
            NoQuorum: it has not heard it; nothing is made.
        """
        is_unnoted = topic in self._routes.unnoted and not self._routes.is_topic(topic)
        if not self._routes.is_catalog_known or is_unnoted:
            what = f"whether topic {topic_text(topic)} is replicated"
            raise NoQuorum(what)

    def replica(self, topic: bytes) -> ActorRef:
        """Return who takes puts onto a partition.

        Raises:
            NoLogEngine: this node has nothing to reach the others by.
            NoQuorum: it has not begun to.
        """
        if self._routes.replicas is None:
            raise NoLogEngine
        found = self._routes.replicas.get(topic)
        if found is None:
            what = f"topic {topic_text(topic)}"
            raise NoQuorum(what)
        return found

    async def serve(self, request: CopyRequest) -> CopyWriter | int | None:
        """Do what is asked for, and return the answer.

        Raises:
            PoeError: the disk does not let it be; it may be asked for again.
        """
        topic = request.topic
        await self._opening.wake(topic)
        if topic in self._store.topics and self._routes.get(topic) is None:
            await self._opening.open(topic)
        match request:
            case EnsureCopy(_, first_us, base):
                return await self._ensure(topic, first_us, base)
            case BeginSegment():
                await self._begin_segment(topic)
                return self._writer(topic)
            case TrimCopy(_, pointer):
                return await self._trim(topic, pointer)
            case DropCopy():
                if topic in self._routes:
                    await self._servers.delete(topic, self._routes)
        return None

    async def _ensure(self, topic: bytes, first_us: int | None, base: int) -> CopyWriter | None:
        """Return the writer of a copy; one that was found on disk takes messages again."""
        if topic not in self._routes:
            if first_us is None:
                return None
            await self._add(topic, None, first_us, base)
        writer = self._routes[topic].writer
        if not self._servers.owned[writer][1].is_writer:
            await self._registry.call(writer, Unseal(), timeout_s=None)
        return self._writer(topic)

    def _writer(self, topic: bytes) -> CopyWriter:
        writer = self._routes[topic].writer
        segments = self._store.topics[topic]
        count = sum(each.count for each in segments)
        segment = self._servers.owned[writer][1]
        damage = next((each.damage[0] for each in segments if each.damage), "")
        damage = segment.failure or damage or _hole(segments)
        if not damage and not segment.is_in_place():
            damage = "its data file was removed, renamed or replaced"
        last_pointer, timestamp, base = segment.last_pointer, segment.timestamp, segment.base
        return CopyWriter(writer, last_pointer, count, timestamp, segment.count, base, damage)

    async def _add(self, topic: bytes, bound: int | None, first_us: int, base: int) -> None:
        segment = self._store.create_segment(topic, first_us, agreed_base=base)
        try:
            if bound is None and base:
                # Nothing in front of it would tell at which ordinal it begins, after a power cut.
                self._store.sync_notes()
            ref = await self._servers.start(topic, segment)
        except PoeError:
            self._servers.delete_segment(topic, segment)
            raise
        self._routes.add(topic, ref, bound)

    async def _begin_segment(self, topic: bytes) -> None:
        """Begin the next segment; behind one with nothing in it none is begun."""
        writer = self._routes[topic].writer
        bound = await self._registry.call(writer, Seal(), timeout_s=None)
        if bound is None:
            await self._registry.call(writer, Unseal(), timeout_s=None)
            return
        segment = self._servers.owned[writer][1]
        await self._add(topic, bound, bound + 1, segment.next_ordinal)

    async def _trim(self, topic: bytes, pointer: int) -> int:
        """Delete the segments with nothing behind a pointer; the last one gets a successor.

        Raises:
            StorageError: the disk keeps something; what it lets be back nobody would trim again.
        """
        route = self._routes.get(topic)
        if route is None:
            return 0
        newest = self._servers.owned[route.writer][1]
        if newest.count and newest.last_pointer <= pointer:
            await self._begin_segment(topic)
        chosen = [ref for ref, _ in self._servers.up_to(self._routes[topic], pointer)]
        left = await self._servers.remove(self._routes, {topic: chosen})
        if chosen or topic in self._going:
            self._going.setdefault(topic, []).extend(left)
            self._let_go(topic)
        return len(chosen)

    def _let_go(self, topic: bytes) -> None:
        """Have nothing be back at the next start that was trimmed."""
        left = self._going[topic]
        while left:
            # A copy that was made anew meanwhile may have it again.
            there = {each.timestamp: each for each in self._store.topics[topic]}
            same = there.get(left[-1].timestamp)
            if same is left[-1]:
                self._store.destroy_segment(topic, same)
            elif same is None:
                left[-1].destroy()
            left.pop()
        # Back after a power cut, they would go with nothing that is still to come.
        self._store.sync_removed(topic)
        del self._going[topic]

    def tell_of_failure(self, topic: bytes, why: str) -> None:
        """Tell a replica that the files of its copy have failed."""
        replica = (self._routes.replicas or {}).get(topic)
        if replica is not None:
            self._registry.cast(replica, CopyFailed(why))

    def tell_what_is_due(self, topic: bytes, retention: Retention, expiry: Expiry) -> None:
        """Have a replica propose to the other nodes what is to go of its topic."""
        replica = (self._routes.replicas or {}).get(topic)
        route = self._routes.get(topic)
        if replica is None or route is None or route.writer not in self._servers.owned:
            return
        going = self._due(topic, retention, expiry)
        if going and retention.max_age_s is not None:
            going = self._due(topic, self._by_all_clocks(retention), expiry)
        if going:
            self._registry.cast(replica, TrimDue(max(going)))

    def _by_all_clocks(self, retention: Retention) -> Retention:
        """Have nothing taken for old that is so by the clock of this node alone.

        That may be days ahead at a start, and what is trimmed goes at all nodes. Where it is not
        known how far, nothing is too old before the others have told their time.
        """
        assert retention.max_age_s is not None
        known = self._routes.clock_ahead
        if known is None or not known.is_valid(self._registry.monotonic_s()):
            self._registry.cast(CLOCKS, CompareClocks())
            return retention._replace(max_age_s=None)
        return retention._replace(max_age_s=retention.max_age_s + known.ahead_s)

    def _due(self, topic: bytes, retention: Retention, expiry: Expiry) -> list[int]:
        """Return the newest pointers of the segments that have been kept long enough."""
        route = self._routes[topic]
        newest = self._servers.owned[route.writer][1]
        sealed = self._servers.up_to(route, POINTER_MAX)
        # A group is one of a single node: the others do not know how far it is.
        chosen = expiry.choose(
            topic, retention, sealed, newest.size_bytes, are_groups_elsewhere=True
        )
        floor = expiry.unread_floor(topic, retention, are_groups_elsewhere=True)
        is_read = floor is None or newest.last_pointer <= floor
        going = [self._servers.owned[ref][1].last_pointer for ref in chosen]
        is_next = len(chosen) == len(sealed) and newest.count and is_read
        if is_next and retention.max_age_s is not None:
            is_old = newest.last_pointer < expiry.oldest_us(retention.max_age_s)
            going += [newest.last_pointer] if is_old else []
        return going


def _hole(segments: Iterable[Segment]) -> str:
    """Return what is missing between segments, of which the oldest alone are ever removed."""
    for before, behind in pairwise(segments):
        if before.base + before.count != behind.base:
            return (
                f"what lay between its segments {before.timestamp} and {behind.timestamp} is gone"
            )
    return ""
