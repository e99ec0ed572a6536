"""Which node hands a message out: the first one that is there and holds it, in an order of its own.

The order begins with the origin, so that a producer's messages come in its order and are read where
they were put; behind it each stream has the others in another order, so that what a node leaves
behind is spread over all. Nodes that know the same of each other come to the same without a word.
"""

from collections.abc import Collection, Iterable, Mapping
from functools import lru_cache

from xxhash import xxh64_intdigest

from poe.broker.groups.ranges import Bounds
from poe.cluster.identity import NodeRef, StreamId
from poe.cluster.ranges import minus, union


def owned(
    me: NodeRef,
    queue: bytes,
    stream: StreamId,
    held: Mapping[NodeRef, Iterable[Bounds]],
    live: Collection[NodeRef],
) -> list[Bounds]:
    """Return what of a stream this node is to hand out: what it holds, and nobody before it.

    Args:
        me: this node, which is live.
        queue: the name of the queue.
        stream: of which origin, and which life of it.
        held: what each node holds of the stream, whether it is there or not, and this one.
        live: the nodes that are there.
    """
    mine = rank(me, queue, stream)
    before = [
        ranges for node, ranges in held.items() if node in live and rank(node, queue, stream) < mine
    ]
    return minus(held.get(me, ()), union(*before)) if before else list(held.get(me, ()))


@lru_cache(1024)
def rank(node: NodeRef, queue: bytes, stream: StreamId) -> tuple[bool, int, NodeRef]:
    """Return what the nodes are sorted by: the origin, in whichever life, is the first."""
    place = b"%d %b %b" % (stream.epoch, stream.origin, queue)
    return node.id != stream.origin, xxh64_intdigest(node.id + place), node
