"""Deadlines of things that are under way, and a thread that tells which have passed."""

import heapq
import threading
import time
from collections.abc import Callable


class Deadlines:
    """Calls `expired(number)` once a deadline has passed, in a thread of its own."""

    def __init__(self, expired: Callable[[int], object], thread_name: str) -> None:
        self._expired = expired
        self._due: list[tuple[float, int]] = []
        self._wakes_s = 0.0
        """When the thread looks again; it need not be woken for what is due later."""
        self._is_closed = False
        self._changed = threading.Condition()
        threading.Thread(target=self._run, name=thread_name, daemon=True).start()

    def add(self, number: int, delay_s: float) -> None:
        """Have `expired` called after `delay_s`; whoever needs it no more ignores that."""
        due_s = time.monotonic() + delay_s
        with self._changed:
            heapq.heappush(self._due, (due_s, number))
            if due_s < self._wakes_s:
                self._changed.notify()

    def close(self) -> None:
        """Call nobody any more."""
        with self._changed:
            self._is_closed = True
            self._changed.notify()

    def _run(self) -> None:
        while True:
            with self._changed:
                now_s = time.monotonic()
                while not self._is_closed and not (self._due and self._due[0][0] <= now_s):
                    self._wakes_s = self._due[0][0] if self._due else float("inf")
                    self._changed.wait(self._wakes_s - now_s if self._due else None)
                    now_s = time.monotonic()
                if self._is_closed:
                    return
                self._wakes_s = 0.0
                number = heapq.heappop(self._due)[1]
            self._expired(number)
