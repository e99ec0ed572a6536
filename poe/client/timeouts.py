"""How long callers wait, and one timer for all of them who wait equally long.

A timer each would cost a quarter of a short wait.
"""

import asyncio
import time
from collections import deque

from poe.errors.timeout import check_timeout


def deadline_of(timeout_s: object) -> float:
    """Return until when to wait, by the monotonic clock.

    Raises:
        InvalidTimeout: it is no time.
    """
    return time.monotonic() + check_timeout(timeout_s)


def left_s(deadline_s: float) -> float:
    """Return how long there is until a time of the monotonic clock; 0 afterwards."""
    return max(0.0, deadline_s - time.monotonic())


_WAITS_MANY = 64


class TimeoutQueue:
    """Ends waits that have lasted for `timeout_s`; belongs to one event loop.

    All wait equally long, so the oldest is the first to end. A wait that was in vain is ended by
    setting its future's result: whoever waits looks whether it has got what it waited for.
    """

    def __init__(self, timeout_s: float) -> None:
        self._timeout_s = timeout_s
        self._loop = asyncio.get_running_loop()
        self._waits: deque[tuple[float, asyncio.Future[None]]] = deque()
        self._many = _WAITS_MANY
        """How many waits there are when it is looked at all of them."""
        self._is_armed = False

    def limit(self, future: "asyncio.Future[None]") -> None:
        """End the wait for a future when it has lasted too long."""
        waits = self._waits
        while waits and waits[0][1].done():
            waits.popleft()
        if len(waits) >= self._many:  # the first lasts, and others behind it have long ended
            waits = self._waits = deque(each for each in waits if not each[1].done())
            self._many = max(_WAITS_MANY, 2 * len(waits))
        waits.append((self._loop.time() + self._timeout_s, future))
        if not self._is_armed:
            self._is_armed = True
            self._loop.call_later(self._timeout_s, self._ring)

    def _ring(self) -> None:
        now_s = self._loop.time()
        while self._waits and (self._waits[0][1].done() or self._waits[0][0] <= now_s):
            end(self._waits.popleft()[1])
        self._is_armed = bool(self._waits)
        if self._waits:
            self._loop.call_at(self._waits[0][0], self._ring)


def end(future: "asyncio.Future[None]") -> None:
    """End a wait, unless it has ended."""
    if not future.done():
        future.set_result(None)
