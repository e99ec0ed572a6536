"""Which node coordinates the groups of replicated topics, as the catalog says.

A node claims that by a value of the catalog, which takes the place of the claim before it or is not
set: so claims come one after the other, and the revision of each is greater than those before.

Layout of a claim: msgpack [version: 1, node, 16 bytes drawn at random]. Its key begins as those
that nodes write of their own do, which say nothing to a node that knows no claims.
"""

import threading
from typing import Final, NamedTuple

import msgpack  # type: ignore[import-untyped]  # it ships no type hints

from poe.actors import Mailslot
from poe.errors import RemoteProtocolError

CLAIM_KEY: Final = "node-_coordinator_of_groups"
NONCE_BYTES: Final = 16
_VERSION: Final = 1


class Claim(NamedTuple):
    """A node that coordinates, until another claim comes."""

    node: str
    nonce: bytes
    revision: int
    """In the catalog; greater than that of each claim before."""

    def encode(self) -> bytes:
        """Encode it, without its revision, which comes by its place."""
        return msgpack.packb([_VERSION, self.node, self.nonce])  # type: ignore[no-any-return]

    @classmethod
    def decode(cls, value: bytes, revision: int) -> "Claim":
        """Decode one.

        Raises:
            RemoteProtocolError: it is none, or of a newer version.
        """
        try:
            version, node, nonce = msgpack.unpackb(value)
        except (TypeError, ValueError, msgpack.UnpackException) as error:
            msg = f"claim of {len(value)} bytes: {error}"
            raise RemoteProtocolError(msg) from error
        if version != _VERSION or not isinstance(node, str) or not isinstance(nonce, bytes):
            msg = f"claim of version {version!r} is not known here; update this node"
            raise RemoteProtocolError(msg)
        return cls(node, nonce, revision)


class ClaimHeard(NamedTuple):
    """Sent to who takes part in it: there is another claim."""


class Claims:
    """The newest claim that this node has heard of, and who is to be told of it.

    Any thread may look at `slot`; the registry of replicated topics alone hears.
    """

    def __init__(self) -> None:
        self.newest: Claim | None = None
        self.slot: Mailslot | None = None
        """Of the actor that takes part; None: it does not run."""
        self._lock = threading.Lock()

    def hear(self, claim: Claim) -> None:
        """Take a claim, unless a newer one is known."""
        with self._lock:
            if self.newest is not None and claim.revision <= self.newest.revision:
                return
            self.newest = claim
        slot = self.slot
        if slot is not None:
            slot.post(ClaimHeard())
