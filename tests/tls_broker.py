"""A node that is spoken to by TLS, behind what passes bytes on, and resets connections."""

import asyncio
import contextlib
import socket
from pathlib import Path
from struct import pack
from tempfile import TemporaryDirectory
from typing import Any, Self

from poe import Node
from poe.client.consumer.loop_thread import LoopThread
from poe.security import Tls
from tests.tls import Certificates

_NO_LINGER = pack("ii", 1, 0)
"""Closed with it, a connection is reset."""


class ByteProxy:
    """Listens from `start` to `stop`; belongs to one event loop."""

    def __init__(self, host: str, port: int) -> None:
        self._place = host, port
        self._clients: set[asyncio.StreamWriter] = set()
        self._server: asyncio.Server | None = None

    async def start(self) -> int:
        """Listen, and return where."""
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    async def stop(self) -> None:
        """Listen no more, and reset all connections."""
        assert self._server is not None
        self._server.close()
        await self.cut()

    async def cut(self) -> None:
        """Reset all connections."""
        for client in list(self._clients):
            end = client.get_extra_info("socket")
            end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _NO_LINGER)
            client.transport.abort()
        while self._clients:  # noqa: ASYNC110 - their tasks end at once
            await asyncio.sleep(0.001)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._clients.add(writer)
        up = None
        try:
            down, up = await asyncio.open_connection(*self._place)
            ways = [asyncio.create_task(_pass_on(*each)) for each in ((reader, up), (down, writer))]
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
            for way in ways:
                way.cancel()
            await asyncio.gather(*ways, return_exceptions=True)
        finally:
            for end in (writer, up):
                if end is not None:
                    end.transport.abort()
            self._clients.discard(writer)


async def _pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while data := await reader.read(1 << 16):
            writer.write(data)
            await writer.drain()


class TlsBroker:
    """Runs from construction to the end of a `with`; `ways` is how to get in at its url."""

    def __init__(self, certificates: Certificates, **options: Any) -> None:
        self._folder = TemporaryDirectory(prefix="poe-tls-")
        self.node = Node(
            dir=Path(self._folder.name) / "data",
            port=None,
            **{**certificates.server_options(), **options},
        ).start()
        assert self.node.tls_address is not None
        self._proxy = ByteProxy(*self.node.tls_address)
        self._loop = LoopThread("proxy", self._proxy.stop, RuntimeError)
        self.url = f"poes://127.0.0.1:{self._loop.run(self._proxy.start())}"
        self.ways = {"tls": Tls(certificates.file("ca.pem"))}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.close()
        self.node.stop()
        self._folder.cleanup()

    def cut(self) -> None:
        """Reset all connections."""
        self._loop.run(self._proxy.cut())
