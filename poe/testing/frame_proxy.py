"""Stands between clients and a server of Poe on loopback, and fails where it is told to.

It passes whole frames on, so that a put can be answered with an error in its turn, or its answer be
lost once it was stored.
"""

import asyncio
import contextlib
import socket
import ssl
from collections import deque
from struct import pack, unpack

from poe.errors import PoeError
from poe.protocol import IN_FLIGHT_MAX, ErrorReply
from poe.protocol.frames import HEADER_SIZE, PUT_REQUEST, SEQUENCED_PUT_REQUEST, TYPE_SIZE

_PUTS = {PUT_REQUEST, SEQUENCED_PUT_REQUEST}
# What a client is to get for a request, where it is not the frame that stands in their place.
_THE_SERVERS = "the server's answer"
_NONE = "a lost connection"
_NO_LINGER = pack("ii", 1, 0)
"""Closed with it, a connection is reset: the peer sees an error, as where a process is killed."""


class FrameProxy:
    """Listens from `start` to `stop`, always at the same port; belongs to one event loop."""

    def __init__(self, host: str, port: int, tls: ssl.SSLContext | None = None) -> None:
        """Stand before a server, which is spoken to by TLS where `tls` is given."""
        self._server_address = (host, port)
        self._tls = tls
        self._listener: socket.socket | None = None
        self._links: dict[asyncio.Task[None], socket.socket] = {}
        self.port = 0
        """Where it listens; known when it was started once."""

        self.latency_s = 0.0
        """How long each request is kept before it is passed on."""

        self.failures: deque[PoeError] = deque()
        """What the next puts are answered with; they do not reach the server."""

        self.lost_count = 0
        """So many of the next puts are stored, and their connection reset then."""

    async def start(self) -> None:
        """Listen, if it does not."""
        if self._listener is None:
            self._listener = socket.create_server(("127.0.0.1", self.port))
            self._listener.setblocking(False)
            self.port = self._listener.getsockname()[1]
            asyncio.get_running_loop().add_reader(self._listener, self._accept, self._listener)

    async def stop(self) -> None:
        """Listen no more, and reset all connections."""
        listener, self._listener = self._listener, None
        if listener is not None:
            asyncio.get_running_loop().remove_reader(listener)
            listener.close()
        await self.cut()

    async def cut(self) -> None:
        """Reset all connections."""
        for link in self._links:
            link.cancel()
        if self._links:
            await asyncio.wait(self._links)

    def _accept(self, listener: socket.socket) -> None:
        # Not by asyncio.start_server: when that is closed, it forgets connections that it has just
        # accepted, and leaves them open for ever.
        with contextlib.suppress(OSError):
            client, _ = listener.accept()
            link = asyncio.get_running_loop().create_task(self._serve(client))
            self._links[link] = client
            # One that is cut before its first step would never close it.
            link.add_done_callback(lambda done: self._links.pop(done).close())

    async def _serve(self, client: socket.socket) -> None:
        """Pass on until one side is gone, or both are cut."""
        reader, writer = await asyncio.open_connection(sock=client)
        try:
            server = await asyncio.open_connection(*self._server_address, ssl=self._tls)
        except (OSError, asyncio.CancelledError):
            _reset(writer)
            return
        link = _Link(self, (reader, writer), server)
        try:
            await link.run()
        except asyncio.CancelledError:
            link.reset()


_Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class _Link:
    """One client's connection, and the one to the server behind it."""

    def __init__(self, proxy: FrameProxy, client: _Streams, server: _Streams) -> None:
        self._proxy = proxy
        self._from_client, self._to_client = client
        self._from_server, self._to_server = server
        self._waiting: asyncio.Queue[tuple[float, int, bytes]] = asyncio.Queue(IN_FLIGHT_MAX)
        self._answers: deque[str | bytes] = deque()

    async def run(self) -> None:
        """Pass on until one side is gone; then the other goes, too."""
        try:
            async with asyncio.TaskGroup() as group:
                for step in (self._take_requests, self._pass_requests, self._pass_replies):
                    group.create_task(step())
        except* (OSError, EOFError):
            pass
        for writer in (self._to_client, self._to_server):
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()

    def reset(self) -> None:
        """End both connections as if the peer had died."""
        _reset(self._to_client)
        _reset(self._to_server)

    async def _take_requests(self) -> None:
        clock_s = asyncio.get_running_loop().time
        while True:
            message_type, frame = await _read_frame(self._from_client)
            await self._waiting.put((clock_s() + self._proxy.latency_s, message_type, frame))

    async def _pass_requests(self) -> None:
        clock_s = asyncio.get_running_loop().time
        while True:
            due_s, message_type, frame = await self._waiting.get()
            await asyncio.sleep(max(0.0, due_s - clock_s()))
            is_put = message_type in _PUTS
            if is_put and self._proxy.failures:
                error = self._proxy.failures.popleft()
                self._answers.append(ErrorReply.from_error(error).encode())
                self._send_own_answers()
                continue
            is_lost = is_put and self._proxy.lost_count > 0
            self._proxy.lost_count -= is_lost
            self._answers.append(_NONE if is_lost else _THE_SERVERS)
            self._to_server.write(frame)
            await self._to_server.drain()

    async def _pass_replies(self) -> None:
        while True:
            _, frame = await _read_frame(self._from_server)
            # A server that refuses a connection says why before it was asked anything.
            if self._answers and self._answers.popleft() is _NONE:
                self.reset()
                return
            self._to_client.write(frame)
            self._send_own_answers()
            await self._to_client.drain()

    def _send_own_answers(self) -> None:
        """Send what stands before the next answer of the server."""
        while self._answers and isinstance(self._answers[0], bytes):
            self._to_client.write(self._answers.popleft())  # type: ignore[arg-type]  # looked at


async def _read_frame(reader: asyncio.StreamReader) -> tuple[int, bytes]:
    """Return type and all bytes of the next frame.

    Raises:
        EOFError, OSError: the peer is gone.
    """
    header = await reader.readexactly(HEADER_SIZE)
    length, message_type = unpack(">IH", header)
    return message_type, header + await reader.readexactly(length - TYPE_SIZE)


def _reset(writer: asyncio.StreamWriter) -> None:
    connection = writer.get_extra_info("socket")
    with contextlib.suppress(OSError):
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _NO_LINGER)
    writer.transport.abort()
