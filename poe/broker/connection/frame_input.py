"""What a connection has received and not served yet: where it lies, and how much of it there is.

Whole frames lie in a buffer that all connections of a node share, so that usually nothing is
allocated and nothing copied. What has to outlive a wait is moved into memory of the connection's
own, and counted against the budget of the node.
"""

import socket
from array import array
from collections import deque
from fcntl import ioctl
from termios import FIONREAD

from poe.actors import Call
from poe.broker.appendix.message import Put
from poe.broker.requests.byte_budget import Holding
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
        # More than so many are dropped by themselves.
        self.free: deque[memoryview] = deque(maxlen=_FREE_BUFFERS_MAX)
        self.large = FrameMemory(blocks_max=_BLOCKS_MAX)
        """Where frames that are larger than a buffer come together."""


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
        free = self._scratch.free
        self._buffer = buffer = free.pop() if free else memoryview(bytearray(SCRATCH_SIZE))
        room_bytes = self.holding.room_bytes if self._budget.is_full else None
        return self.reader.receive(self._receive_into, buffer, room_bytes)

    def is_open(self) -> bool:
        """Look for the end of the stream, which nobody else does while a request is served."""
        return self._peek() != b""

    def waiting_bytes(self) -> int:
        """Return how many bytes have come that were not received yet.

        Raises:
            OSError: the socket is no more.
        """
        count = array("i", [0])
        ioctl(self._peer, FIONREAD, count)
        return count[0]

    def has_more(self) -> bool:
        """Return whether there is something to receive."""
        return bool(self._peek())

    def _peek(self) -> bytes | None:
        """Look at the next byte: None while there is none, no byte at the end."""
        try:
            return self._peer.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            return None
        except OSError:
            return b""

    def release(self, waiting_bytes: int = 0) -> None:
        """Give the buffer back; what is unread of it is kept. `waiting_bytes` are held besides."""
        reader, holding = self.reader, self.holding
        if self._buffer is not None:
            if reader.pending_bytes:
                reader.keep()
            self._scratch.free.append(self._buffer)
            self._buffer = None
        if reader.pending_bytes or holding.size_bytes or waiting_bytes:
            holding.set(reader.held_bytes + waiting_bytes)

    def release_for(self, request: Request, begun: Call | None) -> Request:
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
        self.release(waiting_bytes)
        return request

    def discard(self) -> None:
        """Forget what was received; nothing more will be served."""
        self.reader = FrameReader(memory=self._scratch.large)
        self.holding.release()
