"""What a node has others hold before it goes: a part at a time, for a peer refuses much at once."""

from collections import deque
from typing import Final

from poe.cluster.queue.spread import Spread

AT_ONCE_BYTES: Final = 1024 * 1024


class HandOver:
    """Spreads that wait until others are over; owned by the queue."""

    def __init__(self) -> None:
        self._waiting: deque[Spread] = deque()
        self._under_way_bytes = 0

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, spread: Spread) -> None:
        """Have messages handed over when it is their turn."""
        self._waiting.append(spread)

    def take_next(self) -> Spread | None:
        """Return what is to begin now; None: nothing is left, or enough is under way."""
        if not self._waiting or self._under_way_bytes >= AT_ONCE_BYTES:
            return None
        spread = self._waiting.popleft()
        self._under_way_bytes += spread.batch.size_bytes
        return spread

    def finished(self, spread: Spread) -> None:
        """Note that one of them is over."""
        self._under_way_bytes -= spread.batch.size_bytes
