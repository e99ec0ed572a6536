"""Looks for a text in all topics around a time: where a key went, through topics and mappings."""

import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final

from poe.client.async_socket import AsyncSocket
from poe.errors import InvalidEnvelope, NotAuthorized, PoeError, UnknownTopic
from poe.gateway.console.lags import tolerant
from poe.gateway.console.level import Level
from poe.gateway.console.reading import one, row
from poe.gateway.console.visit import Row, Visit, named, searched_text
from poe.protocol import envelope
from poe.record import POINTER_MAX
from poe.topic_name import topic_text

TOPICS_MAX: Final = 500
MATCHES_MAX: Final = 200
_BYTES_MAX: Final = 64 << 20
_OF_TOPIC: Final = 50
_TIME_S: Final = 8.0
_MINUTE_US: Final = 60_000_000
_ORIGIN: Final = ("poe-origin", "poe.topic")


async def get_follow(visit: Visit) -> object:
    """Return messages of all topics that hold a text, by time; and how far it has looked."""
    text = searched_text(visit)
    at = visit.number("at", time.time_ns() // 1000, 0, POINTER_MAX)
    width_us = visit.number("minutes", 10, 1, 100_000) * _MINUTE_US
    after, last = max(0, at - width_us), min(POINTER_MAX, at + width_us)
    wanted = visit.text("filter").casefold()
    rows: list[dict[str, Any]] = []
    budget = _Budget(_BYTES_MAX, time.monotonic() + _TIME_S)
    looked = 0
    async with visit.node() as connection:
        names = [each for each in await connection.topic_names() if wanted in _folded(each)]
        for name in names[:TOPICS_MAX]:
            if budget.is_used_up:
                break
            looked += 1
            # Its storage fails, or is damaged; it is gone, or this user may not read it.
            with tolerant(budget.skip), suppress(UnknownTopic, NotAuthorized):
                rows += await _of_topic(connection, name, text, (after, last), budget)
    is_whole = looked == len(names) and not budget.is_used_up and not budget.has_skipped
    rows.sort(key=lambda each: int(each["pointer"]))
    return {
        "rows": rows[:MATCHES_MAX],
        "is_whole": is_whole and len(rows) <= MATCHES_MAX,
        "topics_looked": looked,
        "topics": len(names),
        "after": str(after),
        "last": str(last),
    }


class _Budget:
    """What one request may still look at."""

    def __init__(self, left: int, deadline_s: float) -> None:
        self.left = left
        self._deadline_s = deadline_s
        self.has_skipped = False
        """Whether a topic has more matches than are told."""

    def skip(self, _why: PoeError) -> None:
        """Note that a topic could not be looked at."""
        self.has_skipped = True

    @property
    def is_used_up(self) -> bool:
        return self.left <= 0 or time.monotonic() >= self._deadline_s


async def _of_topic(
    connection: AsyncSocket, name: bytes, text: str, bounds: tuple[int, int], budget: _Budget
) -> list[dict[str, Any]]:
    found = await connection.describe(name)
    rows: list[dict[str, Any]] = []
    for part in found.partitions:
        after, last = bounds
        is_end = part.newest is None or part.newest <= after
        while not is_end and not budget.is_used_up:
            room = _OF_TOPIC - len(rows)
            if room <= 0:
                budget.has_skipped = True
                break
            scanned = await connection.scan(
                *(part.topic, after, last),
                contains=text,
                bytes_max=max(1, min(budget.left, _BYTES_MAX // 4)),
                matches_max=room,
            )
            budget.left -= scanned.looked_bytes
            after, is_end = max(after, scanned.looked_up_to), scanned.is_end
            for match in scanned.matches:
                where = part.topic, match.pointer
                is_enveloped = found.properties.envelope
                rows.append(await _told(connection, *where, is_enveloped=is_enveloped))
    return rows


async def _told(
    connection: AsyncSocket, topic: bytes, pointer: int, *, is_enveloped: bool
) -> dict[str, Any]:
    content = await one(connection, topic, pointer)
    origin = ""
    if is_enveloped:
        with suppress(InvalidEnvelope):
            origin = origin_of(envelope.decode(content).headers or {})
    return {
        "topic": named(topic),
        **row(pointer, content, is_enveloped=is_enveloped),
        "origin": origin,
    }


def origin_of(headers: Mapping[str, bytes]) -> str:
    """Return where a message came from, as mappings and groups note it: `topic/pointer`."""
    if _ORIGIN[0] in headers:
        return headers[_ORIGIN[0]].decode("utf-8", "replace")
    if _ORIGIN[1] in headers:
        pointer = headers.get("poe.pointer", b"")
        return (headers[_ORIGIN[1]] + b"/" + pointer).decode("utf-8", "replace")
    return ""


def _folded(name: bytes) -> str:
    return topic_text(name).casefold()


ROWS: Final = (Row("/follow", {"GET": Level.READ}, get_follow),)
