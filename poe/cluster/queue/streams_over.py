"""Which streams are over, and done everywhere, so that nothing needs to be known of them.

A stream is over when its origin has begun another epoch, or is no node of the cluster any more. It
is forgotten when all nodes of the cluster, those that are away included, have said that they know
the same of it, and nobody holds any of it. Streams of one origin are forgotten in order; so one
number for each origin tells which are, and is told with every digest.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Final, NamedTuple

from poe.cluster.frames import Digest
from poe.cluster.identity import NodeRef, StreamId

ORIGINS_MAX: Final = 16_384
"""Of which it is kept what others say to have forgotten."""


class _Agreed(NamedTuple):
    """Who knows of a stream what this node knows."""

    known: Mapping[str, int]
    nodes: set[bytes]


class StreamsOver:
    """What is known of the ends of streams."""

    def __init__(self, me: NodeRef) -> None:
        self.members: set[bytes] = {me.id}
        self.forgotten: dict[bytes, int] = {}
        """Up to which epoch the streams of an origin are."""
        self._me = me.id
        self._epochs: dict[bytes, int] = {me.id: me.epoch}
        self._gone: set[bytes] = set()
        self._agreed: dict[StreamId, _Agreed] = {}
        self._told: dict[bytes, int] = {}
        """What others say to have forgotten."""

    def see(self, ref: NodeRef) -> None:
        """Note that a node is there."""
        self.members.add(ref.id)
        self._gone.discard(ref.id)
        self._epochs[ref.id] = max(ref.epoch, self._epochs.get(ref.id, 0))

    def forget_node(self, node: bytes) -> None:
        """Note that a node is none of the cluster any more."""
        self.members.discard(node)
        self._gone.add(node)

    def is_over(self, stream: StreamId) -> bool:
        """Return whether nothing can be put any more."""
        return stream.origin in self._gone or self._epochs.get(stream.origin, 0) > stream.epoch

    def is_forgotten(self, stream: StreamId) -> bool:
        """Return whether a stream is over, and was done everywhere."""
        return self.forgotten.get(stream.origin, -1) >= stream.epoch

    def note_held(self, stream: StreamId) -> None:
        """Note that somebody holds something of a stream: it is forgotten no more.

        Its holder was none of the cluster any more when it was forgotten, and has come back with
        its disk. What is known of the stream is heard of again, as all that was missed is.
        """
        if self.is_forgotten(stream):
            self.forgotten[stream.origin] = stream.epoch - 1
            if not stream.epoch:
                del self.forgotten[stream.origin]

    def hear(self, node: bytes, theirs: Digest, mine: Digest) -> set[StreamId]:
        """Compare what a node knows with what is known here.

        Return the streams of which they know different things.
        """
        for origin, epoch in theirs.forgotten:
            if origin in self._told or len(self._told) < ORIGINS_MAX:
                self._told[origin] = max(epoch, self._told.get(origin, 0))
        there, here = _by_stream(theirs), _by_stream(mine)
        for stream in self._agreed.keys() - here.keys():
            del self._agreed[stream]  # its groups were deleted; it is to hold back no later one
        for stream, known in here.items():
            if not self.is_over(stream):
                continue
            agreed = self._agreed.get(stream)
            if agreed is None or agreed.known != known:
                agreed = self._agreed[stream] = _Agreed(known, {self._me})
            if there.get(stream) == known:
                agreed.nodes.add(node)
            else:
                agreed.nodes.discard(node)
        streams = there.keys() | here.keys()
        return {each for each in streams if _not_zero(there, each) != _not_zero(here, each)}

    def settle(
        self, held: Iterable[StreamId], is_idle_on: Callable[[StreamId], bool]
    ) -> list[StreamId]:
        """Return the streams that are forgotten from now on: none that is held, or behind such."""
        found = []
        blocked: set[bytes] = set()
        there = set(held)
        for stream in sorted(there.union(self._agreed)):
            agreed = self._agreed.get(stream)
            is_told = self._told.get(stream.origin, -1) >= stream.epoch
            is_agreed = agreed is not None and (is_told or agreed.nodes >= self.members)
            is_blocked = stream.origin in blocked or stream in there
            if not is_agreed or is_blocked or not is_idle_on(stream):
                blocked.add(stream.origin)
                continue
            self.forgotten[stream.origin] = stream.epoch
            found.append(stream)
        for stream in found:
            del self._agreed[stream]
        return found


def _by_stream(digest: Digest) -> dict[StreamId, dict[str, int]]:
    known: dict[StreamId, dict[str, int]] = {}
    for group, stream, short in digest.known:
        known.setdefault(stream, {})[group] = short
    return known


def _not_zero(known: Mapping[StreamId, Mapping[str, int]], stream: StreamId) -> dict[str, int]:
    """Return what is known of a stream, but for groups in which that is nothing."""
    return {group: short for group, short in known.get(stream, {}).items() if short}
