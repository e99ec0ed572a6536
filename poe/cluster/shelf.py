"""What of a node's cluster outlives the crash of any of its actors, within one process.

The registry of queues alone changes it; a queue's actor owns the copies that it is given, as long
as it lives.
"""

from collections import deque
from typing import Final

from poe.cluster.directory import Directory
from poe.cluster.queue.copies import Copies
from poe.cluster.queue_record import QueueRecord

EVENTS_MAX: Final = 256


class Shelf:
    """Directory, copies of each queue, what time it is to them, and what has happened lately."""

    def __init__(self) -> None:
        self.directory = Directory[QueueRecord]()
        self.events: deque[tuple[int, str, str]] = deque(maxlen=EVENTS_MAX)
        """When, what kind, and more in words."""
        self.clock_offset_us: int | None = None
        """The wall clock less the monotonic one, as it was at first; None: nobody has looked."""
        self._copies: dict[bytes, Copies] = {}

    def copies(self, queue: bytes) -> Copies:
        """Return what this node holds of a queue, and knows of its groups; nothing at first."""
        return self._copies.setdefault(queue, Copies())

    def drop(self, queue: bytes) -> None:
        """Drop what this node holds of a queue."""
        self._copies.pop(queue, None)
