"""The page of messages: a page of them, one of them, a search, a tail, produce, and time travel.

A partition is looked at by its own name. Nothing is read that is not shown, but for what the node
sends in one answer; of a message no more than the beginning is shown until it is opened.
"""

import asyncio
import time
from base64 import b64decode
from collections.abc import AsyncGenerator
from contextlib import suppress
from http import HTTPStatus
from itertools import pairwise
from typing import Any, Final
from urllib.parse import unquote_to_bytes

from starlette.responses import Response

from poe.client.async_socket import AsyncSocket
from poe.errors import PoeError, RequestRefused, UnknownTopic
from poe.gateway.console import judging
from poe.gateway.console.lags import tolerant
from poe.gateway.console.level import Level
from poe.gateway.console.live import SingleView
from poe.gateway.console.look import Look
from poe.gateway.console.reading import Pair, before, decoded, inside, one, read, row
from poe.gateway.console.visit import Row, Visit, named, paged, pointer_of, searched_text
from poe.gateway.http.group_fields import name_text
from poe.gateway.http.refusal import refuse
from poe.gateway.http.reply import status_of
from poe.protocol import DescribedPartition, DescribedTopic, envelope
from poe.protocol.scan import Match
from poe.record import POINTER_MAX
from poe.topic_name import topic_text
from poe.topic_properties import partition_of

SHOWN_BYTES: Final = 1 << 20
"""Of a message that was opened; the rest can be downloaded."""
_SCAN_BYTES: Final = 16 << 20
_MATCHES_MAX: Final = 100
_FIELDS_S: Final = 5.0
_FILTER_S: Final = 15.0
_FILTERS_AT_ONCE: Final = 2
_FIELDS_COUNT: Final = 2000
_BARS: Final = 60
AGAIN_MAX: Final = 10_000
"""Messages that are put once more by one request."""
_AGAIN_PIECE: Final = 500
_TAIL_MAX: Final = 200
_TAIL_PAUSE_S: Final = 0.25
_WAIT_S: Final = 5.0
_INSTANT_MAX: Final = 50
_FORMS: Final = ("auto", "text", "json", "hex", "msgpack", "envelope")

_filtering = asyncio.Semaphore(_FILTERS_AT_ONCE)


async def get_messages(visit: Visit) -> object:
    """Return a page: the newest, the oldest, or those before or after a pointer: a time."""
    topic = visit.name("topic")
    place = visit.choice("place", "newest", "oldest", "after", "before")
    at = visit.number("at", 0, 0, POINTER_MAX)
    limit = visit.number("limit", 50, 1, 500)
    holding = visit.number("holding", 0, 0, POINTER_MAX)
    async with visit.node() as connection:
        found = await connection.describe(topic)
        part = await _part_with(connection, found, holding)
        pairs: list[Pair] = []
        if part is not None:  # of a topic of several one; the others are told
            topic = part.topic
        if part is not None and part.messages:
            if place in {"newest", "before"}:
                last = at - 1 if place == "before" else POINTER_MAX
                pairs = await before(connection, topic, last, part.first_ordinal or 0, limit)
            else:
                pairs = await read(connection, topic, at if place == "after" else 0, limit)
        parts = await _partitions(connection, found)
    return {
        **named(topic),
        "envelope": found.properties.envelope,
        "partitions": [named(each) for each in parts],
        "oldest": str(0 if part is None else part.oldest),
        "newest": str(0 if part is None else part.newest),
        "total": 0 if part is None else part.messages,
        "rows": [row(*each, is_enveloped=found.properties.envelope) for each in pairs],
    }


async def _part_with(
    connection: AsyncSocket, found: DescribedTopic, pointer: int
) -> DescribedPartition | None:
    """Return the partition with a message at a pointer; the first one where none has it."""
    if pointer and len(found.partitions) > 1:
        for each in found.partitions:
            with tolerant():  # it has none there, or cannot be read
                await one(connection, each.topic, pointer)
                return each
    return found.partitions[0] if found.partitions else None


async def _partitions(connection: AsyncSocket, found: DescribedTopic) -> list[bytes]:
    """Return all partitions of the topic of which this one is a partition."""
    parts = [each.topic for each in found.partitions]
    place = partition_of(found.name)
    if parts == [found.name] and place is not None:
        with tolerant():  # there is none of that name, or this user may not know
            told = await connection.describe(place[0])
            others = [each.topic for each in told.partitions]
            parts = others if found.name in others else parts
    return parts


async def get_value(visit: Visit) -> object:
    """Return one message, decoded; of a large one the beginning."""
    form = visit.choice("as", *_FORMS)
    topic, pointer, message = await _opened(visit)
    async with visit.node() as connection:
        is_enveloped = (await connection.describe(topic)).properties.envelope
    if form == "auto" and is_enveloped:
        form = "envelope"
    told = {"pointer": str(pointer), "bytes": len(message)}
    return {**told, **decoded(message, form, SHOWN_BYTES)}


async def get_raw(visit: Visit) -> Response:
    """Return one message as a file."""
    _, pointer, message = await _opened(visit)
    headers = {"Content-Disposition": f'attachment; filename="{pointer}.bin"'}
    return Response(message, headers=headers, media_type="application/octet-stream")


async def get_search(visit: Visit) -> object:
    """Look for a text, a regular expression or fields in a bounded part; tell how far it looked."""
    topic, kind = visit.name("topic"), visit.choice("kind", "text", "regex", "json", "cel")
    text = searched_text(visit, is_short=kind in {"text", "regex"})
    is_regex = kind == "regex"
    after = visit.number("after", 0, 0, POINTER_MAX)
    last = visit.number("last", POINTER_MAX, 0, POINTER_MAX)
    if kind in {"json", "cel"}:
        return await _search_fields(visit, topic, {"kind": kind, "text": text}, after, last)
    async with visit.node() as connection:
        found = await connection.scan(
            topic,
            after,
            last,
            contains=None if is_regex else text,
            regex=text if is_regex else None,
            bytes_max=_SCAN_BYTES,
            matches_max=_MATCHES_MAX,
        )
        is_enveloped = (await connection.describe(topic)).properties.envelope
        rows = [
            await _found(connection, topic, each, is_enveloped=is_enveloped)
            for each in found.matches
        ]
    looked = str(max(after, found.looked_up_to))
    return {
        "rows": rows,
        "looked_until": looked,
        "looked_bytes": found.looked_bytes,
        "is_end": found.is_end,
    }


async def _found(
    connection: AsyncSocket, topic: bytes, match: Match, *, is_enveloped: bool
) -> dict[str, Any]:
    """Return a message that a search has found as lists show it, by the part with the match."""
    content, at = match.preview, 0
    if is_enveloped and len(content) < match.size_bytes:
        with suppress(RequestRefused):  # it was trimmed just now
            content, at = await one(connection, topic, match.pointer), match.preview_at
    elif match.preview_at:
        content = inside(content)
    told = row(match.pointer, content, is_enveloped=is_enveloped, at=at)
    return {**told, "ordinal": match.ordinal, "bytes": match.size_bytes}


async def _search_fields(
    visit: Visit, topic: bytes, asked: dict[str, str], after: int, last: int
) -> object:
    """Look for messages that a filter takes: a pattern as those of mappings, or CEL."""
    if _filtering.locked():
        why = "other filters are at work; try again in a moment"
        raise RequestRefused(HTTPStatus.SERVICE_UNAVAILABLE, why)
    rows: list[dict[str, Any]] = []
    looked_bytes, is_end, failed, reason = 0, False, 0, ""
    deadline_s = time.monotonic() + _FIELDS_S
    try:
        async with (
            _filtering,
            asyncio.timeout(_FILTER_S),
            judging.process() as process,
            visit.node() as connection,
        ):
            await judging.send(process, {"filter": asked})
            await judging.answer(process)  # whether it is one
            is_enveloped = (await connection.describe(topic)).properties.envelope
            while looked_bytes < _SCAN_BYTES and time.monotonic() < deadline_s:
                pairs = await read(connection, topic, after, _FIELDS_COUNT, last)
                if not pairs:
                    is_end = True
                    break
                pointers, contents = zip(*pairs, strict=True)
                await judging.send(process, [topic, pointers, contents, is_enveloped])
                told = await judging.answer(process)
                failed, reason = failed + told["failed"], reason or told["reason"]
                met = [pairs[place] for place in told["places"]]
                room = _MATCHES_MAX - len(rows)
                rows += [row(*each, is_enveloped=is_enveloped) for each in met[:room]]
                after = met[room - 1][0] if len(met) >= room else pairs[-1][0]
                looked_bytes += sum(len(content) for _, content in pairs)
                if len(rows) >= _MATCHES_MAX:
                    break
    except TimeoutError as error:
        why = f"the filter has taken longer than {_FILTER_S:g} s and was ended"
        raise RequestRefused(HTTPStatus.UNPROCESSABLE_ENTITY, why) from error
    looked = {"looked_until": str(after), "looked_bytes": looked_bytes, "is_end": is_end}
    return {"rows": rows, **looked, "failed": failed, "reason": reason}


async def get_histogram(visit: Visit) -> object:
    """Return how many messages a partition has in equal parts of a time, by its index alone."""
    topic = visit.name("topic")
    async with visit.node() as connection:
        found = await connection.describe(topic)
        part = found.partitions[0] if found.partitions else None
        if part is None or not part.messages or part.oldest is None or part.newest is None:
            return {"times_us": [], "counts": []}
        begin = visit.number("after", part.oldest - 1, 0, POINTER_MAX)
        end = visit.number("last", part.newest, 0, POINTER_MAX)
        if end <= begin:
            refuse("last is not behind after")
        count = min(_BARS, end - begin)
        edges = [begin + (end - begin) * number // count for number in range(count + 1)]
        ordinals = await asyncio.gather(*(connection.ordinal(topic, each) for each in edges))
    counts = [behind - ahead for ahead, behind in pairwise(ordinals)]
    return {"times_us": [str(each) for each in edges], "counts": counts}


async def post_again(visit: Visit) -> object:
    """Put messages of a range once more, as they are, onto a topic; with `dry` count them only."""
    topic, given = visit.name("topic"), await visit.body()
    after, last, to, dry = (given.get(each) for each in ("after", "last", "to", "dry"))
    first, end = pointer_of(after), pointer_of(last)
    if (
        first is None
        or end is None
        or not isinstance(to, str)
        or not to
        or not isinstance(dry, bool)
    ):
        refuse("send after and last (pointers as text), to (a topic) and dry (true or false)")
    target = unquote_to_bytes(str(to))
    count = done = 0
    try:
        async with visit.node() as connection:
            behind = await connection.ordinal(topic, end)
            count = max(0, behind - await connection.ordinal(topic, first))
            if count > AGAIN_MAX:
                refuse(
                    f"these are {count} messages; put {AGAIN_MAX} again at most, or use a mapping"
                )
            source = (await connection.describe(topic)).properties.envelope
            found = await connection.find_topic(target)
            if found is not None and found.properties.envelope != source:
                why = f"of {topic_text(topic)} and {topic_text(target)} only one has envelopes"
                raise RequestRefused(HTTPStatus.CONFLICT, why)
            if dry:
                return {"messages": count}
            visit.record("puts again", f"{count} messages of {topic_text(topic)} onto {to}")
            if found is None and source:
                await connection.create_topic(target, envelope=True)
            while done < count:  # what was put meanwhile is behind `end`
                pairs = await read(connection, topic, first, min(_AGAIN_PIECE, count - done), end)
                if not pairs:
                    break
                await connection.write(target, [content for _, content in pairs])
                first, done = pairs[-1][0], done + len(pairs)
    except PoeError as error:
        if not done:
            raise
        # Whoever asks for all of them once more would have these twice.
        why = f"{done} of {count} messages were put again, up to pointer {first}; then: {error}"
        raise RequestRefused(status_of(error), why) from error
    return {"messages": done}


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
        refuse("headers are an object of text to text")
    visit.record("puts a message onto", topic_text(topic))
    async with visit.node() as connection:
        found = await connection.find_topic(topic)
        if found is not None and found.properties.envelope:
            packed = {name: text.encode() for name, text in headers.items()}
            value = envelope.encode(key, value, packed)
        elif key is not None or headers:
            refuse("this topic has no envelopes, so that there are no keys and headers")
        return {"pointer": str(await connection.write(topic, [value]))}


async def get_instant(visit: Visit) -> object:
    """Return of each topic what was its last message at one time: pointers are times."""
    at = visit.number("time_us", time.time_ns() // 1000, 0, POINTER_MAX)
    asked = paged(visit, "name")
    wanted = asked.filter.casefold()
    async with visit.node() as connection:
        found = [
            each for each in await connection.topic_names() if wanted in topic_text(each).casefold()
        ]
        limit = min(asked.limit, _INSTANT_MAX)
        rows = [
            {**named(name), **await _last_at(connection, name, at)}
            for name in found[asked.offset : asked.offset + limit]
        ]
    return {"rows": rows, "total": len(found), "time_us": str(at)}


async def _last_at(connection: AsyncSocket, topic: bytes, at: int) -> dict[str, Any]:
    """Return the last message of a topic at one time, and the partition that has it."""
    told: dict[str, Any] = {"last": None, "partition": name_text(topic), "error": None}
    # This user may not read it, or its storage fails, or is damaged; the others: nothing was put
    # onto it yet, or it is gone.
    with tolerant(lambda error: told.update(error=str(error))), suppress(UnknownTopic):
        found = await connection.describe(topic)
        for each in found.partitions[:1]:
            told["partition"] = name_text(each.topic)
            for pair in await before(connection, each.topic, at, 0, 1):
                told["last"] = row(*pair, is_enveloped=found.properties.envelope)
    return told


async def _tail(look: Look, argument: str, place: str | None) -> AsyncGenerator[tuple[object, str]]:
    """Yield what is put from now on, or behind where the tab was; of too much the newest.

    How much was left out is told.
    """
    topic = unquote_to_bytes(argument)
    async with look.node() as connection:
        found = await connection.describe(topic)
        pointer = max((each.newest or 0 for each in found.partitions), default=0)
        known = pointer_of(place)
        if known is not None and known < pointer:
            pointer = known
        elif place is None:
            yield {"rows": [], "skipped": 0}, str(pointer)  # where a tab goes on that is cut off
        while True:
            if not await connection.wait(topic, pointer, _WAIT_S):
                continue
            begin = await connection.ordinal(topic, pointer)
            pairs = await before(connection, topic, POINTER_MAX, begin, _TAIL_MAX)
            pairs = [each for each in pairs if each[0] > pointer]
            if pairs:
                first = await connection.ordinal(topic, pairs[0][0] - 1)
                pointer = pairs[-1][0]
                rows = [row(*each, is_enveloped=found.properties.envelope) for each in pairs]
                yield {"rows": rows, "skipped": max(0, first - begin)}, str(pointer)
            await asyncio.sleep(_TAIL_PAUSE_S)


async def _opened(visit: Visit) -> tuple[bytes, int, bytes]:
    """Return topic, pointer and message."""
    topic, pointer = visit.name("topic"), visit.number("pointer", 0, 1, POINTER_MAX)
    async with visit.node() as connection:
        return topic, pointer, await one(connection, topic, pointer)


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
    Row(f"{_PATH}/histogram", {"GET": Level.READ}, get_histogram),
    Row(f"{_PATH}/again", {"POST": Level.OPERATE}, post_again),
    Row(f"{_PATH}/search", {"GET": Level.READ}, get_search),
    Row("/instant", {"GET": Level.READ}, get_instant),
)
VIEWS: Final = {"tail": SingleView(_tail)}
