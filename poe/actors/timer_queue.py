"""Timers of one actor system: a heap of deadlines, cancellable, driven by whoever drains.

The queue never looks at a clock by itself: `pop_due(now)` is told the time, so that a simulated
clock drives it as well as the real one.
"""

import heapq
from collections.abc import Callable
from typing import Any

_SWEEP_MIN = 1024
"""Cancelled timers stay in the heap until there are this many, and as many as live ones."""


class Timer:
    """One pending action; `cancel` is allowed at any time, and twice.

    `owner` holds it while it is pending, if somebody wants to know what is.
    """

    __slots__ = ("_queue", "action", "deadline_s", "owner")

    def __init__(
        self, queue: "TimerQueue", deadline_s: float, action: Callable[[], object]
    ) -> None:
        self._queue = queue
        self.deadline_s = deadline_s
        self.action: Callable[[], object] | None = action
        self.owner: dict[Any, Any] | None = None

    def cancel(self) -> None:
        """Make sure that the action does not run from now on."""
        if self.action is not None:
            self.take_action()
            self._queue.count_cancelled()

    def take_action(self) -> Callable[[], object] | None:
        """Return the action, which nobody else gets from now on."""
        if self.owner is not None:
            self.owner.pop(self, None)
            self.owner = None
        action, self.action = self.action, None
        return action


class TimerQueue:
    """Timers by deadline, in monotonic seconds; not thread-safe, the system's lock guards it."""

    def __init__(self) -> None:
        # With the number of each timer, none of them is ever compared with another in Python.
        self._heap: list[tuple[float, int, Timer]] = []
        self._number = 0
        self._cancelled = 0

    def __len__(self) -> int:
        return len(self._heap) - self._cancelled

    def add(self, deadline_s: float, action: Callable[[], object]) -> Timer:
        """Arrange for `action()` at `deadline_s`."""
        timer = Timer(self, deadline_s, action)
        self._number += 1
        heapq.heappush(self._heap, (deadline_s, self._number, timer))
        return timer

    def next_deadline_s(self) -> float | None:
        """Return the earliest deadline, or None when no timer is pending."""
        heap = self._heap
        while heap and heap[0][2].action is None:
            heapq.heappop(heap)
            self._cancelled -= 1
        return heap[0][0] if heap else None

    def pop_due(self, now_s: float) -> Callable[[], object] | None:
        """Take the earliest action whose deadline has come, or None."""
        deadline_s = self.next_deadline_s()
        if deadline_s is None or deadline_s > now_s:
            return None
        return heapq.heappop(self._heap)[2].take_action()

    def count_cancelled(self) -> None:
        """Note that a timer of the heap was cancelled, and sweep when they outnumber the rest."""
        self._cancelled += 1
        if self._cancelled > _SWEEP_MIN and self._cancelled * 2 > len(self._heap):
            self._heap = [each for each in self._heap if each[2].action is not None]
            heapq.heapify(self._heap)
            self._cancelled = 0
