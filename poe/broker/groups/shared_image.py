"""What of a group of mode `shared` is durable: what is done, what has failed, what is dying.

An image is made of a snapshot and the changes behind it, and the work of a new life begins with it;
or it is made of the work, for a snapshot. What is neither done nor in an image was never handed
out, or was handed out and not finished: it is delivered again, as if for the first time.
"""

from collections.abc import Iterator
from typing import Any, Self

from poe.broker.groups.dead_letters import DeadLetters, Dying
from poe.broker.groups.failures import Failures
from poe.broker.groups.journal import Journal
from poe.broker.groups.ranges import Bounds, RangeMap, RangeSet


class Progress:
    """How far the work on one unit is.

    Always: what is done is a part of (0, `next`]; nothing in `done` touches `floor`.
    """

    __slots__ = ("done", "floor", "next")

    def __init__(self, floor: int) -> None:
        self.floor = floor
        """All messages up to it are done."""
        self.next = floor
        """Nothing behind it was handed out."""
        self.done = RangeSet()
        """What is done behind the floor."""

    def finish(self, after: int, last: int) -> int:
        """Count a range as done, of which nothing was; return how many more are in `done` now."""
        done = self.done
        ranges_count = len(done)
        if after != self.floor:
            done.add(after, last)
        elif ranges_count:
            self.floor = done.take_first(last)
        else:
            self.floor = last
            return 0
        return len(done) - ranges_count


class UnitImage:
    """What is durable of one unit: progress, and failures of what is not done."""

    __slots__ = ("failures", "progress")

    def __init__(self, progress: Progress) -> None:
        self.progress = progress
        self.failures: RangeMap[Failures] = RangeMap()

    def finish(self, after: int, last: int) -> None:
        """Count a range as done."""
        self.progress.finish(after, last)
        self.failures.set(after, last, None)


class SharedImage:
    """What is durable of all units of one group."""

    __slots__ = ("letters", "units")

    def __init__(self, letters: DeadLetters) -> None:
        self.letters = letters
        self.units: dict[bytes, UnitImage] = {}

    def unit(self, name: bytes) -> UnitImage:
        """Return what is known of a unit: that nothing is done, where it is new."""
        found = self.units.get(name)
        if found is None:
            found = self.units[name] = UnitImage(Progress(0))
        return found

    def apply(self, change: list[Any]) -> None:  # noqa: C901 - one case each
        """Make a change again."""
        match change:
            case ["done", unit, *ends]:
                for after, last in zip(ends[::2], ends[1::2], strict=True):
                    self.unit(unit).finish(after, last)
            case ["failed", unit, after, last, *failures]:
                self.unit(unit).failures.set(after, last, Failures(*failures))
            case ["dying", *fields]:
                dying = Dying(*fields)
                self.unit(dying.unit).failures.set(dying.after, dying.last, None)
                self.letters.append(dying)
            case ["buried"]:
                buried = self.letters.take_first()
                if buried is not None:
                    self.unit(buried.unit).finish(buried.after, buried.last)
            case ["renumbered", epoch]:
                self.letters.begin_epoch(epoch)
            case ["reset", unit, pointer]:
                self.letters.detach(unit)
                self.units[unit] = UnitImage(Progress(pointer))
            case ["forgotten", units]:
                for unit in units:
                    self.letters.detach(unit)
                    self.units.pop(unit, None)

    def gaps(self) -> Iterator[tuple[bytes, UnitImage, list[Bounds]]]:
        """Yield the units, each with what was handed out of it and nothing was said of.

        These are the ranges up to the end of what is done, has failed, or is dying. That end is
        `next` of the unit from then on.
        """
        dying: dict[bytes, list[Bounds]] = {}
        for each in self.letters:
            dying.setdefault(each.unit, []).append((each.after, each.last))
            self.unit(each.unit)  # where nothing else is known, it is not in a snapshot
        for name, unit in self.units.items():
            gaps = []
            at = unit.progress.floor
            if len(unit.progress.done) or len(unit.failures) or name in dying:
                failed = ((after, last) for after, last, _ in unit.failures)
                for after, last in sorted([*unit.progress.done, *failed, *dying.get(name, ())]):
                    if after > at:
                        gaps.append((at, after))
                    at = last
            unit.progress.next = at
            yield name, unit, gaps

    def snapshot(self) -> list[Any]:
        """Return all of it, as msgpack can hold it."""
        units = [
            [
                name,
                unit.progress.floor,
                [end for bounds in unit.progress.done for end in bounds],
                [[after, last, *failures] for after, last, failures in unit.failures],
            ]
            for name, unit in sorted(self.units.items())
            if unit.progress.floor or len(unit.progress.done) or len(unit.failures)
        ]
        return [units, self.letters.snapshot()]

    @classmethod
    def restore(cls, snapshot: list[Any], journal: Journal) -> Self:
        """Make an image of what `snapshot` has returned."""
        units, letters = snapshot
        image = cls(DeadLetters(journal))
        image.letters.restore(letters)
        for name, floor, ends, failures in units:
            unit = image.units[name] = UnitImage(Progress(floor))
            for after, last in zip(ends[::2], ends[1::2], strict=True):
                unit.progress.done.add(after, last)
            for after, last, *each in failures:
                unit.failures.set(after, last, Failures(*each))
        return image
