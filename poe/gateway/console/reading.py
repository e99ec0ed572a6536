"""Reads messages for pages, and shows them: in part where they are large, always as text."""

from contextlib import suppress
from http import HTTPStatus
from typing import Any, Final

import msgpack  # type: ignore[import-untyped]  # it ships no type hints

from poe.client.async_socket import AsyncSocket
from poe.errors import InvalidEnvelope, RequestRefused
from poe.protocol import envelope
from poe.record import POINTER_MAX

PREVIEW_BYTES: Final = 2048
"""Of a message in a list."""
_PAGE_BYTES: Final = 8 << 20

_INNER_BYTES: Final = bytes(range(0x80, 0xC0))
"""Those of UTF-8 with which no letter begins."""

Pair = tuple[int, bytes]
"""Pointer and message."""


async def read(
    connection: AsyncSocket, topic: bytes, after: int, limit: int, last: int = POINTER_MAX
) -> list[Pair]:
    """Return messages behind a pointer, oldest first; of large ones fewer, but one at least."""
    found = await connection.read_range(topic, after, last, limit, _PAGE_BYTES)
    return list(found.pairs())


async def before(
    connection: AsyncSocket, topic: bytes, last: int, first_ordinal: int, limit: int
) -> list[Pair]:
    """Return the last messages up to a pointer; of large ones fewer, but the last ones."""
    behind = await connection.ordinal(topic, last)
    while True:
        begin = max(first_ordinal, behind - limit)
        pointer = await connection.pointer_at(topic, begin)
        if pointer is None or pointer > last:
            return []
        pairs = await read(connection, topic, pointer - 1, limit, last)
        if limit == 1 or len(pairs) >= min(limit, behind - begin):
            return pairs
        limit = max(1, min(limit // 2, len(pairs)))


async def one(connection: AsyncSocket, topic: bytes, pointer: int) -> bytes:
    """Return a message.

    Raises:
        RequestRefused: 404, there is none at this pointer.
    """
    pairs = await read(connection, topic, max(0, pointer - 1), 1, pointer) if pointer else []
    if not pairs:
        why = f"there is no message at pointer {pointer}; it may have been trimmed"
        raise RequestRefused(HTTPStatus.NOT_FOUND, why)
    return pairs[0][1]


def row(pointer: int, message: bytes, *, is_enveloped: bool, at: int = 0) -> dict[str, Any]:
    """Return a message as lists show it, what there is of its value from the byte `at` on."""
    key, value, begin = None, message, at
    if is_enveloped:
        with suppress(InvalidEnvelope):
            held = envelope.decode(message)
            key = None if held.key is None else held.key[:PREVIEW_BYTES].decode(errors="replace")
            value = b"" if held.value is None else held.value
            begin = max(0, at - _value_at(message)) if at else 0
    if begin:
        value = inside(value[begin:])
    told = {"pointer": str(pointer), "bytes": len(message), "key": key}
    return {**told, **preview(value)}


def _value_at(message: bytes) -> int:
    """Return where in an envelope its value begins; its bytes may be those of the key as well."""
    reader = msgpack.Unpacker(max_buffer_size=len(message))
    reader.feed(message)
    reader.read_array_header()
    reader.skip()  # the key
    value: bytes | None = reader.unpack()
    end: int = reader.tell()
    return end - len(value or b"")


def inside(part: bytes) -> bytes:
    """Return a part of a text from its first whole letter on."""
    return part.lstrip(_INNER_BYTES)


def preview(content: bytes, size: int = PREVIEW_BYTES) -> dict[str, Any]:
    """Return the beginning as text where it is text, else in hex."""
    part = content[:size]
    for end in range(len(part), max(len(part) - 4, -1), -1):  # a letter may be cut in two
        with suppress(UnicodeDecodeError):
            text = part[:end].decode()
            if "\0" not in text:
                return {"form": "text", "preview": text}
        if len(content) <= size:
            break
    return {"form": "hex", "preview": part[:256].hex(" ")}


def decoded(content: bytes, form: str, size: int) -> dict[str, Any]:
    """Return a message as text that people read, and in which form that is; `size` bytes of it.

    `is_exact` says whether the message is what is told, all of it, so that it can be put again.
    """
    if form == "envelope":
        try:
            held = envelope.decode(content)
        except InvalidEnvelope as error:
            return {**decoded(content, "auto", size), "is_exact": False, "error": str(error)}
        headers = held.headers or {}
        beside = [held.key or b"", *headers.values()]
        inner = decoded(held.value or b"", "auto", size)
        return {
            **inner,
            "key": None if held.key is None else held.key[:size].decode(errors="replace"),
            "headers": {
                name: value[:size].decode(errors="replace") for name, value in headers.items()
            },
            "is_tombstone": held.value is None,
            "is_exact": inner["is_exact"]
            and held.value is not None
            and all(len(each) <= size and _is_text(each) for each in beside),
        }
    part, is_cut = content[:size], len(content) > size
    if form == "msgpack":
        try:
            text = repr(msgpack.unpackb(part, strict_map_key=False))
        # The last two: what Python cannot hold, as a list for a key.
        except (ValueError, msgpack.UnpackException, TypeError, RecursionError) as error:
            why = f"cannot be shown as msgpack: {error}"
            return {**decoded(content, "auto", size), "error": why}
        return {"form": "msgpack", "text": text, "is_cut": False, "is_exact": False}
    shown = None if form == "hex" else _preview_all(part, is_whole=not is_cut)
    is_exact = shown is not None and not is_cut
    if shown is None and form in {"text", "json"}:
        shown = part.decode(errors="replace")
    if shown is None:
        return {"form": "hex", "text": part.hex(" "), "is_cut": is_cut, "is_exact": False}
    return {"form": "text", "text": shown, "is_cut": is_cut, "is_exact": is_exact}


def _is_text(content: bytes) -> bool:
    return _preview_all(content, is_whole=True) is not None


def _preview_all(content: bytes, *, is_whole: bool) -> str | None:
    ends = [len(content)] if is_whole else range(len(content), max(len(content) - 4, -1), -1)
    for end in ends:
        with suppress(UnicodeDecodeError):
            return content[:end].decode()
    return None
