"""What one node knows of its cluster: who belongs to it, who lives, and who of these is chosen.

Pure: it is told what the fabric has heard and what other nodes know, and returns what follows of
it. Times are microseconds of a clock that only goes on.
"""

from collections.abc import Iterable
from typing import Final, Literal, NamedTuple

from poe.cluster.identity import PROTOCOL, PROTOCOL_MIN, NodeRef, Peer
from poe.cluster.members.flapping import Flapping
from poe.cluster.members.table import Member, MemberTable
from poe.errors import (
    IdentityConflict,
    IncompatibleProtocol,
    NodeAlive,
    NodeForgotten,
    PoeError,
    UnknownNode,
)

Pace = Literal["ok", "slow", "out"]
"""Slow: it takes what it is sent too late. Out: it went down too often lately."""

_US: Final = 1_000_000


class Up(NamedTuple):
    """A node lives, and may be told things."""

    peer: Peer


class Down(NamedTuple):
    """A life of a node is over, or out of reach."""

    ref: NodeRef
    why: str


class PaceChanged(NamedTuple):
    """New copies are to avoid a node, or need not any more."""

    ref: NodeRef
    pace: Pace


class MemberGone(NamedTuple):
    """A node has left, or was forgotten: what it holds does not count any more."""

    node: bytes
    epoch: int
    """The last life of which this holds."""


class TableChanged(NamedTuple):
    """The table has to be saved, and told to the others."""

    members: tuple[Member, ...]


class Refused(NamedTuple):
    """A node is not taken for a peer; if it is one of the table it is told so."""

    peer: Peer
    error: PoeError


class Fenced(NamedTuple):
    """This node has to leave the cluster; nobody may take anything from it any more."""

    error: PoeError


class Told(NamedTuple):
    """Something for the log and the events."""

    kind: str
    detail: str


Effect = Up | Down | PaceChanged | MemberGone | TableChanged | Refused | Fenced | Told


class Membership:
    """The members of a cluster as one node sees them.

    Always: `live` has no node that is forgotten, and of each id one life, the newest known.
    """

    def __init__(self, me: Peer, known: Iterable[Member] = ()) -> None:
        self.me = me
        self.table = MemberTable(known)
        self.live: dict[bytes, Peer] = {}
        self.fenced: PoeError | None = None
        """Why this node is in no cluster any more; None: it is."""
        self._flapping = Flapping()
        self._slow: set[NodeRef] = set()
        self._paces: dict[NodeRef, Pace] = {}
        self._effects: list[Effect] = []

    def join(self) -> None:
        """Enter the table, at a start."""
        known = self.table.get(self.me.ref.id)
        if known is not None and known.state == "forgotten":
            self._fence(NodeForgotten(self.me.ref.id.hex()))
        else:
            self._change([Member.of(self.me)])

    def leave(self) -> None:
        """Leave for good: what this node holds is handed over, or not counted any more."""
        self._change([Member.of(self.me)._replace(state="left")])

    # ---- what the fabric hears ------------------------------------------------------------------

    def peer_up(self, peer: Peer, now_us: int) -> None:
        """Take a node that lives, unless something speaks against it."""
        if self.fenced is not None:
            return
        if peer.ref.id == self.me.ref.id:
            self._meet_twin(peer)
            return
        before = self.live.get(peer.ref.id)
        error = self._objection(peer)
        if error is not None:
            self._effects.append(Refused(peer, error))
        elif peer != before and not self._has_left(peer):
            self._take(peer, before, now_us)

    def peer_down(self, ref: NodeRef, why: str, now_us: int) -> None:
        """Note that a life of a node is over or out of reach; nothing, where a later one lives."""
        peer = self.live.get(ref.id)
        if peer is not None and peer.ref == ref:
            self._end(ref, why, now_us)

    def peer_pace(self, ref: NodeRef, now_us: int, *, is_slow: bool) -> None:
        """Note whether a node takes in time what it is sent."""
        (self._slow.add if is_slow else self._slow.discard)(ref)
        self._tell_pace(ref, now_us)

    def tick(self, now_us: int) -> None:
        """Let in again who was kept out for long enough."""
        for peer in list(self.live.values()):
            self._tell_pace(peer.ref, now_us)

    def next_deadline_us(self, now_us: int) -> int | None:
        """Return when `tick` has something to do; None: nothing waits for time."""
        return self._flapping.next_deadline_us(now_us)

    # ---- what others know -----------------------------------------------------------------------

    def hear(self, members: Iterable[Member], now_us: int) -> None:
        """Join what another node knows."""
        if self.fenced is None:
            self._change(members)
            self._heed(now_us)

    def forget(self, node: str, now_us: int) -> Member:
        """End the membership of a node that does not live, by its name or the begin of its id.

        Raises:
            UnknownNode: no member is meant, or more than one.
            NodeAlive: it lives, as far as is known here.
        """
        found = self.table.find(node)
        if len(found) != 1:
            raise UnknownNode(node)
        member = found[0]
        if member.id == self.me.ref.id or member.id in self.live:
            raise NodeAlive(member.name)
        if member.state != "forgotten":
            self._change([member._replace(state="forgotten")])
            self._effects.append(Told("node_forgotten", f"{member.name} {member.id.hex()}"))
            self._heed(now_us)
        return self.table.get(member.id) or member

    # ---- what follows ---------------------------------------------------------------------------

    def take_effects(self) -> list[Effect]:
        """Return what has to be done, in order, and forget it."""
        effects, self._effects = self._effects, []
        return effects

    def liveness(self, node: bytes) -> str:
        """Return `me`, `live`, `slow`, `out` or `down`."""
        if node == self.me.ref.id:
            return "me" if self.fenced is None else "down"
        peer = self.live.get(node)
        if peer is None:
            return "down"
        pace = self._paces.get(peer.ref, "ok")
        return "live" if pace == "ok" else pace

    def down(self) -> list[Member]:
        """Return the members that belong to the cluster and do not live as far as is known."""
        others = (each for each in self.table if each.id != self.me.ref.id)
        return [each for each in others if each.state == "joined" and each.id not in self.live]

    def _change(self, members: Iterable[Member]) -> None:
        changed = self.table.join(members)
        if changed:
            self._effects.append(TableChanged(tuple(changed)))
            for each in changed:
                if each.state != "joined":
                    self._effects.append(MemberGone(each.id, each.epoch))
                    self._flapping.forget(each.id)

    def _heed(self, now_us: int) -> None:
        """Go by what the table says of this node, and of those that live."""
        mine = self.table.get(self.me.ref.id)
        if mine is not None and mine.state == "forgotten":
            self._fence(NodeForgotten(mine.id.hex()))
        elif mine is not None and mine.epoch > self.me.ref.epoch:
            self._fence(IdentityConflict(mine.id.hex(), mine.name))
        for peer in list(self.live.values()):
            known = self.table.get(peer.ref.id)
            if known is None or known.state == "joined":
                continue
            if known.state == "forgotten":
                self._end(peer.ref, "it was forgotten", now_us)
                self._effects.append(Refused(peer, NodeForgotten(peer.ref.id.hex())))
            elif known.epoch >= peer.ref.epoch:
                self._end(peer.ref, "it left", now_us)

    def _objection(self, peer: Peer) -> PoeError | None:
        """Return why a node may not be a peer; None: it may."""
        node = peer.ref.id
        known = self.table.get(node)
        if known is not None and known.state == "forgotten":
            return NodeForgotten(node.hex())
        if peer.protocol < PROTOCOL_MIN:
            return IncompatibleProtocol(PROTOCOL, PROTOCOL_MIN, peer.protocol)
        before = self.live.get(node)
        if before is not None and _life(peer) < _life(before):
            return IdentityConflict(node.hex(), before.name)
        return None

    def _has_left(self, peer: Peer) -> bool:
        """Return whether a node is about to go, though the fabric still sees it."""
        known = self.table.get(peer.ref.id)
        return known is not None and known.state == "left" and peer.ref.epoch <= known.epoch

    def _take(self, peer: Peer, before: Peer | None, now_us: int) -> None:
        if before is not None and peer.ref != before.ref:
            self._end(before.ref, "it was started anew", now_us)
            before = None
        self.live[peer.ref.id] = peer
        self._change([Member.of(peer)])
        if before is None:
            self._effects += [Up(peer), Told("node_up", f"{peer.name} at {peer.locator}")]
            self._tell_pace(peer.ref, now_us)

    def _meet_twin(self, other: Peer) -> None:
        """Meet a node that has this one's id: the earlier of two lives has to go."""
        if other.incarnation == self.me.incarnation:
            return  # it is this one, as the fabric sees it
        if _life(self.me) < _life(other):
            self._fence(IdentityConflict(other.ref.id.hex(), f"{other.name} at {other.locator}"))
        else:
            error = IdentityConflict(other.ref.id.hex(), f"{self.me.name} at {self.me.locator}")
            self._effects.append(Refused(other, error))

    def _fence(self, error: PoeError) -> None:
        if self.fenced is None:
            self.fenced = error
            self._effects += [Told("node_fenced", str(error)), Fenced(error)]

    def _end(self, ref: NodeRef, why: str, now_us: int) -> None:
        peer = self.live.pop(ref.id)
        self._slow.discard(ref)
        self._paces.pop(ref, None)
        self._effects += [Down(ref, why), Told("node_down", f"{peer.name}: {why}")]
        known = self.table.get(ref.id)
        is_member = known is not None and known.state == "joined"
        out_us = self._flapping.down(ref.id, now_us) if is_member else 0
        if out_us:
            self._effects.append(
                Told(
                    "node_kept_out",
                    f"{peer.name} went down too often: others get new copies before it does for "
                    f"{out_us / _US:.0f} s",
                )
            )

    def _tell_pace(self, ref: NodeRef, now_us: int) -> None:
        peer = self.live.get(ref.id)
        if peer is None or peer.ref != ref:
            return
        pace: Pace = "slow" if ref in self._slow else "ok"
        if self._flapping.is_out(ref.id, now_us):
            pace = "out"
        if pace != self._paces.get(ref, "ok"):
            self._effects.append(PaceChanged(ref, pace))
        self._paces[ref] = pace


def _life(peer: Peer) -> tuple[int, bytes]:
    return peer.ref.epoch, peer.incarnation
