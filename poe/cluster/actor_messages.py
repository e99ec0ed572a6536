"""What the actors of a node's cluster tell each other; the frames between nodes are elsewhere.

fabric    casts PeerUp, PeerDown, Refused and PaceSeen to `MEMBERS`, FramesHeard to `QUEUES`
members   casts its effects that concern queues to `QUEUES`: Up, Down, PaceChanged, MemberGone,
          Fenced
queues    casts NodesChanged, FramesOfQueue and a QueueRecord that has changed to the actor of each
          queue
all       cast TellNodes to `FABRIC`
"""

from dataclasses import dataclass
from typing import Final, NamedTuple

from poe.actors import ActorRef
from poe.cluster.frames import QueueFrame
from poe.cluster.identity import NodeRef, Peer
from poe.cluster.members.membership import Down, MemberGone, PaceChanged, Up
from poe.cluster.members.table import Member
from poe.cluster.queue.effects import Bury
from poe.cluster.queue_record import GroupRecord, QueueRecord
from poe.errors import PoeError

FABRIC: Final = "fabric"
MEMBERS: Final = "members"


class TellNodes(NamedTuple):
    """Cast to `FABRIC`: send a frame, which is encoded, to each of these nodes; it may be lost."""

    nodes: tuple[NodeRef, ...]
    frame: bytes


class PaceSeen(NamedTuple):
    """Cast to `MEMBERS`: whether a peer takes in time what it is sent."""

    ref: NodeRef
    is_slow: bool


class FramesHeard(NamedTuple):
    """Cast to `QUEUES`: what a peer has sent, as it came."""

    sender: NodeRef
    frames: list[bytes]


@dataclass(frozen=True, slots=True)
class FabricMetrics:
    """Asked of `FABRIC`: answers a map of counts."""


@dataclass(frozen=True, slots=True)
class SeekNodes:
    """Cast to `FABRIC`: try to find members that are down, by where they were."""

    locators: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class CloseFabric:
    """Cast to `FABRIC`: leave the network, and drop what is to be sent from now on."""


class MembersHeard(NamedTuple):
    """Cast to `MEMBERS`: what a peer knows of members."""

    sender: NodeRef
    members: tuple[Member, ...]


@dataclass(frozen=True, slots=True)
class ListNodes:
    """Asked of `MEMBERS`: answers `NodesKnown`."""


class NodesKnown(NamedTuple):
    """Which nodes there are."""

    live: tuple[Peer, ...]
    slow: tuple[NodeRef, ...]
    """Those of them that new copies are to avoid."""
    members: tuple[bytes, ...]
    """Ids of all that belong to the cluster, this one among them."""
    gone: tuple[MemberGone, ...]
    """Those that did, and do not any more."""
    fenced: PoeError | None
    """Why this node is in no cluster any more; None: it is."""


@dataclass(frozen=True, slots=True)
class DescribeMembers:
    """Asked of `MEMBERS`: answers the members, or those that `meant` means, as maps."""

    meant: str | None = None


@dataclass(frozen=True, slots=True)
class ForgetMember:
    """Asked of `MEMBERS`: end the membership of a node that does not live; answers its map.

    Raises:
        UnknownNode, NodeAlive: as `Membership.forget`.
    """

    node: str


@dataclass(frozen=True, slots=True)
class LeaveCluster:
    """Asked of `MEMBERS`: tell the others that this node leaves for good; answers None."""


class MembersKnown(NamedTuple):
    """Cast to `QUEUES`: nodes that belong to the cluster, whether they live or not."""

    nodes: tuple[bytes, ...]


class NodesChanged(NamedTuple):
    """Cast to each queue: what has become of other nodes."""

    changes: tuple[Up | Down | PaceChanged | MemberGone | MembersKnown, ...]


class FramesOfQueue(NamedTuple):
    """Cast to a queue: what a peer has sent of it, checked."""

    sender: NodeRef
    frames: list[QueueFrame]


@dataclass(frozen=True, slots=True)
class MakeGroup:
    """Asked of a queue: have a group, or none, where the record says it is deleted.

    Answers the record as it holds: one of a name that was deleted is younger than that.

    Raises:
        PoeError: no group may be so.
    """

    record: GroupRecord
    force: bool = True
    """Whether members do not matter, where it is to be deleted."""


class BuryLetters(NamedTuple):
    """Cast to `QUEUES`, and by that to the queue that is to hold them: dead letters of a group."""

    source: ActorRef
    """The actor of the queue that the group takes from, which hears `LettersBuried`."""
    like: QueueRecord
    """The queue that the group takes from: one that is made by them is on as many nodes, and
    outlives the process where that does."""
    letters: Bury


class HandOver(NamedTuple):
    """Cast to a queue: have other nodes hold what none of them does, by a time; and take no more.

    It casts `HandedOver` to `QUEUES` by then.
    """

    deadline_s: float


class HandedOver(NamedTuple):
    """Cast to `QUEUES`: a queue has handed over what it could."""

    ref: ActorRef


class LettersBuried(NamedTuple):
    """Cast to a queue: dead letters of a group are held."""

    group: str
    number: int


class GroupsOfQueue(NamedTuple):
    """Cast to `QUEUES`: all groups of a queue, which have changed."""

    queue: bytes
    groups: tuple[GroupRecord, ...]


@dataclass(frozen=True, slots=True)
class ReportOfQueue:
    """Asked of a queue: answers what was, or may have been, handed out more than once, as maps."""


@dataclass(frozen=True, slots=True)
class CountsOfQueue:
    """Asked of a queue: answers its counters."""
