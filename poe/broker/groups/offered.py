"""What may be handed out of one unit that is offered range by range, and who holds it."""

from collections.abc import Sequence
from typing import Final

from poe.broker.groups.lease import Lease
from poe.broker.groups.ranges import Bounds, RangeMap, RangeSet

_NOTHING: Final = (0, 0)


class Offered:
    """The ranges of one unit that is offered.

    Always: what is `fresh` is a part of `known`, and so are the ranges of `leases`; no message is
    in both. `_leaving` is a part of what is leased, or dying.
    """

    __slots__ = ("_leaving", "fresh", "known", "leases")

    def __init__(self) -> None:
        self.known = RangeSet()
        """What was offered, and is neither done nor withdrawn."""
        self.fresh = RangeSet()
        """What of that was handed out to nobody yet."""
        self._leaving = RangeSet()
        """What is not to be handed out again if it is not done by whoever holds it."""
        self.leases: RangeMap[Lease] = RangeMap()
        """What is left of each lease."""

    def first(self) -> Bounds:
        """Return the first range that is fresh; an empty one where there is none."""
        return self.fresh.first() or _NOTHING

    def learn(self, after: int, last: int) -> Sequence[Bounds]:
        """Know a range; return what of it was not known. What was leaving stays."""
        self._leaving.cut(after, last)
        return self.known.join(after, last)

    def forget(self, after: int, last: int) -> None:
        """Know a range no more, all of which is known."""
        self.known.remove(after, last)
        self._leaving.cut(after, last)

    def hand_out(self, after: int, last: int) -> bool:
        """Take the begin of what is fresh; False: that is another one by now."""
        begin, end = self.first()
        if begin != after or last > end:
            return False
        self.fresh.remove(after, last)
        return True

    def leave(self, after: int, last: int) -> None:
        """Have what is leased of a range not come back."""
        for begin, end, _ in self.leases.within(after, last):
            self._leaving.join(begin, end)

    def come_back(self, after: int, last: int) -> Sequence[Bounds]:
        """Return what of a range, which a lease held, is to be handed out again."""
        for bounds in self._leaving.within(after, last):
            self.forget(*bounds)
        return self.known.within(after, last)
