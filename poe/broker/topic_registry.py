"""The topic registry: knows which appendix server answers for (topic, pointer).

It starts an appendix server for each segment, makes new topics, rolls writers that are full, deletes
what is too old, and repairs and restarts appendix servers that crash. It is the only writer of the
routing table. Puts and reads do not pass through it: they ask the table.

Source: poe_server.erl; rotation seals the old writer before the new one starts, so that no message
lands behind a bound that is already recorded (the original lost messages there).
"""

import logging
from dataclasses import dataclass
from typing import Any

from poe.actors import NOPROC, ActorRef, Call, Error, Exit, GenServer
from poe.broker.appendix_message import CheckLimits, Describe, LimitReached, Seal, SegmentInfo, Sync
from poe.broker.appendix_server import REGISTRY, AppendixOptions
from poe.broker.routing_table import RoutingTable
from poe.errors import ActorError, OptionError, PoeError, StorageError, UnknownTopic
from poe.storage import Clock, Segment, Store
from poe.supervision import start_dynamic_child, terminate_child, which_children

logger = logging.getLogger("poe.broker")

APPENDIX_SUP = "appendix_sup"

_EXPIRY_TICK_MAX_S = 600.0
_CHECK_TICK = object()
_EXPIRY_TICK = object()


@dataclass(frozen=True, slots=True, kw_only=True)
class RegistryOptions:
    """When the registry looks at its topics.

    Raises:
        OptionError: on construction, naming the option and what is allowed.
    """

    check_interval: float = 0.5
    """Seconds between looks at the writers' limits."""

    max_age: float | None = None
    """Seconds after which data is deleted; None keeps it for ever."""

    def __post_init__(self) -> None:
        """Reject periods that are none."""
        if not self.check_interval > 0:
            raise OptionError("check_interval", self.check_interval, "more than 0 (seconds)")
        if self.max_age is not None and not self.max_age > 0:
            raise OptionError("max_age", self.max_age, "more than 0 (seconds), or None")


@dataclass(frozen=True, slots=True)
class EnsureWriter:
    """Answer the writer of a topic; make the topic when it is new."""

    topic: bytes


@dataclass(frozen=True, slots=True)
class DescribeTopic:
    """Answer `[(ref, SegmentInfo)]` of one topic, oldest first."""

    topic: bytes


@dataclass(frozen=True, slots=True)
class SyncAll:
    """Make everything acknowledged so far durable; answers None."""


class TopicRegistry(GenServer):
    """Owns the routing table's content and, between appendix servers, the segments.

    `_owned` maps each live appendix server to its topic and segment. The registry is linked to all
    of them: when it dies they close and end, and the next one starts from the files.
    """

    trap_exits = True

    async def init(
        self,
        store: Store,
        routes: RoutingTable,
        ack: str,
        options: RegistryOptions,
        appendix_options: AppendixOptions,
        clock: Clock,
    ) -> None:
        """Bring every topic of the store into service; the listener starts after this."""
        self._store = store
        self._routes = routes
        self._ack = ack
        self._options = options
        self._appendix_options = appendix_options
        self._clock = clock
        self._owned: dict[ActorRef, tuple[bytes, Segment]] = {}
        self._to_restart: list[tuple[bytes, Segment, ActorRef]] = []
        await self._stop_leftovers()
        for topic in list(store.topics):
            await self._open_topic(topic)
        routes.failures = store.failed
        self.send_after(options.check_interval, _CHECK_TICK)
        if options.max_age is not None:
            self.send_after(self._expiry_interval_s(options.max_age), _EXPIRY_TICK)

    async def handle_call(self, request: Any, caller: Call) -> Any:  # noqa: ANN401
        """Serve the slow path: unknown topics, descriptions, syncs."""
        del caller
        try:
            if isinstance(request, EnsureWriter):
                return await self._ensure_writer(request.topic)
            if isinstance(request, DescribeTopic):
                return await self._describe(request.topic)
            if isinstance(request, SyncAll):
                return await self._sync_all()
        except PoeError as error:
            return Error(error)
        return super().handle_call(request, caller)

    async def handle_cast(self, message: Any) -> None:  # noqa: ANN401
        """Roll a writer that says it is full."""
        assert isinstance(message, LimitReached)
        route = self._routes.get(message.topic)
        if route is not None and route.writer is message.writer:
            await self._roll_safely(message.topic)

    async def handle_info(self, message: Any) -> None:  # noqa: ANN401
        """Take ticks, and the end of appendix servers."""
        if message is _CHECK_TICK:
            self.send_after(self._options.check_interval, _CHECK_TICK)
            for _, route in self._routes:
                self.cast(route.writer, CheckLimits())
            await self._restart_failed()
        elif message is _EXPIRY_TICK:
            max_age = self._options.max_age
            assert max_age is not None
            self.send_after(self._expiry_interval_s(max_age), _EXPIRY_TICK)
            await self._expire(self._clock.now_us() - int(max_age * 1_000_000))
        elif isinstance(message, Exit):
            await self._appendix_ended(message)
        else:
            super().handle_info(message)

    # ---- topics and rotation --------------------------------------------------------------------

    async def _stop_leftovers(self) -> None:
        """After a crash of the registry: end what the last one started, read the files again."""
        for child in await which_children(self, APPENDIX_SUP):
            if isinstance(child.ref, ActorRef):
                await terminate_child(self, APPENDIX_SUP, child.ref)
        known = self._routes.topics()
        self._routes.clear()
        for topic in known:
            try:
                self._store.recover_topic(topic)
            except StorageError:
                continue  # logged there, and tried again at the ticks

    async def _open_topic(self, topic: bytes) -> None:
        """Start appendix servers for the segments of a recovered topic."""
        for segment in self._store.topics[topic][:-1]:
            if segment.count == 0:
                self._store.destroy_segment(topic, segment)
        *readers, last = self._store.topics[topic]
        last.unseal()
        bound = None
        for segment in (*readers, last):
            ref = await self._start_appendix(topic, segment)
            self._routes.add(topic, ref, bound)
            bound = segment.pointer_high

    async def _start_appendix(self, topic: bytes, segment: Segment) -> ActorRef:
        ref = await start_dynamic_child(
            self, APPENDIX_SUP, topic, segment, self._ack, self._appendix_options, self._clock
        )
        assert ref is not None
        self.link(ref)
        self._owned[ref] = (topic, segment)
        return ref

    async def _ensure_writer(self, topic: bytes) -> ActorRef:
        route = self._routes.get(topic)
        if route is not None and not self._is_waiting_for_restart(route.writer):
            return route.writer
        if route is not None:
            await self._restart_failed()
            return self._routes.get(topic).writer  # type: ignore[union-attr]  # routes are kept
        if topic in self._store.failed:
            self._store.recover_topic(topic)
        if topic in self._store.topics:
            await self._open_topic(topic)
        else:
            await self._add_writer(topic, None)
        return self._routes.get(topic).writer  # type: ignore[union-attr]  # it was just added

    async def _add_writer(self, topic: bytes, bound: int | None) -> None:
        segment = self._store.create_segment(topic, self._clock.now_us())
        logger.info("starting empty appendix server writing to %r", segment.path)
        try:
            ref = await self._start_appendix(topic, segment)
        except PoeError:
            self._store.destroy_segment(topic, segment)
            raise
        self._routes.add(topic, ref, bound)

    async def _roll(self, topic: bytes) -> None:
        """Seal the writer and start a new one behind it; an empty writer stays."""
        route = self._routes.get(topic)
        assert route is not None
        bound = await self.call(route.writer, Seal(), timeout_s=None)
        if bound is not None:
            logger.info("starting new server for topic %r", topic)
            await self._add_writer(topic, bound)

    async def _roll_safely(self, topic: bytes) -> None:
        """Roll; when that fails the old segment takes puts again, and the next tick tries anew."""
        try:
            await self._roll(topic)
        except (StorageError, ActorError) as error:
            logger.error("topic %r cannot get a new segment: %s", topic, error)
            await self._reopen_writer(topic)

    async def _reopen_writer(self, topic: bytes) -> None:
        """Restart the newest appendix server as a writer."""
        route = self._routes.get(topic)
        if route is None or route.writer not in self._owned:
            return
        _, segment = self._owned.pop(route.writer)
        self.unlink(route.writer)
        await terminate_child(self, APPENDIX_SUP, route.writer)
        self._to_restart.append((topic, segment, route.writer))
        await self._restart_failed()

    # ---- crashes --------------------------------------------------------------------------------

    async def _appendix_ended(self, message: Exit) -> None:
        """Repair the segment of an appendix server that ended, and start another on it."""
        if message.ref not in self._owned:
            return
        topic, segment = self._owned.pop(message.ref)
        logger.error("appendix server of %s ended: %r", segment.path, message.reason)
        self._to_restart.append((topic, segment, message.ref))
        await self._restart_failed()

    async def _restart_failed(self) -> None:
        """Try to bring back what is down; what fails again waits for the next tick."""
        waiting, self._to_restart = self._to_restart, []
        for topic, segment, dead in waiting:
            try:
                repaired = self._store.repair_segment(topic, segment)
                if repaired is None:
                    logger.error("segment %s has lost its data file", segment.path)
                    repaired = self._store.create_segment(topic, self._clock.now_us())
                route = self._routes.get(topic)
                if route is not None and route.writer is dead:
                    repaired.unseal()
                ref = await self._start_appendix(topic, repaired)
            except PoeError as error:
                logger.error("segment %s is not back: %s", segment.path, error)
                self._to_restart.append((topic, segment, dead))
            else:
                self._routes.replace(topic, dead, ref)

    def _is_waiting_for_restart(self, ref: ActorRef) -> bool:
        return any(dead is ref for _, _, dead in self._to_restart)

    # ---- expiry ---------------------------------------------------------------------------------

    @staticmethod
    def _expiry_interval_s(max_age: float) -> float:
        return min(max_age / 10, _EXPIRY_TICK_MAX_S)

    async def _expire(self, oldest_us: int) -> None:
        """Delete the segments whose newest message is older than `oldest_us`.

        An idle writer that is too old is rolled first, so that its data can go, too. Only what is
        known of the segments is looked at: nothing wakes.
        """
        for topic, route in list(self._routes):
            _, newest = self._owned.get(route.writer, (topic, None))
            if newest is not None and newest.count and newest.last_pointer < oldest_us:
                await self._roll_safely(topic)
            for ref, bound in zip(list(route.refs), list(self._routes.get(topic).bounds), strict=False):  # type: ignore[union-attr]  # noqa: E501
                if bound >= oldest_us or ref not in self._owned:
                    break
                _, segment = self._owned.pop(ref)
                self._routes.drop_oldest(topic)
                self.unlink(ref)
                await terminate_child(self, APPENDIX_SUP, ref)
                self._destroy(topic, segment)

    def _destroy(self, topic: bytes, segment: Segment) -> None:
        try:
            self._store.destroy_segment(topic, segment)
        except StorageError as error:
            logger.error("expired segment %s is not deleted: %s", segment.path, error)

    # ---- descriptions ---------------------------------------------------------------------------

    async def _describe(self, topic: bytes) -> list[tuple[ActorRef, SegmentInfo]]:
        route = self._routes.get(topic)
        if route is None:
            raise UnknownTopic(topic)
        return [(ref, await self.call(ref, Describe())) for ref in route.refs]

    async def _sync_all(self) -> None:
        for _, route in self._routes:
            await self.call(route.writer, Sync(), timeout_s=None)


