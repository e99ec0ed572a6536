"""The stream of one client: what came of it and is not served, and the rest of a reply.

Whole requests lie in a scratch that all connections of a node share, and the usual reply fits into
the socket's buffer, so that usually nothing is left here: the connection receives and sends. What
of the requests has to outlive a wait is moved into memory of the stream's own, and counted against
the budget of the node. What the kernel does not take of a reply at once stays in the file, as the
rest of one reply, never more: the connection reads no further request before the reply is out.
"""

import logging
import os
import socket
from array import array
from fcntl import ioctl
from termios import FIONREAD

from poe.actors import Call
from poe.actors.socket_watch import SocketWatch
from poe.broker.appendix.message import Put
from poe.broker.requests.byte_budget import Holding
from poe.errors import ConnectionClosed
from poe.protocol import FrameReader, PutRequest, Request
from poe.storage import OpenFile

logger = logging.getLogger("poe.broker")

_NOTHING: tuple[bytes, None, int, int] = (b"", None, 0, 0)
# A global of this module is found faster than an attribute of another.
_MSG_MORE = socket.MSG_MORE

_FIRST_BYTES = 128 << 10
_TURN_BYTES = 1 << 20
"""How much of its records a connection sends at once, and at each turn that it has afterwards.

A peer that reads as fast as the kernel sends never stops a reply by itself: 500 of them, each with
a reply of 60 MB, kept everybody else waiting for seconds.
"""


class Stream:
    """What is left of requests and replies on one socket, which the connection owns.

    Always, while the connection waits for anything:

        no scratch is lent to `frames`
        holding.size_bytes == bytes of own memory

    Use: `if not stream.push(head, file, offset, end): await stream.finish()`.
    """

    __slots__ = ("_descriptor", "_holding", "_rest", "_socket", "_timeout_s", "_watch", "frames")

    def __init__(
        self,
        peer: socket.socket,
        frames: FrameReader,
        holding: Holding,
        watch: SocketWatch,
        timeout_s: float,
    ) -> None:
        self.frames = frames
        self._socket = peer
        self._descriptor = peer.fileno()
        self._holding = holding
        self._watch = watch
        self._timeout_s = timeout_s
        self._rest: tuple[bytes | memoryview, OpenFile | None, int, int] = _NOTHING

    # ---- what came ----------------------------------------------------------------------------

    def is_open(self) -> bool:
        """Look for the end of the stream, which nobody else does while a request is served."""
        return self._peek() != b""

    def is_reset(self) -> bool:
        """Return whether something was sent to a peer that had closed."""
        return self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) != 0

    def waiting_bytes(self) -> int:
        """Return how many bytes have come that were not received yet.

        Raises:
            OSError: the socket is no more.
        """
        count = array("i", [0])
        ioctl(self._socket, FIONREAD, count)
        return count[0]

    def has_more(self) -> bool:
        """Return whether there is something to receive."""
        return bool(self._peek())

    def _peek(self) -> bytes | None:
        """Look at the next byte: None while there is none, no byte at the end."""
        try:
            return self._socket.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            return None
        except OSError:
            return b""

    def release(self, waiting_bytes: int = 0) -> None:
        """Give the scratch back; what is unread of it is kept. `waiting_bytes` are held besides."""
        frames, holding = self.frames, self._holding
        frames.release()
        if frames.pending_bytes or holding.size_bytes or waiting_bytes:
            holding.set(frames.held_bytes + waiting_bytes)

    def release_for(self, request: Request, begun: Call | None) -> Request:
        """Give the scratch back while a request waits; what it needs of that is copied."""
        waiting_bytes = 0
        if isinstance(request, PutRequest):
            waiting_bytes = request.memory_bytes
            if self.frames.is_in_scratch:
                request = request.copied()
                if begun is not None:
                    put = begun.request
                    assert isinstance(put, Put)
                    put.messages = request.messages
        self.release(waiting_bytes)
        return request

    def discard(self) -> None:
        """Forget what was received; nothing more will be served."""
        self.frames.clear()
        self._holding.release()

    # ---- the rest of a reply ------------------------------------------------------------------

    async def finish(self) -> None:
        """Send the rest, as fast as the peer takes it.

        Raises:
            OSError: the peer is gone.
            ConnectionClosed: it took nothing for `send_timeout`, or the data file was cut.
        """
        head = self._rest[0]
        # A view keeps all that it was cut from; records wait in their file.
        kept_bytes = memoryview(head.obj).nbytes if isinstance(head, memoryview) else len(head)
        self.release(kept_bytes)
        await self.wait_room()
        while not self.push(*self._rest, _TURN_BYTES):
            await self.wait_room()

    def drop_rest(self) -> None:
        """Let go of the rest: the file of a deleted segment takes room on the disk until then."""
        self._rest = _NOTHING

    async def wait_room(self) -> None:
        """Wait until the peer can take bytes, for one turn of the event loop at least.

        Raises:
            ConnectionClosed: it took nothing for `send_timeout`.
        """
        if not await self._watch.wait_writable(self._timeout_s):
            msg = f"peer took no bytes for {self._timeout_s} s (option send_timeout)"
            raise ConnectionClosed(msg)

    def push(
        self,
        head: bytes | memoryview,
        file: OpenFile | None = None,
        offset: int = 0,
        end: int = 0,
        turn_bytes: int = _FIRST_BYTES,
    ) -> bool:
        """Send a reply: `head`, then a file from `offset` to `end`; True when all of it is out.

        When the kernel takes no more, or the turn ends, the rest is kept for `finish`.

        Raises:
            OSError: the peer is gone.
            ConnectionClosed: the data file was cut by another program.
        """
        turn_end = min(offset + turn_bytes, end)
        try:
            while head:
                # MSG_MORE lets head and records leave in one packet.
                head = head[self._socket.send(head, _MSG_MORE if offset < end else 0) :]
            while offset < turn_end:
                assert file is not None
                sent = os.sendfile(self._descriptor, file.fileno(), offset, turn_end - offset)
                if not sent:
                    raise cut_short()
                offset += sent
        except BlockingIOError:
            self._rest = (head or b"", file, offset, end)
            return False
        if offset < end:
            self._rest = (b"", file, offset, end)
            return False
        self._rest = _NOTHING
        return True


def cut_short() -> ConnectionClosed:
    """Say that the data file was cut by another program.

    Padding would be taken for records; a closed connection is understood.
    """
    msg = "data file is shorter than announced"
    logger.error("a reply was cut short: the %s", msg)
    return ConnectionClosed(msg)
