"""Strict msgpack maps, the bodies of control frames: values to bytes and back.

Text and binary stay apart, keys are text, nothing may follow the map. msgpack checks each announced
count against a limit before it allocates, and refuses more than 512 nested values.
"""

import itertools
from collections.abc import Callable
from typing import Any

import msgpack  # type: ignore[import-untyped]  # it ships no type hints

from poe.errors import LocalProtocolError, RemoteProtocolError

ID_MAX = (1 << 64) - 1


def pack_map(fields: dict[str, Any], what: str) -> bytes:
    """Return the map as msgpack.

    Raises:
        LocalProtocolError: a value that msgpack cannot hold.
    """
    try:
        packed: bytes = msgpack.packb(fields)
    except (TypeError, ValueError, OverflowError) as error:
        msg = f"{what} cannot be sent: {error}; use None, numbers, text, bytes, lists and maps"
        raise LocalProtocolError(msg) from error
    return packed


def pack_items(fields: dict[Any, Any], what: str) -> bytes:
    """Return the keys and values of a map as msgpack, without the map's header.

    Raises:
        LocalProtocolError: a value that msgpack cannot hold.
    """
    packer = msgpack.Packer()
    header: bytes = packer.pack_map_header(len(fields))
    return pack_map(fields, what)[len(header) :]


def pack_begin(fields: dict[str, Any], name: str, count: int) -> bytes:
    """Return the begin of a map as msgpack, up to its last value, `name`: a map of `count` items.

    What follows is those items, one behind the other, as `pack_items` gives them.
    """
    packer = msgpack.Packer()
    headers = packer.pack_map_header(len(fields) + 1), packer.pack_map_header(count)
    return b"".join([headers[0], pack_items(fields, name), packer.pack(name), headers[1]])


def unpack_map(
    body: memoryview, what: str, count_max: int = -1, nested_max: int | None = None
) -> dict[str, Any]:
    """Return the map that fills `body`.

    Args:
        body: all of a frame's body.
        what: what the body is, for the error.
        count_max: items that any one list or map inside may have; -1 for as many as `body` has
            bytes, which no honest one exceeds.
        nested_max: lists and maps that there may be in all; None for as many as there are.

    Raises:
        RemoteProtocolError: `body` is malformed, no map with text keys, or goes on after the map.
    """
    hook = None if nested_max is None else counting(nested_max)
    limits = {"max_array_len": count_max, "max_map_len": count_max}
    try:
        fields = msgpack.unpackb(body, list_hook=hook, object_hook=hook, **limits)
    except (ValueError, msgpack.UnpackException) as error:
        told = str(error) or type(error).__name__
        msg = f"{what} is no valid msgpack: {told}"
        if count_max >= 0 and ("max_array_len" in told or "max_map_len" in told):
            msg = f"{what} has a list or map of more than {count_max} items; send fewer at a time"
        raise RemoteProtocolError(msg) from error
    if not isinstance(fields, dict) or not all(isinstance(key, str) for key in fields):
        msg = f"{what} must be a map with text keys"
        raise RemoteProtocolError(msg)
    return fields


def counting(nested_max: int) -> Callable[[Any], Any]:
    """Return what takes each list and map as it is made, and refuses one too many."""
    numbers = itertools.count(1)

    def take(made: Any) -> Any:  # noqa: ANN401 - as msgpack has it
        if next(numbers) > nested_max:
            msg = f"it has more than {nested_max} lists and maps"
            raise ValueError(msg)
        return made

    return take


def take_id(fields: dict[str, Any], what: str) -> int:
    """Remove `id` from the map and return it.

    Raises:
        RemoteProtocolError: no `id`, or one that is no unsigned number.
    """
    value = fields.pop("id", None)
    if type(value) is not int or not 0 <= value <= ID_MAX:
        msg = f"{what} needs an unsigned number as its id"
        raise RemoteProtocolError(msg)
    return value


def take_text(fields: dict[str, Any], key: str, what: str) -> str:
    """Remove `key` from the map and return its text.

    Raises:
        RemoteProtocolError: there is no such key, or its value is no text.
    """
    value = fields.pop(key, None)
    if not isinstance(value, str):
        msg = f"{what} needs text as its {key}"
        raise RemoteProtocolError(msg)
    return value
