"""Tells of all topics in turns: a page after the other, and others are served in between."""

import contextlib
import math
import os
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Final, NamedTuple, TypeAlias

from poe.actors import ActorRef, GenServer
from poe.broker.access.permission import ALL_PERMISSIONS, Need, Permissions
from poe.broker.appendix.message import Describe, SegmentInfo
from poe.broker.appendix.server import REGISTRY
from poe.broker.registry.routing_table import Route, RoutingTable
from poe.broker.registry.topic_registry import Settle
from poe.broker.requests import arguments as arg
from poe.broker.requests.arguments import Arguments
from poe.errors import ActorDead, PoeError
from poe.storage import Event, is_left_open

SegmentRows: TypeAlias = list[tuple[ActorRef | None, SegmentInfo]]
"""The appendix servers of a topic, oldest first, each with what it tells of its segment; None of a
topic that rests, which has none."""

TURN_COUNT: Final = 50
"""Topics or segments of which a listing is told before others have their turn."""
_PAUSE_S = 0.001
"""What a listing then pauses for each that is under way, so that together they fill no core."""


class Page(NamedTuple):
    """Which topics a listing is to tell of, in the order of their names."""

    after: bytes = b""
    """Those behind this one."""

    count_max: float = math.inf
    """So many at most."""

    are_all: bool = False
    """The node's own, too."""


def page_of(arguments: Arguments) -> Page:
    """Return which topics a request asks for.

    Raises:
        RemoteProtocolError: an argument is none.
    """
    after = arg.place(arguments, "after")
    count = arg.whole(arguments, "count", arg.U32_MAX) if "count" in arguments else math.inf
    return Page(after, count, arg.flag(arguments, "all"))


ALL_TOPICS: Final = Page()
"""All but the node's own."""


async def let_others(actor: GenServer, number: int) -> None:
    """Let others have their turn now and then: what is in memory is told without a pause.

    Args:
        actor: whose turn it is.
        number: of what is told next, from 0 on.
    """
    if number and not number % TURN_COUNT:
        await actor.sleep(_PAUSE_S)


async def pages(
    actor: GenServer,
    routes: RoutingTable,
    wanted: Page = ALL_TOPICS,
    turn_count: int = TURN_COUNT,
    permissions: Permissions = ALL_PERMISSIONS,
) -> AsyncGenerator[list[bytes], None]:
    """Yield topics, sorted, `turn_count` at a time, and let others between them.

    A listing of all topics takes no longer a turn than one of a few. Those that nobody may tell who
    asks are left out, and do not count.
    """
    after, count, are_all = wanted
    routes.listings_count += 1
    try:
        while count:
            asked_count = (
                int(min(count, turn_count)) if permissions is ALL_PERMISSIONS else turn_count
            )
            names = routes.page(after, asked_count, are_all=are_all)
            told = _told(permissions, names)[: int(min(count, turn_count))]
            if told:
                yield told
            count -= len(told)
            if len(names) < asked_count:
                return
            after = names[-1]
            await actor.sleep(_PAUSE_S * routes.listings_count)
    finally:
        routes.listings_count -= 1


def _told(permissions: Permissions, topics: list[bytes]) -> list[bytes]:
    return (
        topics
        if permissions is ALL_PERMISSIONS
        else [each for each in topics if may_tell(permissions, each)]
    )


def may_tell(permissions: Permissions, topic: bytes) -> bool:
    """Return whether somebody may know of a topic; asked of each in a listing."""
    return permissions is ALL_PERMISSIONS or permissions.may(Need.of_topic("describe", topic))


async def describe_all(actor: GenServer, routes: RoutingTable) -> list[tuple[bytes, SegmentRows]]:
    """Return what is known of all topics, sorted; of one that cannot be served, no segments."""
    async with aclosing(pages(actor, routes)) as all_pages:
        return [
            (name, await describe(actor, routes, name))
            async for names in all_pages
            for name in names
        ]


async def describe(actor: GenServer, routes: RoutingTable, topic: bytes) -> SegmentRows:
    """Return what is known of the segments of a topic; it is not woken for that, but recovered."""
    if is_left_open(routes.resting.get(topic, ())):
        with contextlib.suppress(PoeError):
            await actor.call(REGISTRY, Settle(topic))
    route = routes.get(topic)
    if route is not None:
        return await describe_route(actor, route)
    events = routes.resting.get(topic, ())
    if is_left_open(events):
        return []
    return [(None, _resting_info(event, "h")) for event in events[:-1]] + [
        (None, _resting_info(event, "w")) for event in events[-1:]
    ]


async def newest_pointer(actor: GenServer, routes: RoutingTable, topic: bytes) -> int:
    """Return the pointer of a topic's newest message; 0: it has none."""
    rows = await describe(actor, routes, topic)
    return max((info.pointer_high or 0 for _, info in rows), default=0)


async def reached_pointer(actor: GenServer, routes: RoutingTable, topic: bytes) -> int:
    """Return up to which pointer a topic goes here, be it that what was there has gone since."""
    rows = await describe(actor, routes, topic)
    # Behind what was trimmed a segment begins with the next pointer, which is its name.
    reached = (info.pointer_high or int(info.path.rpartition("/")[2]) - 1 for _, info in rows)
    return max(reached, default=0)


async def describe_route(actor: GenServer, route: Route) -> SegmentRows:
    """Ask the appendix servers of a topic; one that is being restarted is left out."""
    rows: SegmentRows = []
    for number, ref in enumerate(route.refs):
        await let_others(actor, number)
        with contextlib.suppress(ActorDead):  # it is being restarted, or has expired
            rows.append((ref, await actor.call(ref, Describe())))
    return rows


def _resting_info(event: Event, role: str) -> SegmentInfo:
    """Return of a segment that nobody has asked for since the start what its event tells."""
    path = f"topics/{os.fsdecode(event.topic)}/{event.timestamp}"
    low, high = (event.pointer_low, event.pointer_high) if event.record_count else (None, None)
    return SegmentInfo(path, role, event.record_count, event.size_bytes, low, high, base=None)
