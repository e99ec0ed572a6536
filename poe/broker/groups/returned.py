"""Ranges that were handed out and came back: which of them is to be handed out next."""

from collections import deque
from collections.abc import Iterator, Sequence
from heapq import heapify, heappop, heappush
from itertools import chain, count
from typing import Literal

from poe.broker.groups.failures import Failures

Why = Literal["lease expired", "member lost", "released", "retried", "restarted"]
"""What has brought a range back: nobody said in time what became of it; its member fell silent, or
gave it back, or failed; or the group began a new life."""


class Returned:
    """A range of a unit that is to be handed out again."""

    __slots__ = ("after", "failures", "last", "unit", "why")

    def __init__(
        self, unit: bytes, after: int, last: int, failures: Failures, why: Why = "restarted"
    ) -> None:
        self.unit = unit
        self.after = after
        self.last = last
        self.failures = failures
        self.why = why

    def part(self, after: int, last: int) -> "Returned | None":
        """Return what of it is in a range; None where nothing is."""
        after, last = max(after, self.after), min(last, self.last)
        return Returned(self.unit, after, last, self.failures, self.why) if after < last else None


class ReturnedRanges:
    """All such ranges of one group.

    Always: each is in one place: among the ready ones, or the suspects, each of whose messages is
    to be handed out alone; among the delayed ones, which are not due; or parked, since its unit is
    not there.
    """

    __slots__ = ("_delayed", "_numbers", "_parked", "_ready", "_suspects", "_units")

    def __init__(self) -> None:
        self._units: frozenset[bytes] = frozenset()
        self._ready: deque[Returned] = deque()
        self._suspects: deque[Returned] = deque()
        self._parked: list[Returned] = []
        self._delayed: list[tuple[int, int, Returned]] = []
        self._numbers = count()  # so that no two ranges are compared

    def __len__(self) -> int:
        return len(self._ready) + len(self._suspects) + len(self._parked) + len(self._delayed)

    def __iter__(self) -> Iterator[Returned]:
        delayed = (each for _, _, each in self._delayed)
        return chain(self._ready, self._suspects, self._parked, delayed)

    @property
    def is_empty(self) -> bool:
        """Return whether there is none, as mostly: for those who ask with each lease."""
        return not (self._ready or self._suspects or self._delayed or self._parked)

    def first(self) -> Returned | None:
        """Return the next one that is ready; None where there is none."""
        return self._ready[0] if self._ready else None

    def first_suspect(self) -> Returned | None:
        """Return the next suspect; None where there is none."""
        return self._suspects[0] if self._suspects else None

    def place(self, returned: Returned, now_us: int) -> None:
        """Put one behind the others, or aside until it is due."""
        if returned.failures.due_us > now_us:
            heappush(self._delayed, (returned.failures.due_us, next(self._numbers), returned))
        elif returned.unit not in self._units:
            self._parked.append(returned)
        else:
            self._queue_of(returned).append(returned)

    def take(self, returned: Returned, last: int) -> bool:
        """Take the begin of one out, up to a pointer; False: it is not the next one any more."""
        queue = self._queue_of(returned)
        if not queue or queue[0] is not returned:
            return False
        queue.popleft()
        if last < returned.last:
            rest = Returned(returned.unit, last, returned.last, returned.failures, returned.why)
            queue.appendleft(rest)
        return True

    def ripen(self, now_us: int) -> None:
        """Have ready what is due."""
        while self._delayed and self._delayed[0][0] <= now_us:
            self.place(heappop(self._delayed)[2], now_us)

    def next_due_us(self) -> int | None:
        """Return when something becomes due; None where nothing waits for that."""
        return self._delayed[0][0] if self._delayed else None

    def set_units(self, units: frozenset[bytes], now_us: int) -> None:
        """Say which units are there: ranges of others wait for theirs."""
        self._units = units
        there = [*self._ready, *self._suspects, *self._parked]
        self._ready.clear()
        self._suspects.clear()
        self._parked.clear()
        for returned in there:
            self.place(returned, now_us)

    def drop(self, unit: bytes) -> None:
        """Forget all ranges of a unit."""
        self._ready = deque(each for each in self._ready if each.unit != unit)
        self._suspects = deque(each for each in self._suspects if each.unit != unit)
        self._parked = [each for each in self._parked if each.unit != unit]
        self._delayed = [each for each in self._delayed if each[2].unit != unit]
        heapify(self._delayed)

    def cut(self, unit: bytes, after: int, last: int) -> list[Returned]:
        """Forget a part of a unit; return what of it was there. The rest stays in its place."""
        if self.is_empty:
            return []
        gone: list[Returned] = []

        def rest(each: Returned) -> Sequence[Returned]:
            part = each.part(after, last) if each.unit == unit else None
            if part is None:
                return (each,)
            gone.append(part)
            parts = (each.part(each.after, after), each.part(last, each.last))
            return [left for left in parts if left is not None]

        self._ready = deque(left for each in self._ready for left in rest(each))
        self._suspects = deque(left for each in self._suspects for left in rest(each))
        self._parked = [left for each in self._parked for left in rest(each)]
        self._delayed = [
            (due_us, next(self._numbers), left)
            for due_us, _, each in sorted(self._delayed)
            for left in rest(each)
        ]  # sorted, it is a heap
        return gone

    def _queue_of(self, returned: Returned) -> deque[Returned]:
        return self._suspects if returned.failures.is_suspect else self._ready
