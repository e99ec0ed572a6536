"""What travels between two nodes as one piece: some frames, to bytes and back.

Frames are bytes here; `poe.cluster.frames` says what they mean. What comes from a peer may be
anything: nothing is allocated that is larger than what came.

Wire: a msgpack array of the version, a number, and an array of frames, each a `bin`.
"""

from collections.abc import Sequence
from typing import Any, Final

import msgpack  # type: ignore[import-untyped]  # it ships no type hints

from poe.cluster.fabric.interface import PAYLOAD_MAX_BYTES
from poe.cluster.identity import PROTOCOL, PROTOCOL_MIN
from poe.errors import IncompatibleProtocol, RemoteProtocolError

FRAMES_MAX: Final = 4096
"""Frames of one envelope."""
OVERHEAD_BYTES: Final = 64 + 5 * FRAMES_MAX
FRAME_MAX_BYTES: Final = PAYLOAD_MAX_BYTES - OVERHEAD_BYTES
"""The largest frame; one as large has an envelope of its own."""


def encode_envelope(frames: Sequence[bytes], version: int = PROTOCOL_MIN) -> bytes:
    """Return the bytes of at most `FRAMES_MAX` frames, in a version that the peer understands."""
    envelope: bytes = msgpack.packb((version, frames))
    return envelope


def decode_envelope(payload: bytes) -> list[bytes]:
    """Return the frames of an envelope.

    Raises:
        IncompatibleProtocol: it is of a version that this node does not understand.
        RemoteProtocolError: it is none.
    """
    try:
        envelope: Any = msgpack.unpackb(
            payload,
            max_array_len=FRAMES_MAX,
            max_map_len=0,
            max_str_len=0,
            max_ext_len=0,
        )
    except (ValueError, msgpack.UnpackException) as error:
        msg = f"{len(payload)} bytes of a peer are no envelope: {error}"
        raise RemoteProtocolError(msg) from error
    match envelope:
        case [int(version), *_] if not PROTOCOL_MIN <= version <= PROTOCOL:
            raise IncompatibleProtocol(PROTOCOL, PROTOCOL_MIN, version)
        case [int(), list(frames)] if all(type(frame) is bytes for frame in frames):
            return frames
    msg = f"{len(payload)} bytes of a peer are no envelope: they hold no frames"
    raise RemoteProtocolError(msg)
