"""What a producer holds of its callers' messages, and how much it may hold.

One lock guards the counts and all batches of a producer: it is held for as long as an append takes,
never while something is encoded, sent or called back.
"""

import threading
from collections.abc import Callable
from typing import Protocol

from poe.client.producer.delivery import Outcome
from poe.errors import BufferFull, PoeError, ProducerClosed


class Scheduler(Protocol):
    """Time, and the one thread that does what is due."""

    def now_s(self) -> float:
        """Return a monotonic time."""
        ...

    def call_later(self, delay_s: float, action: Callable[[], object]) -> None:
        """Call `action` in the producer's own thread after `delay_s`; from any thread."""
        ...


class Accumulator:
    """The bounds of a producer's buffer.

    Invariants, at any moment without the lock:
        0 <= count <= count_max    or it is one call's that is larger than the whole buffer
        0 <= size <= bytes_max     likewise
        count and size are those of all messages that are neither delivered nor given up
    """

    def __init__(self, scheduler: Scheduler, count_max: int, bytes_max: int) -> None:
        self.scheduler = scheduler
        self.lock = threading.Lock()
        self.count_max = count_max
        self.bytes_max = bytes_max
        self.count = 0
        self.size = 0
        self.closed: PoeError | None = None
        self._room: Outcome | None = None

    def take(self, count: int, size: int) -> None:
        """Count the messages of a call, all or none; with the lock held.

        Raises:
            BufferFull: there is no room now; `room` tells when there may be.
            ProducerClosed: nor will there be.
        """
        if self.closed is not None:
            raise self.closed.with_traceback(None)
        if self.count and self.count + count > self.count_max:
            raise BufferFull("buffer_count", self.count_max)
        if self.size and self.size + size > self.bytes_max:
            raise BufferFull("buffer_bytes", self.bytes_max)
        self.count += count
        self.size += size

    def room(self) -> Outcome:
        """Return what is settled when something has left the buffer."""
        with self.lock:
            if self._room is not None:
                return self._room
            room = Outcome()
            if not self.count or self.closed is not None:
                room.value = True
            else:
                self._room = room
            return room

    def free(self, count: int, size: int) -> Outcome | None:
        """Note that messages have left; settle what is returned, without the lock.

        With the lock held; `release` is for those who have not got it.
        """
        self.count -= count
        self.size -= size
        room, self._room = self._room, None
        return room

    def release(self, count: int, size: int) -> None:
        """Note that messages have left, and wake who waits for room."""
        with self.lock:
            room = self.free(count, size)
        if room is not None:
            room.settle(value=True)

    def close(self, error: PoeError | None = None) -> None:
        """Take nothing any more."""
        with self.lock:
            if self.closed is None:
                self.closed = error or ProducerClosed()
            room, self._room = self._room, None
        if room is not None:
            room.settle(True)
