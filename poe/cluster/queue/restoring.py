"""Which messages have been on too few nodes for a while, so that they are to be copied anew.

Strategy: now and then all that this node is to hand out is compared with what the others hold; of
what is on too few of them it is kept since when. A node that restarts, or a link that is cut for a
moment, costs no copies.
"""

from collections.abc import Iterable
from typing import Final

from poe.broker.groups.ranges import Bounds
from poe.cluster.identity import StreamId
from poe.cluster.ranges import intersect, minus

GRACE_US: Final = 30_000_000
LOOK_US: Final = 5_000_000
"""How often is looked for what is on too few nodes, or on none."""


class Missing:
    """What is on too few nodes, by stream, and since when."""

    def __init__(self) -> None:
        self._since: dict[StreamId, list[tuple[int, list[Bounds]]]] = {}

    def see(self, stream: StreamId, ranges: list[Bounds], now_us: int) -> None:
        """Take what is on too few nodes now."""
        rest = ranges
        kept: list[tuple[int, list[Bounds]]] = []
        for since_us, known in self._since.get(stream, ()):
            still = intersect(known, rest)
            if still:
                kept.append((since_us, still))
                rest = minus(rest, still)
        if rest:
            kept.append((now_us, rest))
        if kept:
            self._since[stream] = kept
        else:
            self._since.pop(stream, None)

    def due(self, now_us: int) -> Iterable[tuple[StreamId, Bounds]]:
        """Yield what is to be copied by now, and has been missing for the longest first."""
        late_us = now_us - GRACE_US
        late = [
            (since_us, stream, ranges)
            for stream, each in self._since.items()
            for since_us, ranges in each
            if since_us <= late_us
        ]
        for _, stream, ranges in sorted(late):
            for bounds in ranges:
                yield stream, bounds

    def retain(self, streams: Iterable[StreamId]) -> None:
        """Forget all other streams."""
        self._since = {each: self._since[each] for each in streams if each in self._since}

    def __bool__(self) -> bool:
        """Return whether something is on too few nodes."""
        return bool(self._since)
