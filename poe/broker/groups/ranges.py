"""Sets and maps of ranges of pointers, which stay small: neighbours become one.

A range `(after, last]` holds the messages whose pointers are greater than `after` and not greater
than `last`. Pointers are not dense: a range touches the next one where that begins at its `last`.
"""

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from itertools import chain
from typing import Final, Generic, TypeVar

Bounds = tuple[int, int]
"""After, last."""

_CHUNK_COUNT_MAX: Final = 2048


class RangeSet:
    """Disjoint ranges, kept as their ends alone, sorted: 16 bytes a range.

    Strategy: to add a range that overlaps none is to toggle its two ends, for the end of a
    neighbour that it touches is none any more; so is to take one away that is there. The ends are
    in chunks, so that a change moves few of them, however many there are.

    Always: ends grow; no chunk is empty; each first of a chunk is in `_firsts`.
    """

    __slots__ = ("_chunks", "_ends_count", "_firsts")

    def __init__(self) -> None:
        self._chunks: list[array[int]] = []
        self._firsts: list[int] = []
        self._ends_count = 0

    def __len__(self) -> int:
        return self._ends_count // 2

    def __iter__(self) -> Iterator[Bounds]:
        """Yield the ranges, lowest first."""
        ends = chain.from_iterable(self._chunks)
        return zip(ends, ends, strict=True)

    def add(self, after: int, last: int) -> None:
        """Add a range that overlaps none that is there."""
        if self._chunks and self._chunks[-1][-1] == after < last:
            self._go_on(last)
        else:
            self._toggle(after)
            self._toggle(last)

    def remove(self, after: int, last: int) -> None:
        """Take away a range that is a part of one that is there."""
        self._toggle(after)
        self._toggle(last)

    def holds(self, after: int, last: int) -> bool:
        """Return whether a range is a part of one that is there."""
        at = self._chunk(after)
        if at < 0:
            return False
        chunk = self._chunks[at]
        place = bisect_right(chunk, after)
        is_inside = (sum(map(len, self._chunks[:at])) + place) % 2 == 1
        if not is_inside:
            return False
        return last <= (chunk[place] if place < len(chunk) else self._firsts[at + 1])

    def within(self, after: int, last: int) -> list[Bounds]:
        """Return the parts of a range that are there."""
        ends = self._ends_within(after, last)
        return list(zip(ends[::2], ends[1::2], strict=True))

    def without(self, after: int, last: int) -> list[Bounds]:
        """Return the parts of a range that are not there."""
        ends = [after, *self._ends_within(after, last), last]
        pairs = zip(ends[::2], ends[1::2], strict=True)
        return [bounds for bounds in pairs if bounds[0] < bounds[1]]

    def first(self) -> Bounds | None:
        """Return the lowest range; None where there is none."""
        return next(iter(self), None)

    def join(self, after: int, last: int) -> list[Bounds]:
        """Have all of a range there; return the parts that were not."""
        if self._chunks and self._chunks[-1][-1] == after < last:
            self._go_on(last)
            return [(after, last)]
        parts = self.without(after, last)
        for part in parts:
            self.add(*part)
        return parts

    def cut(self, after: int, last: int) -> list[Bounds]:
        """Have nothing of a range there; return the parts that were."""
        parts = self.within(after, last)
        for part in parts:
            self.remove(*part)
        return parts

    def take_first(self, after: int) -> int:
        """Take away the first range if it begins at `after`; return its last, else `after`."""
        if not self._chunks or self._firsts[0] != after:
            return after
        first = self._chunks[0]
        last = first[1] if len(first) > 1 else self._firsts[1]
        self.remove(after, last)
        return last

    def _go_on(self, last: int) -> None:
        """Have the last range end later."""
        chunk = self._chunks[-1]
        chunk[-1] = last
        self._firsts[-1] = chunk[0]

    def _ends_within(self, after: int, last: int) -> list[int]:
        """Return the ends of the parts of a range that are there: of each its begin and its end."""
        if not self._chunks or self._chunks[-1][-1] <= after:  # most often what is asked is new
            return []
        at, place, ends = self._chunk(after), 0, array("Q")
        if at >= 0:
            place = bisect_right(self._chunks[at], after)
            if (sum(map(len, self._chunks[:at])) + place) % 2:
                ends.append(after)
        for number in range(max(at, 0), len(self._chunks)):
            chunk = self._chunks[number]
            stop = bisect_left(chunk, last, place)
            ends += chunk[place:stop]
            if stop < len(chunk):
                break
            place = 0
        if len(ends) % 2:
            ends.append(last)
        return ends.tolist()

    def _chunk(self, end: int) -> int:
        """Return the number of the chunk where an end is or would be; -1: before all of them."""
        return bisect_right(self._firsts, end) - 1

    def _toggle(self, end: int) -> None:
        """Take an end away, or put it in where it is not."""
        at = max(self._chunk(end), 0)
        if at == len(self._chunks):
            self._chunks.append(array("Q"))
            self._firsts.append(end)
        chunk = self._chunks[at]
        place = bisect_left(chunk, end)
        if place < len(chunk) and chunk[place] == end:
            del chunk[place]
            self._ends_count -= 1
            if not chunk:
                del self._chunks[at], self._firsts[at]
                return
        else:
            chunk.insert(place, end)
            self._ends_count += 1
            if len(chunk) > _CHUNK_COUNT_MAX:
                half = chunk[_CHUNK_COUNT_MAX // 2 :]
                del chunk[_CHUNK_COUNT_MAX // 2 :]
                self._chunks.insert(at + 1, half)
                self._firsts.insert(at + 1, half[0])
        self._firsts[at] = chunk[0]


_V = TypeVar("_V")


class RangeMap(Generic[_V]):
    """Values of disjoint ranges; what has none is not there.

    Always: no two ranges that touch have equal values.
    """

    __slots__ = ("_afters", "_lasts", "_values")

    def __init__(self) -> None:
        self._afters: list[int] = []
        self._lasts: list[int] = []
        self._values: list[_V] = []

    def __len__(self) -> int:
        return len(self._afters)

    def __iter__(self) -> Iterator[tuple[int, int, _V]]:
        """Yield the ranges with their values, lowest first."""
        return zip(self._afters, self._lasts, self._values, strict=True)

    def within(self, after: int, last: int) -> list[tuple[int, int, _V]]:
        """Return the parts of a range that have a value, with it."""
        found = slice(bisect_right(self._lasts, after), bisect_left(self._afters, last))
        parts = (self._afters[found], self._lasts[found], self._values[found])
        return [
            (max(begin, after), min(end, last), value)
            for begin, end, value in zip(*parts, strict=True)
        ]

    def set(self, after: int, last: int, value: _V | None) -> None:
        """Give a range a value, whatever its parts had; None: no value."""
        low = bisect_left(self._lasts, after)
        high = bisect_right(self._afters, last)
        found = slice(low, high)
        parts = (self._afters[found], self._lasts[found], self._values[found])
        there = list(zip(*parts, strict=True))
        new = [(each[0], min(each[1], after), each[2]) for each in there if each[0] < after]
        if value is not None:
            new.append((after, last, value))
        new += [(max(each[0], last), each[1], each[2]) for each in there if each[1] > last]
        merged: list[tuple[int, int, _V]] = []
        for begin, end, each in new:
            if merged and merged[-1][1] == begin and merged[-1][2] == each:
                merged[-1] = (merged[-1][0], end, each)
            else:
                merged.append((begin, end, each))
        self._afters[low:high] = [each[0] for each in merged]
        self._lasts[low:high] = [each[1] for each in merged]
        self._values[low:high] = [each[2] for each in merged]
