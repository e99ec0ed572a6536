"""One TCP connection of the blocking client: request frames out, replies in, in their order.

It knows how a request is sent, waited for and given up; what is asked is in `exchange.py`.
"""

import contextlib
import logging
import math
import os
import socket as tcp
import ssl
from collections.abc import Sequence
from time import monotonic
from typing import Any, TypeVar
from weakref import WeakSet

from poe.errors import (
    CallTimeout,
    ConnectionClosed,
    LocalProtocolError,
    OriginalServer,
    PoeError,
    RemoteProtocolError,
    TlsFailed,
)
from poe.protocol.exchange import Exchange
from poe.protocol.frames import FRAME_MAX, HEADER_SIZE
from poe.protocol.handshake import (
    HANDSHAKE_TIMEOUT_S,
    client_hello,
    handshake_failure,
    is_tls,
)
from poe.protocol.login import Login, channel_of
from poe.protocol.messages import ReplyT, decode_reply
from poe.protocol.original import HEAD_SIZE, PROBE, ReplyReader, is_original_reply, lacking
from poe.protocol.renewal import Renewal
from poe.protocol.server import Server
from poe.security.tls import client_context, server_hostname, tls_failed

T = TypeVar("T")

_log = logging.getLogger(__name__)

IN_FLIGHT_MAX = 64
"""Requests that a server takes from one connection before it has answered the first."""
_PROBE_TIMEOUT_S = 2.0
_ALERT_TIMEOUT_S = 0.5
_wires: "WeakSet[Wire]" = WeakSet()


def open_wire(
    server: Server,
    timeout_s: float | None,
    frame_max: int = FRAME_MAX,
    connect_timeout_s: float | None = None,
) -> "Wire":
    """Connect to a server, by TLS and with a login where its entry says so.

    Raises:
        ConnectFailed: nobody listens there, or not within the shorter one of the two times.
        TlsFailed: what there is is no TLS connection to that server.
        AuthenticationFailed: the credentials are wrong.
        PoeError: they cannot be used, or the server has refused the login otherwise.
    """
    limits_s = [each for each in (timeout_s, connect_timeout_s) if each is not None]
    limit_s = min(limits_s, default=None)
    end_s = None if limit_s is None else monotonic() + limit_s
    try:
        connection = _connected(server, end_s)
    except (OSError, UnicodeError, OverflowError) as error:
        raise server.unreachable(connect_failure(error)) from error
    try:
        # A request is one write; waiting to fill a packet would only delay it.
        connection.setsockopt(tcp.IPPROTO_TCP, tcp.TCP_NODELAY, 1)
        if server.entry.tls is not None:
            connection = _encrypted(connection, server, _left_s(end_s))
        wire = Wire(connection, server, timeout_s=_left_s(end_s), frame_max=frame_max)
        wire.log_in()
    except ConnectionClosed as error:
        raise server.unreachable(str(error)) from error
    except CallTimeout as error:
        reason = f"no answer to the login within {limit_s:g} s; after failures it comes later"
        raise server.unreachable(reason) from error
    except BaseException:
        connection.close()
        raise
    wire.set_timeout(timeout_s)
    return wire


def _connected(server: Server, end_s: float | None) -> tcp.socket:
    """Connect to the first address that answers; one that swallows packets takes its share of time.

    Raises:
        OSError: none does; it is what the last one has come to.
        UnicodeError, OverflowError: it is no name, or no port.
    """
    if end_s is None:
        return tcp.create_connection((server.host, server.port))
    found = tcp.getaddrinfo(server.host, server.port, type=tcp.SOCK_STREAM)
    while True:
        place = place_of(found.pop(0)[-1])
        try:
            share_s = max(end_s - monotonic(), 1e-6) / (len(found) + 1)
            return tcp.create_connection(place, share_s)
        except OSError:
            if not found:
                raise


def place_of(address: Sequence[Any]) -> tuple[str, int]:
    """Return host and port of an address that was found, with its network where it is link-local.

    `fe80::1` may be there in each of them: the number behind says which is meant.
    """
    host, port, *rest = address
    return f"{host}%{rest[1]}" if rest and rest[1] else str(host), int(port)


def _left_s(end_s: float | None) -> float | None:
    return None if end_s is None else max(end_s - monotonic(), 1e-6)


def _in_time(limit_s: float, end_s: float) -> float:
    return max(min(limit_s, end_s - monotonic()), 1e-6)


def _encrypted(connection: tcp.socket, server: Server, limit_s: float | None) -> ssl.SSLSocket:
    """Do the handshake of TLS.

    Raises:
        TlsFailed, ConnectFailed: it has failed; the connection is closed.
        SecurityFileError: a file of the entry cannot be used.
    """
    tls = server.entry.tls
    assert tls is not None
    context = client_context(tls)
    connection.settimeout(min(limit_s or HANDSHAKE_TIMEOUT_S, HANDSHAKE_TIMEOUT_S))
    try:
        encrypted = context.wrap_socket(
            connection, server_hostname=server_hostname(tls, server.host)
        )
    except (OSError, ValueError) as error:
        raise handshake_failure(server, error) from error
    encrypted.settimeout(limit_s)
    return encrypted


def _send_in_time(connection: ssl.SSLSocket, frame: bytes, limit_s: float) -> None:
    """Send all of it; `sendall` of an SSLSocket may take as long for each record.

    Raises:
        OSError: the connection is lost, or time is over.
    """
    end_s = monotonic() + limit_s
    rest = memoryview(frame)
    while rest:
        connection.settimeout(_left_s(end_s))
        rest = rest[connection.send(rest) :]


def connect_failure(error: Exception) -> str:
    """Say why no connection came about, as the system says it: the same for every client."""
    if isinstance(error, OSError) and error.errno is not None:
        # Those of name resolution are negative and have words of their own.
        return os.strerror(error.errno) if error.errno > 0 else error.strerror or str(error)
    return str(error) or "timed out"


def find_cause(
    server: Server,
    head: bytes,
    error: Exception | None = None,
    *,
    is_answered: bool = False,
    limit_s: float | None = None,
) -> OriginalServer | TlsFailed | None:
    """Find out what kind of server has closed a connection instead of answering.

    It is the original, and lacks something; or it speaks TLS, and the client does not, or has not
    shown the certificate that it wants.

    Args:
        server: the one that did.
        head: the begin of the request that it did not answer.
        error: of the connection, if it had one.
        is_answered: whether it has answered anything on this connection.
        limit_s: how long this may take; None for as long as its questions need.
    """
    end_s = math.inf if limit_s is None else monotonic() + limit_s
    if server.entry.tls is not None:
        return None if is_answered else _find_alert(server, error, end_s)
    if what := lacking(head):
        reply = _probe(server, PROBE, end_s)
        if is_original_reply(reply):
            return OriginalServer(str(server), what)
        if reply:
            return None
    if is_answered or not is_tls(_probe(server, client_hello(), end_s)):
        return None
    return server.not_safe("it speaks TLS; use poes://, or `tls`")


def _find_alert(server: Server, error: Exception | None, end_s: float) -> TlsFailed | None:
    """Find out whether a server has closed a connection for the client's certificate."""
    if isinstance(error, ConnectionError):
        error = _hear_out(server, end_s)
    is_end = isinstance(error, ssl.SSLEOFError | ssl.SSLZeroReturnError)
    if is_end or not isinstance(error, ssl.SSLError):
        return None
    return tls_failed(server.host, server.port, error)


def _hear_out(server: Server, end_s: float) -> Exception | None:
    """Return the error with which a server ends a connection on which nothing is asked.

    What it says of a client's certificate comes behind the handshake, and is lost where a request
    comes to a connection that it has closed.
    """
    try:
        place = server.host, server.port
        with (
            tcp.create_connection(place, _in_time(_PROBE_TIMEOUT_S, end_s)) as connection,
            _encrypted(connection, server, _in_time(_ALERT_TIMEOUT_S, end_s)) as encrypted,
        ):
            encrypted.recv(1)
    except (OSError, PoeError) as error:
        return error
    return None


def _probe(server: Server, request: bytes, end_s: float) -> bytes:
    """Return the first bytes of what a server answers; none where it hangs up, or is mute."""
    reply, place = b"", (server.host, server.port)
    with (
        contextlib.suppress(OSError),
        tcp.create_connection(place, _in_time(_PROBE_TIMEOUT_S, end_s)) as connection,
    ):
        connection.sendall(request)
        while len(reply) < HEADER_SIZE:
            connection.settimeout(_in_time(_PROBE_TIMEOUT_S, end_s))
            piece = connection.recv(HEADER_SIZE - len(reply))
            if not piece:
                break
            reply += piece
    return reply


class Wire:
    """The requests under way on one connection.

    Invariant: 0 <= requests in flight <= IN_FLIGHT_MAX, and 0 whenever a call begins.

    A login that has an end is renewed before the next call, when its time has come.
    """

    def __init__(
        self, connection: tcp.socket, server: Server, *, timeout_s: float | None, frame_max: int
    ) -> None:
        self.connection = connection
        self._server = server
        self._peer = str(server)
        address = None
        with contextlib.suppress(OSError):  # lost already
            address = connection.getpeername()
        tls = connection if isinstance(connection, ssl.SSLSocket) else None
        self.channel = channel_of(server, address, tls)
        self.renewal: Renewal | None = None
        """Of the login; None where there is none, or it has no end."""
        self._is_answered = False
        self._timeout_s = timeout_s
        self._reader = ReplyReader(frame_max)
        self.in_flight_count = 0
        self._unusable_because = ""
        self._sent_head = b""
        _wires.add(self)

    @property
    def is_usable(self) -> bool:
        """Return whether it can still be used: not closed, nor broken by what came or did not."""
        return not self._unusable_because

    def call(self, frame: bytes, reply_class: type[ReplyT], extra_s: float = 0.0) -> ReplyT:
        """Send a request and wait for its reply, for `extra_s` longer than for others.

        Raises:
            LocalProtocolError: replies to earlier requests are outstanding.
            ConnectionClosed, CallTimeout, OriginalServer: no reply came.
            PoeError: the server's refusal.
        """
        self.prepare(extra_s)
        try:
            self.send(frame)
            return self.receive(reply_class, extra_s)
        finally:
            if self.in_flight_count and self.is_usable:  # by an interrupt between the two
                self.close("a call was interrupted")

    def ask(self, asked: Exchange[T]) -> T:
        """Return what a request comes to, which may be one request after the other.

        Raises:
            PoeError: as `call`, or as the exchange says.
        """
        while True:
            frame, reply_class, finish, refused, extra_s, _ = asked
            try:
                reply = self.call(frame, reply_class, extra_s)
            except PoeError as error:
                found = refused(error)
                if isinstance(found, PoeError):
                    del found  # it refers to this frame
                    raise
            else:
                if asked.id is not None and (because := asked.mismatch(reply)):
                    self.close(because)
                    raise RemoteProtocolError(because)
                found = finish(reply)
            if not isinstance(found, Exchange):
                return found
            asked = found

    def log_in(self) -> None:
        """Say who the client is, where it has credentials; on a connection that goes on, again.

        Raises:
            AuthenticationFailed: they are wrong.
            PoeError: they cannot be used, or another refusal; or as `call`.
        """
        if self._server.entry.credentials is None:
            return
        self.renewal = None
        login = Login(self._server, self.channel)
        asked = login.step()
        while asked is not None:
            asked = login.step(self.ask(asked))
        if login.expires_s is not None:
            self.renewal = Renewal(login.expires_s, monotonic())

    def is_to_renew(self, extra_s: float = 0.0) -> bool:
        """Return whether the login is to be renewed before a call that lets the server wait."""
        return self.renewal is not None and monotonic() + extra_s >= self.renewal.due_s

    def _renew(self, renewal: Renewal) -> None:
        """Log in again; where that fails the old login is used up.

        Raises:
            PoeError: as `log_in`, where nothing of it is left, or the connection is lost by it.
        """
        try:
            self.log_in()
        except PoeError as error:
            if not self.is_usable or renewal.is_over(monotonic()):
                raise
            _log.warning("%s: the login is not renewed, and tried again: %s", self._peer, error)
            renewal.put_off(monotonic())
            self.renewal = renewal

    def drop_replies(self, reply_class: type[ReplyT]) -> None:
        """Receive what is outstanding: the next call must not take one of it for its own."""
        while self.in_flight_count and not self._unusable_because:
            with contextlib.suppress(PoeError):
                self.receive(reply_class)

    def prepare(self, extra_s: float = 0.0) -> None:
        """Refuse a call that cannot be made now; renew the login where that is due before its end.

        Raises:
            ConnectionClosed: it was closed, or broken.
            LocalProtocolError: replies to earlier requests are outstanding.
            PoeError: as `log_in`, where the old login is good no more.
        """
        if self._unusable_because:
            raise self._closed_error()
        if self.in_flight_count:
            msg = (
                f"replies to {self.in_flight_count} requests are outstanding; "
                "exhaust or close the iterator of write_batches or read_ranges first"
            )
            raise LocalProtocolError(msg)
        if self.renewal is not None and self.is_to_renew(extra_s):
            self._renew(self.renewal)

    def send(self, frame: bytes) -> None:
        """Send a request; its reply is to be received."""
        # Cleared at the end only: an interrupt in between leaves half a frame on the wire.
        self._unusable_because = "a call was interrupted"
        self._sent_head = frame[:HEAD_SIZE]
        self._limit(self._timeout_s)
        try:
            if self._timeout_s is None or not isinstance(self.connection, ssl.SSLSocket):
                self.connection.sendall(frame)
            else:
                _send_in_time(self.connection, frame, self._timeout_s)
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
            try:
                raise reply
            finally:
                del reply  # it refers to this frame
        return reply

    def _receive_frame(self, timeout_s: float | None) -> tuple[int, memoryview]:
        self._unusable_because = "a call was interrupted"
        deadline_s = None if timeout_s is None else monotonic() + timeout_s
        while (frame := self._reader.next_frame()) is None:
            self._limit(None if deadline_s is None else max(deadline_s - monotonic(), 1e-6))
            try:
                size = self._reader.receive(self.connection.recv_into)
            except TimeoutError as error:
                raise self._time_out(timeout_s) from error
            except OSError as error:
                self.close(f"{self._peer} is gone ({error})")
                raise self._lost_error(deadline_s, error) from error
            if not size:
                self.close(f"{self._peer} closed the connection")
                raise self._lost_error(deadline_s)
        self.in_flight_count -= 1
        self._unusable_because = ""
        self._is_answered = True
        return frame

    def set_timeout(self, timeout_s: float | None) -> None:
        """Have each call from now on take no longer than that."""
        if self._timeout_s is not None:
            self.connection.settimeout(timeout_s)
        self._timeout_s = timeout_s

    def _limit(self, timeout_s: float | None) -> None:
        # Without a time-out the socket stays as it was made, which saves two system calls a call.
        if self._timeout_s is not None:
            self.connection.settimeout(timeout_s)

    def _time_out(self, timeout_s: float | None) -> CallTimeout:
        self.close("a call timed out")
        return CallTimeout(self._peer, timeout_s or 0.0)

    def close(self, because: str) -> None:
        """Close the connection; further calls raise `ConnectionClosed`, which tells why."""
        self._unusable_because = because
        self.connection.close()

    def _lost_error(self, deadline_s: float | None, error: OSError | None = None) -> PoeError:
        """Return what the end of the connection by the server means for who waits until then."""
        cause = find_cause(
            self._server,
            self._sent_head,
            error,
            is_answered=self._is_answered,
            limit_s=_left_s(deadline_s),
        )
        if cause is None:
            return self._closed_error()
        self._unusable_because = str(cause)
        return cause

    def _closed_error(self) -> ConnectionClosed:
        return ConnectionClosed(f"socket is not usable: {self._unusable_because}; open a new one")


def _leave_all() -> None:
    """Leave all connections to the other process: it would take replies to what is asked here."""
    for each in _wires:
        each._unusable_because = "it belongs to the process that this is a fork of"  # noqa: SLF001 - of this module


os.register_at_fork(after_in_child=_leave_all)
