"""What a queue has from before it began: copies that outlived a crash, or were read from its log.

Of the first the log may hold less, or what was dropped since; then it is written what differs. Of
both nobody knows any more who else holds them, and what of them is done: so they are handed out
when others had the time to say it.
"""

from collections.abc import Iterator, Sequence
from typing import Final

from poe.broker.groups.ranges import Bounds, RangeSet
from poe.cluster.identity import NodeRef, StreamId
from poe.cluster.queue.copies import Copies
from poe.cluster.queue.log import Dropped, Kept
from poe.cluster.ranges import minus

RECOVERY_US: Final = 1_000_000
"""How long a node learns from others what was done while it was away, before it hands out what it
has read from its log."""


class Recovery:
    """What was there when a queue began; owned by it."""

    def __init__(self, copies: Copies) -> None:
        self._copies = copies
        self._survived = _held(copies)
        self.is_crash = bool(self._survived)
        """Whether copies have outlived a crash."""
        is_kept = bool(self._survived or copies.groups)
        self._logged: dict[StreamId, RangeSet] | None = {} if is_kept else None
        """What the log holds, as far as it is read; None: it is read into the copies."""
        self.lives: list[NodeRef] = []
        """Who was there, then or before: any may have handed out what is held here."""
        self.silent_until_us: int | None = None
        """Until when nothing is handed out of what was there."""

    def take(self, entry: Kept | Dropped) -> None:
        """Take what the log says of copies: where they outlived a crash, only note it."""
        logged = self._logged
        match entry:
            case Kept(stream, batch):
                if logged is None:
                    self._copies.add(stream, batch)
                else:
                    logged.setdefault(stream, RangeSet()).join(batch.after, batch.last)
            case Dropped(stream, ranges):
                for bounds in ranges:
                    if logged is None:
                        self._copies.drop(stream, *bounds)
                    else:
                        logged.setdefault(stream, RangeSet()).cut(*bounds)

    @property
    def has_unlogged(self) -> bool:
        """Whether something outlived a crash that the log may not hold."""
        return self._logged is not None

    def unlogged(self) -> Iterator[Kept | Dropped]:
        """Yield in what the copies that outlived a crash differ from what the log holds."""
        logged, self._logged = self._logged, None
        if logged is None:
            return
        for stream in dict.fromkeys([*logged, *self._copies.streams()]):
            there, held = logged.get(stream, RangeSet()), self._copies.held(stream)
            gone = minus(there, held)
            if gone:
                yield Dropped(stream, tuple(gone))
            for bounds in minus(held, there):
                for batch in self._copies.batches(stream, *bounds):
                    yield Kept(stream, batch)

    def end(self, lives: list[NodeRef], now_us: int) -> None:
        """Note that all of the log is read, and which nodes it knows of."""
        self.lives = lives
        self.silent_until_us = now_us + RECOVERY_US
        self._survived = _held(self._copies)

    def tick(self, now_us: int) -> None:
        """Have what was there handed out, when it is time."""
        if self.silent_until_us is not None and self.silent_until_us <= now_us:
            self.silent_until_us = None

    def holds_back(self, stream: StreamId) -> bool:
        """Return whether messages of a stream that were there are not handed out yet."""
        return self.silent_until_us is not None and stream in self._survived

    def survived(self, stream: StreamId) -> Sequence[Bounds]:
        """Return what of a stream was there."""
        return self._survived.get(stream, ())


def _held(copies: Copies) -> dict[StreamId, list[Bounds]]:
    return {each: list(copies.held(each)) for each in copies.streams()}
