"""Puts that wait until others are agreed on, and then share an entry; pure.

An entry costs a sync at a majority of nodes, however much is in it. As long as few are under way
each put is one; beyond that those that come meanwhile go together. Puts that producers have
numbered stay by themselves, since each has a receipt of its own.
"""

from collections import deque
from typing import Final, NamedTuple

from poe.actors import Call

ENTRIES_MAX: Final = 4
"""Entries under way, beyond which puts wait to share the next one."""
WAIT_MAX_S: Final = 0.2
"""How long a put waits for that: those under way may be in doubt for long."""
BYTES_MAX: Final = 1 << 20
"""Of an entry that puts share, unless one alone is larger."""
COUNT_MAX: Final = 1 << 16
"""Messages in it."""


class Part(NamedTuple):
    """A put that shares an entry."""

    caller: Call
    behind_count: int
    """Messages of the entry that come behind those of this put."""


class Shared(NamedTuple):
    """What some puts have become."""

    parts: tuple[Part, ...]
    batch: bytes
    """The messages of all, in order."""


class _Waiting(NamedTuple):
    caller: Call
    batch: bytes
    messages: int
    came_s: float


class Gathering:
    """The puts that wait, oldest first."""

    def __init__(self) -> None:
        self._waiting: deque[_Waiting] = deque()

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, caller: Call, batch: bytes, count: int, now_s: float) -> None:
        """Have a put wait; its messages come in the layout of a put request."""
        self._waiting.append(_Waiting(caller, batch, count, now_s))

    def is_due(self, under_way_count: int, now_s: float) -> bool:
        """Return whether some are to go now, with so many entries under way."""
        if not self._waiting:
            return False
        return under_way_count < ENTRIES_MAX or now_s - self._waiting[0].came_s >= WAIT_MAX_S

    def take(self) -> Shared:
        """Return those that go together next; there is at least one."""
        taken = [self._waiting.popleft()]
        size_bytes, count = len(taken[0].batch), taken[0].messages
        while self._waiting:
            put = self._waiting[0]
            if size_bytes + len(put.batch) > BYTES_MAX or count + put.messages > COUNT_MAX:
                break
            taken.append(self._waiting.popleft())
            size_bytes += len(put.batch)
            count += put.messages
        parts = []
        for put in taken:
            count -= put.messages
            parts.append(Part(put.caller, count))
        return Shared(tuple(parts), b"".join(put.batch for put in taken))
