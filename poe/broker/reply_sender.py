"""Sends replies to one client: bytes, and records straight from their file.

What the kernel does not take at once stays here as the rest of one reply, never more: the
connection reads no further request before the reply is out.
"""

import os
import socket

from poe.actors import SocketWatch
from poe.errors import ConnectionClosed
from poe.storage import FileSlice


class ReplySender:
    """Owns the rest of the reply that is being sent.

    Use: `if not sender.start(head, records): await sender.finish()`. The usual reply fits into the
    socket's buffer and leaves within `start`, without a coroutine.
    """

    __slots__ = ("_descriptor", "_head", "_offset", "_records", "_socket", "_timeout_s", "_watch")

    def __init__(self, peer: socket.socket, watch: SocketWatch, timeout_s: float) -> None:
        self._socket = peer
        self._descriptor = peer.fileno()
        self._watch = watch
        self._timeout_s = timeout_s
        self._head = b""
        self._records: FileSlice | None = None
        self._offset = 0

    def start(self, head: bytes, records: FileSlice | None = None) -> bool:
        """Begin a reply: `head`, then the bytes of `records`; True when all of it has left.

        Raises:
            OSError: the peer is gone.
            ConnectionClosed: the data file was cut by another program after the head was sent.
        """
        self._head = head
        self._records = records
        if records is not None:
            self._offset = records.offset
        return self._push()

    async def finish(self) -> None:
        """Send the rest, as fast as the peer takes it.

        Raises:
            OSError: the peer is gone.
            ConnectionClosed: it took nothing for `send_timeout`, or the data file was cut.
        """
        while not self._push():
            if not await self._watch.wait_writable(self._timeout_s):
                msg = f"peer took no bytes for {self._timeout_s} s (option send_timeout)"
                raise ConnectionClosed(msg)

    def _push(self) -> bool:
        """Send until all is out or the kernel takes no more."""
        records = self._records
        try:
            while self._head:
                # MSG_MORE lets head and records leave in one packet.
                sent = self._socket.send(self._head, socket.MSG_MORE if records else 0)
                self._head = self._head[sent:]
            if records is not None:
                end = records.offset + records.length
                source = records.file.fileno()
                while self._offset < end:
                    sent = os.sendfile(self._descriptor, source, self._offset, end - self._offset)
                    if not sent:
                        # Padding would be taken for records; a closed connection is understood.
                        msg = "data file is shorter than announced"
                        raise ConnectionClosed(msg)
                    self._offset += sent
                self._records = None
        except BlockingIOError:
            return False
        return True
