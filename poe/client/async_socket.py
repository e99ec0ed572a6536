"""The asyncio client: the calls of `poe.protocol.Socket`, any number of them at a time.

Requests and replies are those of `poe.protocol`; `Pipeline` moves them over the connection.
"""

import asyncio
import itertools
from collections.abc import AsyncIterator
from typing import Any, Self

from poe.client.pipeline import Pipeline
from poe.errors import (
    CallTimeout,
    ConnectFailed,
    ConnectionClosed,
    CorruptRecord,
    LocalProtocolError,
    OriginalServer,
    RemoteProtocolError,
)
from poe.errors.timeout import limit_of
from poe.protocol import (
    FOLLOW_WAIT_S,
    FRAME_MAX,
    RANGE_BYTES,
    RANGE_COUNT_MAX,
    ControlReply,
    ControlRequest,
    DataReply,
    IndexedRecords,
    IndexedReply,
    LastPut,
    Messages,
    PointerRequest,
    PutId,
    PutReply,
    RangeRequest,
    Record,
    Removed,
    Span,
    topic_bytes,
)
from poe.protocol.arguments import check_pointer, range_arguments, wait_arguments
from poe.protocol.exchange import connect_failure, find_original
from poe.protocol.messages import ReplyT, put_frame
from poe.protocol.original import HEAD_SIZE, lacking
from poe.protocol.paging import PAGE_COUNT, end_of
from poe.protocol.put_id import check_producer, copy_arguments


async def connect(
    host: str = "127.0.0.1",
    port: int = 5555,
    *,
    timeout_s: float | None = None,
    frame_max: int = FRAME_MAX,
) -> "AsyncSocket":
    """Connect to a server.

    Args:
        host: name or address.
        port: TCP port.
        timeout_s: time that connecting, and later each call, may take; None for no limit.
        frame_max: largest frame in bytes to send or to accept.

    Raises:
        ConnectFailed: nobody listens there, or not within `timeout_s`.
        InvalidTimeout: `timeout_s` is no time.
    """
    timeout_s = limit_of(timeout_s)
    peer = f"server {host}:{port}"
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(timeout_s):
            _, pipeline = await loop.create_connection(
                lambda: Pipeline(peer, frame_max), host, port
            )
    except (OSError, UnicodeError, OverflowError) as error:
        raise ConnectFailed(host, port, connect_failure(error)) from error
    return AsyncSocket(pipeline, peer, timeout_s=timeout_s, frame_max=frame_max)


class AsyncSocket:
    """One connection to a server; made by `poe.client.connect`.

    Tasks of one event loop may call it at the same time: requests leave in the order of the calls,
    without waiting for earlier replies, and a `wait` therefore delays the replies to the requests
    behind it; give `wait` and `follow` a socket of their own. A call that was cancelled or has
    timed out may have been done; its reply is dropped and the socket stays usable.
    """

    def __init__(
        self, pipeline: Pipeline, peer: str, *, timeout_s: float | None, frame_max: int
    ) -> None:
        self._pipeline = pipeline
        self._peer = peer
        self._timeout_s = timeout_s
        self._frame_max = frame_max
        self._ids = itertools.count(1)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connection; calls under way and later ones raise `ConnectionClosed`."""
        await self._pipeline.close("it was closed here")

    async def write(
        self, topic: bytes | str, messages: Messages, put_id: PutId | None = None
    ) -> int:
        """Append all messages to the topic, or none, and return the pointer of the last.

        With a `put_id` they are stored once, however often this is called with it: call it again
        where it is not known whether they were stored.

        Raises:
            SequenceGap, ProducerFenced: nothing was stored; see `PutId`.
            RepeatedPut: they were stored before, at a pointer that is not known any more.
            LocalProtocolError: nothing was sent; topic or messages are not acceptable, or do not
                fit into one frame of `frame_max` bytes.
            ConnectionClosed, CallTimeout, ActorDead: the messages may have been stored, or not.
            PoeError: the server's refusal; nothing was stored.
        """
        frame = put_frame(topic_bytes(topic), messages, put_id, self._frame_max)
        return (await self._call(frame, PutReply)).pointer

    async def read(self, topic: bytes | str, pointer: int, limit: int) -> list[Record]:
        """Return (pointer, message) of up to `limit` records that follow `pointer`, oldest first.

        An empty list means that nothing follows yet, or that the topic is not known.

        Raises:
            LocalProtocolError, PointerOutOfRange: nothing was sent; an argument is out of range.
            ConnectionClosed, CallTimeout: no reply came.
            CorruptRecord: the first record that follows is damaged; those before it were read.
            PoeError: the server's refusal.
        """
        frame = PointerRequest(topic_bytes(topic), pointer, limit).encode()
        try:
            return (await self._call(frame, DataReply)).records
        except CorruptRecord as error:
            if error.pointer is not None or limit == 1:
                raise
            # Asked for one record, the server looks at it, and tells where it lies.
            return await self.read(topic, pointer, 1)

    async def read_range(
        self,
        topic: bytes | str,
        pointer: int,
        last: int,
        limit: int = RANGE_COUNT_MAX,
        bytes_max: int = RANGE_BYTES,
    ) -> IndexedRecords:
        """Return records that follow `pointer` up to `last`, oldest first, as arrays.

        They are of one segment, at most `limit`, and about `bytes_max` bytes at most, though it is
        one record at least. There are none where nothing follows up to `last`.

        Raises:
            LocalProtocolError, PointerOutOfRange: nothing was sent; an argument is out of range.
            ConnectionClosed, CallTimeout: no reply came.
            CorruptRecord: the first record that follows is damaged; those before it were read.
            PoeError: the server's refusal.
        """
        frame = RangeRequest(topic_bytes(topic), pointer, last, limit, bytes_max).encode()
        try:
            return (await self._call(frame, IndexedReply)).records
        except CorruptRecord as error:
            if error.pointer is not None or limit == 1:
                raise
            # Asked for one record, the server looks at it, and tells where it lies.
            return await self.read_range(topic, pointer, last, 1)

    async def control(self, op: str, **arguments: object) -> Any:  # noqa: ANN401 - any msgpack value
        """Return the result of a control request, such as `info` or `sync`.

        Raises:
            LocalProtocolError: nothing was sent; an argument cannot be sent.
            ConnectionClosed, CallTimeout: no reply came.
            PoeError: the server's refusal.
        """
        return await self._control(op, arguments)

    async def wait(self, topic: bytes | str, pointer: int, timeout_s: float) -> bool:
        """Wait up to `timeout_s` until something follows `pointer`; return whether it does.

        Raises:
            PointerOutOfRange: nothing was sent.
            PoeError: as `control`; the socket's own time-out is added to `timeout_s`.
        """
        arguments = wait_arguments(topic, pointer, timeout_s)
        return bool(await self._control("wait", arguments, extra_s=timeout_s))

    async def topics(self) -> list[bytes]:
        """Return the names of all topics.

        Raises:
            PoeError: as `control`.
        """
        return list(await self.control("topics"))

    async def status(self) -> dict[bytes, list[Any]]:
        """Return for each topic the reference and role of each of its appendix servers.

        Raises:
            PoeError: as `control`.
        """
        return dict(await self.control("status"))

    async def info(self) -> dict[bytes, list[dict[str, Any]]]:
        """Return for each topic what is known of its segments, oldest first, a map for each.

        They are asked for page by page, so that no reply is longer than it need be.

        Raises:
            PoeError: as `control`.
        """
        told: dict[bytes, list[dict[str, Any]]] = {}
        after: bytes | None = b""
        while after is not None:
            page = await self.control("info", after=after, count=PAGE_COUNT)
            told.update(page)
            after = end_of(page, after)
        return told

    async def segments(self, topic: bytes | str) -> list[dict[str, Any]]:
        """Return what is known of the segments of a topic, oldest first, a map for each.

        Raises:
            UnknownTopic: nobody put anything onto it.
            PoeError: as `control`.
        """
        return list(await self.control("segments", topic=topic_bytes(topic)))

    async def removed(self, topic: bytes | str, pointer: int) -> Removed:
        """Tell what was removed of a topic from `pointer` on; the topic need not exist any more.

        Raises:
            PointerOutOfRange: nothing was sent.
            PoeError: as `control`.
        """
        check_pointer(pointer)
        arguments = {"topic": topic_bytes(topic), "pointer": pointer}
        try:
            return Removed.from_map(await self._control("removed", arguments))
        except RemoteProtocolError as error:
            return Removed.unknown(error)

    async def span(
        self, topic: bytes | str, pointer: int, last: int, limit: int, bytes_max: int
    ) -> Span | None:
        """Tell what a `read_range` would return, without its bytes; None where it is nothing.

        Raises:
            LocalProtocolError, PointerOutOfRange: nothing was sent; an argument is out of range.
            PoeError: as `control`.
        """
        arguments = range_arguments(topic, pointer, last, limit, bytes_max)
        span = await self._control("span", arguments)
        return None if span is None else Span(*span)

    async def trim(self, topic: bytes | str, pointer: int) -> int:
        """Delete the segments that hold nothing behind `pointer`; return how many. The topic stays.

        Raises:
            PointerOutOfRange: nothing was sent.
            UnknownTopic: nobody put anything onto it.
            PoeError: as `control`.
        """
        check_pointer(pointer)
        return int(await self.control("trim", topic=topic_bytes(topic), pointer=pointer))

    async def delete(self, topic: bytes | str) -> None:
        """Delete a topic with all its messages; the next put onto it makes a new one.

        Raises:
            UnknownTopic: nobody put anything onto it.
            PoeError: as `control`.
        """
        await self.control("delete", topic=topic_bytes(topic))

    async def copy(
        self, source: bytes | str, pointer: int, last: int, topic: bytes | str, put_id: PutId
    ) -> int:
        """Copy what a put has stored on `source` onto another topic; return the last pointer there.

        It is the put `put_id` there, and so copied once, however often this is called with it. The
        server does it: no message comes here.

        Args:
            source: topic where it is.
            pointer: the one before the first of its records; its last less their number.
            last: pointer of its last record, as `write` has returned it.
            topic: where the records are to go.
            put_id: as of `write`.

        Raises:
            RangeGone: not all of its records are there any more; nothing was copied.
            PoeError: as `write` and `control`.
        """
        arguments = copy_arguments(source, pointer, last, topic, put_id)
        return int(await self._control("copy", arguments))

    async def last_put(self, topic: bytes | str, producer: bytes) -> LastPut | None:
        """Return the newest put of a producer that the topic has; None where it has none.

        Raises:
            LocalProtocolError: nothing was sent; the producer is none.
            PoeError: as `control`.
        """
        arguments = {"topic": topic_bytes(topic), "producer": check_producer(producer)}
        found = await self._control("last_put", arguments)
        return None if found is None else LastPut(*found)

    async def follow(
        self, topic: bytes | str, pointer: int = 0, batch: int = 100
    ) -> AsyncIterator[Record]:
        """Yield each record that follows `pointer`, for ever; wait where none is there yet.

        Args:
            topic: name of the topic, which need not exist yet.
            pointer: the last one seen; 0 begins with the oldest record.
            batch: records to read at a time, 1 or more.

        Raises:
            PoeError: as `read` and `wait`.
        """
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

    async def _control(self, op: str, arguments: dict[str, Any], extra_s: float = 0.0) -> Any:  # noqa: ANN401 - any msgpack value
        request = ControlRequest(op, next(self._ids), arguments)
        reply = await self._call(request.encode(), ControlReply, extra_s)
        if reply.id != request.id:
            msg = f"control request {request.id} was answered with id {reply.id}"
            await self._pipeline.close(msg)
            raise RemoteProtocolError(msg)
        return reply.result

    async def _call(self, frame: bytes, reply_class: type[ReplyT], extra_s: float = 0.0) -> ReplyT:
        limit_s = None if self._timeout_s is None else self._timeout_s + extra_s
        try:
            async with asyncio.timeout(limit_s):
                return await (await self._pipeline.send(frame, reply_class))
        except TimeoutError as error:
            raise CallTimeout(self._peer, limit_s or 0.0) from error
        except ConnectionClosed as error:
            original = await self._find_original(frame[:HEAD_SIZE])
            if original is not None:
                raise original from error
            raise

    async def _find_original(self, head: bytes) -> OriginalServer | None:
        """Find out whether the connection is lost since the server does not know such a request."""
        if not (self._pipeline.is_lost and lacking(head)):
            return None
        address = self._pipeline.address
        return await asyncio.to_thread(find_original, address, self._peer, head)
