"""One TCP connection of the blocking client: request frames out, replies in, in their order.

It knows how a request is sent, waited for and given up; what is asked is in `exchange.py`.
"""

import contextlib
import os
import socket as tcp
from time import monotonic
from typing import TypeAlias

from poe.errors import (
    CallTimeout,
    ConnectionClosed,
    LocalProtocolError,
    OriginalServer,
    PoeError,
    RemoteProtocolError,
)
from poe.protocol.frames import HEADER_SIZE
from poe.protocol.messages import ReplyT, decode_reply
from poe.protocol.original import HEAD_SIZE, PROBE, ReplyReader, is_original_reply, lacking
from poe.protocol.server import Server

TcpSocket: TypeAlias = tcp.socket

IN_FLIGHT_MAX = 64
"""Requests that a server takes from one connection before it has answered the first."""
_PROBE_TIMEOUT_S = 2.0


def open_connection(server: Server, timeout_s: float | None) -> tcp.socket:
    """Connect to a server.

    Raises:
        ConnectFailed: nobody listens there, or not within `timeout_s`.
    """
    try:
        connection = tcp.create_connection((server.host, server.port), timeout_s)
    except (OSError, UnicodeError, OverflowError) as error:
        raise server.unreachable(connect_failure(error)) from error
    # A request is one write; waiting to fill a packet would only delay it.
    connection.setsockopt(tcp.IPPROTO_TCP, tcp.TCP_NODELAY, 1)
    return connection


def connect_failure(error: Exception) -> str:
    """Say why no connection came about, as the system says it: the same for every client."""
    if isinstance(error, OSError) and error.errno is not None:
        # Those of name resolution are negative and have words of their own.
        return os.strerror(error.errno) if error.errno > 0 else error.strerror or str(error)
    return str(error) or "timed out"


def find_original(server: Server, head: bytes) -> OriginalServer | None:
    """Ask a server that has closed a connection whether it is the original, and lacks something.

    Args:
        server: the one that did.
        head: the begin of the request that it did not answer.
    """
    what = lacking(head)
    if not what:
        return None
    with (
        contextlib.suppress(OSError),
        tcp.create_connection((server.host, server.port), _PROBE_TIMEOUT_S) as connection,
    ):
        connection.sendall(PROBE)
        reply = b""
        while len(reply) < HEADER_SIZE and (piece := connection.recv(HEADER_SIZE - len(reply))):
            reply += piece
        if is_original_reply(reply):
            return OriginalServer(str(server), what)
    return None


class Wire:
    """The requests under way on one connection.

    Invariant: 0 <= requests in flight <= IN_FLIGHT_MAX, and 0 whenever a call begins.
    """

    def __init__(
        self, connection: tcp.socket, server: Server, *, timeout_s: float | None, frame_max: int
    ) -> None:
        self._connection = connection
        self._server = server
        self._peer = str(server)
        self._timeout_s = timeout_s
        self._frame_max = frame_max
        self._reader = ReplyReader(frame_max)
        self.in_flight_count = 0
        self._unusable_because = ""
        self._sent_head = b""

    @property
    def is_usable(self) -> bool:
        """Tell whether it can still be used: neither closed, nor broken by what came or did not."""
        return not self._unusable_because

    def call(self, frame: bytes, reply_class: type[ReplyT], extra_s: float = 0.0) -> ReplyT:
        """Send a request and wait for its reply, for `extra_s` longer than for others.

        Raises:
            LocalProtocolError: replies to earlier requests are outstanding.
            ConnectionClosed, CallTimeout, OriginalServer: no reply came.
            PoeError: the server's refusal.
        """
        self.check_usable()
        self.send(frame)
        return self.receive(reply_class, extra_s)

    def drop_replies(self, reply_class: type[ReplyT]) -> None:
        """Receive what is outstanding: the next call must not take one of it for its own."""
        while self.in_flight_count and not self._unusable_because:
            with contextlib.suppress(PoeError):
                self.receive(reply_class)

    def check_usable(self) -> None:
        """Refuse a call that cannot be made now.

        Raises:
            ConnectionClosed: it was closed, or broken.
            LocalProtocolError: replies to earlier requests are outstanding.
        """
        if self._unusable_because:
            raise self._closed_error()
        if self.in_flight_count:
            msg = (
                f"replies to {self.in_flight_count} requests are outstanding; "
                "exhaust or close the iterator of write_batches or read_ranges first"
            )
            raise LocalProtocolError(msg)

    def send(self, frame: bytes) -> None:
        """Send a request; its reply is to be received."""
        # Cleared at the end only: an interrupt in between leaves half a frame on the wire.
        self._unusable_because = "a call was interrupted"
        self._sent_head = frame[:HEAD_SIZE]
        self._set_timeout(self._timeout_s)
        try:
            self._connection.sendall(frame)
        except TimeoutError as error:
            raise self._time_out(self._timeout_s) from error
        except OSError:
            # A server that refuses a connection or a frame says why before it closes, and what it
            # said can still be received; if it said nothing, receiving finds the connection lost.
            pass
        self.in_flight_count += 1
        self._unusable_because = ""

    def receive(self, reply_class: type[ReplyT], extra_s: float = 0.0) -> ReplyT:
        """Receive the reply to the oldest request that has none; raises as `call`."""
        timeout_s = None if self._timeout_s is None else self._timeout_s + extra_s
        try:
            message_type, body = self._receive_frame(timeout_s)
            reply = decode_reply(reply_class, message_type, body)
        except RemoteProtocolError as error:
            told = self._reader.explained(error, self._peer)
            self.close(str(told))
            raise told from None
        if isinstance(reply, PoeError):
            raise reply
        return reply

    def _receive_frame(self, timeout_s: float | None) -> tuple[int, memoryview]:
        self._unusable_because = "a call was interrupted"
        deadline_s = None if timeout_s is None else monotonic() + timeout_s
        while (frame := self._reader.next_frame()) is None:
            self._set_timeout(None if deadline_s is None else max(deadline_s - monotonic(), 1e-6))
            try:
                size = self._reader.receive(self._connection.recv_into)
            except TimeoutError as error:
                raise self._time_out(timeout_s) from error
            except OSError as error:
                self.close(f"{self._peer} is gone ({error})")
                raise self._lost_error() from error
            if not size:
                self.close(f"{self._peer} closed the connection")
                raise self._lost_error()
        self.in_flight_count -= 1
        self._unusable_because = ""
        return frame

    def _set_timeout(self, timeout_s: float | None) -> None:
        # Without a time-out the socket stays as it was made, which saves two system calls a call.
        if self._timeout_s is not None:
            self._connection.settimeout(timeout_s)

    def _time_out(self, timeout_s: float | None) -> CallTimeout:
        self.close("a call timed out")
        return CallTimeout(self._peer, timeout_s or 0.0)

    def close(self, because: str) -> None:
        """Close the connection; further calls raise `ConnectionClosed`, which tells why."""
        self._unusable_because = because
        self._connection.close()

    def _lost_error(self) -> ConnectionClosed | OriginalServer:
        """Return what the end of the connection by the server means for who waits."""
        original = find_original(self._server, self._sent_head)
        if original is None:
            return self._closed_error()
        self._unusable_because = str(original)
        return original

    def _closed_error(self) -> ConnectionClosed:
        return ConnectionClosed(f"socket is not usable: {self._unusable_because}; open a new one")
