"""What callers give a producer, turned into a list of messages.

Forms of a payload:
    b"value"                    one message: bytes, or anything of their like
    (b"key", b"value")          one message with a key, which may be None
    Message(value, key, headers)
    [...]                       a list of these, mixed as they come

A list of bytes comes out as it went in, looked at but not walked: that is the fast way. Everything
else becomes a list of `Message`. Nothing here keeps a reference to what a caller may change.
"""

from collections.abc import Iterable, Mapping, Sequence
from types import NoneType
from typing import Any, NamedTuple, TypeGuard

from poe.errors import InvalidPayload
from poe.errors.short_text import short_repr

_FORMS = "bytes, (key, value), a Message, or a list of them"
_PAIR_SIZE = 2
_ONLY_BYTES = {bytes}


class Message(NamedTuple):
    """A message with what may come along with it."""

    value: bytes | None
    """None is Kafka's tombstone: it deletes the key from a compacted topic."""

    key: bytes | None = None
    """Chooses the partition with the strategy `custom`."""

    headers: Mapping[str, bytes] | None = None


Messages = list[bytes] | list[Message]
"""The messages of one call, in order; at least one."""


def parse(data: object, *, empty: bool = False) -> Messages:
    """Return the messages of a payload: `list[bytes]` if it is bytes or a list of bytes alone.

    Args:
        data: the payload, see above.
        empty: whether values may be of length 0, or None: on Kafka and in envelopes they may.

    Raises:
        InvalidPayload: it is none of the forms, or holds no message; it says which one is wrong.
    """
    if type(data) is bytes and (data or empty):
        return [data]
    if type(data) is list and set(map(type, data)) == _ONLY_BYTES:
        if empty or all(data):
            return data.copy()
        raise InvalidPayload(_no_value(f"messages[{data.index(b'')}]"))
    if isinstance(data, list) or _is_tuple_of_tuples(data):
        if not data:
            msg = "payload is an empty list; give 1 message or more"
            raise InvalidPayload(msg)
        return _plain_pairs(data, empty=empty) or [
            _message(f"messages[{i}]", each, empty=empty) for i, each in enumerate(data)
        ]
    message = _message("payload", data, empty=empty)
    return [message] if isinstance(data, tuple) else [message.value or b""]


def is_keyed(messages: Messages) -> TypeGuard[list[Message]]:
    """Return whether any of the messages has a key; then each has its own partition and result."""
    return type(messages[0]) is Message and any(key is not None for _, key, _ in messages)


def has_key(message: bytes | Message) -> TypeGuard[Message]:
    """Return whether a message has a key."""
    return type(message) is Message and message.key is not None


def some_of(messages: Messages, places: Iterable[int]) -> Messages:
    """Return the messages at some places."""
    return [messages[place] for place in places]  # type: ignore[return-value]  # they are of one kind


def _is_tuple_of_tuples(data: object) -> TypeGuard[tuple[Any, ...]]:
    return type(data) is tuple and bool(data) and isinstance(data[0], tuple)


def _plain_pairs(data: Sequence[Any], *, empty: bool) -> list[Message]:
    """Return the messages of pairs that need no conversion, as most are; else nothing."""
    if set(map(type, data)) != {tuple} or set(map(len, data)) != {_PAIR_SIZE}:
        return []
    keys, values = zip(*data, strict=True)
    if set(map(type, keys)) <= {bytes, NoneType} and set(map(type, values)) == _ONLY_BYTES:
        return list(map(Message, values, keys)) if empty or all(values) else []
    return []


def _message(place: str, data: object, *, empty: bool) -> Message:
    """Return one message; `place` is what errors call it."""
    value: Any
    if isinstance(data, Message):
        value, key, headers = data
    elif isinstance(data, tuple) and len(data) == _PAIR_SIZE:
        (key, value), headers = data, None
    else:
        value, key, headers = data, None, None
        if value is None or isinstance(data, tuple | list):
            msg = f"{place} is {short_repr(data)}; use {_FORMS}"
            raise InvalidPayload(msg)
    if key is not None:
        key = _bytes(f"key of {place}", key)
    if value is not None:
        value = _bytes(place if key is None else f"value of {place}", value)
    if not (value or empty):
        raise InvalidPayload(_no_value(place))
    return Message(value, key, None if headers is None else _headers(place, headers))


def _no_value(place: str) -> str:
    return (
        f"{place} has no value; give 1 byte or more (on Kafka, or with envelope=True, a value may "
        "be empty or None)"
    )


def _bytes(place: str, data: object) -> bytes:
    if type(data) is bytes:
        return data
    if isinstance(data, str):
        msg = f"{place} is text; encode it, as in text.encode()"
        raise InvalidPayload(msg)
    try:
        # The copy is wanted: the message waits in a buffer, and its owner may write to his.
        return bytes(memoryview(data))  # type: ignore[arg-type]  # the buffer protocol: try it
    except (TypeError, ValueError) as error:
        msg = f"{place} is of type {type(data).__name__}; use {_FORMS}"
        raise InvalidPayload(msg) from error


def _headers(place: str, headers: object) -> dict[str, bytes]:
    msg = f"headers of {place} are {short_repr(headers)}; use a dictionary of text to bytes"
    if not isinstance(headers, Mapping) or not set(map(type, headers)) <= {str}:
        raise InvalidPayload(msg)
    try:
        "".join(headers).encode()
    except UnicodeEncodeError as error:
        raise InvalidPayload(msg) from error
    return {name: _bytes(f"header {name!r} of {place}", value) for name, value in headers.items()}
