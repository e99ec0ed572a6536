"""The pages of topics: a list by page, one of them, and what can be done with it."""

import asyncio
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from typing import Any, Final

from poe.client.async_socket import AsyncSocket
from poe.errors import PoeError, UnknownTopic
from poe.gateway.console.lags import Lagging, of_topic, tolerant
from poe.gateway.console.level import Level
from poe.gateway.console.look import Look
from poe.gateway.console.visit import Paged, Row, Visit, named, paged, pointer_of, safe
from poe.gateway.http.body import properties_in
from poe.gateway.http.group_fields import name_text, told_of
from poe.gateway.http.refusal import refuse
from poe.protocol import DescribedPartition, DescribedTopic
from poe.record import POINTER_MAX
from poe.topic_name import topic_text
from poe.topic_properties import partition_of

_AT_ONCE: Final = 25
"""Topics of which is asked at the same time, so that others get their turns at the node."""
_SEGMENTS_MAX: Final = 200
_PARTITIONS_ASKED: Final = 20
_PRODUCERS_MAX: Final = 200


async def get_topics(visit: Visit) -> object:
    """Return a page of topics; what one has is looked up for those alone that are shown."""
    asked = paged(visit, "name", "rate")
    look = visit.look
    return await look.together.ask(("topics", asked), lambda: _page_of_topics(look, asked))


async def _page_of_topics(look: Look, asked: Paged) -> object:
    history = look.history
    lags = await look.lags.ask(look.node)
    async with look.node() as connection:
        wanted = asked.filter.casefold()
        names = await connection.topic_names()
        rates = rates_by_topic(history.topic_rates(), names)
        if wanted:
            names = [each for each in names if wanted in topic_text(each).casefold()]
        names.sort(reverse=asked.is_descending)
        if asked.sort == "rate":
            names.sort(
                key=lambda name: rates.get(name, {}).get("messages_in", 0.0),
                reverse=asked.is_descending,
            )
        shown = names[asked.offset : asked.offset + asked.limit]
        described: list[DescribedTopic | None] = []
        for begin in range(0, len(shown), _AT_ONCE):
            some = shown[begin : begin + _AT_ONCE]
            described += await asyncio.gather(*(_find(connection, each) for each in some))
    rows = [
        {
            **named(name),
            **_held(each),
            "error": "" if each is None else each.error,
            "rates": rates.get(name, {}),
            "spark": history.spark(*_partitions(each)),
            "groups": _readers(each, lags),
        }
        for name, each in zip(shown, described, strict=True)
    ]
    return {"rows": rows, "total": len(names)}


async def _find(connection: AsyncSocket, topic: bytes) -> DescribedTopic | None:
    """Return what a topic has; of one that is out of service, why."""
    refused: list[PoeError] = []
    with tolerant(refused.append):
        return await connection.find_topic(topic)
    return DescribedTopic(topic, b"", 0, 0, error=str(refused[0]))


async def get_topic(visit: Visit) -> object:
    """Return one topic: its properties, its partitions, their segments, what was done with it."""
    topic = visit.name("topic")
    async with visit.node() as connection:
        found = await connection.find_topic(topic)
        if found is None:
            raise UnknownTopic(topic)
        segments: list[dict[str, Any]] = []
        producers: list[dict[str, Any]] = []
        for each in found.partitions[:_PARTITIONS_ASKED]:
            with suppress(UnknownTopic):  # nothing was put onto it yet
                segments += await connection.segments(each.topic)
            with tolerant():  # nothing was put onto it yet, or this user may not know
                told = await connection.producers(each.topic)
                producers += [{"partition": topic_text(each.topic), **row} for row in told]
    lags = await visit.look.lags.ask(visit.node)
    return {
        **named(topic),
        **_held(found),
        "created_us": str(found.created_us),
        "error": found.error,
        "properties": told_of(asdict(found.properties)),
        "partitions": [
            {
                **named(each.topic),
                "messages": each.messages,
                "bytes": each.bytes,
                "oldest": str(each.oldest or 0),
                "newest": str(each.newest or 0),
                "segments": each.segments,
                "roles": each.roles,
            }
            for each in found.partitions
        ],
        "segments": [
            {
                "role": each["role"],
                "messages": each["count"],
                "bytes": each["size_bytes"],
                "oldest": str(each["pointer_low"] or 0),
                "newest": str(each["pointer_high"] or 0),
            }
            for each in segments[-_SEGMENTS_MAX:]
        ],
        "segments_total": sum(each.segments for each in found.partitions),
        "groups": _readers(found, lags),
        "producers": safe(told_of(producers[:_PRODUCERS_MAX])),
        "rates": _added(
            visit.look.history.topic_rates().get(each, {}) for each in _partitions(found)
        ),
    }


async def get_topic_history(visit: Visit) -> object:
    """Return what was done with a topic since somebody looks at it."""
    topic = visit.name("topic")
    is_day = visit.choice("range", "hour", "day") == "day"
    async with visit.node() as connection:
        found = await connection.find_topic(topic)
    if found is None:
        raise UnknownTopic(topic)
    return visit.look.history.of_topic(topic, _partitions(found), is_day=is_day)


async def post_topics(visit: Visit) -> object:
    """Create a topic; properties by name, as `poe topic create` has them."""
    given = await visit.body()
    name, properties = given.pop("name", None), given.pop("properties", {})
    if not isinstance(name, str) or not name or given or not isinstance(properties, dict):
        refuse("send an object of name (text) and properties (an object, or left out)")
    visit.record("creates topic", name)
    async with visit.node() as connection:
        await connection.create_topic(name, **properties_in(properties))
    return named(name.encode())


async def post_trim(visit: Visit) -> object:
    """Remove whole segments before a pointer."""
    topic, given = visit.name("topic"), await visit.body()
    said = given.get("pointer")
    pointer = pointer_of(said)
    if pointer is None:
        refuse(f"pointer is {said!r:.100}; give a number in text, from 0 to {POINTER_MAX}")
    visit.record("trims topic", f"{name_text(topic)} to {pointer}")
    async with visit.node() as connection:
        return {"removed": await connection.trim(topic, pointer)}


async def delete_topic(visit: Visit) -> object:
    """Delete a topic, whose name must be typed."""
    topic, given = visit.name("topic"), await visit.body()
    if given.get("name") != topic_text(topic):
        refuse(f"type the name of the topic to delete it: {topic_text(topic)!r:.200}")
    visit.record("deletes topic", name_text(topic))
    async with visit.node() as connection:
        await connection.delete(topic)
    return {}


def rates_by_topic(
    rates: Mapping[bytes, Mapping[str, float]], names: Iterable[bytes]
) -> dict[bytes, dict[str, float]]:
    """Return what is done with topics in a second, of what the node tells of their partitions."""
    known = set(names)
    found: dict[bytes, list[Mapping[str, float]]] = {}
    for part, each in rates.items():
        place = None if part in known else partition_of(part)
        found.setdefault(part if place is None else place[0], []).append(each)
    return {topic: _added(some) for topic, some in found.items()}


def _added(rates: Iterable[Mapping[str, float]]) -> dict[str, float]:
    sums: dict[str, float] = {}
    for each in rates:
        for name, value in each.items():
            sums[name] = sums.get(name, 0) + value
    return sums


def _partitions(found: DescribedTopic | None) -> list[bytes]:
    return [] if found is None else [each.topic for each in found.partitions]


def _held(found: DescribedTopic | None) -> dict[str, Any]:
    """Return what a topic holds; of one that is gone by now, nothing."""
    parts = () if found is None else found.partitions
    return {
        "messages": sum(each.messages for each in parts),
        "bytes": sum(each.bytes for each in parts),
        "newest": str(max((each.newest or 0 for each in parts), default=0)),
        "segments": sum(each.segments for each in parts),
        "roles": _roles(parts),
        "ack": None if found is None else found.properties.ack,
    }


def _roles(parts: Sequence[DescribedPartition]) -> str:
    """Return how many segments of all partitions are written to, are read, and hibernate."""
    counts: Counter[str] = Counter()
    for each in parts:
        words = each.roles.split()
        for count, role in zip(words[::2], words[1::2], strict=True):
            counts[role] += int(count)
    return " ".join(f"{counts[role]} {role}" for role in "wrh" if counts[role])


def _readers(found: DescribedTopic | None, lags: Lagging) -> list[dict[str, Any]]:
    """Return the groups that read a topic, and how far each is behind."""
    rows = of_topic(lags, _partitions(found))
    return [{**named(row.pop("group").encode()), **row} for row in rows]


ROWS: Final = (
    Row("/topics", {"GET": Level.READ}, get_topics),
    Row("/topics", {"POST": Level.OPERATE}, post_topics),
    Row("/topics/{topic}", {"GET": Level.READ}, get_topic),
    Row("/topics/{topic}", {"DELETE": Level.DESTROY}, delete_topic),
    Row("/topics/{topic}/history", {"GET": Level.READ}, get_topic_history),
    Row("/topics/{topic}/trim", {"POST": Level.DESTROY}, post_trim),
)
