"""What was put at this node and nobody holds: it is counted as done, for else it never would be.

Each such range would split for ever what is done, of which the ranges are looked at again and
again, and no other node could be told of it in few words.
"""

from collections.abc import Iterator, Sequence

from poe.broker.groups.ranges import Bounds, RangeSet
from poe.cluster.identity import StreamId
from poe.cluster.queue.restoring import LOOK_US, Missing
from poe.cluster.ranges import minus


class Gaps:
    """The gaps in a node's own stream; owned by its queue."""

    def __init__(self, stream: StreamId) -> None:
        self._stream = stream
        self._refused: Bounds = 0, 0
        """The last pointers that were taken for messages that nobody holds."""
        self._let_go = RangeSet()
        """What this node holds no more, or never did, though it may not be done."""
        self._nowhere = Missing()
        """What of that nobody holds, as far as is known."""
        self._due_us = 0
        """When to look at that again."""

    def behind_refused(self, after: int) -> int:
        """Return where the range of what is put next begins: it covers what was put in vain.

        Else each put that finds no room would leave a gap, and ranges of what is held and done
        would become no fewer for ever.
        """
        return self._refused[0] if after == self._refused[1] else after

    def refused(self, after: int, last: int) -> None:
        """Note that a put found no room, so that nobody holds it."""
        begin = self.behind_refused(after)
        if begin == after:  # what was refused before may be covered by no put
            self._let_go.join(*self._refused)
        self._refused = begin, last

    def let_go(self, after: int, last: int) -> None:
        """Note that this node holds a range no more, though it may not be done."""
        self._let_go.join(after, last)

    def is_due(self, now_us: int) -> bool:
        """Return whether it is time to look which of them nobody holds."""
        return bool(self._let_go) and self._due_us <= now_us

    def nowhere(self, held: Sequence[Bounds], now_us: int) -> Iterator[Bounds]:
        """Yield what nobody has held for a while, where `held` is all that somebody may hold.

        What somebody is about to hold is heard of by then.
        """
        self._due_us = now_us + LOOK_US
        self._nowhere.see(self._stream, minus(self._let_go, held), now_us)
        return (bounds for _, bounds in self._nowhere.due(now_us))

    def passed_over(self, bounds: Bounds) -> None:
        """Note that all groups have counted a range as done."""
        self._let_go.cut(*bounds)
