"""Dead letters of a group: those that were not dealt with, put back, or let go."""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from http import HTTPStatus
from typing import Any, Final, NamedTuple, TypeAlias, TypeVar

from poe.broker.requests.log_groups import UNREACHED
from poe.client.async_socket import AsyncSocket
from poe.client.group.dead_letter import DeadLetter
from poe.client.group.redrive import Choice, dead_letter_topic, discard, redrive, redriver
from poe.client.url import parse_url
from poe.errors import (
    ConnectFailed,
    InvalidEnvelope,
    RequestRefused,
    UnknownGroup,
    UnknownTopic,
)
from poe.gateway.console.lags import tolerant
from poe.gateway.console.level import Level
from poe.gateway.console.look import Look
from poe.gateway.console.reading import Pair, before, one, preview, read
from poe.gateway.console.visit import Row, Visit, group_name, named, paged, pointer_of
from poe.gateway.http.refusal import refuse
from poe.protocol import Socket, envelope
from poe.protocol.client import open_socket
from poe.protocol.records import split_records
from poe.record import POINTER_MAX

Dealt = TypeVar("Dealt")

_SHOWN_MAX: Final = 200
_GROUPS_MAX: Final = 500
"""Groups of which is asked whether they have letters."""
_REASONS: Final = 20
_REASON_SHOWN: Final = 300
_LOOK_BACK: Final = 20
_PIECE: Final = 200
GOOD_BYTES: Final = 64 << 10
"""Of a message that is compared."""


class _Held(NamedTuple):
    """The oldest letters of a group that nobody has dealt with."""

    topic: bytes
    pairs: list[Pair]
    open_count: int | None
    """Of all; None where nobody knows: of a queue a node knows only those that it holds."""

    def letters(self) -> Iterator[DeadLetter]:
        """Yield them, without what somebody has put there besides."""
        for _, content in self.pairs:
            with suppress(InvalidEnvelope):
                yield DeadLetter.of(content)


async def _open_letters(connection: AsyncSocket, group: str) -> _Held:
    topic = await _topic(connection, group)
    found = await connection.find_topic(topic)
    if found is None:
        return _Held(topic, [], 0)
    if found.queue is not None:
        held = await connection.control("queue_dump", topic=topic)
        return _Held(topic, list(split_records(memoryview(held["records"])))[:_SHOWN_MAX], None)
    if not found.partitions:
        return _Held(topic, [], 0)
    done = await _done(connection, group)
    pairs: list[Pair] = []
    open_count = 0
    for each in found.partitions:
        if not each.messages:
            continue
        position = done.get(each.topic, 0)
        pairs += await read(connection, each.topic, position, _SHOWN_MAX)
        behind = await connection.ordinal(each.topic, POINTER_MAX)
        open_count += behind - await connection.ordinal(each.topic, position)
    return _Held(topic, sorted(pairs)[:_SHOWN_MAX], open_count)


async def _one(connection: AsyncSocket, group: str, pointer: int) -> bytes:
    """Return one letter, wherever it lies.

    Raises:
        RequestRefused: 404, there is none.
    """
    found = await connection.describe(await _topic(connection, group))
    for each in found.partitions:
        with suppress(RequestRefused, UnknownTopic):  # the latter: nothing was put onto it yet
            return await one(connection, each.topic, pointer)
    why = f"there is no dead letter at pointer {pointer}"
    raise RequestRefused(HTTPStatus.NOT_FOUND, why)


def _reasons(held: _Held) -> dict[str, Any]:
    """Return how many there are, by reason, and when the newest of those looked at was given up."""
    counts = Counter(each.reason[-_REASON_SHOWN:] for each in held.letters())
    return {
        "open": held.open_count,
        "looked": len(held.pairs),
        "newest": str(held.pairs[-1][0]) if held.pairs else "0",
        "reasons": [
            {"reason": reason, "messages": count} for reason, count in counts.most_common(_REASONS)
        ],
    }


async def get_letters(visit: Visit) -> object:
    """Return the oldest letters that nobody has put back or let go."""
    group = group_name(visit)
    wanted = visit.text("filter").casefold()
    async with visit.node() as connection:
        held = await _open_letters(connection, group)
    rows = []
    for pointer, content in held.pairs:
        with suppress(InvalidEnvelope):  # somebody has put something else there
            letter = DeadLetter.of(content)
            if wanted in letter.reason.casefold():
                rows.append(_told(pointer, letter, content))
    return {**named(held.topic), "rows": rows, **_reasons(held)}


async def get_dead(visit: Visit) -> object:
    """Return the groups that have letters which nobody has dealt with."""
    asked = paged(visit, "name")
    wanted = asked.filter.casefold()
    rows: list[dict[str, Any]] = []
    looked, are_reached = 0, True
    async with visit.node() as connection:
        for each in await connection.control("groups"):
            group = str(each["group"])
            if each["mode"] == UNREACHED:
                are_reached = False
                continue
            if each["mode"] == "ordered" and not group.startswith("mapping."):
                continue
            if wanted not in group.casefold() or group.endswith(".redrive"):
                continue
            looked += 1
            if looked > _GROUPS_MAX:
                break
            with tolerant():  # it was deleted meanwhile, or this user may not know
                held = await _open_letters(connection, group)
                if held.pairs:
                    rows.append({**named(group.encode()), **_reasons(held)})
    shown = rows[asked.offset : asked.offset + asked.limit]
    is_whole = are_reached and looked <= _GROUPS_MAX
    return {"rows": shown, "total": len(rows), "is_whole": is_whole}


async def get_good(visit: Visit) -> object:
    """Return a letter's message, and the last one of the same key that was put before it.

    Without keys it is the one before it on its topic. Letters of the same group are none.
    """
    group, pointer = group_name(visit), visit.number("pointer", 0, 1, POINTER_MAX)
    async with visit.node() as connection:
        held = await _open_letters(connection, group)
        content = await _one(connection, group, pointer)
        letter = DeadLetter.of(content)
        bad = {each.pointer for each in held.letters() if each.topic == letter.topic}
        good = await _last_good(connection, letter, bad)
    shown = preview(_shown(content)[1], GOOD_BYTES)
    return {"letter": shown, "good": good, "topic": named(letter.topic), "at": str(letter.pointer)}


async def _last_good(
    connection: AsyncSocket, letter: DeadLetter, bad: set[int]
) -> dict[str, Any] | None:
    described = await connection.find_topic(letter.topic)
    if described is None or not described.partitions:
        return None
    is_enveloped = described.properties.envelope
    key = _key(letter.message or b"") if is_enveloped else None
    first = described.partitions[0].first_ordinal or 0
    before_us = letter.pointer - 1
    for _ in range(_LOOK_BACK):
        pairs = await before(connection, letter.topic, before_us, first, _PIECE)
        for pointer, content in reversed(pairs):
            if pointer in bad or (is_enveloped and _key(content) != key):
                continue
            if is_enveloped:
                with suppress(InvalidEnvelope):
                    content = envelope.decode(content).value or b""  # noqa: PLW2901 - what is shown
            return {"pointer": str(pointer), **preview(content, GOOD_BYTES)}
        if not pairs or pairs[0][0] <= 1:
            return None
        before_us = pairs[0][0] - 1
    return None


def _key(content: bytes) -> bytes | None:
    with suppress(InvalidEnvelope):
        return envelope.decode(content).key
    return None


async def post_redrive(visit: Visit) -> object:
    """Put back one letter, those with a reason, or all that nobody has dealt with."""
    group, given = group_name(visit), await visit.body()
    choice = _choice(given, set())
    letter = await _chosen(visit, group, choice)
    if letter is not None and not ((letter.message or letter.pointer) and letter.origin):
        why = "this letter holds no message: it was gone before it was given up"
        raise RequestRefused(HTTPStatus.CONFLICT, why)
    dealt = await _deal(visit, group, "puts back", redrive, choice)
    passed = {"passed": dealt.passed_count} if dealt.passed_count else {}
    return {"messages": dealt.done_count, **passed}


async def post_discard(visit: Visit) -> object:
    """Let letters go that nobody has dealt with; the name of the group must be typed."""
    group, given = group_name(visit), await visit.body()
    if given.get("name") != group:
        refuse(f"type the name of the group to discard its dead letters: {group!r:.200}")
    choice = _choice(given, {"name"})
    await _chosen(visit, group, choice)
    return {"messages": await _deal(visit, group, "discards", discard, choice)}


async def _chosen(visit: Visit, group: str, choice: Choice | None) -> DeadLetter | None:
    """Return the letter that is meant; None where more than one may be.

    Raises:
        RequestRefused: 404, there is none.
    """
    if choice is None or choice.pointer is None:
        return None
    async with visit.node() as connection:
        return DeadLetter.of(await _one(connection, group, choice.pointer))


def _choice(given: dict[str, Any], others: set[str]) -> Choice | None:
    """Return which letters are meant; None: all.

    Raises:
        RequestRefused: that is no choice.
    """
    said, reason = given.get("pointer"), given.get("reason", "")
    pointer = pointer_of(said)
    if given.keys() - {"pointer", "reason", *others} or (said is not None and pointer is None):
        refuse(f"pointer is {said!r:.100}; give one in text, or none for all letters")
    if not isinstance(reason, str):
        refuse("reason is no text")
    if pointer is None:
        return Choice(reason=reason) if reason else None
    return Choice(reason=reason, pointer=pointer)


Deal: TypeAlias = Callable[[Socket, str, str, Mapping[str, Any], Choice | None], Dealt]


async def _deal(
    visit: Visit, group: str, action: str, deal: Deal[Dealt], choice: Choice | None
) -> Dealt:
    which = "all" if choice is None else f"some ({choice.reason or choice.pointer})"
    visit.record(action, f"{which} dead letters of group {group}")
    async with visit.node() as connection:  # for an error that tells what is wrong
        await _topic(connection, group)

    def run() -> Dealt:
        look = visit.look
        entry = {"tls": look.entry.tls, "credentials": look.entry.credentials}
        with _connection(look) as connection:
            return deal(connection, look.url, group, entry, choice)

    return await asyncio.to_thread(run)


def _connection(look: Look) -> Socket:
    *earlier, last = parse_url(look.url, look.entry).servers
    for server in earlier:
        with suppress(ConnectFailed):
            return open_socket(server, look.timeout_s)
    return open_socket(last, look.timeout_s)


async def _topic(connection: AsyncSocket, group: str) -> bytes:
    told = await connection.control("group", group=group)
    return dead_letter_topic(group, told["options"])


async def _done(connection: AsyncSocket, group: str) -> dict[bytes, int]:
    """Return up to where letters of each partition were dealt with."""
    with suppress(UnknownGroup):
        lag = await connection.control("group_lag", group=redriver(group))
        return {unit: each["position"] or 0 for unit, each in lag.items()}
    return {}


def _shown(content: bytes) -> tuple[bytes | None, bytes]:
    """Return key and value of the message that a letter holds."""
    key, value, _ = envelope.decode(content)
    return key, value or b""


def _told(pointer: int, letter: DeadLetter, content: bytes) -> dict[str, Any]:
    key, message = _shown(content)
    return {
        "pointer": str(pointer),
        "topic": named(letter.topic),
        "at": str(letter.pointer),
        "attempts": letter.attempts,
        "reason": letter.reason,
        "key": None if key is None else preview(key)["preview"],
        "bytes": len(message),
        **preview(message),
    }


_PATH: Final = "/groups/{group}/dead"
ROWS: Final = (
    Row("/dead", {"GET": Level.READ}, get_dead),
    Row(f"{_PATH}/good", {"GET": Level.READ}, get_good),
    Row(_PATH, {"GET": Level.READ}, get_letters),
    Row(f"{_PATH}/redrive", {"POST": Level.OPERATE}, post_redrive),
    Row(f"{_PATH}/discard", {"POST": Level.DESTROY}, post_discard),
)
