"""Sets of ranges of pointers, as lists: what two have both, what one has and the other has not.

A list is sorted, and its ranges neither overlap nor touch; a `RangeSet` is read as one. Nothing
here looks at messages: each function takes as long as there are ranges.
"""

from collections.abc import Iterable

from poe.broker.groups.ranges import Bounds


def union(*sets: Iterable[Bounds]) -> list[Bounds]:
    """Return what is in one of some sets at least."""
    return covered(sets, 1)


def intersect(one: Iterable[Bounds], other: Iterable[Bounds]) -> list[Bounds]:
    """Return what is in both of two sets."""
    return covered((one, other), 2)


def minus(one: Iterable[Bounds], other: Iterable[Bounds]) -> list[Bounds]:
    """Return what is in one set and not in another."""
    return _counted(((one, 1), (other, -1)), 1)


def covered(sets: Iterable[Iterable[Bounds]], count: int) -> list[Bounds]:
    """Return what is in so many of some sets at least; `count` is 1 or more."""
    return _counted([(each, 1) for each in sets], count)


def _counted(sets: Iterable[tuple[Iterable[Bounds], int]], least: int) -> list[Bounds]:
    """Return where the weights of the sets that are there come to `least` or more."""
    changes: dict[int, int] = {}
    for ranges, weight in sets:
        for after, last in ranges:
            changes[after] = changes.get(after, 0) + weight
            changes[last] = changes.get(last, 0) - weight
    found: list[Bounds] = []
    begin, total = -1, 0
    for end in sorted(changes):
        total += changes[end]
        if total >= least:
            begin = end if begin < 0 else begin
        elif begin >= 0:
            found.append((begin, end))
            begin = -1
    return found
