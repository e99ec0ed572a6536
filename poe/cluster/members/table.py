"""Which nodes belong to a cluster: a table that all nodes join into the same, in any order.

Membership is sticky: a node that crashes or is cut off stays a member, since what it holds comes
back with it. It ends when the node leaves, or when somebody has the cluster forget it. Who lives
is another matter, see `membership.py`.

Strategy: of each node the greatest entry counts, in one total order, so that joining tables is
commutative, associative and idempotent: forgotten beats all, a later life the one before, and to
have left beats to have joined in the same life.
"""

from collections.abc import Iterable, Iterator
from typing import Final, Literal, NamedTuple

from poe.cluster.identity import EPOCH_MAX, NODE_ID_BYTES, TEXT_MAX, NodeRef, Peer

MembershipState = Literal["joined", "left", "forgotten"]

MEMBERS_MAX: Final = 1000
ID_DIGITS_MIN: Final = 4

_RANKS: Final[dict[MembershipState, int]] = {"joined": 0, "left": 1, "forgotten": 2}


class Member(NamedTuple):
    """What is known of one node, newest life."""

    id: bytes
    state: MembershipState
    epoch: int
    name: str
    zone: str
    locator: str

    @classmethod
    def of(cls, peer: Peer) -> "Member":
        """Return the entry of a node that is there."""
        return cls(peer.ref.id, "joined", peer.ref.epoch, peer.name, peer.zone, peer.locator)

    @classmethod
    def decode(cls, value: object) -> "Member | None":
        """Return what another node, or a file, has told; None where that is no entry."""
        match value:
            case [
                bytes(node),
                ("joined" | "left" | "forgotten") as state,
                int(epoch),
                str(name),
                str(zone),
                str(locator),
            ] if (
                len(node) == NODE_ID_BYTES
                and 0 <= epoch <= EPOCH_MAX
                and max(len(name), len(zone), len(locator)) <= TEXT_MAX
            ):
                return cls(node, state, epoch, name, zone, locator)
        return None

    @property
    def ref(self) -> NodeRef:
        """Its newest life."""
        return NodeRef(self.id, self.epoch)

    def _order(self) -> tuple[bool, int, int, str, str, str]:
        rank = _RANKS[self.state]
        return rank == _RANKS["forgotten"], self.epoch, rank, self.name, self.zone, self.locator

    def joined_with(self, other: "Member") -> "Member":
        """Return the greater one of two entries of the same node."""
        return max(self, other, key=Member._order)


class MemberTable:
    """The members that a node knows of.

    Always: at most `MEMBERS_MAX`, one entry a node.
    """

    __slots__ = ("_members",)

    def __init__(self, members: Iterable[Member] = ()) -> None:
        self._members: dict[bytes, Member] = {}
        self.join(members)

    def __iter__(self) -> Iterator[Member]:
        """Yield them by id."""
        return iter(sorted(self._members.values()))

    def __len__(self) -> int:
        return len(self._members)

    def get(self, node: bytes) -> Member | None:
        """Return what is known of a node."""
        return self._members.get(node)

    def find(self, text: str) -> list[Member]:
        """Return the members that are meant: of this name, else whose id begins so in hexadecimal.

        Fewer digits than `ID_DIGITS_MIN` mean no id: names are often short, `a` and `b`, and a name
        that nobody has is not to forget another node, whose id happens to begin so.

        A node that was let in anew has the name of its forgotten self, which is not meant then.
        """
        named = [each for each in self if each.name == text]
        is_id = len(text) >= ID_DIGITS_MIN
        found = named or [each for each in self if is_id and each.id.hex().startswith(text)]
        return [each for each in found if each.state != "forgotten"] or found

    def join(self, members: Iterable[Member]) -> list[Member]:
        """Take what another table has, and return the entries that this has changed."""
        changed = []
        for each in members:
            known = self._members.get(each.id)
            if known is None and not self._has_room(each):
                continue
            new = each if known is None else known.joined_with(each)
            if new != known:
                self._members[each.id] = new
                changed.append(new)
        return changed

    def _has_room(self, new: Member) -> bool:
        """Return whether one more can be known; of those that have left one is dropped for it."""
        if len(self._members) < MEMBERS_MAX:
            return True
        left = [each for each in self._members.values() if each.state == "left"]
        # Of two that have left none makes room for the other: they would go round for ever.
        if not left or new.state == "left":
            return False
        del self._members[min(left, key=lambda each: (each.epoch, each.id)).id]
        return True

    def encode(self) -> list[list[object]]:
        """Return it for a frame or a file."""
        return [list(each) for each in self]


def decode_members(value: object) -> list[Member] | None:
    """Return the entries that another node has told; None where something else is among them."""
    if not isinstance(value, list | tuple) or len(value) > MEMBERS_MAX:
        return None
    members = [Member.decode(each) for each in value]
    found = [each for each in members if each is not None]
    return found if len(found) == len(members) else None
