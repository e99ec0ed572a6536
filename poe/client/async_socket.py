"""The asyncio client: the calls of `poe.protocol.Socket`, any number of them at a time.

Requests and replies are those of `poe.protocol`; `Pipeline` moves them over the connection.
"""

import asyncio
import ssl
from collections.abc import AsyncIterator
from functools import partial
from time import monotonic
from typing import Any, Self, TypeVar

from poe.client.first_address import connect_first
from poe.client.in_thread import in_thread
from poe.client.kept_login import KeptLogin
from poe.client.pipeline import Pipeline
from poe.errors import (
    CallTimeout,
    ConnectionClosed,
    LocalProtocolError,
    PoeError,
    RemoteProtocolError,
)
from poe.errors.timeout import limit_of
from poe.protocol import (
    FOLLOW_WAIT_S,
    FRAME_MAX,
    RANGE_BYTES,
    RANGE_COUNT_MAX,
    DescribedTopic,
    IndexedRecords,
    LastPut,
    Messages,
    PutId,
    PutReply,
    Record,
    Removed,
    Span,
    exchange,
    topic_bytes,
)
from poe.protocol.exchange import Exchange
from poe.protocol.handshake import HANDSHAKE_TIMEOUT_S, handshake_failure
from poe.protocol.leases import LeaseReply, LeaseRequest
from poe.protocol.login import channel_of
from poe.protocol.messages import ReplyT
from poe.protocol.node_event import EVENTS_COUNT_MAX, EventPage
from poe.protocol.original import HEAD_SIZE
from poe.protocol.put import QueuePutRequest, put_frame
from poe.protocol.scan import Scanned
from poe.protocol.server import Server, server_at
from poe.protocol.wire import connect_failure, find_cause
from poe.record import POINTER_MAX
from poe.security.credentials import Credentials
from poe.security.entry import Entry
from poe.security.tls import Tls, client_context, server_hostname

T = TypeVar("T")


async def connect(  # noqa: PLR0913 - as `poe.protocol.socket`
    host: str = "127.0.0.1",
    port: int | None = None,
    *,
    tls: Tls | ssl.SSLContext | None = None,
    credentials: Credentials | None = None,
    timeout_s: float | None = None,
    frame_max: int = FRAME_MAX,
) -> "AsyncSocket":
    """Connect to a server; takes what `poe.protocol.socket` takes.

    Raises:
        ConnectFailed, TlsFailed, AuthenticationFailed, InvalidTimeout, PoeError: as there.
    """
    server = server_at(host, port, Entry(tls, credentials))
    return await connect_to(server, timeout_s=timeout_s, frame_max=frame_max)


async def connect_to(
    server: Server, *, timeout_s: float | None = None, frame_max: int = FRAME_MAX
) -> "AsyncSocket":
    """Connect to a server; see `connect`."""
    timeout_s = limit_of(timeout_s)
    try:
        async with asyncio.timeout(timeout_s):
            pipeline = Pipeline(str(server), frame_max)
            connection = AsyncSocket(pipeline, server, timeout_s=timeout_s, frame_max=frame_max)
            transport = await _open(server, pipeline)
            try:
                await connection.log_in(transport)
            except BaseException:
                await pipeline.close("it was not let in")
                raise
            return connection
    except ConnectionClosed as error:
        raise server.unreachable(str(error)) from error
    except (OSError, UnicodeError, OverflowError) as error:
        raise server.unreachable(connect_failure(error)) from error


async def _open(server: Server, pipeline: Pipeline) -> asyncio.BaseTransport:
    """Connect a pipeline, by TLS where the entry says so.

    Raises:
        TlsFailed, ConnectFailed: the handshake has failed.
        SecurityFileError: a file of the entry cannot be used.
        OSError: nobody listens there.
    """
    loop, tls = asyncio.get_running_loop(), server.entry.tls
    context = None if tls is None else client_context(tls)
    sock = await connect_first(server.host, server.port)
    if tls is None:
        transport, _ = await loop.create_connection(lambda: pipeline, sock=sock)
        return transport
    try:
        transport, _ = await loop.create_connection(
            lambda: pipeline,
            sock=sock,
            ssl=context,
            server_hostname=server_hostname(tls, server.host),
            ssl_handshake_timeout=HANDSHAKE_TIMEOUT_S,
        )
    except (ssl.SSLError, ConnectionResetError, ConnectionAbortedError) as error:
        raise handshake_failure(server, error) from error
    return transport


class AsyncSocket:
    """One connection to a server; made by `poe.client.connect`.

    Tasks of one event loop may call it at the same time: requests leave in the order of the calls,
    without waiting for earlier replies, and a `wait` therefore delays the replies to the requests
    behind it; give `wait` and `follow` a socket of their own. A call that was cancelled or has
    timed out may have been done; its reply is dropped and the socket stays usable.
    """

    def __init__(
        self,
        pipeline: Pipeline,
        server: Server | None,
        *,
        timeout_s: float | None,
        frame_max: int,
    ) -> None:
        self._pipeline = pipeline
        self._server = server
        """None: it is the node of this process."""
        self._login: KeptLogin | None = None
        self._timeout_s = timeout_s
        self._frame_max = frame_max

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    @property
    def is_open(self) -> bool:
        """Whether it can still be used, as far as is known here."""
        return self._pipeline.is_open

    @property
    def foreign(self) -> str:
        """How what answers is known for no server of Poe; empty: it may be one."""
        return self._pipeline.foreign

    async def log_in(self, transport: asyncio.BaseTransport) -> None:
        """Make sure who the server is, and say who the client is, where it has credentials.

        Raises:
            TlsFailed: the server is no Poe.
            AuthenticationFailed: the credentials are wrong.
            PoeError: they cannot be used, or another refusal.
        """
        assert self._server is not None
        about = transport.get_extra_info
        channel = channel_of(self._server, about("peername"), about("ssl_object"))
        if self._server.entry.credentials is not None:
            self._login = KeptLogin(self._server, channel, self._ask)
            await self._login.begin()

    async def close(self) -> None:
        """Close the connection; calls under way and later ones raise `ConnectionClosed`."""
        if self._login is not None:
            self._login.end()
        await self._pipeline.close("it was closed here")

    async def write(
        self, topic: bytes | str, messages: Messages, put_id: PutId | None = None
    ) -> int:
        """Append all messages to the topic, or none, see `Socket.write`."""
        frame = put_frame(topic_bytes(topic), messages, put_id, self._frame_max)
        return (await self._call(frame, PutReply)).pointer

    async def put_onto_queue(
        self, queue: bytes | str, messages: Messages, copies: int = 0, deadline_s: float = 0.0
    ) -> int:
        """Put all messages onto a queue across nodes, or none; see `QueuePutRequest`.

        Raises:
            TooFewNodes, QueueBusy: nothing is stored.
            UnderCopies: it is stored on fewer nodes than was asked for.
            PoeError: as `write`.
        """
        request = QueuePutRequest(topic_bytes(queue), messages, copies, deadline_s)
        return (await self._call(request.encode(self._frame_max), PutReply, deadline_s)).pointer

    async def read(self, topic: bytes | str, pointer: int, limit: int) -> list[Record]:
        """Return (pointer, message) of records that follow `pointer`, see `Socket.read`."""
        return await self._ask(exchange.read(topic, pointer, limit))

    async def read_range(
        self,
        topic: bytes | str,
        pointer: int,
        last: int,
        limit: int = RANGE_COUNT_MAX,
        bytes_max: int = RANGE_BYTES,
    ) -> IndexedRecords:
        """Return records that follow `pointer` up to `last`, see `Socket.read_range`."""
        return await self._ask(exchange.read_range(topic, pointer, last, limit, bytes_max))

    async def lease(self, request: LeaseRequest) -> LeaseReply:
        """Tell a group what became of its messages, and ask for more, see `Socket.lease`."""
        return await self._ask(exchange.lease(request))

    async def control(self, op: str, **arguments: object) -> Any:  # noqa: ANN401 - any msgpack value
        """Return the result of a control request, see `Socket.control`."""
        return await self._ask(exchange.control(op, arguments, lambda result: result))

    async def wait(self, topic: bytes | str, pointer: int, timeout_s: float) -> bool:
        """Wait up to `timeout_s` until something follows `pointer`, see `Socket.wait`."""
        return await self._ask(exchange.wait(topic, pointer, timeout_s))

    async def topics(self) -> list[bytes]:
        """Return the names of all topics."""
        return await self._ask(exchange.topics())

    async def status(self) -> dict[bytes, list[Any]]:
        """Return the appendix servers of each topic, see `Socket.status`."""
        return await self._ask(exchange.status())

    async def info(self) -> dict[bytes, list[dict[str, Any]]]:
        """Return for each topic what is known of its segments, see `Socket.info`."""
        return await self._ask(exchange.info())

    async def counters(self, *, are_all: bool = False) -> dict[str, Any]:
        """Return what the node and its topics have done, see `Socket.counters`."""
        return await self._ask(exchange.counters(are_all=are_all))

    async def events(
        self, after: int = 0, *, limit: int = EVENTS_COUNT_MAX, wait_s: float = 0.0
    ) -> EventPage:
        """Return what has happened, see `Socket.events`."""
        return await self._ask(exchange.events(after, limit, wait_s))

    async def scan(  # noqa: PLR0913 - as `Socket.scan`
        self,
        topic: bytes | str,
        after: int = 0,
        last: int = POINTER_MAX,
        *,
        contains: bytes | str | None = None,
        regex: str | None = None,
        bytes_max: int | None = None,
        matches_max: int | None = None,
    ) -> Scanned:
        """Look for messages, see `Socket.scan`."""
        found = {"contains": contains, "regex": regex}
        limits = {"bytes_max": bytes_max, "matches_max": matches_max}
        return await self._ask(exchange.scan(topic, after, last, **found, **limits))

    async def connections(self) -> list[dict[str, Any]]:
        """Return who is connected to the node, see `Socket.connections`."""
        return await self._ask(exchange.connections())

    async def producers(self, topic: bytes | str) -> list[dict[str, Any]]:
        """Return those who number their puts onto a topic, see `Socket.producers`."""
        return await self._ask(exchange.producers(topic))

    async def config(self) -> dict[str, dict[str, Any]]:
        """Return the node's options, see `Socket.config`."""
        return await self._ask(exchange.node_config())

    async def segments(self, topic: bytes | str) -> list[dict[str, Any]]:
        """Return what is known of the segments of a topic, see `Socket.segments`."""
        return await self._ask(exchange.segments(topic))

    async def removed(self, topic: bytes | str, pointer: int) -> Removed:
        """Return what was removed of a topic from `pointer` on, see `Socket.removed`."""
        return await self._ask(exchange.removed(topic, pointer))

    async def span(
        self, topic: bytes | str, pointer: int, last: int, limit: int, bytes_max: int
    ) -> Span | None:
        """Return what a `read_range` would return, without its bytes, see `Socket.span`."""
        return await self._ask(exchange.span(topic, pointer, last, limit, bytes_max))

    async def ordinal(self, topic: bytes | str, pointer: int) -> int:
        """Return the ordinal of the first message behind `pointer`, see `Socket.ordinal`."""
        return await self._ask(exchange.ordinal(topic, pointer))

    async def pointer_at(self, topic: bytes | str, ordinal: int) -> int | None:
        """Return the pointer of the first message with an ordinal, see `Socket.pointer_at`."""
        return await self._ask(exchange.pointer_at(topic, ordinal))

    async def trim(self, topic: bytes | str, pointer: int) -> int:
        """Delete the segments that hold nothing behind `pointer`, see `Socket.trim`."""
        return await self._ask(exchange.trim(topic, pointer))

    async def delete(self, topic: bytes | str) -> None:
        """Delete a topic with all its messages, see `Socket.delete`."""
        await self._ask(exchange.delete(topic))

    async def describe(self, topic: bytes | str) -> DescribedTopic:
        """Return what a topic has, and what its partitions hold, see `Socket.describe`."""
        return await self._ask(exchange.describe(topic))

    async def find_topic(
        self, topic: bytes | str, *, is_queue: bool = False
    ) -> DescribedTopic | None:
        """Return the same, or None, see `Socket.find_topic`; or a queue that is yet to be made."""
        return await self._ask(exchange.find_topic(topic, is_queue=is_queue))

    async def create_topic(self, topic: bytes | str, **properties: Any) -> DescribedTopic:  # noqa: ANN401
        """Make a topic that has these properties, see `Socket.create_topic`."""
        return await self._ask(exchange.create_topic(topic, properties))

    async def alter_topic(self, topic: bytes | str, **changes: Any) -> DescribedTopic:  # noqa: ANN401
        """Change properties of a topic, see `Socket.alter_topic`."""
        return await self._ask(exchange.alter_topic(topic, changes))

    async def adopt_topic(self, topic: bytes | str, **properties: Any) -> DescribedTopic:  # noqa: ANN401
        """Take topics for the partitions of one, see `Socket.adopt_topic`."""
        return await self._ask(exchange.adopt_topic(topic, properties))

    async def list_topics(self, *, are_all: bool = False) -> list[DescribedTopic]:
        """Return all topics, without their partitions, see `Socket.list_topics`."""
        return await self._ask(exchange.list_topics(are_all=are_all))

    async def topic_names(self) -> list[bytes]:
        """Return the names of all topics, see `Socket.topic_names`."""
        return await self._ask(exchange.topic_names())

    async def copy(
        self, source: bytes | str, pointer: int, last: int, topic: bytes | str, put_id: PutId
    ) -> int:
        """Copy what a put has stored on `source` onto another topic, see `Socket.copy`."""
        return await self._ask(exchange.copy(source, pointer, last, topic, put_id))

    async def last_put(self, topic: bytes | str, producer: bytes) -> LastPut | None:
        """Return the newest put of a producer that the topic has, see `Socket.last_put`."""
        return await self._ask(exchange.last_put(topic, producer))

    async def follow(
        self, topic: bytes | str, pointer: int = 0, batch: int = 100
    ) -> AsyncIterator[Record]:
        """Yield each record that follows `pointer`, for ever, see `Socket.follow`."""
        if batch < 1:
            msg = f"batch is {batch}; follow reads 1 record or more at a time"
            raise LocalProtocolError(msg)
        last_pointer = pointer
        while True:
            records = await self.read(topic, last_pointer, batch)
            for record in records:
                yield record
            if records:
                last_pointer = records[-1][0]
            else:
                await self.wait(topic, last_pointer, FOLLOW_WAIT_S)

    async def _ask(self, asked: Exchange[T]) -> T:
        """Return what a request comes to, which may be one request after the other."""
        while True:
            try:
                reply = await self._call(asked.frame, asked.reply_class, asked.extra_s)
            except PoeError as error:
                found = asked.refused(error)
                if isinstance(found, PoeError):
                    del found  # it refers to this frame
                    raise
            else:
                if asked.id is not None and (because := asked.mismatch(reply)):
                    await self._pipeline.close(because)
                    raise RemoteProtocolError(because)
                found = asked.finish(reply)
            if not isinstance(found, Exchange):
                return found
            asked = found

    async def _call(self, frame: bytes, reply_class: type[ReplyT], extra_s: float = 0.0) -> ReplyT:
        limit_s = None if self._timeout_s is None else self._timeout_s + extra_s
        end_s = None if limit_s is None else monotonic() + limit_s
        try:
            async with asyncio.timeout(limit_s):
                return await (await self._pipeline.send(frame, reply_class))
        except TimeoutError as error:
            raise CallTimeout(self._pipeline.peer, limit_s or 0.0) from error
        except ConnectionClosed as error:
            left_s = None if end_s is None else max(end_s - monotonic(), 0.0)
            cause = await self._find_cause(frame[:HEAD_SIZE], left_s)
            if cause is not None:
                raise cause from error
            raise

    async def _find_cause(self, head: bytes, limit_s: float | None) -> PoeError | None:
        """Find out whether the connection is lost since the server is of another kind."""
        pipeline = self._pipeline
        if self._server is None or not pipeline.is_lost:
            return None
        look = partial(
            find_cause,
            self._server,
            head,
            pipeline.error,
            is_answered=pipeline.is_answered,
            limit_s=limit_s,
        )
        return await in_thread(look, "poe-cause")
