"""Which nodes are believed what they are said to hold: those that prove it when they are asked to.

Who has to admit once that it does not hold something may have dropped it meanwhile; who does so
again, says nothing at all, or has other messages than were put, is believed nothing for a while.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterator
from typing import Final, NamedTuple

from poe.broker.groups.ranges import Bounds
from poe.cluster.frames import Proof, Prove
from poe.cluster.identity import NodeRef, StreamId
from poe.cluster.queue.audit import Audit, Said
from poe.cluster.queue.copies import Copies
from poe.cluster.queue.effects import Effect, Event, Tell
from poe.cluster.queue.gossip import Gossip
from poe.cluster.queue.holders import Holders
from poe.cluster.queue.spread import Candidates
from poe.cluster.ranges import intersect, minus
from poe.record import POINTER_MAX

PROOFS_US: Final = 5_000_000
DISTRUST_US: Final = 60_000_000
"""How long nothing is believed of what a node is said to hold."""

DoneOf = Callable[[StreamId], list[Bounds]]
"""Returns what of a stream nobody needs to hold any more."""


class Judgement(NamedTuple):
    """What follows when nodes are asked or have answered."""

    effects: list[Effect]
    streams: list[StreamId]
    """Of which it is to be reckoned anew who hands them out."""


class Trust:
    """Asks other nodes for proofs, and knows who is believed; owned by its queue."""

    def __init__(
        self,
        audit: Audit,
        copies: Copies,
        holders: Holders,
        candidates: Candidates,
        gossip: Gossip,
    ) -> None:
        self._audit = audit
        self._copies = copies
        self._holders = holders
        self._candidates = candidates
        self._gossip = gossip
        self.due_us: int | None = None
        """When to ask for proofs next."""
        self._denied_us: dict[NodeRef, int] = {}
        """When a node had to admit that it does not hold what it has said, within `DISTRUST_US`."""
        self._distrusted_us: dict[NodeRef, int] = {}
        """Until when nothing is believed of what a node is said to hold."""
        self._counts: Counter[str] = Counter()

    def begin(self, now_us: int) -> None:
        """Note that another node is there."""
        if self.due_us is None:
            self.due_us = now_us + PROOFS_US

    def forget(self, node: NodeRef) -> None:
        """Wait for no answer of a node."""
        self._audit.forget(node)

    def trusted(self, peers: Collection[NodeRef]) -> Collection[NodeRef]:
        """Return the nodes of which it is believed what they hold."""
        if not self._distrusted_us:
            return peers
        return [node for node in peers if node not in self._distrusted_us]

    def ask(self, peers: Collection[NodeRef], done_of: DoneOf, now_us: int) -> Judgement:
        """Ask each node for a proof that it holds something of what it is said to."""
        found = Judgement([], [])
        self.due_us = now_us + PROOFS_US if peers else None
        late_us = now_us - DISTRUST_US
        self._denied_us = {node: at for node, at in self._denied_us.items() if at > late_us}
        for node in [node for node, until_us in self._distrusted_us.items() if until_us <= now_us]:
            del self._distrusted_us[node]
            found.streams.extend(self._copies.streams())
        for node in peers:
            if self._candidates.is_slow(node):
                self._audit.forget(node)
                continue
            if self._audit.is_silent(node):
                self._distrust(node, now_us, "does not prove that it holds what it says", found)
            asked = self._audit.ask(node, self._said(node, done_of))
            if asked is not None:
                found.effects.append(Tell(node, asked))
        return found

    def answer(self, asked: Prove) -> Proof:
        """Return the proof that another node has asked for."""
        return self._audit.answer(asked)

    def hear(
        self, node: NodeRef, proof: Proof, now_us: int, *, is_done: Callable[..., bool]
    ) -> Judgement:
        """Take what a node has answered; `is_done` tells whether nobody needs to hold a range."""
        found = Judgement([], [])
        if self._audit.hear(node, proof) is not False:
            return found
        if proof.digest is not None:
            self._distrust(node, now_us, "has other messages than were put", found)
            return found
        stream, after, last = proof.stream, proof.after, proof.last
        still_said = self._holders.said_by(node, stream)
        if is_done(stream, after, last) or minus([(after, last)], still_said):
            return found
        if self._denied_us.get(node, now_us) < now_us:
            self._distrust(node, now_us, "says again that it holds what it does not", found)
            return found
        self._denied_us[node] = now_us
        self._doubt(node, stream, (after, last), "does not hold what it says", found)
        # It may have come to hold it meanwhile, or dropped it.
        asked = self._gossip.ask_all(node, now_us)
        if asked is not None:
            found.effects.append(Tell(node, asked))
        return found

    def counters(self) -> Counter[str]:
        """Return what was counted."""
        return self._counts

    def _said(self, node: NodeRef, done_of: DoneOf) -> Iterator[Said]:
        for stream in self._copies.streams():
            said = self._holders.said_by(node, stream)
            if said:
                both = intersect(said, self._copies.held(stream))
                yield Said(stream, minus(both, done_of(stream)))

    def _distrust(self, node: NodeRef, now_us: int, why: str, found: Judgement) -> None:
        """Believe nothing for a while of what a node is said to hold."""
        self._audit.forget(node)
        self._distrusted_us[node] = now_us + DISTRUST_US
        self._candidates.leave_out(node, now_us + DISTRUST_US)
        for stream in self._copies.streams():
            if self._holders.held_by(node, stream):
                self._doubt(node, stream, (0, POINTER_MAX), why, found)

    def _doubt(
        self, node: NodeRef, stream: StreamId, bounds: Bounds, why: str, found: Judgement
    ) -> None:
        """Believe no more that a node holds a range."""
        if self._holders.doubt(node, stream, *bounds):
            self._counts["void claims"] += 1
            found.effects.append(Event("void claim", f"{node} {why}"))
            found.streams.append(stream)
