"""The actor that knows the members: it hears the fabric, tells the others, and saves the table.

Layout of `node.members`, in the frame of `node_file.py` with magic "poe-memb":
    [version: 1, name of the cluster, entries of the table]
"""

import logging
import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from poe.actors import Call, Error, GenServer
from poe.actors.alarm_clock import AlarmClock
from poe.broker.requests.queue_messages import QUEUES
from poe.cluster.actor_messages import (
    FABRIC,
    CloseFabric,
    DescribeMembers,
    ForgetMember,
    LeaveCluster,
    ListNodes,
    MembersHeard,
    MembersKnown,
    NodesKnown,
    PaceSeen,
    SeekNodes,
    TellNodes,
)
from poe.cluster.fabric.interface import PeerDown, PeerUp
from poe.cluster.fabric.interface import Refused as FabricRefused
from poe.cluster.identity import NodeRef, Peer
from poe.cluster.members.membership import (
    Down,
    Effect,
    Fenced,
    MemberGone,
    Membership,
    PaceChanged,
    Refused,
    TableChanged,
    Told,
    Up,
)
from poe.cluster.members.table import Member, decode_members
from poe.cluster.node_file import read_node_file, write_node_file
from poe.cluster.node_frames import encode_members
from poe.cluster.shelf import Shelf
from poe.errors import CorruptIdentity, ForeignCluster, PoeError, StorageError
from poe.security.expiry import ExpiryWarning
from poe.storage import Clock, Files

logger = logging.getLogger("poe.cluster")

MEMBERS_FILE: Final = "node.members"
_MAGIC: Final = b"poe-memb"
_VERSION: Final = 1
_GOSSIP_S: Final = 10.0
_SOUGHT_MAX: Final = 8
"""Members that are down, and are tried to be found at a time."""
_GOSSIP = object()
_TICK = object()
_US: Final = 1_000_000
_LEVELS: Final = {
    "node_fenced": logging.ERROR,
    "members_not_saved": logging.ERROR,
    "certificate": logging.WARNING,
    "node_kept_out": logging.WARNING,
    "refused": logging.WARNING,
    "alone": logging.WARNING,
    # The fabric has logged these.
    "node_up": logging.DEBUG,
    "node_down": logging.DEBUG,
}


@dataclass(frozen=True, slots=True)
class MembersParts:
    """What the members of a cluster are known by."""

    cluster: str
    me: Peer
    files: Files
    clock: Clock
    shelf: Shelf
    seeds: Sequence[str]
    certificate_expires_s: float | None = None
    """When the node's own certificate does, in seconds since the epoch; None without one."""


def read_members(files: Files, cluster: str) -> list[Member]:
    """Return the members that a node knew of when it ran last; none at its first start.

    Raises:
        ForeignCluster: the folder is that of a node of another cluster.
        CorruptIdentity: the file is damaged.
        StorageError: it cannot be read.
    """
    match read_node_file(files, MEMBERS_FILE, _MAGIC):
        case None:
            return []
        case [1, str(name), entries]:
            if name != cluster:
                raise ForeignCluster(name, cluster)
            members = decode_members(entries)
            if members is not None:
                return members
    path = f"{files.base}/{MEMBERS_FILE}"
    raise CorruptIdentity(path, "it holds no members")


class MembersActor(GenServer):
    """Carries out what `Membership` decides."""

    def init(self, parts: MembersParts) -> None:
        """Join the cluster as it was known when this node ran last."""
        self._parts = parts
        self._dice = random.Random(parts.me.incarnation)  # noqa: S311 - whom to tell next
        self._members = Membership(parts.me, read_members(parts.files, parts.cluster))
        self._alarm = AlarmClock(self, _TICK)
        self._is_alone = False
        self._expiry = ExpiryWarning()
        self._look_at_certificate()
        self._members.join()
        self._settle()
        self.send_after(_GOSSIP_S, _GOSSIP)

    def describe_role(self) -> str:
        """Return how many nodes live, of how many."""
        members = self._members
        if members.fenced is not None:
            return "fenced"
        joined = sum(each.state == "joined" for each in members.table)
        return f"{1 + len(members.live)} of {joined} live"

    def handle_call(self, request: Any, caller: Call) -> Any:  # noqa: ANN401
        """Tell of members, and change them."""
        members = self._members
        match request:
            case ListNodes():
                return self._nodes()
            case DescribeMembers(meant):
                found = members.table if meant is None else members.table.find(meant)
                return [self._told(each) for each in found]
            case ForgetMember(node):
                try:
                    forgotten = members.forget(node, self._now_us())
                except PoeError as error:
                    return Error(error)
                self._settle()
                return self._told(forgotten)
            case LeaveCluster():
                members.leave()
                self._settle()
                return None
        return super().handle_call(request, caller)

    def handle_cast(self, message: Any) -> None:  # noqa: ANN401
        """Hear what the fabric sees, and what other nodes know."""
        members, now_us = self._members, self._now_us()
        match message:
            case PeerUp(peer):
                members.peer_up(peer, now_us)
            case PeerDown(ref, why):
                members.peer_down(ref, why, now_us)
            case FabricRefused(who, why):
                self._tell("refused", f"a node that says it is {who}: {why}")
            case PaceSeen(ref, is_slow):
                members.peer_pace(ref, now_us, is_slow=is_slow)
            case MembersHeard(sender, told):
                members.hear(told, now_us)
                known = members.table.get(sender.id)
                if known is not None and known.state == "forgotten":
                    self._send([sender], [known])  # what it was told before may be lost
        self._settle()

    def handle_info(self, message: Any) -> None:  # noqa: ANN401
        """Tell a node now and then all that is known here; let in who was kept out."""
        if message is _GOSSIP:
            self.send_after(_GOSSIP_S, _GOSSIP)
            self._look_at_certificate()
            live = sorted(peer.ref for peer in self._members.live.values())
            self._look_whether_alone(is_alone=not live)
            if live:
                self._send([self._dice.choice(live)], self._members.table)
            down = [each.locator for each in self._members.down()]
            if down:
                sought = self._dice.sample(down, min(len(down), _SOUGHT_MAX))
                self.cast(FABRIC, SeekNodes(tuple(sought)))
        elif message is _TICK:
            self._alarm.rang()
            self._members.tick(self._now_us())
            self._settle()
        else:
            super().handle_info(message)

    def _look_whether_alone(self, *, is_alone: bool) -> None:
        """Tell once, each time that it begins, that this node sees no other one."""
        seeds = self._parts.seeds
        if is_alone and not self._is_alone and seeds and self._members.fenced is None:
            why = (
                f"none of {', '.join(seeds)} lets this node see it: check that they run and are of "
                "this cluster, their addresses, and whether both sides have certificates of one "
                "authority"
            )
            self._tell("alone", why)
        self._is_alone = is_alone

    def _look_at_certificate(self) -> None:
        """Tell some days before it that the other nodes will let this one go."""
        expires_s, now_s = self._parts.certificate_expires_s, self._parts.clock.now_us() / _US
        if expires_s is not None:
            told = self._expiry.sentence("cluster_certificate", expires_s, now_s)
            if told is not None:
                self._tell("certificate", f"{told}, and start this node anew")

    # ---- what follows ---------------------------------------------------------------------------

    def _settle(self) -> None:
        for effect in self._members.take_effects():
            self._carry_out(effect)
        due_us = self._members.next_deadline_us(self._now_us())
        if due_us is not None:
            self._alarm.ring_after(max(due_us - self._now_us(), 0) / _US)

    def _carry_out(self, effect: Effect) -> None:
        match effect:
            case Told(kind, detail):
                self._tell(kind, detail)
            case TableChanged(changed):
                self._save()
                joined = tuple(each.id for each in changed if each.state == "joined")
                self.cast(QUEUES, MembersKnown(joined))
                self._send([peer.ref for peer in self._members.live.values()], changed)
            case Refused(peer, error):
                self._tell("refused", f"{peer.name}: {error}")
                # It learns from the table that it is forgotten.
                self._send([peer.ref], self._members.table)
            case Fenced():
                self.cast(FABRIC, CloseFabric())
                self.cast(QUEUES, effect)
            case Up(peer):
                self._send([peer.ref], self._members.table)
                self.cast(QUEUES, effect)
            case Down() | PaceChanged() | MemberGone():
                self.cast(QUEUES, effect)

    def _send(self, nodes: list[NodeRef], members: Any) -> None:  # noqa: ANN401 - entries
        if nodes and self._members.fenced is None:
            self.cast(FABRIC, TellNodes(tuple(nodes), encode_members(members)))

    def _save(self) -> None:
        """Keep the table; where the disk refuses it, the next change is another try."""
        parts = self._parts
        value = [_VERSION, parts.cluster, self._members.table.encode()]
        try:
            write_node_file(parts.files, MEMBERS_FILE, _MAGIC, value)
        except StorageError as error:
            self._tell("members_not_saved", str(error))

    def _tell(self, kind: str, detail: str) -> None:
        logger.log(_LEVELS.get(kind, logging.INFO), "%s: %s", kind, detail)
        self._parts.shelf.events.append((self._parts.clock.now_us(), kind, detail))

    def _nodes(self) -> NodesKnown:
        members = self._members
        live = tuple(members.live.values())
        slow = tuple(each.ref for each in live if members.liveness(each.ref.id) != "live")
        ids = tuple(each.id for each in members.table if each.state == "joined")
        gone = tuple(
            MemberGone(each.id, each.epoch) for each in members.table if each.state != "joined"
        )
        return NodesKnown(live, slow, ids, gone, members.fenced)

    def _told(self, member: Member) -> dict[str, Any]:
        return {
            "id": member.id.hex(),
            "name": member.name,
            "zone": member.zone,
            "locator": member.locator,
            "epoch": member.epoch,
            "state": member.state,
            "liveness": self._members.liveness(member.id),
        }

    def _now_us(self) -> int:
        return int(self.monotonic_s() * _US)
