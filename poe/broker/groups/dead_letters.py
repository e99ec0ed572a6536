"""What has failed for good, and is on its way to the dead letter topic: each once, in order."""

from collections import deque
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from poe.broker.groups.failures import Failures
from poe.broker.groups.journal import Journal, seconds
from poe.broker.groups.ranges import Bounds

_EPOCH_US: Final = 24 * 3600 * 1_000_000
"""A topic forgets producers that put nothing for a week; so one that was silent for a day begins
an epoch, which needs nobody to remember it."""


class Dying(NamedTuple):
    """A range whose messages are to be put as dead letters.

    They are put as a sequenced put with these numbers: so they are there once, though they are put
    again after a crash.
    """

    unit: bytes
    after: int
    last: int
    epoch: int
    sequence: int
    reason: str
    attempts: int


class DeadLetters:
    """The dying ranges of one group, in the order in which they are to be put.

    Always: in an epoch the sequences have no gap; the epochs grow, also past any that a power cut
    has taken, since each life of the group begins one.
    """

    __slots__ = ("_detached", "_epoch", "_journal", "_last_us", "_queue", "_sequence")

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._queue: deque[Dying] = deque()
        self._detached: set[Dying] = set()
        self._epoch = 0
        self._sequence = -1
        self._last_us = -1

    def __len__(self) -> int:
        return len(self._queue)

    def __iter__(self) -> Iterator[Dying]:
        """Yield those whose ranges are not done, nor handed out again."""
        return (each for each in self._queue if each not in self._detached)

    def units(self) -> Iterator[bytes]:
        """Yield the unit of each."""
        return (each.unit for each in self._queue)

    def first(self) -> Dying | None:
        """Return the one that is to be put next; None where there is none."""
        return self._queue[0] if self._queue else None

    def add(self, unit: bytes, bounds: Bounds, failures: Failures, now_us: int) -> None:
        """Have a range put."""
        if self._last_us < self._journal.life_us or now_us - self._last_us > _EPOCH_US:
            self._epoch = max(self._epoch + 1, seconds(now_us))
            self._sequence = -1
        self._last_us = now_us
        numbers = (self._epoch, self._sequence + 1)
        dying = Dying(unit, *bounds, *numbers, failures.reason, failures.attempts)
        self._journal.note(["dying", *dying])
        self.append(dying)

    def append(self, dying: Dying) -> None:
        """Take over what is written already."""
        self._queue.append(dying)
        self._epoch, self._sequence = dying.epoch, dying.sequence

    def bury(self) -> Dying | None:
        """Take out the first, which was put; return it if its range is done by that."""
        self._journal.note(["buried"])
        return self.take_first()

    def take_first(self) -> Dying | None:
        """As `bury`, of what is written already."""
        dying = self._queue.popleft()
        if dying in self._detached:
            self._detached.remove(dying)
            return None
        return dying

    def renumber(self, now_us: int, epoch: int) -> None:
        """Begin an epoch with those that are to be put, behind one that their topic knows of."""
        self.begin_epoch(max(self._epoch + 1, epoch + 1, seconds(now_us)))
        self._journal.note(["renumbered", self._epoch])

    def begin_epoch(self, epoch: int) -> None:
        """As `renumber`, of what is written already."""
        queue, detached = self._queue, self._detached
        self._queue, self._detached = deque(), set()
        self._epoch, self._sequence = epoch, -1
        for sequence, old in enumerate(queue):
            self.append(new := old._replace(epoch=epoch, sequence=sequence))
            if old in detached:
                self._detached.add(new)

    def detach(self, unit: bytes) -> None:
        """Leave what becomes of the ranges of a unit to others; they are put all the same."""
        self._detached |= {each for each in self._queue if each.unit == unit}

    def snapshot(self) -> list[Any]:
        """Return all that is durable."""
        queue = [[*each, each in self._detached] for each in self._queue]
        return [self._epoch, self._sequence, queue]

    def restore(self, snapshot: list[Any]) -> None:
        """Take over what `snapshot` has returned."""
        self._epoch, self._sequence, queue = snapshot
        for *fields, is_detached in queue:
            self._queue.append(dying := Dying(*fields))
            if is_detached:
                self._detached.add(dying)
