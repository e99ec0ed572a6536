"""The appendix servers of a node: who owns which segment, and how they come and go.

The topic registry decides, and keeps the routing table; what it decides is carried out here, in its
name: a server is started on a segment, ended, or ended for good with the files of its segment.
"""

import contextlib
import logging

from poe.actors import ActorRef, GenServer
from poe.broker.appendix.counters import Counters
from poe.broker.appendix.message import CheckLimits, Finish, LimitReached
from poe.broker.appendix.sync_rounds import SyncRounds
from poe.broker.registry.routing_table import Route, RoutingTable
from poe.broker.registry.topic_settings import TopicSettings
from poe.errors import ActorError, ChildRequestRefused, PoeError, StorageError
from poe.storage import Clock, Segment, Store
from poe.supervision import start_dynamic_child, terminate_child

logger = logging.getLogger("poe.broker")

APPENDIX_SUP = "appendix_sup"

_FINISH_S = 3.0
"""How long the disk may take for what is about to be deleted."""


class AppendixServers:
    """Starts and ends appendix servers on behalf of `registry`, which is linked to all of them.

    Always: an address in the routing table is in `owned` or in `to_restart`.
    """

    __slots__ = (
        "_clock",
        "_counters",
        "_left",
        "_registry",
        "_rounds",
        "_settings",
        "_store",
        "owned",
        "to_restart",
        "touched",
    )

    def __init__(
        self,
        registry: GenServer,
        store: Store,
        settings: TopicSettings,
        clock: Clock,
        counters: Counters,
    ) -> None:
        """Begin with none."""
        self._registry = registry
        self._store = store
        self._settings = settings
        self._clock = clock
        self._counters = counters
        self._rounds = SyncRounds(store.shared_sync, counters.syncs)
        self._left: list[tuple[bytes, Segment]] = []
        """Segments that were deleted, files of which are still there."""
        self.owned: dict[ActorRef, tuple[bytes, Segment]] = {}
        """Topic and segment of each that lives."""
        self.to_restart: dict[ActorRef, tuple[bytes, Segment]] = {}
        """Those of each that has died and could not be brought back yet."""
        self.touched: dict[ActorRef, None] = {}
        """Those that were put onto, or begun full, since their limits were looked at last."""

    async def start(self, topic: bytes, segment: Segment) -> ActorRef:
        """Start a server on a segment.

        Raises:
            PoeError: it did not start.
        """
        store = self._store
        options = self._settings.appendix(topic)
        shared = options, self._clock, store.space, store.bound, self._rounds
        counter, is_copy = self._counters.topic(topic), self._settings.is_replicated(topic)
        ref = await start_dynamic_child(
            self._registry, APPENDIX_SUP, topic, segment, *shared, counter, is_copy
        )
        assert ref is not None
        self._registry.link(ref)
        self.owned[ref] = (topic, segment)
        if options.is_full(segment) and not is_copy:
            self.touched[ref] = None  # by limits that were others before, or it died before
        return ref

    async def start_all(self, topic: bytes, segments: list[Segment]) -> list[ActorRef]:
        """Start servers on all segments of a topic, or on none.

        Raises:
            PoeError: one did not start.
        """
        refs: list[ActorRef] = []
        try:
            for segment in segments:
                refs.append(await self.start(topic, segment))  # noqa: PERF401 - some may be
        except PoeError:
            for ref in refs:
                await self.end(ref)
            raise
        return refs

    def check_limits(self) -> None:
        """Have each that was put onto since the last look see whether it is full."""
        touched, self.touched = self.touched, {}
        for ref in touched:
            self._registry.cast(ref, CheckLimits())

    async def end(self, ref: ActorRef) -> Segment:
        """End a server that is no longer in the table; its segment is free then."""
        if ref in self.to_restart:
            return self.to_restart.pop(ref)[1]
        _, segment = self.owned.pop(ref)
        self._registry.unlink(ref)
        with contextlib.suppress(ChildRequestRefused, ActorError):  # it has just ended by itself
            await terminate_child(self._registry, APPENDIX_SUP, ref)
        return segment

    def up_to(self, route: Route, pointer: int) -> list[tuple[ActorRef, Segment]]:
        """Return the sealed segments whose newest pointer is `pointer` or less, oldest first."""
        found = []
        for ref, bound in zip(route.refs, route.bounds, strict=False):
            if bound > pointer or ref not in self.owned:
                break  # a dead one waits for its restart, and goes after that
            found.append((ref, self.owned[ref][1]))
        return found

    async def remove(
        self, routes: RoutingTable, chosen: dict[bytes, list[ActorRef]]
    ) -> list[Segment]:
        """Delete segments of topics: note all, make the notes durable at once, then delete.

        Return those of which the disk has kept files.

        Raises:
            StorageError: that cannot be noted; nothing is deleted.
        """
        store = self._store
        left: list[Segment] = []
        self._remove_left()
        for topic, refs in chosen.items():
            store.note_removal(topic, (self.owned[ref][1] for ref in refs))
        store.sync_notes()
        # The segment of one that has died meanwhile goes the next time.
        going = [
            (topic, ref) for topic, refs in chosen.items() for ref in refs if ref in self.owned
        ]
        for topic, ref in going:
            routes.drop(topic, ref)
            store.removals.publish(topic, self.owned[ref][1].timestamp)
        await self._finish([ref for _, ref in going])
        for topic, ref in going:
            segment = await self.end(ref)
            if not self.delete_segment(topic, segment):
                left.append(segment)
        return left

    async def delete(self, topic: bytes, routes: RoutingTable) -> None:
        """Take a topic out of the table, end its servers and delete their segments, oldest first.

        What was put before is answered first: whoever is told of a pointer was told the truth.

        Raises:
            StorageError: that cannot be noted; nothing is deleted, or something is left that was
                put meanwhile.
        """
        segments = self._store.topics.get(topic, [])
        self._store.note_removal(topic, segments)
        self._store.sync_notes()
        for segment in segments:
            self._store.removals.publish(topic, segment.timestamp)
        refs = routes.remove(topic)
        await self._finish(refs)
        for ref in refs:
            self.delete_segment(topic, await self.end(ref))
        # What could not be removed when its server ended has none any more. It is noted here, too,
        # since it may hold more by now, and of what cannot be noted who asked is to hear.
        left = self._store.topics.get(topic, [])
        if left:
            self._store.note_removal(topic, left)
            self._store.sync_notes()
        for segment in left:
            self.delete_segment(topic, segment)
        self._counters.forget(topic)

    async def _finish(self, refs: list[ActorRef]) -> None:
        """Wait for the disk here, by one, and not by all when the servers close their files."""
        last_syncs = [self._registry.call(ref, Finish(), timeout_s=_FINISH_S) for ref in refs]
        for sync in last_syncs:
            with contextlib.suppress(PoeError):
                await sync

    def replace_later(self, topic: bytes, writer: ActorRef) -> None:
        """Have the registry give a topic a new segment, since that of its writer takes no more."""
        self._registry.cast(self._registry.ref, LimitReached(topic, writer))

    def delete_segment(self, topic: bytes, segment: Segment) -> bool:
        """Remove a segment that nobody owns; files that stay go with the next that goes.

        Return whether none does.
        """
        try:
            self._store.destroy_segment(topic, segment)
        except StorageError as error:
            logger.error("segment %s is not deleted: %s", segment.path, error)
            # Copies have names that may be given again, and are seen to by `TopicCopies`.
            if not self._settings.is_replicated(topic):
                self._left.append((topic, segment))
            return False
        return True

    def _remove_left(self) -> None:
        """Try again to remove what the disk, or a lack of descriptors, has kept.

        A restart does so, too; until then it would take room.
        """
        left, self._left = self._left, []
        for number, (topic, segment) in enumerate(left):
            there = self._store.topics.loaded.get(topic, [])
            if any(each.timestamp == segment.timestamp for each in there):
                continue  # its removal could not be noted, or an empty one has its name again
            try:
                self._store.destroy_rest(topic, segment)
            except StorageError:  # the others may wait, too: a look is not to try thousands
                self._left += left[number:]
                break
