"""Messages that are handed out once at most, and that their origin does not hold.

Only the origin knows what it has handed out. So who holds such a message in its place asks it: what
it has not handed out it counts as done, and leaves to whoever has asked, for good. An answer
that is lost is given again to the same node; if that node ends before, the messages are lost.
"""

from collections.abc import Collection, Iterable
from typing import Final

from poe.broker.groups.ranges import Bounds, RangeSet
from poe.cluster.frames import Ceded, Claim
from poe.cluster.identity import NodeRef, StreamId
from poe.cluster.queue.copies import Copies
from poe.cluster.queue.effects import Tell
from poe.cluster.queue.ledger import Ledger
from poe.cluster.ranges import intersect, minus

REPEAT_US: Final = 1_000_000


class Ceding:
    """What this node asks of origins, and what it has left to others."""

    def __init__(self, ledger: Ledger, copies: Copies) -> None:
        self._ledger = ledger
        self._copies = copies
        self._claimed: dict[StreamId, list[Bounds]] = {}
        """What this node would hand out if its origin let it."""
        self._due_us = 0
        """When to ask for that again."""
        self._ceded: dict[tuple[NodeRef, StreamId], RangeSet] = {}

    def set_claimed(self, stream: StreamId, ranges: Iterable[Bounds]) -> None:
        """Say all that this node is to hand out of another one's stream."""
        left = minus(ranges, self._ledger.knowledge.get(stream).done)
        if left:
            self._claimed[stream] = left
            self._due_us = 0
        else:
            self._claimed.pop(stream, None)

    def add(self, stream: StreamId, after: int, last: int) -> None:
        """Say that this node is to hand out a range besides."""
        self.set_claimed(stream, sorted([*self._claimed.get(stream, ()), (after, last)]))

    def ask(self, nodes: Collection[NodeRef], now_us: int) -> list[Tell]:
        """Return what origins are asked, of those that are there."""
        if not self._claimed or now_us < self._due_us:
            return []
        self._due_us = now_us + REPEAT_US
        tells = []
        for stream, claimed in list(self._claimed.items()):
            self.set_claimed(stream, claimed)
            origin = NodeRef(*stream)
            if stream in self._claimed and origin in nodes:
                record = self._ledger.record
                frame = Claim(record.queue, record.name, stream, tuple(self._claimed[stream]))
                tells.append(Tell(origin, frame))
        self._due_us = now_us + REPEAT_US
        return tells

    def next_ask_us(self) -> int | None:
        """Return when to ask again; None where nothing is claimed."""
        return self._due_us if self._claimed else None

    def hear_claim(self, node: NodeRef, claim: Claim) -> list[Tell]:
        """Leave to a node what it holds in this one's place, and is not handed out here."""
        stream = claim.stream
        if stream != StreamId(*self._ledger.me) or not self._ledger.is_once:
            return []
        unit = self._ledger.unit(stream)
        ceded = self._ceded.setdefault((node, stream), RangeSet())
        last, _ = self._copies.place(stream, 0)  # nobody holds what is not put yet
        claimed = intersect(claim.ranges, [(0, last)] if last else [])
        for bounds in minus(claimed, self._copies.held(stream)):
            for part in self._ledger.not_done(stream, *bounds):
                for left in minus([part], self._ledger.shared.known(unit, *part)):
                    self._ledger.knowledge.finish(stream, *left)
                    ceded.join(*left)
        granted = intersect(claim.ranges, ceded)
        record = self._ledger.record
        frame = Ceded(record.queue, record.name, stream, tuple(granted))
        return [Tell(node, frame)] if granted else []

    def take(self, ceded: Ceded) -> list[Bounds]:
        """Return what this node is to hand out, which was left to it: each range once."""
        claimed = self._claimed.get(ceded.stream, [])
        taken = intersect(claimed, ceded.ranges)
        self._claimed[ceded.stream] = minus(claimed, taken)
        if not self._claimed[ceded.stream]:
            del self._claimed[ceded.stream]
        return taken

    def forget(self, stream: StreamId) -> None:
        """Drop all that is known of a stream."""
        self._claimed.pop(stream, None)
        self._ceded = {key: ranges for key, ranges in self._ceded.items() if key[1] != stream}
