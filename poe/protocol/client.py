"""The blocking client: calls to frames on a TCP connection, replies to values.

One call sends one request and waits for its reply; only `write_batches` has several requests under
way. All meaning is in `poe.protocol.messages`; here are the socket, its time-outs and its end.
"""

import contextlib
import itertools
import os
import socket as tcp
from collections.abc import Generator, Iterable, Iterator
from time import monotonic
from typing import Any, Self

from poe.errors import (
    CallTimeout,
    ConnectFailed,
    ConnectionClosed,
    CorruptRecord,
    LocalProtocolError,
    PoeError,
    RemoteProtocolError,
)
from poe.protocol.arguments import topic_bytes, wait_arguments
from poe.protocol.batch import Messages
from poe.protocol.control import ControlReply, ControlRequest
from poe.protocol.frames import FRAME_MAX, SCRATCH_SIZE, FrameReader
from poe.protocol.messages import (
    DataReply,
    PointerRequest,
    PutReply,
    PutRequest,
    ReplyT,
    decode_reply,
    put_frame,
)
from poe.protocol.put_id import LastPut, PutId, check_producer
from poe.protocol.records import Record

IN_FLIGHT_MAX = 64
"""Requests that a server takes from one connection before it has answered the first."""

FOLLOW_WAIT_S = 30.0
"""How long `follow` lets the server wait for new messages before it asks again."""


def socket(
    host: str = "127.0.0.1",
    port: int = 5555,
    *,
    timeout_s: float | None = None,
    frame_max: int = FRAME_MAX,
) -> "Socket":
    """Connect to a server.

    Args:
        host: name or address.
        port: TCP port.
        timeout_s: time that connecting, and later each call, may take; None for no limit.
        frame_max: largest frame in bytes to send or to accept.

    Raises:
        ConnectFailed: nobody listens there, or not within `timeout_s`.
    """
    try:
        connection = tcp.create_connection((host, port), timeout_s)
    except (OSError, UnicodeError, OverflowError) as error:
        raise ConnectFailed(host, port, connect_failure(error)) from error
    # A request is one write; waiting to fill a packet would only delay it.
    connection.setsockopt(tcp.IPPROTO_TCP, tcp.TCP_NODELAY, 1)
    return Socket(connection, f"server {host}:{port}", timeout_s=timeout_s, frame_max=frame_max)


def write(topic: bytes | str, messages: Messages, socket: "Socket") -> int:
    """Append messages to a topic through an open socket; see `Socket.write`."""
    return socket.write(topic, messages)


def read(topic: bytes | str, pointer: int, limit: int, socket: "Socket") -> list[Record]:
    """Return records that follow a pointer through an open socket; see `Socket.read`."""
    return socket.read(topic, pointer, limit)


def connect_failure(error: Exception) -> str:
    """Say why no connection came about, as the system says it: the same for every client."""
    if isinstance(error, OSError) and error.errno is not None:
        # Those of name resolution are negative and have words of their own.
        return os.strerror(error.errno) if error.errno > 0 else error.strerror or str(error)
    return str(error) or "timed out"


class Socket:
    """One connection to a server; made by `poe.protocol.socket`.

    Not thread-safe: a second thread needs a socket of its own. A refused request leaves the socket
    usable. After a time-out, an interrupt, a lost connection or a reply that makes no sense it is
    not, since nobody could tell which reply belongs to which request; each further call says so.

    Invariant: 0 <= requests in flight <= IN_FLIGHT_MAX, and 0 whenever a call begins.
    """

    def __init__(
        self, connection: tcp.socket, peer: str, *, timeout_s: float | None, frame_max: int
    ) -> None:
        self._connection = connection
        self._peer = peer
        self._timeout_s = timeout_s
        self._frame_max = frame_max
        self._reader = FrameReader(frame_max)
        self._scratch = memoryview(bytearray(SCRATCH_SIZE))
        self._ids = itertools.count(1)
        self._in_flight_count = 0
        self._unusable_because = ""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection; further calls raise `ConnectionClosed`."""
        self._close("it was closed here")

    @property
    def is_usable(self) -> bool:
        """Tell whether it can still be used: neither closed, nor broken by what came or did not."""
        return not self._unusable_because

    def write(self, topic: bytes | str, messages: Messages, put_id: PutId | None = None) -> int:
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
        return self._call(frame, PutReply).pointer

    def write_batches(
        self, topic: bytes | str, batches: Iterable[Messages]
    ) -> Generator[int, None, None]:
        """Write many batches without waiting for each reply; yield each batch's last pointer.

        A pointer comes late: when `IN_FLIGHT_MAX` later batches were sent or none is left. Other
        calls must wait until the iterator has ended or was closed. When it raises, up to
        `IN_FLIGHT_MAX` batches whose pointers were not yielded may have been stored.

        Raises:
            PoeError: as `write`.
        """
        name = topic_bytes(topic)
        self._check_usable()
        try:
            for batch in batches:
                frame = PutRequest(name, batch).encode(self._frame_max)
                if self._in_flight_count == IN_FLIGHT_MAX:
                    yield self._receive(PutReply, self._timeout_s).pointer
                self._send(frame)
            while self._in_flight_count:
                yield self._receive(PutReply, self._timeout_s).pointer
        finally:
            # The next call must not take one of these replies for its own.
            while self._in_flight_count and not self._unusable_because:
                with contextlib.suppress(PoeError):
                    self._receive(PutReply, self._timeout_s)

    def read(self, topic: bytes | str, pointer: int, limit: int) -> list[Record]:
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
            return self._call(frame, DataReply).records
        except CorruptRecord as error:
            if error.pointer is not None or limit == 1:
                raise
            # Asked for one record, the server looks at it, and tells where it lies.
            return self.read(topic, pointer, 1)

    def control(self, op: str, **arguments: object) -> Any:  # noqa: ANN401 - any msgpack value
        """Return the result of a control request, such as `info` or `sync`.

        Raises:
            LocalProtocolError: nothing was sent; an argument cannot be sent.
            ConnectionClosed, CallTimeout: no reply came.
            PoeError: the server's refusal.
        """
        return self._control(op, arguments)

    def wait(self, topic: bytes | str, pointer: int, timeout_s: float) -> bool:
        """Wait up to `timeout_s` until something follows `pointer`; return whether it does.

        Raises:
            PointerOutOfRange: nothing was sent.
            PoeError: as `control`; the socket's own time-out is added to `timeout_s`.
        """
        arguments = wait_arguments(topic, pointer, timeout_s)
        return bool(self._control("wait", arguments, extra_s=timeout_s))

    def topics(self) -> list[bytes]:
        """Return the names of all topics.

        Raises:
            PoeError: as `control`.
        """
        return list(self.control("topics"))

    def status(self) -> dict[bytes, list[Any]]:
        """Return for each topic the reference and role of each of its appendix servers.

        Raises:
            PoeError: as `control`.
        """
        return dict(self.control("status"))

    def last_put(self, topic: bytes | str, producer: bytes) -> LastPut | None:
        """Return the newest put of a producer that the topic has; None where it has none.

        Raises:
            LocalProtocolError: nothing was sent; the producer is none.
            PoeError: as `control`.
        """
        arguments = {"topic": topic_bytes(topic), "producer": check_producer(producer)}
        found = self._control("last_put", arguments)
        return None if found is None else LastPut(*found)

    def follow(self, topic: bytes | str, pointer: int = 0, batch: int = 100) -> Iterator[Record]:
        """Yield each record that follows `pointer`, for ever; wait where none is there yet.

        Between two records the socket may be used for other calls.

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
            records = self.read(topic, last_pointer, batch)
            yield from records
            if records:
                last_pointer = records[-1][0]
            else:
                self.wait(topic, last_pointer, FOLLOW_WAIT_S)

    def _control(self, op: str, arguments: dict[str, Any], extra_s: float = 0.0) -> Any:  # noqa: ANN401 - any msgpack value
        request = ControlRequest(op, next(self._ids), arguments)
        reply = self._call(request.encode(), ControlReply, extra_s)
        if reply.id != request.id:
            msg = f"control request {request.id} was answered with id {reply.id}"
            self._close(msg)
            raise RemoteProtocolError(msg)
        return reply.result

    def _call(self, frame: bytes, reply_class: type[ReplyT], extra_s: float = 0.0) -> ReplyT:
        self._check_usable()
        self._send(frame)
        limit_s = None if self._timeout_s is None else self._timeout_s + extra_s
        return self._receive(reply_class, limit_s)

    def _check_usable(self) -> None:
        if self._unusable_because:
            raise self._closed_error()
        if self._in_flight_count:
            msg = (
                f"replies to {self._in_flight_count} requests are outstanding; "
                "exhaust or close the iterator of write_batches first"
            )
            raise LocalProtocolError(msg)

    def _send(self, frame: bytes) -> None:
        # Cleared at the end only: an interrupt in between leaves half a frame on the wire.
        self._unusable_because = "a call was interrupted"
        self._set_timeout(self._timeout_s)
        try:
            self._connection.sendall(frame)
        except TimeoutError as error:
            raise self._time_out(self._timeout_s) from error
        except OSError:
            # A server that refuses a connection or a frame says why before it closes, and what it
            # said can still be received; if it said nothing, receiving finds the connection lost.
            pass
        self._in_flight_count += 1
        self._unusable_because = ""

    def _receive(self, reply_class: type[ReplyT], timeout_s: float | None) -> ReplyT:
        try:
            message_type, body = self._receive_frame(timeout_s)
            reply = decode_reply(reply_class, message_type, body)
        except RemoteProtocolError as error:
            self._close(str(error))
            raise
        if isinstance(reply, PoeError):
            raise reply
        return reply

    def _receive_frame(self, timeout_s: float | None) -> tuple[int, memoryview]:
        self._unusable_because = "a call was interrupted"
        deadline_s = None if timeout_s is None else monotonic() + timeout_s
        while (frame := self._reader.next_frame()) is None:
            self._set_timeout(None if deadline_s is None else max(deadline_s - monotonic(), 1e-6))
            try:
                size = self._connection.recv_into(self._reader.buffer(self._scratch))
            except TimeoutError as error:
                raise self._time_out(timeout_s) from error
            except OSError as error:
                self._close(f"{self._peer} is gone ({error})")
                raise self._closed_error() from error
            if not size:
                self._close(f"{self._peer} closed the connection")
                raise self._closed_error()
            self._reader.received(size)
        self._in_flight_count -= 1
        self._unusable_because = ""
        return frame

    def _set_timeout(self, timeout_s: float | None) -> None:
        # Without a time-out the socket stays as it was made, which saves two system calls a call.
        if self._timeout_s is not None:
            self._connection.settimeout(timeout_s)

    def _time_out(self, timeout_s: float | None) -> CallTimeout:
        self._close("a call timed out")
        return CallTimeout(self._peer, timeout_s or 0.0)

    def _close(self, because: str) -> None:
        self._unusable_because = because
        self._connection.close()

    def _closed_error(self) -> ConnectionClosed:
        return ConnectionClosed(f"socket is not usable: {self._unusable_because}; open a new one")
