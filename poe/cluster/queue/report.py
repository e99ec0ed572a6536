"""Which messages came to clients more than once, or may have, and why: as exact as can be known.

A node counts what it hands out in the same step; all nodes join what each has counted. So a message
that two nodes have counted came twice for certain, on both sides of a split as well. A node that is
gone and was not heard of since may have handed out what it held; once it is heard again, what it
has counted takes the place of that. Where a node has learned that what it handed out came to no
client, for that was gone, nothing is certain of it any more.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, Final, Literal, NamedTuple

from poe.broker.groups.ranges import Bounds, RangeSet
from poe.cluster.identity import NodeRef, StreamId
from poe.cluster.queue.knowledge import UNDELIVERED, UNHEARD, Cause, Knowledge, StreamKnowledge
from poe.cluster.ranges import intersect, minus, union

SPLIT: Final = "split"
"""Two nodes handed out the same, and neither knew of the other."""
ROWS_MAX: Final = 10_000

Certainty = Literal["certain", "again", "may"]
"""Whether messages were handed out by two nodes; or again by one, which knew it; or only may have
been handed out twice."""


class Repeated(NamedTuple):
    """A range of a stream that was handed out more than once, or may have been."""

    stream: StreamId
    after: int
    last: int
    certainty: Certainty
    cause: str
    nodes: tuple[NodeRef, NodeRef]
    """Who handed it out again, as far as that is known; and who did so before, or may have."""
    since_us: int
    """When that was first so; 0: it is not known."""

    def as_map(self) -> dict[str, Any]:
        """Return it as msgpack can hold it."""
        return {**self._asdict(), "stream": str(self.stream), "nodes": list(map(str, self.nodes))}


def repeated(knowledge: Knowledge, heard: Collection[NodeRef]) -> Iterator[Repeated]:
    """Yield all that came twice in a group, or may have.

    Args:
        knowledge: of the group.
        heard: the nodes that tell what they hand out, this one too.
    """
    for stream in sorted(knowledge.streams()):
        yield from repeated_of(stream, knowledge.get(stream), heard)


def repeated_of(
    stream: StreamId, known: StreamKnowledge, heard: Collection[NodeRef]
) -> Iterator[Repeated]:
    """Yield what of one stream came twice, or may have."""
    found = chain(_certain(known), _again(known), _unheard(known, heard))
    for certainty, cause, nodes, since_us, ranges in found:
        for after, last in ranges:
            yield Repeated(stream, after, last, certainty, cause, nodes, since_us)


_NOTHING: Final = 0, RangeSet()

_Granted = Mapping[NodeRef, RangeSet]

_Found = tuple[Certainty, str, tuple[NodeRef, NodeRef], int, list[Bounds]]


def _certain(known: StreamKnowledge) -> Iterator[_Found]:
    """Yield what two nodes have handed out, or may have: with a cause if one of them has known."""
    for one, other in _pairs(known.granted, sorted(known.granted)):
        both = intersect(known.granted[one], known.granted[other])
        unsure = intersect(both, union(_undelivered(known, one), _undelivered(known, other)))
        yield "may", UNDELIVERED, (one, other), 0, unsure
        both = minus(both, unsure)
        for cause, (since_us, ranges) in sorted(known.again.items(), key=_since):
            if cause.cause != UNHEARD and {cause.node, cause.other} == {one, other}:
                named = intersect(both, ranges)
                both = minus(both, named)
                yield "certain", cause.cause, (cause.node, cause.other), since_us, named
        yield "certain", SPLIT, (one, other), 0, both


def _pairs(granted: _Granted, nodes: Sequence[NodeRef]) -> Iterator[tuple[NodeRef, NodeRef]]:
    """Yield the pairs of nodes that have handed out the same.

    Not each pair is looked at: there may be thousands of nodes, mostly none of which has.
    """
    if len(nodes) > 1:
        some, others = _halves(nodes)
        yield from _pairs(granted, some)
        yield from _pairs_between(granted, some, others)
        yield from _pairs(granted, others)


def _pairs_between(
    granted: _Granted, some: Sequence[NodeRef], others: Sequence[NodeRef]
) -> Iterator[tuple[NodeRef, NodeRef]]:
    """Yield the pairs of which one is of some nodes, and one of others."""
    one, other = (union(*[granted[node] for node in nodes]) for nodes in (some, others))
    if not intersect(one, other):
        return
    if len(some) == len(others) == 1:
        yield some[0], others[0]
    elif len(some) >= len(others):
        for half in _halves(some):
            yield from _pairs_between(granted, half, others)
    else:
        for half in _halves(others):
            yield from _pairs_between(granted, some, half)


def _halves(nodes: Sequence[NodeRef]) -> tuple[Sequence[NodeRef], Sequence[NodeRef]]:
    middle = len(nodes) // 2
    return nodes[:middle], nodes[middle:]


def _again(known: StreamKnowledge) -> Iterator[_Found]:
    """Yield what one node has handed out again, or may have."""
    for cause, (since_us, ranges) in sorted(known.again.items(), key=_since):
        if cause.cause in {UNHEARD, UNDELIVERED} or cause.node != cause.other:
            continue
        nodes = cause.node, cause.other
        unsure = intersect(ranges, _undelivered(known, cause.node))
        yield "again", cause.cause, nodes, since_us, minus(ranges, unsure)
        yield "may", UNDELIVERED, nodes, since_us, unsure


def _undelivered(known: StreamKnowledge, node: NodeRef) -> RangeSet:
    """Return of what a node has handed out it was learned that it came to no client."""
    return known.again.get(Cause(UNDELIVERED, node, node), _NOTHING)[1]


def _unheard(known: StreamKnowledge, heard: Collection[NodeRef]) -> Iterator[_Found]:
    """Yield what was handed out, and may have been by a life that could not tell."""
    for cause, (since_us, ranges) in sorted(known.again.items(), key=_since):
        silent = cause.other
        if cause.cause != UNHEARD or silent in heard:
            continue
        others = [granted for node, granted in known.granted.items() if node != silent]
        may = intersect(ranges, union(*others)) if others else []
        certain = known.granted.get(silent, RangeSet())
        yield "may", UNHEARD, (cause.node, silent), since_us, minus(may, certain)


def _since(item: tuple[Any, tuple[int, RangeSet]]) -> tuple[int, Any]:
    return item[1][0], item[0]
