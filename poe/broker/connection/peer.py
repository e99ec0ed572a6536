"""The peer of a connection: what is received from one client's socket, and sent to it.

In plaintext the connection calls the socket itself, and many records leave by `sendfile`. Over TLS
they are read, and encrypted record by record. Whoever uses a peer need not know which it is, but
for one thing: what lies decrypted in OpenSSL is nothing that the event loop would tell.

What the kernel does not take of a reply stays in the file, as the rest of one reply, never more:
the connection reads no further request before the reply is out.
"""

import abc
import contextlib
import errno
import logging
import os
import select
import socket
import ssl
from array import array
from collections.abc import Callable
from fcntl import ioctl
from termios import FIONREAD
from typing import Any, ClassVar, Self, TypeAlias

from poe.errors import ConnectionClosed
from poe.storage import OpenFile

logger = logging.getLogger("poe.broker")

Bytes: TypeAlias = bytes | memoryview
Rest: TypeAlias = tuple[Bytes, OpenFile | None, int, int]
"""Of a reply: what is left of its head, and of a file, from an offset to an end."""

_NOTHING: Rest = (b"", None, 0, 0)
# A global of this module is found faster than an attribute of another.
_MSG_MORE = socket.MSG_MORE

FIRST_BYTES = 128 << 10
TURN_BYTES = 1 << 20
"""How much a connection sends of a file at once, and at each turn that it has afterwards.

A peer that reads as fast as the kernel sends never stops a reply by itself: 500 of them, each with
a reply of 60 MB, kept everybody else waiting for seconds.
"""

_RECORD_BYTES = 16 * 1024
"""What one TLS record holds at most."""
_HEAD_BYTES = 256
"""What the head of a reply has at most, mostly."""
_READ_BYTES = 4 * _RECORD_BYTES
"""What is read of a file at once, to be encrypted: whole records."""


class Peer(abc.ABC):
    """One client's socket, which does not block; its connection owns it.

    `receive_into`, `send` and `sendmsg` do what those of a socket do, and raise BlockingIOError
    where the kernel has nothing, or takes nothing.
    """

    __slots__ = ("client", "rest")

    copied_max: ClassVar[int]
    """Records up to so many bytes are read, and leave with the head by one call."""

    receive_into: Callable[[memoryview], int]
    send: Callable[[Bytes], int]
    sendmsg: Callable[[tuple[Bytes, Bytes]], int]

    def __init__(self, client: socket.socket) -> None:
        self.client = client
        self.rest = _NOTHING
        """What the kernel has not taken of the last reply, for `push` to go on with."""

    @abc.abstractmethod
    def push(
        self,
        head: Bytes,
        file: OpenFile | None = None,
        offset: int = 0,
        end: int = 0,
        turn_bytes: int = FIRST_BYTES,
    ) -> bool:
        """Send a reply: `head`, then a file from `offset` to `end`; True when all of it is out.

        When the kernel takes no more, or the turn ends, the remainder is kept as `rest`.

        Raises:
            OSError: the peer is gone.
            ConnectionClosed: the data file was cut by another program, or cannot be read.
        """

    @abc.abstractmethod
    def close_notify(self) -> None:
        """Say, where the protocol has words for it, that nothing more will be sent."""

    @abc.abstractmethod
    def waiting_bytes(self) -> int:
        """Return how many bytes have come that were not received yet, or a few more.

        Raises:
            OSError: the socket is no more.
        """

    @abc.abstractmethod
    def _peek(self) -> bytes | None:
        """Look at the next byte: None while there is none, no byte at the end."""

    def is_open(self) -> bool:
        """Look for the end of the stream, which nobody else does while a request is served."""
        return self._peek() != b""

    def has_more(self) -> bool:
        """Return whether there is something to receive."""
        return bool(self._peek())

    def is_reset(self) -> bool:
        """Return whether something was sent to a peer that had closed."""
        return self.client.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) != 0

    def drop_rest(self) -> None:
        """Let go of the rest: the file of a deleted segment takes room on the disk until then."""
        self.rest = _NOTHING

    def _raw_bytes(self) -> int:
        """Return how many bytes the kernel has for us."""
        count = array("i", [0])
        ioctl(self.client, FIONREAD, count)
        return count[0]


class PlainPeer(Peer):
    """A client without encryption: nothing stands between the connection and the socket."""

    __slots__ = ("_descriptor", "receive_into", "send", "sendmsg")

    copied_max = 256 << 10
    """To copy 100 kB costs less than to send head and file, by which the peer is woken twice; more
    than this the kernel seldom takes at once."""

    def __init__(self, client: socket.socket) -> None:
        super().__init__(client)
        self._descriptor = client.fileno()
        self.receive_into, self.send, self.sendmsg = client.recv_into, client.send, client.sendmsg

    def push(
        self,
        head: Bytes,
        file: OpenFile | None = None,
        offset: int = 0,
        end: int = 0,
        turn_bytes: int = FIRST_BYTES,
    ) -> bool:
        """Send a reply; the kernel takes the records out of the file by itself."""
        turn_end = min(offset + turn_bytes, end)
        try:
            while head:
                # MSG_MORE lets head and records leave in one packet.
                head = head[self.client.send(head, _MSG_MORE if offset < end else 0) :]
            while offset < turn_end:
                assert file is not None
                sent = os.sendfile(self._descriptor, file.fileno(), offset, turn_end - offset)
                if not sent:
                    raise cut_short()
                offset += sent
        except BlockingIOError:
            self.rest = (head or b"", file, offset, end)
            return False
        except OSError as error:
            if error.errno == errno.EIO:  # sockets have no such error: it is the file's
                raise cut_short(error) from error
            raise
        if offset < end:
            self.rest = (b"", file, offset, end)
            return False
        self.rest = _NOTHING
        return True

    def close_notify(self) -> None:
        """Say nothing: the end of the stream is all there is."""

    def waiting_bytes(self) -> int:
        """Return how many bytes the kernel has for us."""
        return self._raw_bytes()

    def _peek(self) -> bytes | None:
        try:
            return self.client.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            return None
        except OSError:
            return b""


class TlsPeer(Peer):
    """A client behind TLS, whose handshake is done or under way.

    OpenSSL holds at most one record that was decrypted and not received. The event loop does not
    tell of it: who waits for more asks `has_pending` first.

    A record that OpenSSL has encrypted must leave as it is. Where the kernel did not take it, the
    next call has to offer at least as many bytes, which `push` does: it begins where it stopped.
    """

    copied_max = _RECORD_BYTES - _HEAD_BYTES

    __slots__ = ("_ahead", "_tls", "is_mid_record", "is_owing")

    def __init__(self, client: ssl.SSLSocket) -> None:
        super().__init__(client)
        self._tls = client
        self._ahead: bytes | None = None
        """What `_peek` took, for nobody can look into an encrypted stream: a byte, or the end."""
        self.is_mid_record = False
        """Whether bytes came of which OpenSSL could make nothing yet: of a record, mostly."""

        self.is_owing = False
        """Whether that is so, or `has_pending` may be true: else nobody has to ask."""

    # ---- arriving -----------------------------------------------------------------------------

    @classmethod
    def of(cls, client: socket.socket, context: ssl.SSLContext) -> Self:
        """Take over an accepted client, which is to shake hands with a context.

        Raises:
            OSError: it has gone meanwhile.
        """
        # Asked first: the socket of one who has gone would be wrapped, and stay open when that
        # fails.
        client.getpeername()
        return cls(context.wrap_socket(client, server_side=True, do_handshake_on_connect=False))

    def shake_hands(self) -> None:
        """Go on with the handshake; done when this returns.

        Raises:
            ssl.SSLWantReadError, ssl.SSLWantWriteError: it waits for the peer.
            OSError: there will be none.
        """
        self._tls.do_handshake()
        # Without it a client that fills packets waits 40 ms for word that its last ones have come:
        # nothing of ours follows a handshake, and its first request would be the next packet.
        self.client.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 1)

    @property
    def address(self) -> str:
        """Where the client is, for the log."""
        try:
            host, port, *_ = self._tls.getpeername()
        except OSError:
            return "a client that is gone"
        return f"{host} port {port}"

    @property
    def protocol(self) -> str | None:
        """What both sides have said that they speak."""
        return self._tls.selected_alpn_protocol()

    @property
    def certificate(self) -> bytes | None:
        """The client's certificate, as DER, which an authority that is trusted stands for."""
        return self._tls.getpeercert(binary_form=True)

    @property
    def names(self) -> tuple[str, ...]:
        """The alternative names in the client's certificate: `URI:…` and `DNS:…`."""
        names = self._told.get("subjectAltName", ())
        return tuple(f"{kind}:{name}" for kind, name in names if kind in {"URI", "DNS"})

    @property
    def expires_s(self) -> float | None:
        """When the client's certificate expires, in seconds since the epoch; None without one.

        Raises:
            ConnectionAbortedError: nobody can read what is in it.
        """
        told = self._told
        return ssl.cert_time_to_seconds(told["notAfter"]) if "notAfter" in told else None

    @property
    def _told(self) -> dict[str, Any]:
        try:
            return self._tls.getpeercert() or {}
        except UnicodeDecodeError:
            msg = "its certificate has a name that is no text"
            raise ConnectionAbortedError(msg) from None

    # ---- receiving ----------------------------------------------------------------------------

    def receive_into(self, room: memoryview) -> int:
        """Receive what is there, several records of it if they are full ones."""
        ahead, self._ahead = self._ahead, None
        if ahead is not None:
            size = len(ahead)
            room[:size] = ahead
            is_cut = self._tls.pending() and len(room) > size
            return size + self._read(room[size:]) if is_cut else size
        size = self._read(room)
        if size != _RECORD_BYTES:
            return size
        try:
            # Only while there are bytes: what cannot be read of them then is a part of a record.
            while size % _RECORD_BYTES == 0 and size < len(room) and self._raw_bytes():
                received = self._read(room[size:])
                if not received:
                    self._keep(b"")  # the kernel tells of a reset but once
                    break
                size += received
        except BlockingIOError:
            pass
        except ConnectionError:  # so newer Pythons tell of a reset
            self._keep(b"")
        return size

    def _read(self, room: memoryview) -> int:
        """Receive of one record.

        Raises:
            BlockingIOError: no record is whole.
        """
        try:
            size = self._tls.recv_into(room)
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            self.is_mid_record = self.is_owing = True
            raise BlockingIOError from None
        self.is_mid_record = False
        self.is_owing = size == len(room)
        return size

    def _keep(self, ahead: bytes) -> None:
        self._ahead = ahead
        self.is_owing = True

    def has_pending(self) -> bool:
        """Return whether something is decrypted, or the end seen, that was not received."""
        return self._ahead is not None or self._tls.pending() > 0

    def waiting_bytes(self) -> int:
        """Return how many bytes are there, encrypted or not."""
        return len(self._ahead or b"") + self._tls.pending() + self._raw_bytes()

    def _peek(self) -> bytes | None:
        """Take the next byte, and keep it for `receive_into`.

        That the kernel has bytes proves nothing: the peer's farewell is encrypted as all else is.
        """
        if self._ahead is None:
            try:
                if not (self._tls.pending() or self._is_readable()):
                    return None
                byte = bytearray(1)
                self._keep(bytes(byte[: self._read(memoryview(byte))]))
            except BlockingIOError:
                return None
            except OSError:
                return b""
        return self._ahead

    def _is_readable(self) -> bool:
        """Return whether the kernel has bytes, or the end of the stream."""
        poll = select.poll()
        poll.register(self.client, select.POLLIN)
        return bool(poll.poll(0))

    # ---- sending ------------------------------------------------------------------------------

    def send(self, content: Bytes) -> int:
        """Send of one record."""
        try:
            return self._tls.send(content)
        except ssl.SSLWantWriteError:
            raise BlockingIOError from None
        except ssl.SSLWantReadError:
            # Waited for, this would be a loop without an end: it is writable all the time.
            msg = "the peer wants to be heard before it is answered"
            raise ConnectionResetError(msg) from None

    def sendmsg(self, parts: tuple[Bytes, Bytes]) -> int:
        """Send what goes into one record."""
        return self.send(b"".join(parts))

    def push(
        self,
        head: Bytes,
        file: OpenFile | None = None,
        offset: int = 0,
        end: int = 0,
        turn_bytes: int = FIRST_BYTES,
    ) -> bool:
        """Send a reply; its records are read, and leave as full packets where they are many."""
        turn_end = min(offset + turn_bytes, end)
        # A view: cut off record by record, a large head would be copied each time.
        head = memoryview(head)
        is_corked = len(head) + end - offset > _RECORD_BYTES
        if is_corked:
            self.client.setsockopt(socket.IPPROTO_TCP, socket.TCP_CORK, 1)
        try:
            while head or offset < turn_end:
                part = memoryview(_next_part(head, file, offset, end))
                while part:
                    sent = self.send(part)
                    part = part[sent:]
                    offset += max(sent - len(head), 0)
                    head = head[sent:]
        except BlockingIOError:
            self.rest = (head or b"", file, offset, end)
            return False
        finally:
            if is_corked:
                with contextlib.suppress(OSError):  # the peer is gone, as the other error says
                    self.client.setsockopt(socket.IPPROTO_TCP, socket.TCP_CORK, 0)
        if offset < end:
            self.rest = (b"", file, offset, end)
            return False
        self.rest = _NOTHING
        return True

    def close_notify(self) -> None:
        """Say that nothing more will be sent; the peer's own farewell is not waited for."""
        # Where it cannot be said now, the end of the stream says the same.
        with contextlib.suppress(OSError, ValueError):
            self._tls.unwrap()


def _next_part(head: Bytes, file: OpenFile | None, offset: int, end: int) -> Bytes:
    """Return the next bytes of a reply: a full TLS record at least, unless it ends before.

    Raises:
        ConnectionClosed: the data file was cut by another program, or cannot be read.
    """
    # With a head it is copied once more: as little of it as goes into one record.
    room_bytes = (_RECORD_BYTES if head else _READ_BYTES) - len(head)
    size = min(room_bytes, end - offset)
    if size <= 0:
        return head
    assert file is not None
    try:
        content = file.read_at(size, offset)
    except OSError as error:
        raise cut_short(error) from error
    if len(content) < size:
        raise cut_short()
    return b"".join((head, content)) if head else content


def cut_short(error: OSError | None = None) -> ConnectionClosed:
    """Say that the data file was cut by another program, or of what error it cannot be read.

    Padding would be taken for records; a closed connection is understood.
    """
    msg = "data file is shorter than announced"
    if error is not None:
        msg = f"data file cannot be read ({error.strerror or error})"
    logger.error("a reply was cut short: the %s", msg)
    return ConnectionClosed(msg)
