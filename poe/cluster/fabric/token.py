"""What a node says of itself in the name of its token: a `Peer`, to a piece of a key and back.

Layout: base64 with the characters that a key may have, without padding, of a msgpack array:
    [newest version, oldest version, id, epoch, incarnation, name, zone, locator, …]
What a later version adds stands behind.
"""

from base64 import urlsafe_b64decode, urlsafe_b64encode
from typing import Any, Final, NamedTuple

import msgpack  # type: ignore[import-untyped]  # it ships no type hints

from poe.cluster.identity import (
    EPOCH_MAX,
    INCARNATION_BYTES,
    NODE_ID_BYTES,
    PROTOCOL_MIN,
    TEXT_MAX,
    NodeRef,
    Peer,
)
from poe.errors import RemoteProtocolError

_TOKEN_MAX: Final = 8192


class Token(NamedTuple):
    """A node, and the oldest version that it speaks."""

    peer: Peer
    protocol_min: int


def encode_token(peer: Peer) -> str:
    """Return what this node says of itself."""
    (node_id, epoch), name, zone, protocol, incarnation, locator = peer
    fields = (protocol, PROTOCOL_MIN, node_id, epoch, incarnation, name, zone, locator)
    return urlsafe_b64encode(msgpack.packb(fields)).decode().rstrip("=")


def decode_token(text: str) -> Token:
    """Return what a node says of itself.

    Raises:
        RemoteProtocolError: that cannot be made out.
    """
    fields: Any = None
    if len(text) <= _TOKEN_MAX:
        try:
            fields = msgpack.unpackb(urlsafe_b64decode(text + "=" * (-len(text) % 4)))
        except (ValueError, TypeError, msgpack.UnpackException):
            fields = None
    match fields:
        case [
            int(newest),
            int(oldest),
            bytes(node_id),
            int(epoch),
            bytes(incarnation),
            str(name),
            str(zone),
            str(locator),
            *_,
        ] if (
            len(node_id) == NODE_ID_BYTES
            and len(incarnation) == INCARNATION_BYTES
            and 0 <= epoch <= EPOCH_MAX
            and max(map(len, (name, zone, locator))) <= TEXT_MAX
            and (name + zone + locator).isprintable()
        ):
            peer = Peer(NodeRef(node_id, epoch), name, zone, newest, incarnation, locator)
            return Token(peer, oldest)
    msg = f"a node says of itself what cannot be made out: {text[:80]!r}"
    raise RemoteProtocolError(msg)
