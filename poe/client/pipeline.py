"""One asyncio connection: frames out, and each reply to the future of its request.

Replies keep the order of the requests, so a queue of waiters is all the matching there is. The
reply to a request whose waiter was cancelled is dropped in its turn.
"""

import asyncio
from collections import deque
from typing import Any, cast

from poe.errors import ConnectionClosed, PoeError, RemoteProtocolError
from poe.protocol import IN_FLIGHT_MAX, ErrorReply, decode_reply
from poe.protocol.messages import ReplyT
from poe.protocol.original import ReplyReader


class Pipeline(asyncio.BufferedProtocol):
    """The requests under way on one connection; belongs to one event loop.

    Invariants:
        waiters, cancelled ones included == requests without a reply <= IN_FLIGHT_MAX
        bytes that wait to be sent <= high-water mark of the transport + one frame
    """

    def __init__(self, peer: str, frame_max: int) -> None:
        self.peer = peer
        self.is_lost = False
        """Whether the server has ended the connection."""
        self.error: Exception | None = None
        """With which it did."""
        self.is_answered = False
        """Whether it has answered anything."""
        self.foreign = ""
        """How what answers is known for no server of Poe; empty: it may be one."""
        self._reader = ReplyReader(frame_max)
        self._waiters: deque[tuple[asyncio.Future[Any], type[Any]]] = deque()
        self._transport: asyncio.Transport | None = None
        self._last_words = ""
        self._closed_because = ""
        self._paused = False
        self._turn = asyncio.Lock()
        self._ready = asyncio.Event()
        self._lost = asyncio.Event()

    @property
    def is_open(self) -> bool:
        """Whether a request may be sent, as far as is known here."""
        return self._transport is not None and not self._transport.is_closing()

    async def send(self, frame: bytes, reply_class: type[ReplyT]) -> "asyncio.Future[ReplyT]":
        """Send a request as soon as there is room for one more, and return the future of its reply.

        Cancelled before it returns, it has sent nothing; afterwards the request is on its way.

        Raises:
            ConnectionClosed: nothing was sent.
        """
        # The lock keeps requests in the order of their calls; the event alone would not.
        async with self._turn:
            while not self._ready.is_set():
                await self._ready.wait()
            # A transport that failed to send closes at once, but tells us only later.
            if self._transport is None or not self.is_open:
                because = self._closed_because or f"{self.peer} is gone"
                msg = f"connection is not usable: {because}; open a new one"
                raise ConnectionClosed(msg)
            waiter: asyncio.Future[ReplyT] = asyncio.get_running_loop().create_future()
            self._waiters.append((waiter, reply_class))
            self._transport.write(frame)
            self._update_ready()
            return waiter

    async def close(self, because: str) -> None:
        """Close the connection and fail all who wait; return when it is gone."""
        self._end(because)
        await self._lost.wait()

    # ---- called by the transport --------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take the transport of the new connection."""
        # No isinstance: the transports of uvloop are of no asyncio class.
        self._transport = cast(asyncio.Transport, transport)
        self._update_ready()

    def pause_writing(self) -> None:
        """Hold requests back until the server has taken what was sent."""
        self._paused = True
        self._update_ready()

    def resume_writing(self) -> None:
        """Let requests go on."""
        self._paused = False
        self._update_ready()

    def get_buffer(self, sizehint: int) -> memoryview:
        """Return where to receive into."""
        del sizehint
        return self._reader.buffer()

    def buffer_updated(self, nbytes: int) -> None:
        """Hand each whole reply to its waiter; end the connection on one that makes no sense."""
        self._reader.received(nbytes)
        try:
            while (frame := self._reader.next_frame()) is not None:
                self._hand_out(*frame)
        except RemoteProtocolError as error:
            told = self._reader.explained(error, self.peer)
            if told is not error and not self.is_answered:
                self.foreign = str(told)
            self._end(str(told))
        self._update_ready()

    def connection_lost(self, exc: Exception | None) -> None:
        """Fail all who still wait."""
        self.is_lost, self.error = not self._closed_because, exc
        reason = self._last_words or f"{self.peer} closed the connection"
        self._end(reason if exc is None else f"{self.peer} is gone ({exc})")
        self._lost.set()

    # ---- inside -------------------------------------------------------------------------------

    def _hand_out(self, message_type: int, body: memoryview) -> None:
        if not self._waiters:
            self._take_last_words(message_type, body)
            return
        waiter, reply_class = self._waiters[0]
        # Stays in the queue until decoded: when that fails, it is told so like all the others.
        reply = None if waiter.done() else decode_reply(reply_class, message_type, body)
        self._waiters.popleft()
        self.is_answered = True
        if isinstance(reply, PoeError):
            waiter.set_exception(reply)
        elif reply is not None:
            waiter.set_result(reply)

    def _take_last_words(self, message_type: int, body: memoryview) -> None:
        """Keep the error of a server that refuses the connection, which it then closes."""
        if message_type != ErrorReply.MESSAGE_TYPE:
            msg = f"frame type {message_type} came without a request"
            raise RemoteProtocolError(msg)
        self._last_words = ErrorReply.decode(body).message

    def _end(self, because: str) -> None:
        if not self._closed_because:
            self._closed_because = because
        if self._transport is not None:
            self._transport.abort()
        while self._waiters:
            waiter, _ = self._waiters.popleft()
            if not waiter.done():
                # A server that has said why it closes has read nothing behind that.
                doubt = "" if self._last_words else "; the request may have been done"
                waiter.set_exception(ConnectionClosed(f"{self._closed_because}{doubt}"))
        self._update_ready()

    def _update_ready(self) -> None:
        """Wake who waits to send: there is room, or nothing will ever be sent again."""
        room = not self._paused and len(self._waiters) < IN_FLIGHT_MAX
        if room or self._closed_because:
            self._ready.set()
        else:
            self._ready.clear()
