"""Puts that wait until others are agreed on, and then share an entry; pure.

An entry costs a sync at a majority of nodes, however much is in it. Puts therefore wait until they
are as many as those under way, and then go together: one that comes alone goes at once, and of many
producers half are under way while the other half gathers. Puts that producers have numbered stay by
themselves, since each has a receipt of its own.
"""

from collections import deque
from typing import Final, NamedTuple

from poe.actors import Call

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
    """The puts that wait, oldest first, and how many are under way."""

    def __init__(self) -> None:
        self._waiting: deque[_Waiting] = deque()
        self._under_way_count = 0

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, caller: Call, batch: bytes, count: int, now_s: float) -> None:
        """Have a put wait; its messages come in the layout of a put request."""
        self._waiting.append(_Waiting(caller, batch, count, now_s))

    def is_due(self, now_s: float) -> bool:
        """Return whether some are to go now."""
        if not self._waiting:
            return False
        is_enough = len(self._waiting) >= self._under_way_count
        return is_enough or now_s - self._waiting[0].came_s >= WAIT_MAX_S

    def end(self, shared: Shared) -> None:
        """Note that those which were taken together are answered."""
        self._under_way_count -= len(shared.parts)

    def take(self) -> Shared:
        """Return those that go together next, and are under way until `end`; at least one waits."""
        taken = [self._waiting.popleft()]
        size_bytes, count = len(taken[0].batch), taken[0].messages
        while self._waiting:
            put = self._waiting[0]
            if size_bytes + len(put.batch) > BYTES_MAX or count + put.messages > COUNT_MAX:
                break
            taken.append(self._waiting.popleft())
            size_bytes += len(put.batch)
            count += put.messages
        self._under_way_count += len(taken)
        parts = []
        for put in taken:
            count -= put.messages
            parts.append(Part(put.caller, count))
        return Shared(tuple(parts), b"".join(put.batch for put in taken))
