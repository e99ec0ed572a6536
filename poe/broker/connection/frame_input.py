"""What a connection has received and not served yet: where it lies, and how much of it there is.

Whole frames lie in a buffer that all connections of a node share, so that usually nothing is
allocated and nothing copied. What has to outlive a wait is moved into memory of the connection's
own, and counted against the budget of the node.
"""

import socket
from array import array
from fcntl import ioctl
from termios import FIONREAD

from poe.actors import Call
from poe.broker.appendix.message import Put
from poe.broker.connection.byte_budget import Holding
from poe.protocol import SCRATCH_SIZE, FrameReader, PutRequest, Request
from poe.protocol.frame_memory import FrameMemory

_FREE_BUFFERS_MAX = 16
_BLOCKS_MAX = 6
"""Blocks for large frames that stay when all clients have gone: some 6 MiB."""


class Scratch:
    """Receive buffers that the connections of a node share, each lent to one of them at a time.

    A connection has one from before it receives until it has served all whole frames of it, or has
    to wait for something. Usually there is a single one.
    """

    def __init__(self) -> None:
        self._free: list[memoryview] = []
        self.large = FrameMemory(blocks_max=_BLOCKS_MAX)
        """Where frames that are larger than a buffer come together."""

    def take(self) -> memoryview:
        """Lend a buffer."""
        return self._free.pop() if self._free else memoryview(bytearray(SCRATCH_SIZE))

    def give_back(self, buffer: memoryview) -> None:
        """Return a buffer that nobody looks into any more."""
        if len(self._free) < _FREE_BUFFERS_MAX:
            self._free.append(buffer)


class FrameInput:
    """Receives from one socket; `reader` cuts frames out of what came.

    Always, while the connection waits for anything:

        no buffer is lent
        holding.size_bytes == bytes of own memory
    """

    __slots__ = ("_budget", "_buffer", "_peer", "_receive_into", "_scratch", "holding", "reader")

    def __init__(
        self,
        peer: socket.socket,
        scratch: Scratch,
        holding: Holding,
        frame_max: int,
    ) -> None:
        self._peer = peer
        self._receive_into = peer.recv_into
        self._scratch = scratch
        self._budget = holding.budget
        self._buffer: memoryview | None = None
        self.holding = holding
        self.reader = FrameReader(frame_max, scratch.large)

    def receive(self) -> int:
        """Receive once, as far as the budget allows, and tell how many bytes; 0 at the end.

        Raises:
            OSError: the peer is gone, or nothing is there (BlockingIOError).
        """
        self._buffer = buffer = self._scratch.take()
        reader = self.reader
        room = reader.buffer(buffer)
        if self._budget.is_full:
            room = room[: self.holding.room_bytes]
        size = self._receive_into(room)
        reader.received(size)
        return size

    def is_open(self) -> bool:
        """Look for the end of the stream, which nobody else does while a request is served."""
        return self._peek() != b""

    def waiting_bytes(self) -> int:
        """Tell how many bytes have come that were not received yet.

        Raises:
            OSError: the socket is no more.
        """
        count = array("i", [0])
        ioctl(self._peer, FIONREAD, count)
        return count[0]

    def has_more(self) -> bool:
        """Tell whether there is something to receive."""
        return bool(self._peek())

    def _peek(self) -> bytes | None:
        """Look at the next byte: None while there is none, no byte at the end."""
        try:
            return self._peer.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            return None
        except OSError:
            return b""

    def settle(self) -> None:
        """Give the buffer back, once all whole frames of it are served."""
        self.give_back()
        if self.reader.pending_bytes or self.holding.size_bytes:
            self.holding.set(self.reader.held_bytes)

    def let_go(self, waiting_bytes: int = 0) -> None:
        """Give the buffer back before a wait that may be long; what is unread of it is kept.

        `waiting_bytes` are held besides.
        """
        if self._buffer is not None:
            self.reader.keep()
            self.give_back()
        self.holding.set(self.reader.held_bytes + waiting_bytes)

    def let_go_of(self, request: Request, begun: Call | None) -> Request:
        """Give the buffer back while a request waits; what it needs of the buffer is copied."""
        waiting_bytes = 0
        if isinstance(request, PutRequest):
            waiting_bytes = request.memory_bytes
            if self._buffer is not None and not self.reader.is_growing:
                request = request.copied()
                if begun is not None:
                    put = begun.request
                    assert isinstance(put, Put)
                    put.messages = request.messages
        self.let_go(waiting_bytes)
        return request

    def give_back(self) -> None:
        """Give the buffer back as it is."""
        buffer, self._buffer = self._buffer, None
        if buffer is not None:
            self._scratch.give_back(buffer)

    def discard(self) -> None:
        """Forget what was received; nothing more will be served."""
        self.reader = FrameReader(memory=self._scratch.large)
        self.holding.release()
