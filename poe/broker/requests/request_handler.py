"""What a request does: puts and reads by the routing table, what changes topics by the registry.

One handler serves one actor (a connection, or the one for application threads). It finds the
appendix server, makes one call, and tries again when the server has moved or has just died.

Source: poe_protocol_server.erl and poe_server.erl, less their two calls to the dispatcher per
message.
"""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from poe.actors import Call, GenServer
from poe.actors.reply_deadline import ReplyDeadline
from poe.broker.access.permission import ALL_PERMISSIONS, Need, Permissions, check
from poe.broker.appendix.message import (
    MOVED,
    FindLastPut,
    Get,
    GetRange,
    Next,
    Ordinal,
    PointerAt,
    Put,
    Sync,
    WaitFor,
)
from poe.broker.appendix.server import REGISTRY
from poe.broker.registry.routing_table import Route, RoutingTable
from poe.broker.registry.topic_registry import EnsureWriter, Settle, TopicRequest
from poe.broker.requests.byte_budget import Room
from poe.broker.requests.listing import SegmentRows, describe_route
from poe.broker.requests.queue_messages import QueuePut, QueueStored
from poe.broker.requests.retry import RETRY_S, TRIES_MAX, may_repeat, until_answered
from poe.errors import (
    ActorDead,
    CallTimeout,
    CorruptRecord,
    NoDescriptors,
    PoeError,
    ProducerFenced,
    RepeatedPut,
    ReservedTopic,
    SequenceGap,
    StorageError,
    UnknownQueue,
    UnknownTopic,
)
from poe.storage import (
    POINTER_MAX,
    FileSlice,
    LastPut,
    Messages,
    PutKey,
    RemovedExtent,
    is_left_open,
)
from poe.topic_name import folder_name
from poe.topic_properties import is_reserved

_GAP_AT_END_S = 0.1
_LOOKS_PER_TURN = 5000
_SYNCS_AT_ONCE = 100
"""Segments that are asked for a sync before others have their turn: 3,000 at once kept everybody
waiting for half a second."""
_TURN_PAUSE_S = 0.001
WAIT_MAX_S = 60.0
"""Longest long poll; a client that wants more asks again."""
WAIT_SLICE_S = 2.0
"""How often a long poll makes sure that somebody still waits for its answer."""

QUEUE_PUT_S = 5.0
"""How long a put onto a queue looks for nodes that take it, where nothing else is asked for."""

NODE_SUP = "poe_sup"
"""Name of the root of a node's tree."""


class RequestHandler:
    """Carries requests out on behalf of `actor`; holds no state of a request.

    `is_wanted` tells whether the one who asked is still there, and `put_timeout_s` how long a put
    or a sync may wait for its disk; None sets no limit. `room` bounds what a request may take of
    memory; None is for those of the own process, which alone may put onto reserved topics. What a
    request needs was checked before; `permissions` are for what is known only then, and later.
    """

    __slots__ = (
        "_is_wanted",
        "_put_timeout_s",
        "_who",
        "actor",
        "deadline",
        "permissions",
        "room",
        "routes",
    )

    def __init__(  # noqa: PLR0913, PLR0917 - on whose behalf, and within which limits
        self,
        actor: GenServer,
        routes: RoutingTable,
        is_wanted: Callable[[], bool] = lambda: True,
        put_timeout_s: float | None = None,
        room: Room | None = None,
        permissions: Permissions = ALL_PERMISSIONS,
        who: Callable[[], str] = lambda: "the node's own process",
    ) -> None:
        self._who = who
        self.actor = actor
        self.routes = routes
        self._is_wanted = is_wanted
        self._put_timeout_s = put_timeout_s
        self.deadline = ReplyDeadline(put_timeout_s)
        self.room = room
        self.permissions = permissions

    def who(self) -> str:
        """Return the user or the address that asks, for people."""
        return self._who()

    @property
    def is_wanted(self) -> bool:
        """Whether the one who asked is still there, and the node is not about to stop."""
        return self._is_wanted() and not self.routes.is_closing

    async def put(
        self,
        topic: bytes,
        messages: Messages,
        begun: Call | None = None,
        put_id: PutKey | None = None,
    ) -> int:
        """Append a batch and return the pointer of its last message; the same if it is repeated.

        `begun` is the first call for it, if one was made.

        Raises:
            StorageError: refused; nothing is stored, except for SyncFailed, which says so.
            ReservedTopic: it is the node's own; nothing is stored.
            PropertyMismatch: it would be a partition that its topic has not got; likewise.
            NotAuthorized: it would have to be made; likewise.
            TopicUnavailable: the topic had no writer for 5 s; nothing is stored.
            ActorDead: the appendix server ended before it answered; it may be stored. So too where
                it had an id, and another try was refused by somebody who did not know.
            CallTimeout: the disk has not taken it in time; it may be stored.
            ClusterError: it is a queue, see `put_onto_queue`, which knows no ids of puts.
        """
        if begun is None and self.is_refused(topic):
            raise ReservedTopic(topic)
        call = begun
        unknown: ActorDead | None = None
        route = self.routes.get(topic) if begun is None else None
        if begun is None and route is None and self.routes.queue(topic) is not None:
            return (await self.put_onto_queue(topic, messages)).pointer

        async def ask() -> Any:  # noqa: ANN401 - the pointer
            nonlocal call, route, unknown
            made, call = call, None
            if made is None:
                known, route = route, None
                writer = None if known is None else known.writer
                writer = writer or await self._make_writer(topic, messages, put_id)
                if writer is MOVED:
                    return MOVED
                made = self.actor.call(writer, Put(messages, put_id), timeout_s=None)
            try:
                return await self.deadline.wait(made)
            except ActorDead as error:
                if not may_repeat(error, is_put=True):
                    unknown = error
                raise

        # With an id it may be made again, though it may be stored.
        is_put = put_id is None
        try:
            pointer: int = await until_answered(self.actor, self.routes, topic, ask, is_put=is_put)
        except PoeError as error:
            has_looked = isinstance(error, RepeatedPut | SequenceGap | ProducerFenced)
            if unknown is None or unknown is error or has_looked:
                raise
            raise unknown from error
        return pointer

    async def put_onto_queue(
        self,
        queue: bytes,
        messages: Messages,
        copies: int | None = None,
        deadline_s: float = QUEUE_PUT_S,
    ) -> QueueStored:
        """Put a batch onto a queue across nodes, as many copies as it has, or as are asked for.

        Raises:
            UnknownQueue: there is none.
            TooFewNodes, QueueBusy: nothing is stored.
            UnderCopies: it is stored on fewer nodes.
            PutUnconfirmed: who was asked to hold it has not said so in time; it may be stored.
            InvalidMessage: one is too large; nothing is stored.
            ActorDead: its actor ended before it answered; it may be stored.
        """

        async def ask() -> Any:  # noqa: ANN401 - where it is stored
            ref = self.routes.queue(queue)
            if ref is None:
                raise UnknownQueue(queue)
            return await self.actor.call(
                ref, QueuePut(messages, deadline_s, copies), timeout_s=None
            )

        stored: QueueStored = await until_answered(self.actor, self.routes, queue, ask, is_put=True)
        return stored

    async def _make_writer(self, topic: bytes, messages: Messages, put_id: PutKey | None) -> Any:  # noqa: ANN401
        """Return the writer of a topic, which is made if it is new and who asks may do so.

        `MOVED` is returned where the registry has ended, and nothing came of it.
        """
        create = Need.of_topic("create", topic)
        wanted = EnsureWriter(topic, messages, put_id, may_create=self.permissions.may(create))
        try:
            return await self.ask_registry(wanted)
        except UnknownTopic as error:
            raise self.permissions.refusal(create) or create.refusal from error
        except ActorDead as error:
            if may_repeat(error, is_put=False):
                return MOVED
            raise

    def is_refused(self, topic: bytes) -> bool:
        """Return whether a topic is the node's own, and who asks may not make it or put onto it."""
        return self.room is not None and is_reserved(topic)

    def get(
        self, topic: bytes, pointer: int, limit: int, bytes_max: int, begun: Call | None = None
    ) -> Awaitable[FileSlice | None]:
        """Find up to `limit` records behind `pointer`; None when there are none.

        `begun` is the first call for it, if one was just made.

        Raises (when awaited):
            StorageError: the topic cannot be read.
            PropertyMismatch: it would be a partition that its topic has not got.
            TopicUnavailable: the segment had no appendix server for 5 s.
        """
        return self._call_reader(topic, Get(pointer, limit, bytes_max), begun)

    async def next(self, topic: bytes, pointer: int) -> tuple[int, bytes] | None:
        """Read the message behind `pointer`; None when there is none.

        Raises:
            UnknownTopic: nobody put anything onto it.
            PropertyMismatch: it would be a partition that its topic has not got.
            StorageError: the topic cannot be read.
            TopicUnavailable: the segment had no appendix server for 5 s.
        """
        await self.recover(topic)
        if self.routes.get(topic) is None:
            if self.routes.check_partition(topic):
                return None
            raise UnknownTopic(topic)
        return await self._call_reader(  # type: ignore[no-any-return]  # a reply to Next
            topic, Next(pointer)
        )

    def get_range(
        self, topic: bytes, wanted: GetRange, begun: Call | None = None
    ) -> Awaitable[Any]:
        """Find records of a range, or what they span; None when there are none.

        `begun` is a call of a reader with this question; raises as `get`.
        """
        return self._call_reader(topic, wanted, begun)

    async def ordinal(self, topic: bytes, pointer: int) -> int:
        """Return the ordinal of the first record behind a pointer; where none is, the next one.

        Raises:
            UnknownTopic: nobody put anything onto it.
            StorageError: the topic cannot be read.
            TopicUnavailable: the segment had no appendix server for 5 s.
        """
        await self.recover(topic)
        self._check_known(topic)
        ordinal: int = await self._ask_reader(topic, Ordinal(pointer), None)
        return ordinal

    async def pointer_at(self, topic: bytes, ordinal: int) -> int | None:
        """Return the pointer of the first record with an ordinal, or a greater one; None: not yet.

        Raises:
            UnknownTopic, StorageError, TopicUnavailable: as `ordinal`.
        """

        async def ask() -> Any:  # noqa: ANN401 - the pointer
            for ref, info in await self.describe(topic):
                if ref is not None and ordinal < (info.base or 0) + info.count:
                    return await self.actor.call(ref, PointerAt(ordinal), timeout_s=None)
            return None

        pointer: int | None = await until_answered(self.actor, self.routes, topic, ask)
        return pointer

    async def _call_reader(
        self, topic: bytes, request: Get | GetRange | Next, begun: Call | None = None
    ) -> Any:  # noqa: ANN401
        """Find what follows the request's pointer; behind damage, where gaps are skipped."""
        has_skipped = False
        while True:
            try:
                found = await self._ask_reader(topic, request, begun)
            except CorruptRecord as error:
                behind = error.pointer or 0
                if not self.routes.are_gaps_skipped or behind <= request.pointer:
                    raise
                self.routes.gaps_count += 1
                has_skipped = True
                request, begun = replace(request, pointer=behind), None
            else:
                if found is None and has_skipped:
                    # It has news, says `wait` of a topic that ends in damage: who asks for them
                    # again and again is not to do so without a pause.
                    await self.actor.sleep(_GAP_AT_END_S)
                return found

    async def _ask_reader(
        self, topic: bytes, request: Get | GetRange | Next | Ordinal, begun: Call | None
    ) -> Any:  # noqa: ANN401
        """Ask the appendix server that holds what follows the request's pointer."""

        async def ask() -> Any:  # noqa: ANN401 - a reply to the request
            nonlocal begun
            route = self.routes.get(topic)
            if route is None:
                await self._wake(topic)
                route = self.routes.get(topic)
            if route is None:
                self.routes.check_partition(topic)
                return None
            reader = route.reader(request.pointer)
            call, begun = begun or self.actor.call(reader, request, timeout_s=None), None
            found = await call
            if found is not None or self.routes.is_newest(topic, reader):
                return found
            return None if _asks_for_nothing(request, route) else MOVED

        return await until_answered(self.actor, self.routes, topic, ask)

    async def recover(self, topic: bytes) -> None:
        """Have a topic that rests woken, and one that is out of service tried again.

        Raises:
            StorageError: what keeps it out of service still does.
        """
        if self.routes.is_without_route(topic):
            await until_answered(self.actor, self.routes, topic, partial(self._wake, topic))

    async def _wake(self, topic: bytes) -> None:
        """Have a topic woken that has no route: one try, for who makes several."""
        if self.routes.is_without_route(topic):
            try:
                await self.ask_registry(EnsureWriter(topic, may_create=False))
            except UnknownTopic:  # it was deleted meanwhile
                return
            except StorageError:
                # With a route it can be read, though its disk lets it take no messages.
                if self.routes.is_without_route(topic):
                    raise

    async def _recover_or_check(self, topic: bytes) -> None:
        """Have a topic woken, see `recover`; one that is not there has to be one that could be.

        Raises:
            InvalidTopicName, PropertyMismatch: nobody can put anything onto it.
            StorageError: what keeps it out of service still does.
        """
        await self.recover(topic)
        if self.routes.get(topic) is None:
            folder_name(topic, self.routes.names)
            self.routes.check_partition(topic)

    def _check_known(self, topic: bytes) -> None:
        """Refuse a topic without a route.

        Raises:
            UnknownTopic: nobody put anything onto it.
            NotATopic: it is a queue.
            PropertyMismatch: it would be a partition that its topic has not got.
        """
        if self.routes.get(topic) is None:
            self.routes.check_partition(topic)
            raise UnknownTopic(topic)

    async def ask_registry(self, request: TopicRequest) -> Any:  # noqa: ANN401 - as it answers
        """Have the topic registry do something, and return what it answers.

        Raises:
            PoeError: as it says.
            CallTimeout: it has not answered in time; it may be done later.
        """
        return await self.actor.call(REGISTRY, request, timeout_s=self._put_timeout_s)

    async def sync(self, topic: bytes | None) -> None:
        """Make everything acknowledged so far durable, of one topic or of all.

        Raises:
            UnknownTopic: nobody put anything onto it.
            StorageError: the disk did not take it, or the topic cannot be served.
            TopicUnavailable: a segment had no appendix server for 5 s.
            CallTimeout: the disk has not taken it in time.
        """
        first_error: PoeError | None = None
        topics = [] if topic is None else [topic]
        if topic is None:
            first_error = await self._recover_left_open()
            topics = sorted(self.routes)
        else:
            await self.recover(topic)
            self._check_known(topic)
        for begin in range(0, len(topics), _SYNCS_AT_ONCE):
            if begin:
                await self.actor.sleep(_TURN_PAUSE_S)
            # There may be more segments than files: those that are synced let theirs go.
            ask = partial(self._sync_once, topics[begin : begin + _SYNCS_AT_ONCE])
            try:
                await until_answered(
                    self.actor, self.routes, topic or b"", ask, releases_max=TRIES_MAX - 1
                )
            except CallTimeout:
                raise  # each of the others would take as long
            except PoeError as error:
                first_error = first_error or error
        if first_error is not None:
            raise first_error

    async def _recover_left_open(self) -> PoeError | None:
        """Have what a killed server left open recovered, which makes it durable.

        What has no servers yet gets them. Return why that cannot be done for all; the others are
        recovered.

        Raises:
            CallTimeout: one has taken too long.
        """
        first_error: PoeError | None = None
        for number, topic in enumerate([*self.routes.waking, *self.routes.resting], 1):
            if number % _LOOKS_PER_TURN == 0:
                await self.actor.sleep(_TURN_PAUSE_S)
            is_open = is_left_open(self.routes.resting.get(topic, ()))
            if is_open or topic in self.routes.waking:
                try:
                    await self.ask_registry(Settle(topic))
                except CallTimeout:
                    raise
                except PoeError as error:
                    first_error = first_error or error
                await self.actor.sleep(_TURN_PAUSE_S)  # that was some milliseconds' work
        return first_error

    async def _sync_once(self, topics: Sequence[bytes]) -> None:
        found = (self.routes.get(topic) for topic in topics)
        refs = [ref for route in found if route is not None for ref in route.refs]
        first_error: PoeError | None = None
        for begin in range(0, len(refs), _SYNCS_AT_ONCE):
            if begin:
                await self.actor.sleep(_TURN_PAUSE_S)
            # At once: the disk serves them together, and the slowest one sets the time.
            calls = [
                self.actor.call(ref, Sync(), timeout_s=self._put_timeout_s)
                for ref in refs[begin : begin + _SYNCS_AT_ONCE]
            ]
            for call in calls:
                try:
                    await call
                except CallTimeout:
                    raise
                except PoeError as error:
                    # One that found no file to open may be told that it may try again.
                    if first_error is None or isinstance(first_error, NoDescriptors):
                        first_error = error
        if first_error is not None:
            raise first_error

    async def last_put(self, topic: bytes, producer: bytes) -> LastPut | None:
        """Return the newest sequenced put of a producer that a topic has; its writer alone knows.

        None where it has none, nobody has put anything onto it, or it is a queue. With
        `ack="fsync"` it is durable.

        Raises:
            InvalidTopicName, PropertyMismatch: nobody can put anything onto it.
            StorageError: the topic takes no puts.
            TopicUnavailable: it had no writer for 5 s.
            CallTimeout: the disk has not taken it in time.
        """
        if self.routes.queue(topic) is not None:
            return None

        async def ask() -> Any:  # noqa: ANN401 - a reply to FindLastPut
            await self._wake(topic)
            route = self.routes.get(topic)
            if route is None:
                folder_name(topic, self.routes.names)
                self.routes.check_partition(topic)
                return None
            wanted = FindLastPut(producer)
            found = await self.actor.call(route.writer, wanted, timeout_s=self._put_timeout_s)
            if found is MOVED:
                await self.ask_registry(EnsureWriter(topic, may_create=False))
            return found

        found: LastPut | None = await until_answered(self.actor, self.routes, topic, ask)
        return found

    def newest_removed(self, topic: bytes) -> int | None:
        """Return the newest pointer that was removed of a topic; 0: none, None: nobody knows."""
        removals = self.routes.removals
        return None if removals is None else removals.newest(topic)

    def next_new_ordinal(self, topic: bytes) -> int:
        """Return the least ordinal of a new segment, by what is gone of a topic."""
        removals = self.routes.removals
        return 0 if removals is None else removals.next_ordinal(topic)

    def removed(self, topic: bytes, pointer: int) -> tuple[list[RemovedExtent], int]:
        """Return what was removed from a pointer on, and up to where nobody knows all of it."""
        removals = self.routes.removals
        if removals is None:
            return [], POINTER_MAX
        return removals.extents(topic, pointer), removals.unknown_high

    async def describe(self, topic: bytes) -> SegmentRows:
        """Return what is known of the segments of a topic, of all of them.

        Raises:
            UnknownTopic: nobody put anything onto it.
            NotATopic: it is a queue.
            StorageError: the topic cannot be served.
            TopicUnavailable: a segment had no appendix server for 5 s.
        """

        async def ask() -> Any:  # noqa: ANN401 - the rows
            await self._wake(topic)
            self._check_known(topic)
            route = self.routes[topic]
            rows = await describe_route(self.actor, route)
            # Who plans a read by it would leave out messages of a server that is being restarted.
            return rows if len(rows) == len(route.refs) else MOVED

        rows: SegmentRows = await until_answered(self.actor, self.routes, topic, ask)
        return rows

    async def wait(self, topic: bytes, pointer: int, timeout_s: float) -> bool:
        """Wait until something follows `pointer`; False when nothing did within `timeout_s`.

        A topic that nobody has put anything onto may be waited for, too. The answer comes early
        when the node is about to stop, or when nobody wants it any more.

        Raises:
            InvalidTopicName, PropertyMismatch: nobody can put anything onto it.
            StorageError: the topic cannot be served.
            NotAuthorized: nobody grants to read it any more.
        """
        await self._recover_or_check(topic)
        actor = self.actor
        deadline_s = actor.monotonic_s() + timeout_s
        needs = [Need.of_topic("read", topic)]
        while True:
            slice_s = max(0.0, min(deadline_s - actor.monotonic_s(), WAIT_SLICE_S))
            if self.routes.is_closing:
                slice_s = 0.0  # who asks only now would be waited for
            check(self.permissions, needs)  # a grant may have been taken back meanwhile
            if await self._wait_a_while(topic, pointer, slice_s):
                return True
            if actor.monotonic_s() >= deadline_s or self.routes.is_closing:
                return False
            if not self._is_wanted():
                return False

    async def _wait_a_while(self, topic: bytes, pointer: int, timeout_s: float) -> bool:
        """Wait until something follows `pointer`; False when one has to look again."""
        route = self.routes.get(topic)
        if route is None:
            self.routes.check_partition(topic)
            await self.actor.sleep(min(timeout_s, 10 * RETRY_S))
            return False
        if route.reader(pointer) is not route.writer:
            return True
        try:
            answer = await self.actor.call(
                route.writer, WaitFor(pointer, timeout_s), timeout_s=None
            )
        except ActorDead as error:
            if not may_repeat(error, is_put=False):
                raise
            await self.actor.sleep(RETRY_S)
            return False
        return answer is True


def _asks_for_nothing(request: Get | GetRange | Next | Ordinal, route: Route) -> bool:
    """Return whether nothing may be found though something follows the pointer."""
    if isinstance(request, Next | Ordinal):
        return False
    if isinstance(request, GetRange):
        last = max(request.last, request.pointer)
        if route.reader(last) is route.reader(request.pointer):
            return True
    return request.limit == 0
