"""What a request does: puts and reads by the routing table, everything else by the registry.

One handler serves one actor (a connection, or the one for application threads). It finds the
appendix server, makes one call, and tries again when the server has moved or has just died.

Source: poe_protocol_server.erl and poe_server.erl, less their two calls to the dispatcher per
message.
"""

import contextlib
from collections.abc import Awaitable, Callable
from dataclasses import fields, replace
from typing import Any, TypeAlias

from poe.actors import ActorRef, Call, GenServer, ReplyDeadline
from poe.broker.appendix_message import (
    MOVED,
    Describe,
    Get,
    Next,
    Put,
    SegmentInfo,
    WaitFor,
)
from poe.broker.appendix_server import REGISTRY
from poe.broker.pipelines import PIPELINES, add_pipelines
from poe.broker.retry import RETRY_S, TRIES_MAX, may_repeat, release_files
from poe.broker.routing_table import RoutingTable
from poe.broker.topic_registry import EnsureWriter
from poe.broker.topic_sync import sync_topics
from poe.errors import (
    ActorDead,
    CorruptRecord,
    NoDescriptors,
    RemoteProtocolError,
    TopicUnavailable,
    UnknownTopic,
)
from poe.storage import POINTER_MAX, FileSlice, Messages, folder_name
from poe.supervision import TreeRow, tree
from poe.version import VERSION

_RELEASES_MAX = 3
_GAP_AT_END_S = 0.1
WAIT_MAX_S = 60.0
"""Longest long poll; a client that wants more asks again."""
WAIT_SLICE_S = 2.0
"""How often a long poll makes sure that somebody still waits for its answer."""

NODE_SUP = "poe_sup"
"""Name of the root of a node's tree."""

_ROW_FIELDS = tuple(field.name for field in fields(TreeRow))

SegmentRows: TypeAlias = list[tuple[ActorRef, SegmentInfo]]
"""The appendix servers of a topic, oldest first, each with what it tells of its segment."""


class RequestHandler:
    """Carries requests out on behalf of `actor`; holds no state of a request.

    `is_wanted` tells whether the one who asked is still there, and `put_timeout_s` how long a put
    or a sync may wait for its disk; None sets no limit.
    """

    __slots__ = ("_actor", "_is_wanted", "_put_timeout_s", "_routes", "deadline")

    def __init__(
        self,
        actor: GenServer,
        routes: RoutingTable,
        is_wanted: Callable[[], bool] = lambda: True,
        put_timeout_s: float | None = None,
    ) -> None:
        self._actor = actor
        self._routes = routes
        self._is_wanted = is_wanted
        self._put_timeout_s = put_timeout_s
        self.deadline = ReplyDeadline(put_timeout_s)

    def begin_put(self, topic: bytes, messages: Messages) -> Call | None:
        """Make the call that a put usually takes; None when the topic has no writer yet.

        Mostly it is done at once, and its value the pointer. `put` goes on from it if not.
        """
        route = self._routes.get(topic)
        if route is None:
            return None
        return self._actor.call_leaf(route.writer, Put(messages))

    def begin_get(self, topic: bytes, pointer: int, limit: int, bytes_max: int) -> Call | None:
        """Make the call that a get usually takes; None when the topic has no route.

        Mostly it is done at once, and its value the `FileSlice`. `get` goes on from it if not.
        """
        route = self._routes.get(topic)
        if route is None:
            return None
        return self._actor.call_leaf(route.reader(pointer), Get(pointer, limit, bytes_max))

    async def put(self, topic: bytes, messages: Messages, begun: Call | None = None) -> int:
        """Append a batch and return the pointer of its last message.

        `begun` is what `begin_put` returned for it, if that was asked.

        Raises:
            StorageError: refused; nothing is stored, except for SyncFailed, which says so.
            TopicUnavailable: the topic had no writer for 5 s; nothing is stored.
            ActorDead: the appendix server ended before it answered; it may be stored.
            CallTimeout: the disk has not taken it in time; it may be stored.
        """
        actor = self._actor
        call = begun or self.begin_put(topic, messages)
        for attempt in range(TRIES_MAX):
            if attempt > 1:
                await actor.sleep(RETRY_S)
            is_put = False
            try:
                if call is None:
                    ensure = EnsureWriter(topic, messages)
                    writer = await actor.call(REGISTRY, ensure, timeout_s=self._put_timeout_s)
                    call = actor.call(writer, Put(messages), timeout_s=None)
                is_put = True
                pointer = await self.deadline.wait(call)
            except ActorDead as error:
                if not may_repeat(error, is_put=is_put):
                    raise
            except NoDescriptors:
                if attempt >= _RELEASES_MAX:
                    raise
                await release_files(actor, self._routes, is_urgent=attempt > 0)
            else:
                if pointer is not MOVED:
                    return pointer  # type: ignore[no-any-return]  # a reply to Put
            call = None
        raise TopicUnavailable(topic, TRIES_MAX * RETRY_S)

    def get(
        self, topic: bytes, pointer: int, limit: int, bytes_max: int, begun: Call | None = None
    ) -> Awaitable[FileSlice | None]:
        """Find up to `limit` records behind `pointer`; None when there are none.

        `begun` is what `begin_get` has just returned for it, if that was asked.

        Raises (when awaited):
            StorageError: the topic cannot be read.
            TopicUnavailable: the segment had no appendix server for 5 s.
        """
        return self._call_reader(topic, Get(pointer, limit, bytes_max), begun)

    async def next(self, topic: bytes, pointer: int) -> tuple[int, bytes] | None:
        """Read the message behind `pointer`; None when there is none.

        Raises:
            UnknownTopic: nobody put anything onto it.
            StorageError: the topic cannot be read.
            TopicUnavailable: the segment had no appendix server for 5 s.
        """
        await self._recover(topic)
        if self._routes.get(topic) is None:
            raise UnknownTopic(topic)
        return await self._call_reader(  # type: ignore[no-any-return]  # a reply to Next
            topic, Next(pointer)
        )

    async def _call_reader(
        self, topic: bytes, request: Get | Next, begun: Call | None = None
    ) -> Any:  # noqa: ANN401
        """Find what follows the request's pointer; behind damage, where gaps are skipped."""
        await self._recover(topic)
        has_skipped = False
        while True:
            try:
                found = await self._ask_reader(topic, request, begun)
            except CorruptRecord as error:
                behind = error.pointer or 0
                if not self._routes.are_gaps_skipped or behind <= request.pointer:
                    raise
                self._routes.gaps_count += 1
                has_skipped = True
                request, begun = replace(request, pointer=behind), None
            else:
                if found is None and has_skipped:
                    # It has news, says `wait` of a topic that ends in damage: who asks for them
                    # again and again is not to do so without a pause.
                    await self._actor.sleep(_GAP_AT_END_S)
                return found

    async def _ask_reader(self, topic: bytes, request: Get | Next, begun: Call | None) -> Any:  # noqa: ANN401
        """Ask the appendix server that holds what follows the request's pointer."""
        for attempt in range(TRIES_MAX):
            route = self._routes.get(topic)
            if route is None:
                return None
            reader = route.reader(request.pointer)
            call, begun = begun or self._actor.call(reader, request, timeout_s=None), None
            try:
                found = await call
            except ActorDead as error:
                if not may_repeat(error, is_put=False):
                    raise
                await self._actor.sleep(RETRY_S)
                continue
            except NoDescriptors:
                if attempt >= _RELEASES_MAX:
                    raise
                await release_files(self._actor, self._routes, is_urgent=attempt > 0)
                continue
            if found is not None or self._routes.is_newest(topic, reader):
                return found
            if isinstance(request, Get) and request.limit == 0:
                return None
        raise TopicUnavailable(topic, TRIES_MAX * RETRY_S)

    async def _recover(self, topic: bytes) -> None:
        """Have a topic that is out of service tried again.

        Raises:
            StorageError: what keeps it out of service still does.
        """
        if topic in self._routes.failures:
            ensure = EnsureWriter(topic)
            await self._actor.call(REGISTRY, ensure, timeout_s=self._put_timeout_s)

    # ---- control requests -----------------------------------------------------------------------

    async def control(self, op: str, arguments: dict[str, Any]) -> Any:  # noqa: ANN401
        """Carry out a control request and return what msgpack can carry.

        Raises:
            RemoteProtocolError: an unknown op, or a missing or wrong argument.
        """
        match op:
            case "health":
                result: Any = {"status": "ok", "version": VERSION, **self._routes.health()}
            case "topics":
                result = self._routes.topics()
            case "status" | "info":
                as_value = _as_map if op == "info" else _as_pair
                described = await self.describe_all()
                result = {topic: [as_value(*row) for row in rows] for topic, rows in described}
            case "segments":
                result = [_as_map(*row) for row in await self.describe(_topic(arguments))]
            case "tree":
                result = await self._tree(all_rows=_flag(arguments, "all"))
            case "sync":
                await self.sync(_topic(arguments) if "topic" in arguments else None)
                result = None
            case "create":
                ensure = EnsureWriter(_topic(arguments))
                await self._actor.call(REGISTRY, ensure, timeout_s=self._put_timeout_s)
                result = True
            case "pipeline_report" | "pipelines" | "pipeline_stop":
                result = await self._actor.call(PIPELINES, (op, arguments))
            case "wait":
                pointer = _whole_number(arguments, "pointer", POINTER_MAX)
                timeout_s = float(_number(arguments, "timeout_s", WAIT_MAX_S))
                result = await self.wait(_topic(arguments), pointer, timeout_s)
            case _:
                msg = (
                    f"control op {op[:40]!r} is unknown; "
                    "use topics, status, info, segments, tree, sync, create, health, wait, "
                    "pipelines, pipeline_report or pipeline_stop"
                )
                raise RemoteProtocolError(msg)
        return result

    async def sync(self, topic: bytes | None) -> None:
        """Make everything acknowledged so far durable, of one topic or of all.

        Raises:
            UnknownTopic: nobody put anything onto it.
            StorageError: the disk did not take it, or the topic cannot be served.
            TopicUnavailable: a segment had no appendix server for 5 s.
            CallTimeout: the disk has not taken it in time.
        """
        if topic is not None:
            await self._recover(topic)
            if self._routes.get(topic) is None:
                raise UnknownTopic(topic)
        await sync_topics(self._actor, self._routes, topic, self._put_timeout_s)

    async def _tree(self, *, all_rows: bool) -> list[dict[str, Any]]:
        """Tell of the node's whole tree, and of what runs on top of it."""
        root = self._actor.whereis(NODE_SUP)
        rows = [] if root is None else tree(root, all_rows=all_rows)
        rows = await add_pipelines(self._actor, rows)
        return [{name: getattr(row, name) for name in _ROW_FIELDS} for row in rows]

    async def describe(self, topic: bytes) -> SegmentRows:
        """Return what is known of the segments of a topic.

        Raises:
            UnknownTopic: nobody put anything onto it.
            StorageError: the topic cannot be served.
        """
        await self._recover(topic)
        if self._routes.get(topic) is None:
            raise UnknownTopic(topic)
        return await self._describe(topic)

    async def describe_all(self) -> list[tuple[bytes, SegmentRows]]:
        """Return what is known of all topics, sorted; of one that cannot be served, no segments."""
        return [(topic, await self._describe(topic)) for topic in self._routes.topics()]

    async def _describe(self, topic: bytes) -> SegmentRows:
        route = self._routes.get(topic)
        rows = []
        for ref in () if route is None else route.refs:
            with contextlib.suppress(ActorDead):  # it is being restarted, or has expired
                rows.append((ref, await self._actor.call(ref, Describe())))
        return rows

    async def wait(self, topic: bytes, pointer: int, timeout_s: float) -> bool:
        """Wait until something follows `pointer`; False when nothing did within `timeout_s`.

        A topic that nobody has put anything onto may be waited for, too. The answer comes early
        when the node is about to stop, or when nobody wants it any more.

        Raises:
            InvalidTopicName: nobody can put anything onto it.
            StorageError: the topic cannot be served.
        """
        await self._recover(topic)
        if self._routes.get(topic) is None:
            folder_name(topic, self._routes.names)
        actor = self._actor
        deadline_s = actor.monotonic_s() + timeout_s
        while True:
            slice_s = max(0.0, min(deadline_s - actor.monotonic_s(), WAIT_SLICE_S))
            if await self._wait_a_while(topic, pointer, slice_s):
                return True
            if actor.monotonic_s() >= deadline_s or self._routes.is_closing:
                return False
            if not self._is_wanted():
                return False

    async def _wait_a_while(self, topic: bytes, pointer: int, timeout_s: float) -> bool:
        """Wait until something follows `pointer`; False when one has to look again."""
        route = self._routes.get(topic)
        if route is None:
            await self._actor.sleep(min(timeout_s, 10 * RETRY_S))
            return False
        if route.reader(pointer) is not route.writer:
            return True
        try:
            answer = await self._actor.call(
                route.writer, WaitFor(pointer, timeout_s), timeout_s=None
            )
        except ActorDead as error:
            if not may_repeat(error, is_put=False):
                raise
            await self._actor.sleep(RETRY_S)
            return False
        return answer is True


def _as_pair(ref: ActorRef, info: Any) -> list[str]:  # noqa: ANN401
    return [str(ref), info.role]


def _as_map(ref: ActorRef, info: Any) -> dict[str, Any]:  # noqa: ANN401
    names = ("path", "role", "count", "size_bytes", "pointer_low", "pointer_high")
    return {"ref": str(ref), **{name: getattr(info, name) for name in names}}


def _topic(arguments: dict[str, Any]) -> bytes:
    topic = arguments.get("topic")
    topic = topic.encode() if isinstance(topic, str) else topic
    if not isinstance(topic, bytes) or not topic:
        msg = f"argument topic is {topic!r}; send bytes or text of length 1 or more"
        raise RemoteProtocolError(msg)
    return topic


def _flag(arguments: dict[str, Any], name: str) -> bool:
    value = arguments.get(name, False)
    if not isinstance(value, bool):
        msg = f"argument {name} is {value!r}; send true or false"
        raise RemoteProtocolError(msg)
    return value


def _number(arguments: dict[str, Any], name: str, maximum: float) -> float:
    value = arguments.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= maximum:
        msg = f"argument {name} is {value!r}; send a number from 0 to {maximum}"
        raise RemoteProtocolError(msg)
    return value


def _whole_number(arguments: dict[str, Any], name: str, maximum: int) -> int:
    value = _number(arguments, name, maximum)
    if not isinstance(value, int):
        msg = f"argument {name} is {value!r}; send a whole number"
        raise RemoteProtocolError(msg)
    return value
