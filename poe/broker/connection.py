"""The connection: the actor that owns one client socket.

It turns received bytes into requests, has each carried out by one call, and sends the replies in
order. Message bytes leave by `sendfile`; they never enter Python. What the peer does not take
waits in the kernel: the connection then reads nothing more from it, so a slow reader costs no
memory here. A peer with many requests at once is served a few at a turn, so that others are too.
"""

import logging
import math
import socket
from collections.abc import Coroutine
from dataclasses import dataclass
from typing import Any, ClassVar, TypeAlias

from poe.actors import READABLE, Call, Exit, GenServer, Reason, SocketWatch, Stop, Timer
from poe.broker.reply_sender import ReplySender
from poe.broker.request_handler import RequestHandler
from poe.broker.routing_table import RoutingTable
from poe.errors import ConnectionClosed, OptionError, PoeError, ProtocolError, RemoteProtocolError
from poe.protocol import (
    FRAME_MAX,
    SCRATCH_SIZE,
    ControlReply,
    ControlRequest,
    DataReply,
    ErrorReply,
    FrameReader,
    PointerRequest,
    PutReply,
    PutRequest,
    Request,
    decode_request,
)
from poe.storage import FileSlice

logger = logging.getLogger("poe.broker")

Waiting: TypeAlias = Coroutine[Any, Any, None]
"""What is left to do of a request that has to wait for something."""
Ending: TypeAlias = Coroutine[Any, Any, Stop | None]
"""Something to wait for that may end in the end of the connection."""

_LATE = object()
_GONE = object()

_TURN = range(32)
"""Requests that are served before other connections have their turn. Without a bound, 200 clients
that each sent 100 kB of small requests kept everybody else waiting for 12 s."""

_LINGER_S = 2.0
"""How long a peer that was told of its error has to take the news and to close."""

_AFTER_STALL_S = 0.1
_SLOWEST_BYTES_PER_S = 16 * 1024
_FRAME_MAX_MIN = 1024
_FREE_BUFFERS_MAX = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionOptions:
    """Limits of one client connection.

    Raises:
        OptionError: on construction, naming the option and what is allowed.
    """

    frame_max: int = FRAME_MAX
    """Bytes in one frame, received or sent."""

    frame_timeout: float = 10.0
    """Seconds that an unfinished frame may take, plus a second for each 16 KiB received of it."""

    send_timeout: float = 30.0
    """Seconds that a peer may take no bytes of a reply."""

    def __post_init__(self) -> None:
        """Reject limits that no frame could keep."""
        if not _FRAME_MAX_MIN <= self.frame_max <= 2**31:
            raise OptionError("frame_max", self.frame_max, "1024 to 2^31 (bytes)")
        if not 0 < self.frame_timeout < math.inf:
            raise OptionError("frame_timeout", self.frame_timeout, "more than 0 (finite seconds)")
        if not 0 < self.send_timeout < math.inf:
            raise OptionError("send_timeout", self.send_timeout, "more than 0 (finite seconds)")


class Scratch:
    """Receive buffers that the connections of a node share, each lent to one of them at a time.

    A connection has one from before it receives until it has served all whole frames of it: a
    request that takes its time holds views into the buffer. One that ends meanwhile just drops its
    buffer. Usually there is a single one.
    """

    def __init__(self) -> None:
        self._free: list[memoryview] = []

    def take(self) -> memoryview:
        """Lend a buffer."""
        return self._free.pop() if self._free else memoryview(bytearray(SCRATCH_SIZE))

    def give_back(self, buffer: memoryview) -> None:
        """Return a buffer that nobody looks into any more."""
        if len(self._free) < _FREE_BUFFERS_MAX:
            self._free.append(buffer)


class Connection(GenServer):
    """Owns one client socket until either side closes it.

    Started by an acceptor through connection_sup; temporary: nobody restarts a connection but its
    client. Pinned to the event loop's thread.
    """

    trap_exits = True
    pinned_to_loop: ClassVar[bool] = True

    def init(
        self,
        peer: socket.socket,
        routes: RoutingTable,
        scratch: Scratch,
        options: ConnectionOptions,
    ) -> None:
        """Take over an accepted, non-blocking socket."""
        self._socket = peer
        self._scratch = scratch
        self._options = options
        self._reader = FrameReader(options.frame_max)
        self._handler = RequestHandler(self, routes, self._is_peer_there)
        self._late_timer: Timer | None = None
        self._unfinished_since_s: float | None = None
        self._is_hanging_up = False
        self._buffer: memoryview | None = None
        self._watch = SocketWatch(self, peer)
        self._sender = ReplySender(peer, self._watch, options.send_timeout)

    def handle_info(self, message: Any) -> Any:  # noqa: ANN401 - a coroutine or a directive
        """Take readiness, the deadline of an unfinished frame, and the parent's exit."""
        if message is READABLE:
            return self._receive()
        if message is _LATE:
            return self._check_late()
        if message is _GONE:
            return Stop("normal")
        if isinstance(message, Exit):
            return Stop(message.reason)
        super().handle_info(message)
        return None

    def terminate(self, reason: Reason) -> None:
        """Close the socket."""
        del reason
        if self._late_timer is not None:
            self._late_timer.cancel()
        self._watch.close()

    def _is_peer_there(self) -> bool:
        """Look for the end of the stream, which nobody else does while a request is served."""
        try:
            return self._socket.recv(1, socket.MSG_PEEK) != b""
        except BlockingIOError:
            return True
        except OSError:
            return False

    def _has_input(self) -> bool:
        try:
            return self._socket.recv(1, socket.MSG_PEEK) != b""
        except OSError:
            return False

    # ---- receiving ----------------------------------------------------------------------------

    def _receive(self) -> Stop | Ending | None:
        """Receive once, then serve all whole frames; mostly without having to wait."""
        if self._is_hanging_up:
            return self._discard_input()
        reader = self._reader
        self._buffer = buffer = self._scratch.take()
        try:
            size = self._socket.recv_into(reader.buffer(buffer))
            reader.received(size)
            if not size:
                return self._give_up(None)
            waiting = self._serve_frames()
        except BlockingIOError:
            reader.keep()
        except (RemoteProtocolError, ConnectionClosed, OSError) as error:
            return self._give_up(error)
        else:
            if waiting is not None:
                return self._serve_rest(waiting)
        self._await_more()
        return None

    async def _serve_rest(self, waiting: Waiting | None) -> Stop | None:
        """Serve the rest of the frames behind one that has to wait."""
        try:
            while waiting is not None:
                await waiting
                waiting = self._serve_frames()
        except (RemoteProtocolError, ConnectionClosed, OSError) as error:
            ending = self._give_up(error)
            return ending if isinstance(ending, Stop) else await ending
        self._await_more()
        return None

    def _await_more(self) -> None:
        self._return_buffer()
        if self._reader.pending_bytes:
            self._watch_unfinished()
        if self._watch.is_paused:
            self._watch.resume()

    def _give_up(self, error: Exception | None) -> Stop | Ending:
        """End the connection: the peer is gone, or has broken the protocol and is told so."""
        # Not in a `finally`: if this actor is killed, whoever serves its request has views into it.
        self._return_buffer()
        return self._hang_up(error) if isinstance(error, RemoteProtocolError) else Stop("normal")

    def _serve_frames(self) -> Waiting | None:
        """Serve what was received, up to a request that has to wait or the end of a turn.

        Raises:
            RemoteProtocolError: the stream cannot be followed any more.
            ConnectionClosed, OSError: a reply cannot be sent.
        """
        reader = self._reader
        for _ in _TURN:
            frame = reader.next_frame()
            if frame is None:
                return None
            self._unfinished_since_s = None
            waiting = self._serve(decode_request(*frame))
            if waiting is not None:
                return waiting
        return self._end_turn()

    async def _end_turn(self) -> None:
        """Let other connections have their turn."""
        self._let_go()
        await self._sender.wait_room()

    def _serve(self, request: Request) -> Waiting | None:
        """Carry a request out and reply at once if nothing has to be waited for.

        Raises:
            OSError: the reply cannot be sent.
        """
        begun = None
        if type(request) is PointerRequest:
            topic, pointer, limit = request
            begun = self._handler.begin_get(topic, pointer, limit, self._options.frame_max - 2)
            if begun is not None and begun.is_done and (found := begun.value) is not None:
                return self._reply(DataReply.header(found.length), found)
        elif type(request) is PutRequest:
            begun = self._handler.begin_put(*request)
            if begun is not None and begun.is_done and type(begun.value) is int:
                return self._reply(PutReply.frame(begun.value))
        return self._serve_waiting(request, begun)

    async def _serve_waiting(self, request: Request, begun: Call | None) -> None:
        """Carry a request out, of which a first call may have begun, and reply.

        Raises:
            ConnectionClosed, OSError: the reply cannot be sent.
        """
        handler, records = self._handler, None
        try:
            if isinstance(request, PointerRequest):
                bytes_max = self._options.frame_max - 2
                records = await handler.get(*request, bytes_max, begun)
                reply = DataReply.header(records.length if records is not None else 0)
            elif isinstance(request, PutRequest):
                reply = PutReply.frame(await handler.put(request.topic, request.messages, begun))
            else:
                # It may wait for news for a minute, and 10 000 clients that do so must not have a
                # buffer each.
                self._let_go()
                result = await handler.control(request.op, request.arguments)
                reply = self._fitting(ControlReply(request.id, result).encode())
        except PoeError as error:
            request_id = request.id if isinstance(request, ControlRequest) else None
            reply = ErrorReply.from_error(error, request_id).encode()
        rest = self._reply(reply, records)
        if rest is not None:
            await rest
        if isinstance(request, ControlRequest) and self._reader.pending_bytes:
            # It may have asked all topics, and so takes a whole turn.
            await self._end_turn()

    def _fitting(self, reply: bytes) -> bytes:
        """Refuse a reply that the client would refuse, and end the connection for.

        Raises:
            RemoteProtocolError: it exceeds `frame_max`.
        """
        if len(reply) > self._options.frame_max:
            msg = f"the reply has {len(reply)} bytes, more than option frame_max; ask for less"
            raise RemoteProtocolError(msg)
        return reply

    def _reply(self, head: bytes, records: FileSlice | None = None) -> Waiting | None:
        """Send a reply, as far as the peer takes it at once."""
        return None if self._sender.start(head, records) else self._finish_reply()

    async def _finish_reply(self) -> None:
        self._let_go()
        await self._sender.finish()

    def _let_go(self) -> None:
        """Return the buffer before a wait that may be long; what is unread of it is kept."""
        if self._buffer is not None:
            self._reader.keep()
            self._return_buffer()

    def _return_buffer(self) -> None:
        buffer, self._buffer = self._buffer, None
        if buffer is not None:
            self._scratch.give_back(buffer)

    async def _hang_up(self, error: ProtocolError) -> Stop | None:
        """Say what was wrong with the peer's bytes, then wait for it to close.

        Closed at once, with bytes that were not received, the socket would be reset, and replies
        that are still on their way be lost: those to earlier requests, and this one.
        """
        logger.info("%s breaks the protocol: %s", self.ref, type(error).__name__)
        try:
            if not self._sender.start(ErrorReply.from_error(error).encode()):
                await self._sender.finish()
            self._socket.shutdown(socket.SHUT_WR)
        except (ConnectionClosed, OSError):
            return Stop("normal")  # the peer has gone, which is what we wanted
        self._is_hanging_up = True
        self._unfinished_since_s = None
        self._reader = FrameReader()  # lets go of what was received of the frame
        self.send_after(_LINGER_S, _GONE)
        if self._watch.is_paused:
            self._watch.resume()
        return None

    def _discard_input(self) -> Stop | None:
        """Receive what nobody will look at, until the peer closes."""
        try:
            size = len(self._socket.recv(SCRATCH_SIZE))
        except BlockingIOError:
            return None
        except OSError:
            return Stop("normal")
        return None if size else Stop("normal")

    def _watch_unfinished(self) -> None:
        """Note since when a frame is unfinished.

        The timer runs on when the frame is finished and then finds nothing to do: large frames
        come in parts, and a timer for each would cost more than receiving them.
        """
        if self._unfinished_since_s is None:
            self._unfinished_since_s = self.monotonic_s()
        if self._late_timer is None:
            self._late_timer = self.send_after(self._options.frame_timeout, _LATE)

    async def _check_late(self) -> Stop | None:
        """Close a connection whose frame makes no progress."""
        self._late_timer = None
        if self._unfinished_since_s is None:
            return None
        received = self._reader.pending_bytes
        allowed_s = self._options.frame_timeout + received / _SLOWEST_BYTES_PER_S
        elapsed_s = self.monotonic_s() - self._unfinished_since_s
        if elapsed_s < allowed_s:
            self._late_timer = self.send_after(allowed_s - elapsed_s, _LATE)
            return None
        if self._has_input():
            # Its bytes are here: it is this process that was late.
            self._late_timer = self.send_after(_AFTER_STALL_S, _LATE)
            return None
        msg = f"a frame took {elapsed_s:.0f} s so far; option frame_timeout allows {allowed_s:.0f}"
        return await self._hang_up(RemoteProtocolError(msg))
