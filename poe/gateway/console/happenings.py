"""The pages of what happens in the node: events and why, the tree, options, connections."""

import asyncio
import io
import json
import zipfile
from collections import deque
from collections.abc import AsyncGenerator
from http import HTTPStatus
from typing import Any, Final

from starlette.responses import Response

from poe.errors import RequestRefused
from poe.gateway.console.level import Level
from poe.gateway.console.live import View
from poe.gateway.console.look import Look
from poe.gateway.console.overview import overview_of
from poe.gateway.console.visit import WHOLE_MAX, Row, Visit, safe
from poe.gateway.http.group_fields import told_of
from poe.protocol.node_event import EVENTS_COUNT_MAX, NodeEvent, why

_KEPT: Final = 500
_WAIT_S: Final = 5.0
_TREE_S: Final = 1.0
_PAUSE_S: Final = 0.25
"""What happens in it is told together: a node in which much happens is not asked all the time."""


async def _happened(look: Look) -> AsyncGenerator[deque[NodeEvent]]:
    """Yield the newest events, each time that there are more."""
    known: deque[NodeEvent] = deque(maxlen=_KEPT)
    async with look.node() as connection:
        newest = (await connection.events(0, limit=1)).newest_seq
        after, wait_s = max(0, newest - _KEPT), 0.0
        while True:
            page = await connection.events(after, limit=EVENTS_COUNT_MAX, wait_s=wait_s)
            if page.newest_seq < after:  # the node has started anew, and counts from 1
                known.clear()
                after, wait_s = 0, 0.0
                continue
            known.extend(page.events)
            if page.events or not wait_s:
                yield known
                await asyncio.sleep(_PAUSE_S)
            after, wait_s = max(after, page.newest_seq), _WAIT_S


async def _event_states(look: Look, _argument: str) -> AsyncGenerator[object]:
    async for known in _happened(look):
        yield {"events": [_told(each) for each in reversed(known)]}


async def _tree_states(look: Look, _argument: str) -> AsyncGenerator[object]:
    """Yield the tree: at once when something has happened, else each second that it differs."""
    shown: object = None
    while True:
        async with look.node() as connection:
            # What happens between the two is behind this one, and so is not waited past.
            newest = (await connection.events(0, limit=1)).newest_seq
            rows = await connection.control("tree", all=False)
            if rows != shown:
                shown = rows
                yield {"rows": told_of(rows)}
            await asyncio.sleep(_PAUSE_S)
            await connection.events(newest, limit=1, wait_s=_TREE_S)


async def get_events(visit: Visit) -> object:
    """Return events behind a seq, oldest first."""
    after = visit.number("after", 0, 0, WHOLE_MAX)
    limit = visit.number("limit", 200, 1, EVENTS_COUNT_MAX)
    async with visit.node() as connection:
        page = await connection.events(after, limit=limit)
    told = [_told(each) for each in page.events]
    return {"events": told, "newest_seq": page.newest_seq, "oldest_seq": page.oldest_seq}


async def get_why(visit: Visit) -> object:
    """Return what led to an event: a sentence, and the events that it tells of."""
    seq = visit.number("seq", 0, 0, WHOLE_MAX)
    async with visit.node() as connection:
        known: list[NodeEvent] = []
        before, found = seq, None
        while before > 0:  # a cause may be much older than what it has caused
            begin = max(0, before - EVENTS_COUNT_MAX)
            page = await connection.events(begin, limit=before - begin)
            known += page.events
            found = why(known, seq)
            if found is None or found.is_whole or begin < page.oldest_seq:
                break
            before = begin
    if found is None:
        text = f"event {seq} is not known: it is forgotten, or was none"
        raise RequestRefused(HTTPStatus.NOT_FOUND, text)
    chain = [_told(each) for each in found.chain]
    return {"sentence": str(found), "is_whole": found.is_whole, "chain": chain}


async def get_tree(visit: Visit) -> object:
    """Return the supervision tree, as `poe tree` shows it."""
    async with visit.node() as connection:
        return {"rows": told_of(await connection.control("tree", all=False))}


async def get_config(visit: Visit) -> object:
    """Return the node's options, and where each has come from."""
    async with visit.node() as connection:
        options = await connection.config()
    return {
        "rows": [
            {"name": name, "value": told_of(row["value"]), "from": row["from"]}
            for name, row in sorted(options.items())
        ]
    }


async def get_connections(visit: Visit) -> object:
    """Return who is connected to the node."""
    async with visit.node() as connection:
        rows = await connection.connections()
    return {"rows": [{**told_of(row), "since_us": str(row["since_us"])} for row in rows]}


async def get_producers(visit: Visit) -> object:
    """Return who numbers their puts onto a topic."""
    async with visit.node() as connection:
        rows = await connection.producers(visit.name("topic"))
    return {"rows": [safe(told_of(row)) for row in rows]}


async def get_bundle(visit: Visit) -> Response:
    """Return what helps others to help, as an archive; it holds no messages, and no secrets."""
    visit.record("takes", "a support bundle")
    parts: dict[str, object] = {"overview.json": await overview_of(visit.look)}
    for name, ask in (
        ("config.json", get_config),
        ("connections.json", get_connections),
        ("tree.json", get_tree),
    ):
        parts[name] = await ask(visit)
    async with visit.node() as connection:
        page = await connection.events(0, limit=1)
        after = max(0, page.newest_seq - EVENTS_COUNT_MAX)
        events = (await connection.events(after, limit=EVENTS_COUNT_MAX)).events
    parts["events.json"] = [_told(each) for each in events]
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in parts.items():
            archive.writestr(name, json.dumps(content, indent=1, ensure_ascii=False))
    headers = {"Content-Disposition": 'attachment; filename="poe-support.zip"'}
    return Response(packed.getvalue(), headers=headers, media_type="application/zip")


def _told(event: NodeEvent) -> dict[str, Any]:
    return {**event.as_map(), "time_us": str(event.time_us), "text": str(event)}


ROWS: Final = (
    Row("/events", {"GET": Level.READ}, get_events),
    Row("/why", {"GET": Level.READ}, get_why),
    Row("/tree", {"GET": Level.READ}, get_tree),
    Row("/config", {"GET": Level.READ}, get_config),
    Row("/connections", {"GET": Level.READ}, get_connections),
    Row("/producers/{topic}", {"GET": Level.READ}, get_producers),
    Row("/bundle", {"GET": Level.READ}, get_bundle),
)
VIEWS: Final = {"events": View(_event_states), "tree": View(_tree_states)}
