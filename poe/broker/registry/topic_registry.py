"""The topic registry: knows which appendix server answers for (topic, pointer).

It starts an appendix server for each segment, makes new topics, rotates topics whose writer is
full, drops what is too old, and repairs and restarts appendix servers that crash. It is the only
writer of the routing table. Puts and reads do not pass through it: they ask the table.

Source: poe_server.erl; rotation seals the old writer before the new one starts, so that no message
lands behind a bound that is already recorded (the original lost messages there).
"""

import contextlib
import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, NamedTuple, TypeAlias, cast
from weakref import proxy

from poe.actors import KILLED, ActorRef, Call, Error, Exit, GenServer, Work
from poe.actors.alarm_clock import AlarmClock
from poe.actors.reason import is_word
from poe.broker.appendix.hybrid_clock import JumpWatch
from poe.broker.appendix.message import CopyDamaged, LimitReached, Seal, Touched, Unseal
from poe.broker.appendix.server import REGISTRY, AppendixOptions
from poe.broker.registry.appendix_servers import APPENDIX_SUP, AppendixServers
from poe.broker.registry.archive_folders import ArchiveFolders
from poe.broker.registry.archiver import ARCHIVER
from poe.broker.registry.copy_messages import ClocksCompared, CopyRequest, InstallTopic
from poe.broker.registry.crash_limit import CrashLimit
from poe.broker.registry.disk_failures import DiskFailures
from poe.broker.registry.expiry import Archived, Expiry, UnreadFloor, no_group, tick_s
from poe.broker.registry.routing_table import RoutingTable
from poe.broker.registry.topic_copies import TopicCopies
from poe.broker.registry.topic_opening import TopicOpening
from poe.broker.registry.topic_quota import TopicQuota
from poe.broker.registry.topic_settings import Retention, TopicSettings
from poe.errors import (
    ActorError,
    ChildRequestRefused,
    ChildStartFailed,
    NoDescriptors,
    OptionError,
    PoeError,
    StorageError,
    TopicFailed,
    TopicReadOnly,
    UnknownTopic,
)
from poe.option import Range, check_options
from poe.storage import POINTER_MAX, Clock, Event, Messages, Producers, PutKey, Segment, Store
from poe.supervision import terminate_child, which_children
from poe.topic_name import topic_text
from poe.topic_properties import TopicDescription, TopicProperties

logger = logging.getLogger("poe.broker")

_CHECK_TICK = object()
_EXPIRY_TICK = object()
_SETTLE_TICK = object()
_SETTLE_PAUSE_S = 0.005
"""Between topics that are recovered, each in some milliseconds, while others are served."""
_LOOKS_PER_TURN = 200
_TURN_PAUSE_S = 0.001
"""After so many topics a look at what expires lets others in: one at 100,000 takes two seconds."""
_LOOK_SHARE = 10
"""So many times as long as a look at what expires takes passes until the next, at least."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RegistryOptions:
    """When the registry looks at its topics.

    Raises:
        OptionError: on construction, naming the option and what is allowed.
    """

    check_interval: Annotated[float, Range(is_above=True, unit="seconds")] = 0.5
    """Seconds between looks at the writers' limits."""

    max_age: Annotated[float | None, Range(is_above=True, unit="seconds")] = None
    """Seconds after which data is deleted; None keeps it for ever."""

    max_bytes: Annotated[int | None, Range(1, unit="bytes")] = None
    """Bytes in a partition beyond which its oldest segments are deleted; None sets no limit."""

    archive_dir: Path | None = None
    """Folder that segments are archived into before `max_age` or `max_bytes` deletes them; None
    deletes at once. Needs Spark."""

    topics_max: Annotated[int, Range(1, unit="topics")] = 100_000
    """Topics in all; puts onto more are refused."""

    topic_creation_rate: Annotated[int | None, Range(1, unit="topics per second")] = None
    """New topics in a second; None sets no limit."""

    auto_create: bool = True
    """Whether a put onto an unknown topic makes it; otherwise `create` does."""

    def __post_init__(self) -> None:
        """Reject periods that are none."""
        check_options(self)
        if self.archive_dir is not None and self.retention.is_endless:
            allowed = "none, or set max_age or max_bytes, too: what is about to expire is archived"
            raise OptionError("archive_dir", str(self.archive_dir), allowed)

    @property
    def retention(self) -> Retention:
        """How long messages are kept where their topic does not say it."""
        return Retention(self.max_age, self.max_bytes)


@dataclass(frozen=True, slots=True)
class RegistryParts:
    """What the registry works with."""

    store: Store
    routes: RoutingTable
    options: RegistryOptions
    appendix: AppendixOptions
    clock: Clock
    archives: ArchiveFolders = field(default_factory=ArchiveFolders)
    unread_floor: UnreadFloor = no_group
    """Tells how far a group has read a partition, for the topics that keep what is unread."""


class EnsureWriter(NamedTuple):
    """Answer the writer of a topic; make the topic when it is new, unless not `may_create`.

    `messages` and `put_id` are what is to be put: a topic is not made for what it will refuse.
    """

    topic: bytes
    messages: Messages | None = None
    put_id: PutKey | None = None
    may_create: bool = True


class CreateTopic(NamedTuple):
    """Make a topic that has these properties; answer its description."""

    topic: bytes
    properties: TopicProperties


class AlterTopic(NamedTuple):
    """Change properties of a topic, by name; answer its description."""

    topic: bytes
    changes: Mapping[str, Any]


class AdoptTopic(NamedTuple):
    """Take topics that are there for the partitions of one; answer its description."""

    topic: bytes
    properties: TopicProperties


class Trim(NamedTuple):
    """Delete the segments of a topic whose newest pointer is `pointer` or less; answer how many."""

    topic: bytes
    pointer: int


class Delete(NamedTuple):
    """Delete a topic with all its partitions and properties; answer None."""

    topic: bytes


class Settle(NamedTuple):
    """Recover a topic that a killed server left open, so that it can be told of; answer None."""

    topic: bytes


TopicRequest: TypeAlias = (
    EnsureWriter | CreateTopic | AlterTopic | AdoptTopic | Trim | Delete | Settle
)


class TopicRegistry(GenServer):
    """Owns the routing table's content and, between appendix servers, the segments.

    It is linked to all appendix servers: when it dies they close and end, and the next one starts
    from the files.
    """

    trap_exits = True

    async def init(self, parts: RegistryParts) -> None:
        """Bring the topics of the store into service; the listener starts after this.

        One that rests is served, too: it gets appendix servers when it is asked for.
        """
        self._parts = parts
        self._store = parts.store
        self._routes = parts.routes
        self._clock = parts.clock
        options = parts.options
        self._settings = TopicSettings(parts.store, parts.appendix, options.retention)
        # Weakly: what is a part of it would keep it until the next garbage collection, and with it
        # the folder of a node that has stopped.
        registry: GenServer = cast("GenServer", proxy(self))
        self._servers = AppendixServers(
            registry, parts.store, self._settings, parts.clock, parts.routes.counters
        )
        self._to_configure: set[bytes] = set()
        self._raising: Work | None = None
        self._crashes = CrashLimit()
        self._disk_failures = DiskFailures(
            parts.routes.read_only,
            lambda: registry.monotonic_s(),  # noqa: PLW0108 - its method would refer to it
            parts.routes.events,
        )
        self._opening = TopicOpening(parts.store, parts.routes, self._servers, self._disk_failures)
        self._copies = TopicCopies(
            registry, self._store, self._routes, self._servers, self._opening
        )
        rate = options.topic_creation_rate
        self._quota = TopicQuota(options.topics_max, rate, auto_create=options.auto_create)
        await self._stop_leftovers()
        self._routes.take_from(self._store)
        self._routes.are_gaps_skipped = parts.appendix.on_corrupt == "skip"
        for topic in list(self._store.topics.loaded):
            with contextlib.suppress(TopicFailed):  # logged there; the others are served
                await self._opening.open(topic)
        self._tick_later()
        jumps = JumpWatch(self._store.newest_pointer(), self._clock.now_us())
        self._expiry = Expiry(jumps, parts.archives.archives, parts.unread_floor)
        self._resting_by_age = [] if options.max_age is None else _by_age(self._store)
        self._resting_large = self._find_large()
        self._expiry_alarm = AlarmClock(self, _EXPIRY_TICK)
        self._expire_later(self._settings.retentions())
        self._left_open = self._store.left_open()[::-1]
        self._settle_later()

    async def handle_call(self, request: Any, caller: Call) -> Any:  # noqa: ANN401, C901 - one case each
        """Serve the slow path: topics without a route or a writer, and what is to be deleted."""
        answer: Any = None
        try:
            match request:
                case EnsureWriter():
                    answer = await self._ensure_writer(request)
                case Settle(topic):
                    await self._opening.settle(topic)
                case CreateTopic(topic, properties):
                    answer = self._create_topic(topic, properties)
                case AlterTopic(topic, changes):
                    answer = await self._alter_topic(topic, changes)
                case AdoptTopic(topic, properties):
                    answer = await self._adopt_topic(topic, properties)
                case Trim(topic, pointer):
                    answer = await self._trim(topic, pointer)
                case Delete(topic):
                    await self._delete(topic)
                case InstallTopic(description, is_dry):
                    answer = await self._install(description, is_dry=is_dry)
                case _ if isinstance(request, CopyRequest):
                    answer = await self._copies.serve(request)
                case _:
                    answer = super().handle_call(request, caller)
        except PoeError as error:
            return Error(error)
        return answer

    async def handle_cast(self, message: Any) -> None:  # noqa: ANN401
        """Rotate a topic whose writer says it is full; hear of what is archived, or may go."""
        if isinstance(message, Archived):
            self._expiry.archived = message.keys
        elif isinstance(message, Touched):
            self._servers.touched[message.writer] = None
        elif isinstance(message, CopyDamaged):
            self._copies.tell_of_failure(message.topic, message.why)
        elif isinstance(message, ClocksCompared):
            self._expiry_alarm.ring_after(0.0)
        elif isinstance(message, LimitReached):
            route = self._routes.get(message.topic)
            if route is not None and route.writer is message.writer:
                await self._succeed(message.topic, message.writer)

    async def handle_info(self, message: Any) -> None:  # noqa: ANN401
        """Take ticks, and the end of appendix servers."""
        if message is _CHECK_TICK:
            self._tick_later()
            self._store.space.look(self.monotonic_s())
            if self._store.bound.is_due and self._raising is None:
                self._raising = Work(self, self._store.bound.raise_it)
            self._servers.check_limits()
            await self._restart_failed()
            for topic in sorted(self._to_configure):
                await self._configure(topic)
        elif message is _EXPIRY_TICK:
            self._expiry_alarm.rang()
            began_s = self.monotonic_s()
            await self._expire(self._clock.now_us())
            pause_s = (self.monotonic_s() - began_s) * _LOOK_SHARE
            self._expire_later(self._settings.retentions(), pause_s)
        elif message is _SETTLE_TICK:
            topic = self._left_open.pop()
            try:
                await self._opening.settle(topic)
            except PoeError as error:  # each request for it tries again
                logger.error("topic %r is not recovered: %s", topic, error)
            if not self._left_open:  # how much these hold is known by now
                self._resting_large = self._find_large()
            self._settle_later()
        elif message is self._raising:
            self._raising = None
        elif isinstance(message, Exit):
            await self._appendix_ended(message)
        else:
            super().handle_info(message)

    async def _check_known(self, topic: bytes) -> None:
        """Refuse a topic that is not there; wake one that rests, or is out of service.

        Raises:
            UnknownTopic: nobody put anything onto it, or it was deleted.
            StorageError: it cannot be served.
        """
        await self._opening.wake(topic)
        if self._routes.get(topic) is None:
            raise UnknownTopic(topic)

    def _tick_later(self) -> None:
        self.send_after(self._parts.options.check_interval, _CHECK_TICK)

    def _expire_later(self, retentions: Iterable[Retention], pause_s: float = 0.0) -> None:
        """Look what expires in a while, after a pause at least, unless that is done sooner."""
        wait_s = tick_s(retentions)
        if wait_s is not None:
            self._expiry_alarm.ring_after(max(wait_s, pause_s))

    def _settle_later(self) -> None:
        if self._left_open:
            self.send_after(_SETTLE_PAUSE_S, _SETTLE_TICK)

    # ---- topics and rotation --------------------------------------------------------------------

    async def _stop_leftovers(self) -> None:
        """After a crash of the registry: end what the last one started, read the files again."""
        for child in await which_children(self, APPENDIX_SUP):
            # It may end by itself in between: its link has told it that the registry is gone.
            with contextlib.suppress(ChildRequestRefused):
                await terminate_child(self, APPENDIX_SUP, child.ref)
        known = sorted(self._routes)
        self._routes.clear()
        for topic in known:
            try:
                self._store.recover_topic(topic)
            except TopicFailed:
                continue  # the store has logged and noted it
            except StorageError as error:
                self._store.topics.fail(topic, error)

    async def _ensure_writer(self, wanted: EnsureWriter) -> ActorRef:
        topic, store = wanted.topic, self._store
        if wanted.messages is not None and self._settings.is_replicated(topic):
            return self._copies.replica(topic)
        # One whose files somebody has taken away is there, and becomes an empty one.
        may_create = wanted.may_create or topic in store.topics.resting or topic in store.failed
        await self._opening.wake(topic)
        route = self._routes.get(topic)
        if route is None and topic in store.topics:
            await self._opening.open(topic)
        elif route is None:
            store.properties.check(topic)
            if not may_create and store.properties.holder(topic) is None:
                raise UnknownTopic(topic)
            self._copies.check_may_be_own(topic)
            if wanted.put_id is not None:
                Producers().find(wanted.put_id)
            self._quota.admit(store, topic, wanted.messages, self.monotonic_s(), wanted.put_id)
            await self._add_writer(topic, None)
        elif route.writer in self._servers.to_restart:
            await self._bring_back(route.writer)
        elif self._settings.is_replicated(topic):
            pass  # its replica alone has it written to
        elif self._servers.owned[route.writer][1].failure:
            await self._replace(topic)
        elif not self._servers.owned[route.writer][1].is_writer:
            self._crashes.check(topic, self.monotonic_s())
            await self.call(route.writer, Unseal(), timeout_s=None)
            self._disk_failures.end(topic)
        return self._routes[topic].writer

    async def _add_writer(
        self, topic: bytes, bound: int | None, *, after_failure: bool = False
    ) -> None:
        now_us = self._clock.now_us()
        segment = self._store.create_segment(topic, now_us, after_failure=after_failure)
        logger.info("starting empty appendix server writing to %r", segment.path)
        try:
            ref = await self._servers.start(topic, segment)
        except PoeError:
            self._servers.delete_segment(topic, segment)
            raise
        self._routes.add(topic, ref, bound)

    async def _succeed(self, topic: bytes, writer: ActorRef) -> None:
        """Give a topic whose writer asks for it a new segment; a copy is its replica's to mend."""
        if not self._settings.is_replicated(topic):
            await self._rotate(topic)
        elif writer in self._servers.owned:
            self._copies.tell_of_failure(topic, self._servers.owned[writer][1].failure)

    async def _rotate(self, topic: bytes) -> None:
        """Seal the writer and start a new one behind it; an empty writer stays.

        When that fails the old segment takes puts again, and the next tick tries anew.
        """
        writer = self._routes[topic].writer
        if writer in self._servers.owned and self._servers.owned[writer][1].failure:
            with contextlib.suppress(TopicReadOnly, NoDescriptors):  # the next put tries again
                await self._replace(topic)
            return
        try:
            bound = await self.call(writer, Seal(), timeout_s=None)
            if bound is not None:
                logger.info("starting new server for topic %r", topic)
                await self._add_writer(topic, bound)
                await self._shrink(topic)
                return
        except (StorageError, ActorError, ChildStartFailed) as error:
            logger.error("topic %r gets no new segment for now: %s", topic, error)
        with contextlib.suppress(StorageError, ActorError):  # then the next put tries again
            await self.call(writer, Unseal(), timeout_s=None)

    async def _replace(self, topic: bytes) -> None:
        """Give a topic another segment, since the disk has failed that of its writer.

        Raises:
            TopicReadOnly: that was tried a moment ago, or the disk fails again.
            NoDescriptors: the process may open no more files.
        """
        failed = self._routes[topic].writer
        with self._disk_failures.trying(topic, self._servers.owned[failed][1].failure):
            bound = await self.call(failed, Seal(), timeout_s=None)
            await self._add_writer(topic, bound or 0, after_failure=True)
        if bound is None:
            self._routes.drop(topic, failed)  # nothing of it was ever durable
            self._servers.delete_segment(topic, await self._servers.end(failed))

    async def _install(self, description: TopicDescription, *, is_dry: bool) -> TopicDescription:
        """Have a replicated topic be as its nodes have agreed."""
        self._settings.appendix_with(description.properties)
        if is_dry:
            self._store.properties.check_agreed(description)
            return description
        installed = self._store.properties.install(description)
        await self._configure_all(installed)
        return installed

    # ---- properties -----------------------------------------------------------------------------

    def _create_topic(self, topic: bytes, properties: TopicProperties) -> TopicDescription:
        """Make a topic; its partitions come into being when something is put onto them."""
        self._settings.appendix_with(properties)
        self._copies.check_may_be_own(topic)
        self._quota.admit(self._store, topic, None, self.monotonic_s())
        made = self._store.create_topic(topic, properties, self._clock.now_us())
        self._expire_later([self._settings.retention_with(properties)])
        return made

    async def _alter_topic(self, topic: bytes, changes: Mapping[str, Any]) -> TopicDescription:
        store = self._store
        self._settings.appendix_with(store.properties.of(topic).altered(changes).properties)
        altered = store.properties.alter(topic, changes)
        await self._configure_all(altered)
        return altered

    async def _adopt_topic(self, topic: bytes, properties: TopicProperties) -> TopicDescription:
        self._settings.appendix_with(properties)
        adopted = self._store.properties.adopt(topic, properties)
        await self._configure_all(adopted)
        return adopted

    async def _configure_all(self, description: TopicDescription) -> None:
        for each in description.partition_topics():
            await self._configure(each)
            if each in self._routes and not description.properties.is_replicated:
                await self._shrink(each)
        self._expire_later([self._settings.retention_with(description.properties)])

    async def _configure(self, topic: bytes) -> None:
        """Have the servers of a partition go by its settings; where that fails, again later.

        With another `ack` the topic goes on in a new segment.
        """
        self._to_configure.discard(topic)
        route = self._routes.get(topic)
        if route is None:
            return  # its servers will begin with them
        change = self._settings.change(topic)
        try:
            answers = [await self.call(ref, change, timeout_s=None) for ref in route.refs]
            if not all(answers) and not self._settings.is_replicated(topic):
                await self._rotate(topic)
        except (ActorError, StorageError) as error:
            logger.error("topic %r does not go by its properties yet: %s", topic, error)
        route = self._routes.get(topic, route)
        owned = self._servers.owned.get(route.writer)
        if owned is None or owned[1].options.ack != change.segment.ack:
            self._to_configure.add(topic)

    # ---- crashes --------------------------------------------------------------------------------

    async def _appendix_ended(self, message: Exit) -> None:
        """Repair the segment of an appendix server that ended, and start another on it."""
        if message.ref not in self._servers.owned:
            # One that was stopped just before we unlinked it, or nobody of ours.
            logger.info("%s ended, which is no appendix server: %r", message.ref, message.reason)
            return
        topic, segment = self._servers.owned.pop(message.ref)
        logger.error("appendix server of %s ended: %r", segment.path, message.reason)
        self._servers.to_restart[message.ref] = (topic, segment)
        if self._routes[topic].writer is message.ref and not is_word(message.reason, KILLED):
            self._crashes.count(topic, self.monotonic_s())
        await self._restart_failed()

    async def _restart_failed(self) -> None:
        """Try to bring back what is down; what fails again waits for the next tick."""
        for dead in list(self._servers.to_restart):
            try:
                await self._bring_back(dead)
            except PoeError as error:
                _, segment = self._servers.to_restart[dead]
                logger.error("segment %s is not back: %s", segment.path, error)

    async def _bring_back(self, dead: ActorRef) -> None:
        """Repair the segment of an appendix server that ended, and start another one on it.

        Raises:
            PoeError: it cannot be done now; `to_restart` knows from where to go on.
        """
        topic, segment = self._servers.to_restart[dead]
        began_s = self.monotonic_s()
        is_newest = self._routes[topic].writer is dead
        repaired = self._store.repair_segment(topic, segment)
        if repaired is None:
            logger.error("segment %s has lost its data file", segment.path)
            if not is_newest:
                del self._servers.to_restart[dead]
                self._routes.drop(topic, dead)
                return
            repaired = self._store.create_segment(topic, self._clock.now_us())
        self._servers.to_restart[dead] = (topic, repaired)
        if is_newest and self._crashes.allows_puts(topic, self.monotonic_s()):
            self._disk_failures.unseal(topic, repaired)
        ref = await self._servers.start(topic, repaired)
        del self._servers.to_restart[dead]
        self._routes.replace(topic, dead, ref, repaired.pointer_high)
        events = self._routes.events
        events.add(
            "topic_repaired",
            cause_seq=events.end_of(str(dead)),
            supervisor=REGISTRY,
            child=topic_text(topic),
            ref=str(ref),
            away_s=self.monotonic_s() - began_s,
        )

    # ---- what goes ------------------------------------------------------------------------------

    async def _expire(self, now_us: int) -> None:
        """Delete the segments that have been kept long enough, as `Expiry` chooses.

        An idle writer that is too old goes, too. Only what is known of the segments is looked at:
        nothing wakes.
        """
        self._expiry.begin(now_us, self.monotonic_s())
        for topic in self._resting_due():
            with contextlib.suppress(PoeError):  # logged; each request for it tries again
                await self._opening.wake(topic)
        chosen = {}
        for number, topic in enumerate(self._settings.limited(self._routes), 1):
            if number % _LOOKS_PER_TURN == 0:
                await self.sleep(_TURN_PAUSE_S)
            if self._settings.is_replicated(topic):
                self._copies.tell_what_is_due(topic, self._settings.retention(topic), self._expiry)
            else:
                chosen[topic] = await self._choose(topic, self._settings.retention(topic))
        try:
            await self._servers.remove(self._routes, chosen)
        except StorageError as error:  # the next look tries again
            logger.error("nothing expires, since it cannot be noted: %s", error)
        expiring = self._expiry.end()
        if expiring is not None:
            self.cast(ARCHIVER, expiring)

    def _resting_due(self) -> list[bytes]:
        """Return the topics that rest, and hold what may have to go."""
        resting, settings, expiry = self._store.topics.resting, self._settings, self._expiry
        due = []
        max_age = self._parts.options.max_age
        while self._resting_by_age and max_age is not None:
            if self._resting_by_age[-1][0] >= expiry.oldest_us(max_age):
                break
            due.append(self._resting_by_age.pop()[1])
        due += self._resting_large
        self._resting_large = []
        for topic in settings.limited_by_themselves(resting):
            events = resting[topic]
            if not events:
                continue
            retention = settings.retention(topic)
            is_old = retention.max_age_s is not None and _age_key(events) < expiry.oldest_us(
                retention.max_age_s
            )
            is_large = retention.max_bytes is not None and _bytes_in(events) > retention.max_bytes
            if is_old or is_large:
                due.append(topic)
        return [each for each in due if each in resting]

    def _find_large(self) -> list[bytes]:
        """Return the topics that rest and hold more than the node lets them."""
        limit = self._parts.options.max_bytes
        resting = self._store.topics.resting.items() if limit is not None else ()
        return [topic for topic, events in resting if _bytes_in(events) > (limit or 0)]

    async def _choose(self, topic: bytes, retention: Retention) -> list[ActorRef]:
        """Choose what of a topic is to go; a writer that is to go gets a successor first."""
        if retention.is_endless:
            return []
        if retention.max_age_s is not None:
            await self._old(topic, self._expiry.oldest_us(retention.max_age_s) - 1)
        route = self._routes[topic]
        _, writer = self._servers.owned.get(route.writer, (topic, None))
        sealed = self._servers.up_to(route, POINTER_MAX)
        writer_bytes = 0 if writer is None else writer.size_bytes
        return self._expiry.choose(topic, retention, sealed, writer_bytes)

    async def _shrink(self, topic: bytes) -> None:
        """Delete what a topic has too much of, now that it has a segment more.

        What is too old is for looks alone: after a jump of the clock they take their time for it.
        """
        retention = self._settings.retention(topic)
        if retention.max_bytes is None:
            return
        chosen = await self._choose(topic, retention._replace(max_age_s=None))
        try:
            await self._servers.remove(self._routes, {topic: chosen})
        except StorageError as error:  # the next look tries again
            logger.error("nothing of topic %r goes, since it cannot be noted: %s", topic, error)

    async def _trim(self, topic: bytes, pointer: int) -> int:
        """Delete segments whose newest pointer is `pointer` or less; tell how many."""
        holder = self._store.properties.find(topic)
        if holder is None:
            await self._check_known(topic)
        chosen = {}
        for each in (topic,) if holder is None else holder.partition_topics():
            await self._opening.wake(each)
            if each in self._routes:
                chosen[each] = [ref for ref, _ in await self._old(each, pointer)]
        await self._servers.remove(self._routes, chosen)
        return sum(map(len, chosen.values()))

    async def _old(self, topic: bytes, pointer: int) -> list[tuple[ActorRef, Segment]]:
        """Return the segments whose newest pointer is `pointer` or less, oldest first.

        A writer that is to go gets a successor first.
        """
        _, newest = self._servers.owned.get(self._routes[topic].writer, (topic, None))
        if newest is not None and newest.count and newest.last_pointer <= pointer:
            await self._rotate(topic)
        return self._servers.up_to(self._routes[topic], pointer)

    async def _delete(self, topic: bytes) -> None:
        """Delete a topic; a put that comes meanwhile waits, and then makes a new one.

        Its partitions go first: until all are gone, it is there, and can be deleted again.

        Raises:
            UnknownTopic: nobody has made it, or put anything onto it.
            StorageError: it cannot be served, or its end not be noted.
        """
        properties = self._store.properties
        holder = properties.find(topic)
        if holder is None:
            await self._check_known(topic)
        for each in (topic,) if holder is None else holder.partition_topics():
            await self._opening.wake(each)
            if each in self._routes:
                try:
                    await self._servers.delete(each, self._routes)
                except StorageError:
                    if each not in self._routes:  # what is left is the topic
                        await self._opening.open(each)
                    raise
                self._disk_failures.end(each)
        if holder is not None:
            self._store.forget_topic(topic)


def _by_age(store: Store) -> list[tuple[int, bytes]]:
    """Return the newest pointer of the oldest segment of each topic that rests, greatest first."""
    resting = store.topics.resting.items()
    return sorted(((_age_key(events), topic) for topic, events in resting), reverse=True)


def _age_key(events: Sequence[Event]) -> int:
    return events[0].pointer_high or events[0].timestamp


def _bytes_in(events: Iterable[Event]) -> int:
    return sum(event.size_bytes for event in events)
