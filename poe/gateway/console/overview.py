"""The first page: is all well, how much is done, what has changed."""

import time
from collections.abc import AsyncGenerator, Sequence
from typing import Any, Final

from poe.client.async_socket import AsyncSocket
from poe.errors import NotAuthorized
from poe.gateway.console.lags import behind, tolerant
from poe.gateway.console.level import Level
from poe.gateway.console.live import View
from poe.gateway.console.look import Look
from poe.gateway.console.visit import Row, Visit, named
from poe.gateway.http.group_fields import name_text
from poe.topic_name import topic_text

_RECENT_MAX: Final = 20
_RECENT_S: Final = 3600.0
_BEHIND_MAX: Final = 10


async def overview_of(look: Look) -> dict[str, Any]:
    """Return what the overview shows; rates are those of the last interval."""
    told = await look.counters()
    lags = await look.lags.ask(look.node)
    is_whole = look.lags.is_whole  # of these: other pages ask for them as well
    async with look.node() as connection:
        health = await connection.control("health")
        recent, options = [], {}
        if told["node"]:  # else who looks does not administer it
            recent = await recent_of(
                connection, told["node"]["newest_event"], look.history.appeared
            )
            options = await connection.config()
    refusals = [text for text in (health.get("refusal"), *health.get("foreign", ())) if text]
    troubles = [{"text": text, "topic": None} for text in refusals]
    troubles += [
        {"text": f"{topic_text(each)} is read only: its disk has failed", "topic": name_text(each)}
        for each in health.get("read_only", ())
    ]
    totals = {"messages_in": 0, "bytes_in": 0, "messages_out": 0, "bytes_out": 0}
    for row in told["topics"].values():
        for name in totals:
            totals[name] += row[name]
    node = dict(told["node"])
    if node:
        for name in totals:  # what was done does not become less when a topic is deleted
            totals[name] += look.history.gone.get(name, 0)
        node["started_us"] = str(node["started_us"])
    limits = ("in_flight_max", "connections_max", "topics_max", "min_free", "dir")
    rates = look.history.rates() if node else {}
    min_free = options["min_free"]["value"] if "min_free" in options else None
    slow = behind(lags)
    return {
        "disk": disk_of(node.get("disk_free_bytes"), min_free, rates.get("bytes_in")),
        "behind": [{**named(row.pop("group").encode()), **row} for row in slow[:_BEHIND_MAX]],
        "behind_total": len(slow),
        "is_behind_whole": is_whole,
        "refused": look.history.refused_lately() if node else {},
        "troubles": troubles,
        "gaps": health.get("gaps_count", 0),
        "version": health.get("version", ""),
        "node": node,
        "totals": totals,
        "rates": rates,
        "limits": {name: options[name]["value"] for name in limits if name in options},
        "recent": recent,
    }


def disk_of(
    free: int | None, min_free: int | None, bytes_per_s: float | None
) -> dict[str, float | None]:
    """Return the room on the disk, and in how many seconds puts are refused at this rate.

    Args:
        free: bytes; None where nobody knows.
        min_free: bytes that are to stay free; None likewise.
        bytes_per_s: put now; None likewise.
    """
    left = None if free is None or min_free is None else max(0, free - min_free)
    seconds = left / bytes_per_s if left is not None and bytes_per_s else None
    return {"free": free, "min_free": min_free, "full_s": seconds}


async def recent_of(
    connection: AsyncSocket, newest: int, appeared: Sequence[bytes]
) -> list[dict[str, Any]]:
    """Return what has happened in the last hour, newest first: events, topics that puts made."""
    try:
        page = await connection.events(max(0, newest - _RECENT_MAX))
    except NotAuthorized:
        return []
    since_us = (time.time() - _RECENT_S) * 1e6
    rows: list[dict[str, Any]] = [
        {"seq": each.seq, "time_us": each.time_us, "kind": each.kind, "child": each.child}
        | {"reason": each.reason, "who": each.who}
        for each in page.events
    ]
    told = {row["child"] for row in rows if row["kind"] == "topic_create"}
    for topic in appeared:
        if topic_text(topic) in told:
            continue
        found = None
        with tolerant():  # it is out of service, as the list of topics tells
            found = await connection.find_topic(topic)
        if found is not None:
            made = {"seq": None, "time_us": found.created_us, "kind": "topic_made", "reason": ""}
            rows.append({**made, "child": topic_text(topic), "who": ""})
    rows = [row for row in rows if row["time_us"] >= since_us]
    rows.sort(key=lambda row: -row["time_us"])
    return [{**row, "time_us": str(row["time_us"])} for row in rows[:_RECENT_MAX]]


async def get_overview(visit: Visit) -> object:
    """Return what the overview shows."""
    return await overview_of(visit.look)


async def get_history(visit: Visit) -> object:
    """Return rates of the last hour or day; of the node for those who administer it."""
    is_day = visit.choice("range", "hour", "day") == "day"
    if not (await visit.look.counters())["node"]:
        return {"times_s": [], "series": {}}
    return visit.look.history.of_node(is_day=is_day)


async def _states(look: Look, _argument: str) -> AsyncGenerator[object]:
    while True:
        yield await overview_of(look)
        await look.history.next_sample()


ROWS: Final = (
    Row("/overview", {"GET": Level.READ}, get_overview),
    Row("/history", {"GET": Level.READ}, get_history),
)
VIEWS: Final = {"overview": View(_states)}
