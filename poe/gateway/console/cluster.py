"""The page of the cluster: its nodes, queues and replicated topics, and what came twice."""

import asyncio
from collections.abc import AsyncGenerator, Iterable, Mapping
from typing import Any, Final

from poe.client.async_socket import AsyncSocket
from poe.errors import NoLogEngine
from poe.gateway.console.level import Level
from poe.gateway.console.live import View
from poe.gateway.console.look import Look
from poe.gateway.console.visit import Row, Visit, named, safe
from poe.gateway.http.group_fields import told_of

_LOOK_S: Final = 1.0
_ROWS_MAX: Final = 500
_EVENTS_MAX: Final = 50


async def _states(look: Look, _argument: str) -> AsyncGenerator[object]:
    """Yield how the cluster is, each second that it differs."""
    shown: object = None
    # Once: whether it is in one stays so, and what a user is answered has counters of all topics.
    node = (await look.counters())["node"]
    while True:
        async with look.node() as connection:
            state = await _state(connection, node)
        if state != shown:
            shown = state
            yield state
        await asyncio.sleep(_LOOK_S)


async def _state(connection: AsyncSocket, node: Mapping[str, Any]) -> object:
    # Of the node only those are told who administer it.
    if not node.get("is_in_cluster"):
        return {"is_in_cluster": False, "is_told": bool(node)}
    told = await connection.control("cluster")
    members = await connection.control("cluster_members")
    queues = await connection.control("queues")
    return {
        "is_in_cluster": True,
        **{name: safe(told[name]) for name in ("cluster", "name", "state", "why", "zone")},
        "live": told["live"],
        "nodes": [safe(told_of(each)) for each in members],
        "queues": [_queue(each) for each in queues[:_ROWS_MAX]],
        "queues_total": len(queues),
        "log": await _log(connection, _names(members)),
        "events": [
            {"time_us": str(at_us), "kind": kind, "detail": detail}
            for at_us, kind, detail in reversed(told["events"][-_EVENTS_MAX:])
        ],
    }


def _names(members: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """Return the names of nodes by what engines call them: the ids of their folders."""
    return {each["id"].partition(".")[0]: each["name"] for each in members}


def _queue(told: Mapping[str, Any]) -> dict[str, Any]:
    numbers = ("messages", "bytes", "copies", "puts_under_way", "has_missing_copies", "persist")
    return {
        **named(told["queue"]),
        **{name: told[name] for name in numbers},
        "groups": sorted(told["groups"]),
    }


async def _log(connection: AsyncSocket, names: Mapping[str, str]) -> dict[str, Any]:
    """Return how the replicated log is: its engine, and the copies of this node."""
    try:
        told = await connection.control("cluster_logs", brief=True)
    except NoLogEngine as error:
        return {"why": str(error), "engine": None, "topics": [], "topics_total": 0}
    engine = told["engine"]
    topics = sorted(told["topics"].items())
    return {
        "why": engine["why"],
        "engine": engine["version"],
        "leader": names.get(engine["leader"], engine["leader"]),
        "away": sorted(
            names.get(node, node) for node, is_there in engine["nodes"].items() if not is_there
        ),
        "topics": [_topic(name, each) for name, each in topics[:_ROWS_MAX]],
        "topics_total": len(topics),
        "refused": [{**named(name), "why": why} for name, why in sorted(told["refused"].items())],
    }


def _topic(name: bytes, told: Mapping[str, Any]) -> dict[str, Any]:
    return {**named(name), **{each: told[each] for each in ("state", "place", "waiting", "why")}}


async def get_report(visit: Visit) -> object:
    """Return what came to clients of queues twice, or may have: the first rows."""
    async with visit.node() as connection:
        rows = await connection.control("cluster_report")
    told = [
        {**safe(told_of(each)), **named(each["queue"]), "since_us": str(each["since_us"])}
        for each in rows[:_ROWS_MAX]
    ]
    return {"rows": told, "total": len(rows)}


async def post_verify(visit: Visit) -> object:
    """Compare the copies of replicated topics with those of the other nodes, byte by byte."""
    visit.record("compares", "all copies of replicated topics")
    async with visit.look.patient() as connection:  # it takes as long as reading all of them
        members = await connection.control("cluster_members")
        told = await connection.control("cluster_verify")
    names = _names(members)
    rows = [
        {
            **named(topic),
            "node": names.get(row["node"], row["node"]),
            "error": row.get("error") or "",
            "segments": row["segments"],
            "messages": row["messages"],
            "differing": row["differing"],
            "behind": max(0, row.get("behind", 0)),
        }
        for topic, found in sorted(told.items())
        for row in found
    ]
    return {"rows": rows[:_ROWS_MAX], "total": len(rows)}


async def post_forget(visit: Visit) -> object:
    """Forget a node that is down and will not come back."""
    body = await visit.body()
    node = str(body.get("node", ""))
    visit.record("forgets node", node)
    async with visit.node() as connection:
        await connection.control("cluster_forget", node=node)
    return {}


ROWS: Final = (
    Row("/cluster/report", {"GET": Level.READ}, get_report),
    Row("/cluster/verify", {"POST": Level.OPERATE}, post_verify),
    Row("/cluster/forget", {"POST": Level.DESTROY}, post_forget),
)
VIEWS: Final = {"cluster": View(_states)}
