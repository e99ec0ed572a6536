"""Key and headers of a message beside its value, in one message of Poe's, which has only a value.

Layout (msgpack):
    array of 3:
        key      bin, or nil without one
        value    bin, or nil: a tombstone
        headers  map of str to bin, or nil without any
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import msgpack  # type: ignore[import-untyped]  # it ships no type hints

from poe.errors import InvalidEnvelope
from poe.errors.short_text import short_repr

_FIELD_COUNT = 3

Fields = tuple[bytes | None, bytes | None, Mapping[str, bytes] | None]
"""Value, key and headers of a message."""


class Enveloped(NamedTuple):
    """What an envelope holds."""

    key: bytes | None
    value: bytes | None
    headers: Mapping[str, bytes] | None


def encode(
    key: bytes | None, value: bytes | None, headers: Mapping[str, bytes] | None = None
) -> bytes:
    """Return the envelope of one message."""
    packed: bytes = msgpack.packb((key, value, headers or None))
    return packed


def encode_all(messages: Sequence[bytes] | Sequence[Fields]) -> list[bytes]:
    """Return the envelopes of the messages of a batch, in order; much faster than one by one."""
    pack = msgpack.Packer().pack
    if type(messages[0]) is bytes:
        return [pack((None, value, None)) for value in messages]
    return [pack((key, value, headers or None)) for value, key, headers in messages]


def decode(data: bytes | memoryview) -> Enveloped:
    """Return what an envelope holds.

    Raises:
        InvalidEnvelope: it is none.
    """
    try:
        fields = msgpack.unpackb(data)
    except (ValueError, msgpack.UnpackException) as error:
        raise InvalidEnvelope(str(error) or type(error).__name__) from error
    # A `match` statement says the same in three lines, at three times the time for each message.
    if type(fields) is list and len(fields) == _FIELD_COUNT:
        key, value, headers = fields
        if (
            (key is None or type(key) is bytes)
            and (value is None or type(value) is bytes)
            and (headers is None or _are_headers(headers))
        ):
            return Enveloped(key, value, headers)
    raise InvalidEnvelope(f"it holds {short_repr(fields)}")  # noqa: EM102, TRY003 - part of one


def opened(message: bytes) -> Enveloped:
    """Return what a message of a topic with envelopes holds; of one that is none, all is value."""
    try:
        return decode(message)
    except InvalidEnvelope:
        return Enveloped(None, message, None)


def _are_headers(field: object) -> bool:
    return type(field) is dict and all(
        type(name) is str and type(value) is bytes for name, value in field.items()
    )
