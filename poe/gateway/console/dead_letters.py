"""Dead letters of a group: those that were not dealt with, put back, or let go."""

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress
from http import HTTPStatus
from typing import Any, Final

from poe.client.async_socket import AsyncSocket
from poe.client.group.dead_letter import DeadLetter
from poe.client.group.redrive import dead_letter_topic, discard, redrive, redriver
from poe.client.url import parse_url
from poe.errors import ConnectFailed, InvalidEnvelope, RequestRefused, UnknownGroup
from poe.gateway.console.level import Level
from poe.gateway.console.look import Look
from poe.gateway.console.reading import one, preview, read
from poe.gateway.console.visit import Row, Visit, group_name, named
from poe.protocol import Socket
from poe.protocol.client import open_socket
from poe.protocol.records import split_records
from poe.record import POINTER_MAX

_SHOWN_MAX: Final = 200


async def get_letters(visit: Visit) -> object:
    """Return the oldest letters that nobody has put back or let go."""
    group = group_name(visit)
    wanted = visit.text("filter").casefold()
    async with visit.node() as connection:
        topic = await _topic(connection, group)
        found = await connection.find_topic(topic)
        pairs: list[tuple[int, bytes]] = []
        open_count: int | None = 0
        if found is not None and found.queue is not None:
            held = await connection.control("queue_dump", topic=topic)
            pairs = list(split_records(memoryview(held["records"])))[:_SHOWN_MAX]
            open_count = None  # a node knows only of those that it holds
        elif found is not None and found.partitions:
            done = await _done(connection, group)
            first = found.partitions[0].topic
            pairs = await read(connection, first, done, _SHOWN_MAX)
            behind = await connection.ordinal(first, POINTER_MAX)
            open_count = behind - await connection.ordinal(first, done)
    rows = []
    for pointer, content in pairs:
        with suppress(InvalidEnvelope):  # somebody has put something else there
            letter = DeadLetter.of(content)
            if wanted in letter.reason.casefold():
                rows.append(_told(pointer, letter))
    return {**named(topic), "rows": rows, "open": open_count}


async def post_redrive(visit: Visit) -> object:
    """Put back one letter, or all that nobody has dealt with."""
    group, given = group_name(visit), await visit.body()
    pointer = given.get("pointer")
    if given.keys() - {"pointer"} or not (pointer is None or _is_pointer(pointer)):
        why = f"pointer is {pointer!r:.100}; give one in text, or none for all letters"
        raise RequestRefused(HTTPStatus.BAD_REQUEST, why)
    if pointer is None:
        return await _deal(visit, group, "puts back the dead letters of", redrive)
    visit.record("puts back a dead letter of", f"{group} at {pointer}")
    async with visit.node() as connection:
        found = await connection.describe(await _topic(connection, group))
        letter = DeadLetter.of(await one(connection, found.partitions[0].topic, int(pointer)))
        if not letter.message or not letter.origin:
            why = "this letter holds no message: it was gone before it was given up"
            raise RequestRefused(HTTPStatus.CONFLICT, why)
        await connection.write(letter.origin, [letter.message])
    return {"messages": 1}


async def post_discard(visit: Visit) -> object:
    """Let all letters go that nobody has dealt with; the name of the group must be typed."""
    group, given = group_name(visit), await visit.body()
    if given.get("name") != group:
        why = f"type the name of the group to discard its dead letters: {group!r:.200}"
        raise RequestRefused(HTTPStatus.BAD_REQUEST, why)
    return await _deal(visit, group, "discards the dead letters of", discard)


Deal = Callable[[Socket, str, str, Mapping[str, Any]], int]


async def _deal(visit: Visit, group: str, action: str, deal: Deal) -> object:
    visit.record(action, group)
    async with visit.node() as connection:  # for an error that tells what is wrong
        await _topic(connection, group)

    def run() -> int:
        look = visit.look
        entry = {"tls": look.entry.tls, "credentials": look.entry.credentials}
        with _connection(look) as connection:
            return deal(connection, look.url, group, entry)

    return {"messages": await asyncio.to_thread(run)}


def _connection(look: Look) -> Socket:
    *earlier, last = parse_url(look.url, look.entry).servers
    for server in earlier:
        with suppress(ConnectFailed):
            return open_socket(server, look.timeout_s)
    return open_socket(last, look.timeout_s)


async def _topic(connection: AsyncSocket, group: str) -> bytes:
    told = await connection.control("group", group=group)
    return dead_letter_topic(group, told["options"])


async def _done(connection: AsyncSocket, group: str) -> int:
    """Return up to where letters were dealt with."""
    with suppress(UnknownGroup):
        lag = await connection.control("group_lag", group=redriver(group))
        return max((each["position"] or 0 for each in lag.values()), default=0)
    return 0


def _told(pointer: int, letter: DeadLetter) -> dict[str, Any]:
    message = letter.message or b""
    return {
        "pointer": str(pointer),
        "topic": named(letter.topic),
        "at": str(letter.pointer),
        "attempts": letter.attempts,
        "reason": letter.reason,
        "bytes": len(message),
        **preview(message),
    }


def _is_pointer(text: object) -> bool:
    is_number = isinstance(text, str) and text.isascii() and text.isdecimal()
    return is_number and len(str(text)) <= len(str(POINTER_MAX)) and int(str(text)) <= POINTER_MAX


_PATH: Final = "/groups/{group}/dead"
ROWS: Final = (
    Row(_PATH, {"GET": Level.READ}, get_letters),
    Row(f"{_PATH}/redrive", {"POST": Level.OPERATE}, post_redrive),
    Row(f"{_PATH}/discard", {"POST": Level.DESTROY}, post_discard),
)
