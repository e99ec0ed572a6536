"""Things that have a deadline, which may move: which of them are over, without looking at all."""

from heapq import heapify, heappop, heappush
from itertools import count
from typing import Generic, Protocol, TypeVar

_SLACK_COUNT = 64


class Timed(Protocol):
    """Something with a deadline; whoever owns it may move the deadline to a later time."""

    deadline_us: int


_T = TypeVar("_T", bound=Timed)


def earliest(*times_us: int | None) -> int | None:
    """Return the earliest of some times, any of which may be none."""
    first_us = None
    for each in times_us:
        if each is not None and (first_us is None or each < first_us):
            first_us = each
    return first_us


class Deadlines(Generic[_T]):
    """The deadlines of some things.

    A heap has an entry for each, which is not later than its deadline, and entries of things that
    were dropped: `len(heap) <= 2 * kept + 65`, however many come and go.
    """

    __slots__ = ("_heap", "_kept_count", "_numbers")

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, _T]] = []
        self._kept_count = 0
        self._numbers = count()  # so that no two things are compared

    def add(self, thing: _T) -> None:
        """Keep one more."""
        self._kept_count += 1
        heappush(self._heap, (thing.deadline_us, next(self._numbers), thing))

    def drop(self, thing: _T) -> None:
        """Forget one of those that were added; its deadline is 0 from now on."""
        thing.deadline_us = 0
        self._kept_count -= 1
        if len(self._heap) > 2 * self._kept_count + _SLACK_COUNT:
            self._heap = [entry for entry in self._heap if entry[2].deadline_us]
            heapify(self._heap)

    def next_us(self) -> int | None:
        """Return when to look again; None where there is nothing."""
        return self._heap[0][0] if self._kept_count else None

    def over(self, now_us: int) -> _T | None:
        """Return one whose deadline has come, and go on keeping it; None where there is none."""
        while self._heap and self._heap[0][0] <= now_us:
            _, number, thing = self._heap[0]
            if 0 < thing.deadline_us <= now_us:
                return thing
            heappop(self._heap)
            if thing.deadline_us:
                heappush(self._heap, (thing.deadline_us, number, thing))
        return None
