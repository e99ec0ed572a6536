"""Who a node is to the others: an id for ever, an epoch a start, and where it can be found.

The file `node.identity` keeps id and epoch, which are durable before anybody else hears of them: no
two lives of a node have the same epoch, whatever its clock does, and so nobody takes what one of
them has put for another's.

Layout of `node.identity`, in the frame of `node_file.py` with magic "poe-node":
    [version: 1, id: 8 bytes, epoch: microseconds]
"""

from collections.abc import Callable
from typing import Final, NamedTuple

from poe.cluster.node_file import read_node_file, write_node_file
from poe.errors import CorruptIdentity
from poe.storage.files import Files

PROTOCOL: Final = 1
PROTOCOL_MIN: Final = 1
"""Versions of the protocol between nodes that this one speaks."""

NODE_ID_BYTES: Final = 8
INCARNATION_BYTES: Final = 8
IDENTITY_FILE: Final = "node.identity"
EPOCH_MAX: Final = (1 << 56) - 1
TEXT_MAX: Final = 512
"""Characters of a name, a zone, a locator."""

_MAGIC: Final = b"poe-node"
_VERSION: Final = 1


class NodeRef(NamedTuple):
    """One life of one node: what it holds in memory ends with it."""

    id: bytes
    """8 bytes, drawn once for a folder."""

    epoch: int
    """Microseconds; greater than those of all lives before."""

    def __str__(self) -> str:
        return f"{self.id.hex()}.{self.epoch}"


class Peer(NamedTuple):
    """A node as it tells of itself."""

    ref: NodeRef
    name: str
    """For people: not unique unless they make it so."""

    zone: str
    """Copies go to different zones first; empty: none."""

    protocol: int
    """The newest version that it speaks."""

    incarnation: bytes
    """8 bytes, drawn at each start of a process: two of one id are a copied folder."""

    locator: str
    """Where its fabric listens: host:port."""


class StreamId(NamedTuple):
    """What one origin has put onto a queue in one of its lives."""

    origin: bytes
    epoch: int

    def __str__(self) -> str:
        return f"{self.origin.hex()}.{self.epoch}"


def take_identity(files: Files, now_us: int, draw: Callable[[int], bytes]) -> NodeRef:
    """Return who the node of a folder is in the life that begins now; durable when it returns.

    Args:
        files: of the node's base folder, which nobody else uses.
        now_us: the time, which may have gone back since the last life.
        draw: returns so many random bytes; asked at the first start in a folder.

    Raises:
        CorruptIdentity: the file is damaged, or of a newer version.
        StorageError: it cannot be read or written.
    """
    known = _read(files)
    if known is None:
        ref = NodeRef(draw(NODE_ID_BYTES), now_us)
    else:
        ref = NodeRef(known.id, max(known.epoch + 1, now_us))
    write_node_file(files, IDENTITY_FILE, _MAGIC, [_VERSION, *ref])
    return ref


def _read(files: Files) -> NodeRef | None:
    content = read_node_file(files, IDENTITY_FILE, _MAGIC)
    if content is None:
        return None
    match content:
        case [int(version), *_] if version != _VERSION:
            why = f"it is of version {version}, and this server knows {_VERSION}"
        case [_, bytes(node_id), int(epoch)] if (
            len(node_id) == NODE_ID_BYTES and 0 <= epoch < EPOCH_MAX
        ):
            return NodeRef(node_id, epoch)
        case _:
            why = "it has no id and epoch"
    path = f"{files.base}/{IDENTITY_FILE}"
    raise CorruptIdentity(path, why)
