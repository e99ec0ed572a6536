"""A tiny real server: a thread with a listening socket that plays a script on each connection.

It knows nothing of Poe's codec, so that a mistake there is not made twice.
"""

import contextlib
import socket
import ssl
import threading
from collections.abc import Callable
from struct import pack, unpack
from typing import Any, Self

import msgpack  # type: ignore[import-untyped]  # it ships no type hints

DEADLINE_S = 10.0


class OnlyLooked(Exception):
    """A client looks what kind of server this is, and asks nothing: no script is for that."""


class Peer:
    """The server's side of one connection."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._is_asked = False

    def receive(self) -> tuple[int, bytes]:
        """Return type and body of the next request."""
        length, message_type = unpack(">IH", self.receive_bytes(6))
        return message_type, self.receive_bytes(length - 2)

    def receive_control(self) -> dict[str, Any]:
        """Return the map of the next request, which must be a control request."""
        message_type, body = self.receive()
        assert message_type == 16
        request: dict[str, Any] = msgpack.unpackb(body)
        return request

    def asks_to_describe(self) -> bool:
        """Return whether the client asks what a topic has; nothing is received."""
        return b"describe" in self._connection.recv(200, socket.MSG_PEEK)

    def receive_bytes(self, size: int) -> bytes:
        """Return exactly `size` bytes."""
        data = b""
        while len(data) < size:
            try:
                piece = self._connection.recv(size - len(data))
            except ConnectionResetError:  # it was closed with an answer in it
                piece = b""
            if not piece and not self._is_asked:
                raise OnlyLooked
            if not piece:
                raise EOFError(data)
            data += piece
            if data.startswith(b"\x16\x03"):
                raise OnlyLooked
            self._is_asked = True
        return data

    def wait_closed(self) -> None:
        """Return when the client has closed the connection."""
        with contextlib.suppress(ConnectionResetError):
            while self._connection.recv(65536):
                pass

    def send(self, message_type: int, body: bytes) -> None:
        """Send one frame."""
        self.send_bytes(pack(">IH", 2 + len(body), message_type) + body)

    def send_control(self, request_id: object, result: object) -> None:
        """Send a control reply."""
        self.send(17, msgpack.packb({"id": request_id, "result": result}))

    def send_error(self, code: int, name: str, message: str, **values: object) -> None:
        """Send an error frame."""
        fields = {"code": code, "name": name, "message": message, "values": values}
        self.send(18, msgpack.packb(fields))

    def send_bytes(self, data: bytes, piece_size: int = 1 << 20) -> None:
        """Send bytes, in pieces where asked."""
        for start in range(0, len(data), piece_size):
            self._connection.sendall(data[start : start + piece_size])


def older(script: Callable[[Peer], None]) -> Callable[[Peer], None]:
    """Play a script as a server that describes no topics; it is asked by connections of their own.

    The client has to speak first.
    """

    def play(peer: Peer) -> None:
        if peer.asks_to_describe():
            peer.receive_control()
            peer.send_error(302, "RemoteProtocolError", "control op 'describe' is unknown")
            peer.wait_closed()
        else:
            script(peer)

    return play


def pointer_body(pointer: int) -> bytes:
    return pointer.to_bytes(7, "big")


def record(pointer: int, message: bytes) -> bytes:
    return pack(">I", 7 + len(message)) + pointer_body(pointer) + message


class ScriptedServer:
    """Plays `script` on each connection, one after the other, until the block ends.

    What a script raises is raised again at the end of the block.
    """

    tls: ssl.SSLContext | None = None
    """With which it speaks TLS; a test may set it for all that it makes."""

    def __init__(self, script: Callable[[Peer], object], tls: ssl.SSLContext | None = None) -> None:
        self._script = script
        self._tls = tls or self.tls
        self._errors: list[Exception] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._listener.settimeout(DEADLINE_S)
        self.port: int = self._listener.getsockname()[1]
        self._thread = threading.Thread(target=self._serve, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._thread.join(DEADLINE_S)
        assert not self._thread.is_alive(), "the script has not ended"
        self._listener.close()
        if self._errors:
            raise self._errors[0]

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            connection.settimeout(DEADLINE_S)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if self._tls is not None:
                try:
                    connection = self._tls.wrap_socket(connection, server_side=True)
                except OSError:  # the client's business
                    connection.close()
                    continue
            with connection:
                try:
                    with contextlib.suppress(OnlyLooked):
                        self._script(Peer(connection))
                except Exception as error:  # noqa: BLE001 - raised again in the test's thread
                    self._errors.append(error)
