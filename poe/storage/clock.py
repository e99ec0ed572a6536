"""Turn the machine's wall clock into microseconds, behind an interface that tests can drive.

Storage never reads the time itself: whoever appends passes `now_us` in, taken from a `Clock`. A
clock may stand still or step back; pointers rise all the same, since a segment takes
max(now_us, last pointer + 1).
"""

import time
from typing import Protocol


class Clock(Protocol):
    """Something that tells the time."""

    def now_us(self) -> int:
        """Return the microseconds since the epoch."""
        ...


class SystemClock:
    """The wall clock of this machine; any thread may ask it."""

    __slots__ = ()

    def now_us(self) -> int:
        """Return the microseconds since the epoch."""
        return time.time_ns() // 1000
