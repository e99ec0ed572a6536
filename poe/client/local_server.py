"""A node of the same process, as its clients see it: what serves a connection is not far away.

Frames go to it, and come from it, as they would through a socket; so a client is the same here and
there. Nothing here knows what a node is.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Protocol, TypeAlias

from poe.client.async_socket import AsyncSocket
from poe.client.pipeline import Pipeline
from poe.protocol import FRAME_MAX
from poe.protocol.server import Server

_PEER = "the node of this process"


class LocalConnection(Protocol):
    """What serves one client."""

    def send(self, frame: bytes) -> None:
        """Take a request; waits for nothing."""

    def close(self) -> None:
        """Serve no more; twice is harmless."""


class OpenConnection(Protocol):
    """What begins a connection."""

    def __call__(
        self, deliver: Callable[[bytes], object], end: Callable[[], object], /
    ) -> LocalConnection:
        """Begin one, which calls `deliver` with each reply, and `end` once, from any thread.

        Raises:
            NodeNotRunning: there is nobody to serve it.
        """


class LocalServer:
    """Stands where the address of a server does."""

    def __init__(self, open_connection: OpenConnection) -> None:
        self._open = open_connection

    def __str__(self) -> str:
        return _PEER

    async def connect(self) -> AsyncSocket:
        """Begin a connection, which belongs to the running event loop.

        Raises:
            NodeNotRunning: there is nobody to serve it.
        """
        pipeline = Pipeline(_PEER, FRAME_MAX)
        transport = _Transport(pipeline, asyncio.get_running_loop())
        transport.connection = self._open(transport.deliver, transport.end)
        pipeline.connection_made(transport)
        return AsyncSocket(pipeline, None, timeout_s=None, frame_max=FRAME_MAX)


AnyServer: TypeAlias = Server | LocalServer
"""A server somewhere, or the node of this process."""


class _Transport(asyncio.Transport):
    """Between a pipeline, which belongs to an event loop, and a connection, which does not."""

    connection: LocalConnection

    def __init__(self, pipeline: Pipeline, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__()
        self._pipeline = pipeline
        self._loop = loop
        self._is_closed = False

    # ---- for the pipeline -----------------------------------------------------------------------

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Send a request."""
        self.connection.send(bytes(data))

    def abort(self) -> None:
        """End the connection, and say so as an event loop would: later."""
        self.connection.close()
        self._loop.call_soon(self._lose)

    def is_closing(self) -> bool:
        """Return whether nothing can be sent any more."""
        return self._is_closed

    # ---- for the connection, in any thread ------------------------------------------------------

    def deliver(self, reply: bytes) -> None:
        """Receive a reply."""
        self._tell(self._receive, reply)

    def end(self) -> None:
        """Note that there will be no more of them."""
        self._tell(self._lose)

    def _tell(self, action: Callable[..., Any], *arguments: object) -> None:
        with suppress(RuntimeError):  # the event loop has ended, and with it all who wait
            self._loop.call_soon_threadsafe(action, *arguments)

    # ---- inside ---------------------------------------------------------------------------------

    def _receive(self, reply: bytes) -> None:
        rest = memoryview(reply)
        while rest and not self._is_closed:
            room = self._pipeline.get_buffer(len(rest))
            size = min(len(room), len(rest))
            room[:size] = rest[:size]
            self._pipeline.buffer_updated(size)
            rest = rest[size:]

    def _lose(self) -> None:
        if not self._is_closed:
            self._is_closed = True
            self._pipeline.connection_lost(None)
