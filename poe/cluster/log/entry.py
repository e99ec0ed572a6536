"""What nodes agree on, one entry of a stream at a time: entries as bytes, and back.

Layout of an entry (big-endian):
    version  u8    1
    kind     u8    1 put, 2 sequenced put, 3 trim
    origin   8 bytes  which life of which node has published it; so that it knows its own
    number   u64      counted by that
then, of a put: the batch, as in a put request; of a sequenced put before that its id, 24 bytes; of
a trim: u64, up to which pointer.
"""

from struct import Struct
from typing import Final, NamedTuple

import numpy as np

from poe.errors import RemoteProtocolError
from poe.protocol.put import LENGTH_SIZE, PUT_ID_SIZE, Messages, PutId, join_batch, split_batch
from poe.storage import POINTER_MAX, PutKey

ORIGIN_BYTES: Final = 8
_VERSION: Final = 1
_PUT, _SEQUENCED, _TRIM = 1, 2, 3
_HEAD = Struct(f">BB{ORIGIN_BYTES}sQ")
_POINTER = Struct(">Q")
_BATCH_MAX: Final = 1 << 31


class PutEntry(NamedTuple):
    """Messages that are to be stored."""

    origin: bytes
    number: int
    messages: Messages
    put_id: PutKey | None


class TrimEntry(NamedTuple):
    """Segments with nothing behind this pointer are to go."""

    origin: bytes
    number: int
    pointer: int


LogEntry = PutEntry | TrimEntry


def encode_put(origin: bytes, number: int, batch: bytes, put_id: PutKey | None = None) -> bytes:
    """Encode a put of messages that are encoded, of one put or of several."""
    kind = _PUT if put_id is None else _SEQUENCED
    key = b"" if put_id is None else PutId(*put_id).encode()
    return b"".join((_HEAD.pack(_VERSION, kind, origin, number), key, batch))


def encode_trim(origin: bytes, number: int, pointer: int) -> bytes:
    """Encode a trim."""
    return _HEAD.pack(_VERSION, _TRIM, origin, number) + _POINTER.pack(pointer)


def decode_entry(payload: bytes) -> LogEntry:
    """Decode an entry; its messages are views into it.

    Raises:
        RemoteProtocolError: it is none. All nodes leave it out alike.
    """
    if len(payload) < _HEAD.size:
        msg = f"entry of {len(payload)} bytes has no head"
        raise RemoteProtocolError(msg)
    version, kind, origin, number = _HEAD.unpack_from(payload)
    body = memoryview(payload)[_HEAD.size :]
    if version != _VERSION or kind not in {_PUT, _SEQUENCED, _TRIM}:
        msg = f"entry of version {version} and kind {kind} is not known; update this node"
        raise RemoteProtocolError(msg)
    if kind == _TRIM:
        if len(body) != _POINTER.size or (pointer := _POINTER.unpack(body)[0]) > POINTER_MAX:
            msg = f"trim of {len(body)} bytes has no pointer"
            raise RemoteProtocolError(msg)
        return TrimEntry(origin, number, pointer)
    put_id = None
    if kind == _SEQUENCED:
        if len(body) < PUT_ID_SIZE:
            msg = f"sequenced put of {len(body)} bytes has no id"
            raise RemoteProtocolError(msg)
        put_id, body = PutId.decode(body[:PUT_ID_SIZE]), body[PUT_ID_SIZE:]
    return PutEntry(origin, number, split_batch(body), put_id)


def encode_batch(messages: Messages) -> bytes:
    """Return messages in the layout of a put request; no Python runs for each of equal sizes."""
    if not isinstance(messages, np.ndarray):
        return join_batch(messages, _BATCH_MAX)
    count, length = messages.shape
    batch = np.empty((count, LENGTH_SIZE + length), np.uint8)
    batch[:, :LENGTH_SIZE] = np.frombuffer(length.to_bytes(LENGTH_SIZE, "big"), np.uint8)
    batch[:, LENGTH_SIZE:] = messages
    return batch.tobytes()
