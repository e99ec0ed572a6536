"""The stream of one client: what came of it and is not served, and the rest of a reply.

Whole requests lie in a scratch that all connections of a node share, and the usual reply fits into
the socket's buffer, so that usually nothing is left here: the connection receives and sends. What
of the requests has to outlive a wait is moved into memory of the stream's own, and counted against
the budget of the node. What the kernel does not take of a reply at once stays in the file, as the
rest of one reply, never more: the connection reads no further request before the reply is out.
"""

from poe.actors import Call
from poe.actors.socket_watch import SocketWatch
from poe.broker.appendix.message import Put
from poe.broker.connection.peer import TURN_BYTES, Peer
from poe.broker.requests.byte_budget import Holding
from poe.errors import ConnectionClosed
from poe.protocol import FrameReader, Request
from poe.protocol.put import PUTS


class Stream:
    """What is left of requests and replies on one socket, which the connection owns.

    Always, while the connection waits for anything:

        no scratch is lent to `frames`
        holding.size_bytes == bytes of own memory

    Use: `if not peer.push(head, file, offset, end): await stream.finish()`.
    """

    __slots__ = ("_holding", "_peer", "_timeout_s", "_watch", "frames")

    def __init__(
        self,
        peer: Peer,
        frames: FrameReader,
        holding: Holding,
        watch: SocketWatch,
        timeout_s: float,
    ) -> None:
        self.frames = frames
        self._peer = peer
        self._holding = holding
        self._watch = watch
        self._timeout_s = timeout_s

    # ---- what came ----------------------------------------------------------------------------

    def release(self, waiting_bytes: int = 0) -> None:
        """Give the scratch back; what is unread of it is kept. `waiting_bytes` are held besides."""
        frames, holding = self.frames, self._holding
        frames.release()
        if frames.pending_bytes or holding.size_bytes or waiting_bytes:
            holding.set(frames.held_bytes + waiting_bytes)

    def release_for(self, request: Request, begun: Call | None) -> Request:
        """Give the scratch back while a request waits; what it needs of that is copied."""
        waiting_bytes = 0
        if isinstance(request, PUTS):
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
        peer = self._peer
        head = peer.rest[0]
        # A view keeps all that it was cut from; records wait in their file.
        kept_bytes = memoryview(head.obj).nbytes if isinstance(head, memoryview) else len(head)
        self.release(kept_bytes)
        await self.wait_room()
        while not peer.push(*peer.rest, TURN_BYTES):
            await self.wait_room()

    async def wait_room(self) -> None:
        """Wait until the peer can take bytes, for one turn of the event loop at least.

        Raises:
            ConnectionClosed: it took nothing for `send_timeout`.
        """
        if not await self._watch.wait_writable(self._timeout_s):
            msg = f"peer took no bytes for {self._timeout_s} s (option send_timeout)"
            raise ConnectionClosed(msg)
