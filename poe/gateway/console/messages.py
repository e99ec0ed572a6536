"""The page of messages: a page of them, one of them, a search, a tail, produce, and time travel.

A partition is looked at by its own name. Nothing is read that is not shown, but for what the node
sends in one answer; of a message no more than PREVIEW_BYTES are shown until it is opened.
"""

import asyncio
import time
from base64 import b64decode
from collections.abc import AsyncGenerator, Iterator
from contextlib import suppress
from http import HTTPStatus
from typing import Any, Final
from urllib.parse import unquote_to_bytes

import msgpack  # type: ignore[import-untyped]  # it ships no type hints
from starlette.responses import Response, StreamingResponse

from poe.client.async_socket import AsyncSocket
from poe.errors import InvalidEnvelope, RequestRefused, UnknownTopic
from poe.gateway.console.level import Level
from poe.gateway.console.live import View
from poe.gateway.console.look import Look
from poe.gateway.console.visit import Row, Visit, named, paged
from poe.gateway.http.record import record_of
from poe.gateway.http.reply import as_json
from poe.protocol import envelope
from poe.protocol.ranges import IndexedRecords
from poe.record import POINTER_MAX
from poe.topic_name import topic_text

PREVIEW_BYTES: Final = 2048
SHOWN_BYTES: Final = 1 << 20
"""Of a message that was opened; the rest can be downloaded."""
_PAGE_BYTES: Final = 8 << 20
_HEAD_BYTES: Final = 11
"""What stands before a message where records lie side by side."""
_SCAN_BYTES: Final = 16 << 20
_TAIL_MAX: Final = 200
_TAIL_PAUSE_S: Final = 0.25
_WAIT_S: Final = 5.0
_DUMP_COUNT: Final = 1000
_INSTANT_MAX: Final = 50
_FORMS: Final = ("auto", "text", "json", "hex", "msgpack", "envelope")

Pair = tuple[int, bytes]
"""Pointer and message."""


async def get_messages(visit: Visit) -> object:
    """Return a page: the newest, the oldest, or those before or after a pointer: a time."""
    topic = visit.name("topic")
    place = visit.choice("place", "newest", "oldest", "after", "before")
    at = visit.number("at", 0, 0, POINTER_MAX)
    limit = visit.number("limit", 50, 1, 500)
    async with visit.node() as connection:
        found = await connection.describe(topic)
        part = found.partitions[0] if found.partitions else None
        pairs: list[Pair] = []
        if part is not None and part.messages:
            if place in {"newest", "before"}:
                last = at - 1 if place == "before" else POINTER_MAX
                pairs = await _before(connection, topic, last, part.first_ordinal or 0, limit)
            else:
                pairs = await _read(connection, topic, at if place == "after" else 0, limit)
    return {
        **named(topic),
        "envelope": found.properties.envelope,
        "partitions": [named(each.topic) for each in found.partitions],
        "oldest": str(0 if part is None else part.oldest),
        "newest": str(0 if part is None else part.newest),
        "total": 0 if part is None else part.messages,
        "rows": [_row(*each, is_enveloped=found.properties.envelope) for each in pairs],
    }


async def get_value(visit: Visit) -> object:
    """Return one message, decoded; of a large one the beginning."""
    form = visit.choice("as", *_FORMS)
    topic, pointer, message = await _one(visit)
    async with visit.node() as connection:
        is_enveloped = (await connection.describe(topic)).properties.envelope
    if form == "auto" and is_enveloped:
        form = "envelope"
    told = {"pointer": str(pointer), "bytes": len(message), "is_cut": len(message) > SHOWN_BYTES}
    return {**told, **_decoded(message[:SHOWN_BYTES], form, is_whole=len(message) <= SHOWN_BYTES)}


async def get_raw(visit: Visit) -> Response:
    """Return one message as a file."""
    _, pointer, message = await _one(visit)
    headers = {"Content-Disposition": f'attachment; filename="{pointer}.bin"'}
    return Response(message, headers=headers, media_type="application/octet-stream")


async def get_search(visit: Visit) -> object:
    """Look for a text, or a regular expression, in a bounded part; tell how far it has looked."""
    topic, text = visit.name("topic"), visit.text("text")
    is_regex = visit.choice("kind", "text", "regex") == "regex"
    after = visit.number("after", 0, 0, POINTER_MAX)
    last = visit.number("last", POINTER_MAX, 0, POINTER_MAX)
    if not text:
        raise RequestRefused(HTTPStatus.BAD_REQUEST, "parameter text is empty; say what to find")
    async with visit.node() as connection:
        found = await connection.scan(
            topic,
            after,
            last,
            contains=None if is_regex else text,
            regex=text if is_regex else None,
            bytes_max=_SCAN_BYTES,
            matches_max=100,
        )
    rows = [
        {
            "pointer": str(each.pointer),
            "ordinal": each.ordinal,
            "bytes": each.size_bytes,
            **_preview(each.preview),
            "key": None,
        }
        for each in found.matches
    ]
    looked = str(max(after, found.looked_up_to))
    return {
        "rows": rows,
        "looked_until": looked,
        "looked_bytes": found.looked_bytes,
        "is_end": found.is_end,
    }


async def post_message(visit: Visit) -> object:
    """Put one message; a key and headers on topics with envelopes alone."""
    topic, given = visit.name("topic"), await visit.body()
    unknown = given.keys() - {"value", "value_base64", "key", "headers"}
    if unknown or ("value" in given) == ("value_base64" in given):
        why = "send an object of value or value_base64, and of key and headers where there are any"
        raise RequestRefused(HTTPStatus.BAD_REQUEST, why)
    value = _bytes(given, "value_base64" if "value_base64" in given else "value")
    key = None if given.get("key") is None else _bytes(given, "key")
    headers = given.get("headers") or {}
    if not isinstance(headers, dict) or not all(isinstance(each, str) for each in headers.values()):
        raise RequestRefused(HTTPStatus.BAD_REQUEST, "headers are an object of text to text")
    visit.record("puts a message onto", topic_text(topic))
    async with visit.node() as connection:
        found = await connection.find_topic(topic)
        if found is not None and found.properties.envelope:
            packed = {name: text.encode() for name, text in headers.items()}
            value = envelope.encode(key, value, packed)
        elif key is not None or headers:
            why = "this topic has no envelopes, so that there are no keys and headers"
            raise RequestRefused(HTTPStatus.BAD_REQUEST, why)
        return {"pointer": str(await connection.write(topic, [value]))}


async def get_dump(visit: Visit) -> Response:
    """Return messages of a range as lines of JSON, each of which can be posted again."""
    topic = visit.name("topic")
    after = visit.number("after", 0, 0, POINTER_MAX)
    last = visit.number("last", POINTER_MAX, 0, POINTER_MAX)
    limit = visit.number("limit", 100_000, 1, 10_000_000)
    async with visit.node() as connection:
        is_enveloped = (await connection.describe(topic)).properties.envelope
    headers = {"Content-Disposition": 'attachment; filename="messages.jsonl"'}
    content = _lines(visit.look, topic, (after, last, limit), is_enveloped=is_enveloped)
    return StreamingResponse(content, headers=headers, media_type="application/x-ndjson")


async def get_instant(visit: Visit) -> object:
    """Return of each topic what was its last message at one time: pointers are times."""
    at = visit.number("time_us", time.time_ns() // 1000, 0, POINTER_MAX)
    asked = paged(visit, "name")
    wanted = asked.filter.casefold()
    rows = []
    async with visit.node() as connection:
        found = [
            each
            for each in sorted(await connection.list_topics(), key=lambda topic: topic.name)
            if wanted in topic_text(each.name).casefold()
        ]
        limit = min(asked.limit, _INSTANT_MAX)
        for each in found[asked.offset : asked.offset + limit]:
            pairs: list[Pair] = []
            with suppress(UnknownTopic):  # nothing was put onto it yet, or it is gone
                pairs = await _before(connection, each.name, at, 0, 1)
            is_enveloped = each.properties.envelope
            last = [_row(*pair, is_enveloped=is_enveloped) for pair in pairs]
            rows.append({**named(each.name), "last": last[0] if last else None})
    return {"rows": rows, "total": len(found), "time_us": str(at)}


async def _tail(look: Look, argument: str) -> AsyncGenerator[object]:
    """Yield what is put from now on; of too much the newest, and how much was left out."""
    topic = unquote_to_bytes(argument)
    async with look.node() as connection:
        found = await connection.describe(topic)
        pointer = max((each.newest or 0 for each in found.partitions), default=0)
        while True:
            if not await connection.wait(topic, pointer, _WAIT_S):
                continue
            begin = await connection.ordinal(topic, pointer)
            pairs = await _before(connection, topic, POINTER_MAX, begin, _TAIL_MAX)
            pairs = [each for each in pairs if each[0] > pointer]
            if pairs:
                first = await connection.ordinal(topic, pairs[0][0] - 1)
                pointer = pairs[-1][0]
                rows = [_row(*each, is_enveloped=found.properties.envelope) for each in pairs]
                yield {"rows": rows, "skipped": max(0, first - begin)}
            await asyncio.sleep(_TAIL_PAUSE_S)


# ---- reading ----------------------------------------------------------------------------------


async def _read(
    connection: AsyncSocket, topic: bytes, after: int, limit: int, last: int = POINTER_MAX
) -> list[Pair]:
    found = await connection.read_range(topic, after, last, limit, _PAGE_BYTES)
    return list(_pairs(found))


async def _before(
    connection: AsyncSocket, topic: bytes, last: int, first_ordinal: int, limit: int
) -> list[Pair]:
    """Return the last messages up to a pointer; of large ones fewer, but the last ones."""
    behind = await connection.ordinal(topic, last)
    while True:
        begin = max(first_ordinal, behind - limit)
        pointer = await connection.pointer_at(topic, begin)
        if pointer is None or pointer > last:
            return []
        pairs = await _read(connection, topic, pointer - 1, limit, last)
        if limit == 1 or len(pairs) >= min(limit, behind - begin):
            return pairs
        limit = max(1, min(limit // 2, len(pairs)))


def _pairs(found: IndexedRecords) -> Iterator[Pair]:
    starts = found.starts.tolist()
    for number, pointer in enumerate(found.pointers.tolist()):
        yield pointer, bytes(found.data[starts[number] + _HEAD_BYTES : starts[number + 1]])


async def _one(visit: Visit) -> tuple[bytes, int, bytes]:
    """Return topic, pointer and message.

    Raises:
        RequestRefused: 404, there is none at this pointer.
    """
    topic, pointer = visit.name("topic"), visit.number("pointer", 0, 1, POINTER_MAX)
    async with visit.node() as connection:
        pairs = await _read(connection, topic, max(0, pointer - 1), 1, pointer) if pointer else []
    if not pairs:
        why = f"there is no message at pointer {pointer}; it may have been trimmed"
        raise RequestRefused(HTTPStatus.NOT_FOUND, why)
    return topic, *pairs[0]


async def _lines(
    look: Look, topic: bytes, wanted: tuple[int, int, int], *, is_enveloped: bool
) -> AsyncGenerator[bytes]:
    after, last, limit = wanted
    async with look.node() as connection:
        while limit > 0:
            pairs = await _read(connection, topic, after, min(limit, _DUMP_COUNT), last)
            if not pairs:
                return
            yield b"".join(
                as_json({"pointer": str(pointer), **_record(message, is_enveloped=is_enveloped)})
                + b"\n"
                for pointer, message in pairs
            )
            after, limit = pairs[-1][0], limit - len(pairs)


def _record(message: bytes, *, is_enveloped: bool) -> dict[str, Any]:
    if is_enveloped:
        with suppress(InvalidEnvelope):
            held = envelope.decode(message)
            return record_of(held.key, held.value, held.headers)
    return record_of(None, message, None)


# ---- showing ----------------------------------------------------------------------------------


def _row(pointer: int, message: bytes, *, is_enveloped: bool) -> dict[str, Any]:
    key, value = None, message
    if is_enveloped:
        with suppress(InvalidEnvelope):
            held = envelope.decode(message)
            key = None if held.key is None else held.key[:PREVIEW_BYTES].decode(errors="replace")
            value = b"" if held.value is None else held.value
    told = {"pointer": str(pointer), "bytes": len(message), "key": key}
    return {**told, **_preview(value)}


def _preview(content: bytes) -> dict[str, Any]:
    """Return the beginning as text where it is text, else in hex."""
    part = content[:PREVIEW_BYTES]
    for end in range(len(part), max(len(part) - 4, -1), -1):  # a letter may be cut in two
        with suppress(UnicodeDecodeError):
            text = part[:end].decode()
            if "\0" not in text:
                return {"form": "text", "preview": text}
        if len(content) <= PREVIEW_BYTES:
            break
    return {"form": "hex", "preview": part[:256].hex(" ")}


def _decoded(content: bytes, form: str, *, is_whole: bool) -> dict[str, Any]:
    """Return a message as text that people read, and in which form that is."""
    if form == "envelope":
        try:
            held = envelope.decode(content)
        except InvalidEnvelope as error:
            return {**_decoded(content, "auto", is_whole=is_whole), "error": str(error)}
        headers = {
            name: value.decode(errors="replace") for name, value in (held.headers or {}).items()
        }
        key = None if held.key is None else held.key.decode(errors="replace")
        inner = _decoded(held.value or b"", "auto", is_whole=is_whole)
        return {**inner, "key": key, "headers": headers, "is_tombstone": held.value is None}
    if form == "msgpack":
        try:
            text = repr(msgpack.unpackb(content, strict_map_key=False))
        except (ValueError, msgpack.UnpackException) as error:
            return {**_decoded(content, "auto", is_whole=is_whole), "error": f"no msgpack: {error}"}
        return {"form": "msgpack", "text": text}
    shown = None if form == "hex" else _preview_all(content, is_whole=is_whole)
    if shown is None and form in {"text", "json"}:
        shown = content.decode(errors="replace")
    if shown is None:
        return {"form": "hex", "text": content.hex(" ")}
    return {"form": "text", "text": shown}


def _preview_all(content: bytes, *, is_whole: bool) -> str | None:
    ends = [len(content)] if is_whole else range(len(content), max(len(content) - 4, -1), -1)
    for end in ends:
        with suppress(UnicodeDecodeError):
            return content[:end].decode()
    return None


def _bytes(given: dict[str, Any], name: str) -> bytes:
    text = given[name]
    try:
        return b64decode(text, validate=True) if name.endswith("_base64") else text.encode()
    except (AttributeError, TypeError, ValueError) as error:
        kind = "base64" if name.endswith("_base64") else "text"
        raise RequestRefused(HTTPStatus.BAD_REQUEST, f"{name} is no {kind}") from error


_PATH: Final = "/messages/{topic}"
ROWS: Final = (
    Row(_PATH, {"GET": Level.READ}, get_messages),
    Row(_PATH, {"POST": Level.OPERATE}, post_message),
    Row(f"{_PATH}/value", {"GET": Level.READ}, get_value),
    Row(f"{_PATH}/raw", {"GET": Level.READ}, get_raw),
    Row(f"{_PATH}/search", {"GET": Level.READ}, get_search),
    Row(f"{_PATH}/dump", {"GET": Level.READ}, get_dump),
    Row("/instant", {"GET": Level.READ}, get_instant),
)
VIEWS: Final = {"tail": View(_tail, is_shared=False)}
