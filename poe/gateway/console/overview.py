"""The first page: is all well, how much is done, what has changed."""

from collections.abc import AsyncGenerator
from typing import Any, Final

from poe.client.async_socket import AsyncSocket
from poe.errors import NotAuthorized
from poe.gateway.console.level import Level
from poe.gateway.console.live import View
from poe.gateway.console.look import Look
from poe.gateway.console.visit import Row, Visit
from poe.topic_name import topic_text

_RECENT_MAX: Final = 20


async def overview_of(look: Look) -> dict[str, Any]:
    """Return what the overview shows; rates are those of the last interval."""
    told = await look.counters()
    async with look.node() as connection:
        health = await connection.control("health")
        recent, options = [], {}
        if told["node"]:  # else who looks does not administer it
            recent = await _recent(connection, told["node"]["newest_event"])
            options = await connection.config()
    troubles = [text for text in (health.get("refusal"), *health.get("foreign", ())) if text]
    troubles += [f"{topic_text(each)} is read only" for each in health.get("read_only", ())]
    totals = {"messages_in": 0, "bytes_in": 0, "messages_out": 0, "bytes_out": 0}
    for row in told["topics"].values():
        for name in totals:
            totals[name] += row[name]
    node = dict(told["node"])
    if node:
        node["started_us"] = str(node["started_us"])
    limits = ("in_flight_max", "connections_max", "topics_max", "min_free", "dir")
    return {
        "troubles": troubles,
        "gaps": health.get("gaps_count", 0),
        "version": health.get("version", ""),
        "node": node,
        "totals": totals,
        "rates": look.history.rates() if node else {},
        "limits": {name: options[name]["value"] for name in limits if name in options},
        "recent": recent,
    }


async def _recent(connection: AsyncSocket, newest: int) -> list[dict[str, Any]]:
    try:
        page = await connection.events(max(0, newest - _RECENT_MAX))
    except NotAuthorized:
        return []
    return [
        {
            "seq": each.seq,
            "time_us": str(each.time_us),
            "kind": each.kind,
            "child": each.child,
            "reason": each.reason,
        }
        for each in reversed(page.events)
    ]


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
