"""Thespian's queue base with queues that survive the kill of a writer.

`multiprocessing.Queue` lets one writer at a time into its pipe, by a lock that all processes share.
A process that is killed with the lock in its hands, a moment after it has sent something, keeps it
for ever, and nobody can send to that queue again. A supervisor kills, so its own queue would be the
first to go silent. Here a queue is a pair of sockets that keep messages apart: the kernel lets any
number of writers in, without a lock, and a message is there as a whole or not at all.
"""

import os
import pickle
import queue
import select
import socket
import struct
import threading
import time
from collections import deque
from multiprocessing.context import ForkContext
from typing import Any, ClassVar

from thespian.actors import ActorSystem
from thespian.system import multiprocQueueBase

from poe.thespian.hosted.pid_watch import is_gone

HEADER = struct.Struct("=QQ?")
"""Of each packet: its writer, the number of the message, and whether more of it follows."""

CHUNK_BYTES = 32_768
"""Of a message in one packet; some of them must fit into a socket's send buffer."""

FLUSH_INTERVAL_S = 0.05
"""How long a reader may be unaware that another thread has left it something to send."""

BACKLOG_MAX = 65_536
"""Packets that wait in a writer for room in a socket; more are refused as `queue.Full`."""


class PacketQueue:
    """As much of `multiprocessing.Queue` as Thespian uses: any number of writers, one reader.

    What does not fit into the socket waits in its writer, who sends it when it next reads: so two
    processes that send to each other never wait for each other.
    """

    _backlogged: ClassVar[set["PacketQueue"]] = set()
    """Queues of this process that packets wait for."""

    _lock: ClassVar[threading.Lock] = threading.Lock()

    def __init__(self) -> None:
        # The names are those that Thespian takes the descriptors from.
        self._reader, self._writer = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._writer.setblocking(False)
        self._backlog: deque[bytes] = deque()
        self._parts: dict[tuple[int, int], list[bytes]] = {}

    def __del__(self) -> None:
        # Thespian never closes its queues.
        self._reader.close()
        self._writer.close()

    def put(self, item: object, block: bool = True, timeout: float | None = None) -> None:  # noqa: ARG002, FBT001, FBT002
        """Send a message; never blocks.

        Raises:
            queue.Full: too many packets wait already; its reader takes none.
        """
        content = pickle.dumps(item, pickle.HIGHEST_PROTOCOL)
        writer, number = os.getpid(), time.monotonic_ns()
        with self._lock:
            if len(self._backlog) >= BACKLOG_MAX:
                raise queue.Full
            for start in range(0, len(content), CHUNK_BYTES):
                end = start + CHUNK_BYTES
                header = HEADER.pack(writer, number, end < len(content))
                self._backlog.append(header + content[start:end])
            self._flush()

    def put_nowait(self, item: object) -> None:
        """Send a message."""
        self.put(item)

    def _flush(self) -> None:
        while self._backlog:
            try:
                self._writer.send(self._backlog[0])
            except BlockingIOError:
                self._backlogged.add(self)
                return
            self._backlog.popleft()
        self._backlogged.discard(self)

    def get(self, block: bool = True, timeout: float | None = None) -> Any:  # noqa: ANN401, FBT001, FBT002
        """Return the oldest message.

        Raises:
            queue.Empty: none has come within `timeout` seconds.
        """
        deadline_s = time.monotonic() + (timeout or 0.0)
        while True:
            poll = select.poll()
            poll.register(self._reader, select.POLLIN)
            with self._lock:
                for other in tuple(self._backlogged):
                    other._flush()  # noqa: SLF001 - of the same class
                for other in self._backlogged:
                    poll.register(other._writer, select.POLLOUT)  # noqa: SLF001
            left_s = deadline_s - time.monotonic() if block else 0.0
            if block and timeout is None:
                left_s = FLUSH_INTERVAL_S
            ready = poll.poll(1000 * max(0.0, min(left_s, FLUSH_INTERVAL_S)))
            if any(fd == self._reader.fileno() for fd, _ in ready):
                content = self._take_packet()
                if content is not None:
                    return pickle.loads(content)  # noqa: S301 - from our own processes
                continue
            self._drop_torn()
            if left_s <= 0:
                raise queue.Empty

    def _take_packet(self) -> bytes | None:
        """Return a message if a packet completes it."""
        packet = self._reader.recv(HEADER.size + CHUNK_BYTES)
        writer, number, is_more = HEADER.unpack_from(packet)
        parts = self._parts.setdefault((writer, number), [])
        parts.append(packet[HEADER.size :])
        if is_more:
            return None
        del self._parts[writer, number]
        return b"".join(parts)

    def _drop_torn(self) -> None:
        """Forget messages whose writers were killed before all of them was sent."""
        torn = [key for key in self._parts if is_gone(key[0])]
        if not torn:
            return
        poll = select.poll()
        poll.register(self._reader, select.POLLIN)
        # Only now: whatever those have sent is there.
        if not poll.poll(0):
            for key in torn:
                del self._parts[key]


def _forget_backlogs() -> None:
    """Leave to the process that was forked what waits there: sent by both it would arrive twice."""
    for each in PacketQueue._backlogged:  # noqa: SLF001 - of this module
        each._backlog.clear()  # noqa: SLF001
    PacketQueue._backlogged.clear()  # noqa: SLF001
    # Another thread may have had it at that moment.
    PacketQueue._lock = threading.Lock()  # noqa: SLF001


os.register_at_fork(after_in_child=_forget_backlogs)


class _Context(ForkContext):
    """Makes processes as ever, and queues of ours."""

    def Queue(self, maxsize: int = 0) -> PacketQueue:  # type: ignore[override]  # noqa: ARG002, N802
        """Make a queue."""
        return PacketQueue()


class QueueBase(multiprocQueueBase.ActorSystemBase):  # type: ignore[misc]  # Thespian is untyped
    """`multiprocQueueBase` with such queues, where the platform has the sockets."""

    def __init__(self, capabilities: dict[str, object]) -> None:
        self.thespian = ActorSystem(self, capabilities, transientUnique=True)
        super().__init__(self.thespian)

    @property
    def mpcontext(self) -> ForkContext:
        """Return what Thespian makes processes and queues with."""
        return _Context()

    @mpcontext.setter
    def mpcontext(self, _: object) -> None:
        """Leave it as it is: Thespian's constructor sets its own."""
