"""What a node needs of a network: asks and small messages to peers, and who is there.

A fabric is `ZenohFabric` on a real network, `HubFabric` for several nodes in one process, or one
of `poe.testing.SimulatedFabric`. It knows nothing of what it carries.
"""

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple, Protocol

from poe.cluster.identity import NodeRef, Peer
from poe.errors import PoeError

PAYLOAD_MAX_BYTES: Final = 16 * 1024 * 1024
"""The largest payload of an ask, of an answer, and of what is published."""


class PeerUp(NamedTuple):
    """A peer of the same cluster is there, and speaks a version that this node understands."""

    peer: Peer


class PeerDown(NamedTuple):
    """A peer of which `PeerUp` was told is gone, or cannot be reached."""

    ref: NodeRef
    why: str


class Asked(NamedTuple):
    """A peer asks; `answer` may be called once, by any thread, or never."""

    sender: NodeRef
    payload: bytes
    answer: Callable[[bytes], None]


class Published(NamedTuple):
    """A peer has published something."""

    sender: NodeRef
    payload: bytes


class Refused(NamedTuple):
    """Somebody is there who is no peer; told once for each `who` and kind of error."""

    who: str
    """What it says of itself: its name, its address."""
    why: PoeError


class Overlooked(NamedTuple):
    """A peer was there when it was sought, and this node's own session does not see it."""

    ref: NodeRef


FabricEvent = PeerUp | PeerDown | Asked | Published | Refused | Overlooked


class Fabric(Protocol):
    """The network of one node, as its owner uses it; the owner is one thread at a time.

    `hear` and `answered` are called by any thread, also within the call that causes it, and only
    enqueue. What is asked or published may be lost, and asks may overtake each other. After
    `PeerUp` of a node comes `PeerDown` of the same before its next `PeerUp`.
    """

    def open(self, me: Peer, hear: Callable[[FabricEvent], None]) -> None:
        """Join; `hear` is told of every peer, never of `me`.

        Raises:
            ClusterError: it cannot; the sentence says what to mend.
        """
        ...

    def close(self) -> None:
        """Leave; peers learn of it at once. Twice is harmless, and nothing is heard after it.

        Asks that are under way are answered with None. Peers may be told as down meanwhile.
        """
        ...

    def ask(
        self,
        node: NodeRef,
        payload: bytes,
        deadline_s: float,
        answered: Callable[[bytes | None], None],
    ) -> None:
        """Ask a peer, or this node itself; `answered` is called exactly once.

        It gets the answer, or None where none came within `deadline_s`, or the node is not there.
        """
        ...

    def publish(self, payload: bytes) -> None:
        """Send something small to all peers; it may be lost."""
        ...

    def seek(self, locators: Sequence[str]) -> None:
        """Try to find nodes that were there once, where nobody else may tell of them any more.

        Who is found, and not seen all the same, is told as `Overlooked`.
        """
        ...

    def metrics(self) -> dict[str, int]:
        """Return counts since `open`, by name."""
        ...
