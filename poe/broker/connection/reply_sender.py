"""Sends replies to one client: bytes, and records from their file.

Records of a small reply are read, and leave with the head by one call, so that the peer wakes up
once; those of a large one leave by `sendfile`. What the kernel does not take at once stays in the
file, as the rest of one reply, never more: the connection reads no further request before the reply
is out.
"""

import logging
import os
import socket

from poe.actors.socket_watch import SocketWatch
from poe.errors import ConnectionClosed
from poe.storage import FileSlice, OpenFile

logger = logging.getLogger("poe.broker")

_NOTHING: tuple[bytes, None, int, int] = (b"", None, 0, 0)
# A global of this module is found faster than an attribute of another.
_MSG_MORE = socket.MSG_MORE

_SMALL_BYTES = 2048
"""Records up to so many bytes are copied: that saves a tenth to a seventh of the processor time of
a reply of 1 kB and less. From 3 kB on `sendfile` costs no more, and at 11 or 110 kB copying cost 5
to 15 % more, from files that are in the processor's cache and from others."""
_FIRST_BYTES = 128 << 10
_TURN_BYTES = 1 << 20
"""How much of its records a connection sends at once, and at each turn that it has afterwards.

A peer that reads as fast as the kernel sends never stops a reply by itself: 500 of them, each with
a reply of 60 MB, kept everybody else waiting for seconds.
"""


class ReplySender:
    """Owns the rest of the reply that is being sent.

    Use: `if not sender.start(head, records): await sender.finish()`. The usual reply fits into the
    socket's buffer and leaves within `start`, without a coroutine.
    """

    __slots__ = ("_descriptor", "_rest", "_socket", "_timeout_s", "_watch")

    def __init__(self, peer: socket.socket, watch: SocketWatch, timeout_s: float) -> None:
        self._socket = peer
        self._descriptor = peer.fileno()
        self._watch = watch
        self._timeout_s = timeout_s
        self._rest: tuple[bytes | memoryview, OpenFile | None, int, int] = _NOTHING

    @property
    def waiting_bytes(self) -> int:
        """Bytes of memory that wait for the peer; records wait in their file."""
        head = self._rest[0]
        # A view keeps all that it was cut from.
        return memoryview(head.obj).nbytes if isinstance(head, memoryview) else len(head)

    def start(self, head: bytes | memoryview, records: FileSlice | None = None) -> bool:
        """Begin a reply: `head`, then the bytes of `records`; True when all of it has left.

        Raises:
            OSError: the peer is gone.
            ConnectionClosed: the data file was cut by another program.
        """
        if records is None:
            try:
                sent = self._socket.send(head)
            except BlockingIOError:
                sent = 0
            if sent == len(head):
                return True
            self._rest = (head[sent:], None, 0, 0)
            return False
        offset = records.offset
        end = offset + records.length
        if records.length > _SMALL_BYTES:
            return self._push(head, records.file, offset, end, _FIRST_BYTES)
        content = records.read()
        if len(content) < records.length:
            raise _cut_short()
        try:
            sent = self._socket.sendmsg((head, content))
        except BlockingIOError:
            sent = 0
        sent_records = sent - len(head)
        if sent_records == records.length:
            return True
        self._rest = (head[sent:], records.file, offset + max(sent_records, 0), end)
        return False

    async def finish(self) -> None:
        """Send the rest, as fast as the peer takes it.

        Raises:
            OSError: the peer is gone.
            ConnectionClosed: it took nothing for `send_timeout`, or the data file was cut.
        """
        await self.wait_room()
        while not self._push(*self._rest):
            await self.wait_room()

    def release(self) -> None:
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

    def _push(
        self,
        head: bytes | memoryview,
        file: OpenFile | None,
        offset: int,
        end: int,
        turn_bytes: int = _TURN_BYTES,
    ) -> bool:
        """Send until all is out; when the kernel takes no more, or the turn ends, keep the rest."""
        turn_end = min(offset + turn_bytes, end)
        try:
            while head:
                # MSG_MORE lets head and records leave in one packet.
                head = head[self._socket.send(head, _MSG_MORE if offset < end else 0) :]
            while offset < turn_end:
                assert file is not None
                sent = os.sendfile(self._descriptor, file.fileno(), offset, turn_end - offset)
                if not sent:
                    raise _cut_short()
                offset += sent
        except BlockingIOError:
            self._rest = (head or b"", file, offset, end)
            return False
        if offset < end:
            self._rest = (b"", file, offset, end)
            return False
        self._rest = _NOTHING
        return True


def _cut_short() -> ConnectionClosed:
    """Say that the data file was cut by another program.

    Padding would be taken for records; a closed connection is understood.
    """
    msg = "data file is shorter than announced"
    logger.error("a reply was cut short: the %s", msg)
    return ConnectionClosed(msg)
