"""Who else holds what of a queue, as far as it was told.

A node numbers what it tells of its copies: each change is from one version to the next. Who has
missed one asks for all of it. Besides it is believed what others say of a node, whom they have
asked to hold messages; if it does not say so itself in a while, it is asked.

Of a node that was asked and has not answered nothing is believed; but it may hold the messages, and
if it is gone for good, nobody will ever know. Nor is it known of a life that is over what it has
handed out to groups that are not known here yet; so what it held is remembered.

Who has missed something may have missed what a node has handed out. So what that lets go meanwhile,
and is not known to be done, is remembered, until both are seen to know the same.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Final, Literal

from poe.broker.groups.ranges import Bounds, RangeSet
from poe.cluster.frames import WHOLE, Held, News
from poe.cluster.identity import NodeRef, StreamId
from poe.cluster.queue.knowledge import STREAMS_MAX
from poe.cluster.ranges import minus, union

NODES_MAX: Final = 4096
"""Lives of nodes of which it is known what they hold."""
HEARSAY_NODES_MAX: Final = 1024
"""Those among them that have said nothing themselves: others have named them as holders. So who
names many that there are not leaves room for those that there are."""
UNANSWERED_MAX: Final = 1024
"""Ranges of a stream that a node may hold, or may have handed out; more are taken for one."""
LIVES_OVER_MAX: Final = 64
"""Of which it is remembered what they held, the last ones."""

Undone = Callable[[StreamId, Collection[Bounds]], list[Bounds]]
"""Returns what of some ranges of a stream is not known to be done in all groups."""

_Remembered = dict[StreamId, list[Bounds]]

_NONE = RangeSet()


class _Holding:
    """What is known of one node: of which of its lives, and up to which version."""

    __slots__ = (
        "hearsay", "is_behind", "late_hearsay", "life_us", "ranges", "unanswered", "unexplained",
        "version",
    )  # fmt: skip

    def __init__(self) -> None:
        self.life_us = 0
        self.version = WHOLE
        self.ranges: dict[StreamId, RangeSet] = {}
        self.hearsay: dict[StreamId, RangeSet] = {}
        """What of `ranges` others have said."""
        self.late_hearsay: dict[StreamId, RangeSet] = {}
        """What they had said already when hearsay was looked at for the last time."""
        self.unanswered: dict[StreamId, RangeSet] = {}
        """What it was asked to hold, and has not said anything of."""
        self.is_behind = False
        """Whether something was missed that it has told, and may still be unknown here."""
        self.unexplained: dict[StreamId, RangeSet] = {}
        """What it has let go since then, not known here to be done; and what it was doubted of."""

    def miss(self) -> None:
        """Note that something was not heard, unless this is the first that is heard at all."""
        self.is_behind |= bool(self.life_us)

    def confirm(self, stream: StreamId, after: int, last: int) -> None:
        """Note that the node says something of a range itself."""
        _cut(self.unanswered, stream, after, last)
        self.doubt(stream, after, last)

    def doubt(self, stream: StreamId, after: int, last: int) -> None:
        """Believe no more what others have said of a range."""
        for unsaid in (self.hearsay, self.late_hearsay):
            _cut(unsaid, stream, after, last)

    def take_all(self, held: Iterable[Held]) -> dict[StreamId, list[Bounds]]:
        """Take all that the node holds; return what of each stream it does not any more."""
        before, self.ranges, self.hearsay, self.late_hearsay = self.ranges, {}, {}, {}
        gone = self.take(held)
        for stream, ranges in before.items():
            gone[stream] = minus(ranges, self.ranges.get(stream, _NONE))
        return gone

    def take(self, held: Iterable[Held]) -> dict[StreamId, list[Bounds]]:
        """Take how it has changed what the node holds; return what of each stream it has let go."""
        gone: dict[StreamId, list[Bounds]] = {}
        for stream, added, dropped in held:
            gone[stream] = list(dropped)
            if stream not in self.ranges and len(self.ranges) >= STREAMS_MAX:
                continue
            kept = self.ranges.setdefault(stream, RangeSet())
            for bounds in dropped:
                kept.cut(*bounds)
                self.confirm(stream, *bounds)
            for bounds in added:
                kept.join(*bounds)
                self.confirm(stream, *bounds)
            if not kept:
                del self.ranges[stream]
        return gone


class Holders:
    """What other nodes hold, whether they are there now or not."""

    def __init__(self) -> None:
        self._holdings: dict[NodeRef, _Holding] = {}
        self._over: dict[NodeRef, _Remembered] = {}
        """What lives held that are over, or were asked to hold."""
        self._over_unexplained: dict[NodeRef, _Remembered] = {}
        """What some of them have let go, and did not tell why."""

    def expect(self, node: NodeRef, stream: StreamId, after: int, last: int) -> bool:
        """Believe that a node holds a range, or is about to; return whether that is new."""
        holding = self._holding(node)
        kept = holding.ranges.get(stream)
        if kept is None:
            if len(holding.ranges) >= STREAMS_MAX:
                return False
            kept = holding.ranges[stream] = RangeSet()
        new = kept.join(after, last)
        if new:
            hearsay = holding.hearsay.get(stream)
            if hearsay is None:
                hearsay = holding.hearsay[stream] = RangeSet()
            for bounds in new:
                hearsay.join(*bounds)
        return bool(new)

    def note_unanswered(self, node: NodeRef, stream: StreamId, after: int, last: int) -> None:
        """Note that a node was asked to hold a range, and has not answered."""
        _note_bounded(self._holding(node).unanswered, stream, after, last)

    def note_answered(self, node: NodeRef, stream: StreamId, after: int, last: int) -> None:
        """Note that a node has said whether it holds a range."""
        holding = self._holdings.get(node)
        if holding is not None and holding.unanswered:
            _cut(holding.unanswered, stream, after, last)

    def note_agreed(
        self, node: NodeRef, version: tuple[int, int], differing: Collection[StreamId]
    ) -> None:
        """Note of which streams a node knew other things, as it told a version of what it holds.

        If that is the last one that was heard, it has told all that it did on the others.
        """
        holding = self._holdings.get(node)
        if holding is None or version != (holding.life_us, holding.version):
            return
        holding.is_behind &= bool(differing)
        unexplained = holding.unexplained.items()
        holding.unexplained = {each: gone for each, gone in unexplained if each in differing}

    def has_room_for(self, node: NodeRef) -> bool:
        """Return whether it can be believed of a node what others say of it."""
        if node in self._holdings or len(self._holdings) < HEARSAY_NODES_MAX:
            return True
        unsaid = sum(not holding.life_us for holding in self._holdings.values())
        return unsaid < HEARSAY_NODES_MAX and len(self._holdings) < NODES_MAX

    def late(self, nodes: Collection[NodeRef]) -> list[NodeRef]:
        """Return which nodes have not said themselves what was said of them when asked before."""
        late = [
            node for node in nodes if node in self._holdings and self._holdings[node].late_hearsay
        ]
        for holding in self._holdings.values():
            for stream, ranges in holding.hearsay.items():
                for bounds in ranges:
                    holding.late_hearsay.setdefault(stream, RangeSet()).join(*bounds)
            holding.hearsay = {}
        return late

    def has_hearsay(self, nodes: Collection[NodeRef]) -> bool:
        """Return whether some nodes have not said themselves what was said of them."""
        return any(
            holding.hearsay or holding.late_hearsay
            for node, holding in self._holdings.items()
            if node in nodes
        )

    def doubt(self, node: NodeRef, stream: StreamId, after: int, last: int) -> bool:
        """Believe it no more; return whether it was believed."""
        holding = self._holding(node)
        kept = holding.ranges.get(stream)
        gone = kept.cut(after, last) if kept else []
        holding.doubt(stream, after, last)
        for bounds in gone:
            _note_bounded(holding.unexplained, stream, *bounds)
        return bool(gone)

    def take(
        self, node: NodeRef, news: News, undone: Undone
    ) -> tuple[Literal["known", "taken", "missed"], Iterable[StreamId]]:
        """Take what a node says that it holds; return what that came to, and which streams change.

        `missed`: it follows something that was not heard, and nothing was taken. `undone` returns
        what of some ranges is not known to be done, what the same news say included.
        """
        holding = self._holding(node)
        now = (news.life_us, news.version)
        if news.since == news.version:
            is_known = now == (holding.life_us, holding.version)
            if not is_known:
                holding.miss()
            return ("known" if is_known else "missed"), ()
        known = (holding.life_us, holding.version)
        if now < known or (now == known and news.since != WHOLE):
            return "known", ()
        if news.since != WHOLE and (news.life_us, news.since) != known:
            holding.miss()
            return "missed", ()
        if news.since == WHOLE and now != known:
            holding.miss()
        holding.life_us, holding.version = now
        gone = holding.take_all(news.held) if news.since == WHOLE else holding.take(news.held)
        for stream, ranges in gone.items() if holding.is_behind else ():
            for bounds in undone(stream, ranges) if ranges else ():
                _note_bounded(holding.unexplained, stream, *bounds)
        return "taken", gone

    def is_current(self, node: NodeRef, life_us: int, version: int) -> bool:
        """Return whether all is known that a node has told up to a version."""
        holding = self._holding(node)
        return (holding.life_us, holding.version) >= (life_us, version)

    def held_by(self, node: NodeRef, stream: StreamId) -> RangeSet:
        """Return what a node holds of a stream; it is not to be changed."""
        holding = self._holdings.get(node)
        return _NONE if holding is None else holding.ranges.get(stream, _NONE)

    def may_be_held_by(self, node: NodeRef, stream: StreamId) -> list[Bounds]:
        """Return what a node holds of a stream, or was asked to hold and has not answered.

        Of a life that is over: what that held.
        """
        held = self._over.get(node, {}).get(stream, [])
        holding = self._holdings.get(node)
        if holding is None:
            return held
        ranges, unanswered = holding.ranges.get(stream), holding.unanswered.get(stream)
        return union(held, ranges or _NONE, unanswered or _NONE)

    def may_have_handed_out(self, node: NodeRef, stream: StreamId) -> list[Bounds]:
        """Return what of a stream a node may have handed out."""
        may_hold, holding = self.may_be_held_by(node, stream), self._holdings.get(node)
        now = None if holding is None else holding.unexplained.get(stream)
        before = self._over_unexplained.get(node, {}).get(stream)
        return union(may_hold, now or _NONE, before or _NONE) if now or before else may_hold

    def said_by(self, node: NodeRef, stream: StreamId) -> list[Bounds]:
        """Return what a node has said itself that it holds of a stream."""
        holding = self._holdings.get(node)
        if holding is None:
            return []
        hearsay = holding.hearsay.get(stream, _NONE), holding.late_hearsay.get(stream, _NONE)
        return minus(holding.ranges.get(stream, _NONE), union(*hearsay))

    def all_of(self, stream: StreamId) -> Mapping[NodeRef, RangeSet]:
        """Return which nodes hold something of a stream, and what; not to be changed."""
        return {
            node: holding.ranges[stream]
            for node, holding in self._holdings.items()
            if stream in holding.ranges
        }

    def nodes(self) -> list[NodeRef]:
        """Return the nodes of which something is known, and lives that are over."""
        return list(self._holdings | self._over)

    def streams(self) -> set[StreamId]:
        """Return the streams of which somebody holds something."""
        return {stream for holding in self._holdings.values() for stream in holding.ranges}

    def forget(self, node: bytes, before_epoch: int | None = None) -> None:
        """Count on nothing of a node any more; with an epoch, of its lives before that alone."""
        for ref in [ref for ref in self._holdings if ref.id == node]:
            if before_epoch is None or ref.epoch < before_epoch:
                holding = self._holdings.pop(ref)
                before, let_go = self._over.pop(ref, {}), self._over_unexplained.pop(ref, {})
                held = _together(before, holding.ranges, holding.unanswered)
                unexplained = _together(let_go, holding.unexplained)
                if held or unexplained:
                    self._over[ref] = held
                if unexplained:
                    self._over_unexplained[ref] = unexplained
        while len(self._over) > LIVES_OVER_MAX:
            oldest = next(iter(self._over))
            del self._over[oldest]
            self._over_unexplained.pop(oldest, None)

    def forget_stream(self, stream: StreamId) -> None:
        """Drop what nodes may have held of a stream that is over and done everywhere."""
        for holding in self._holdings.values():
            holding.unanswered.pop(stream, None)
            holding.unexplained.pop(stream, None)
        for held in (*self._over.values(), *self._over_unexplained.values()):
            held.pop(stream, None)

    def _holding(self, node: NodeRef) -> _Holding:
        """Return what is known of a node; of too many it is kept of none."""
        holding = self._holdings.get(node)
        if holding is None:
            holding = _Holding()
            if len(self._holdings) < NODES_MAX:
                self._holdings[node] = holding
        return holding


def _together(before: _Remembered, *ranges: Mapping[StreamId, RangeSet]) -> _Remembered:
    """Return all of what is remembered and what is known now."""
    streams = before.keys() | {stream for each in ranges for stream in each}
    return {
        stream: union(before.get(stream, ()), *[each.get(stream, _NONE) for each in ranges])
        for stream in streams
    }


def _note_bounded(
    ranges: dict[StreamId, RangeSet], stream: StreamId, after: int, last: int
) -> None:
    """Join a range, of bounded many; of more they are taken for one."""
    if stream not in ranges and len(ranges) >= STREAMS_MAX:
        return
    its = ranges.setdefault(stream, RangeSet())
    its.join(after, last)
    if len(its) > UNANSWERED_MAX:
        (first, _), *_, (_, end) = its
        its.join(first, end)


def _cut(ranges: dict[StreamId, RangeSet], stream: StreamId, after: int, last: int) -> None:
    """Have nothing of a range there, nor an empty set."""
    if stream in ranges:
        ranges[stream].cut(after, last)
        if not ranges[stream]:
            del ranges[stream]
