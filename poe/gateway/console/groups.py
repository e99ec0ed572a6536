"""The pages of groups, and of those who report: pipelines and mappings."""

from contextlib import suppress
from http import HTTPStatus
from typing import Any, Final

from poe.errors import PoeError, RequestRefused
from poe.gateway.console.level import Level
from poe.gateway.console.visit import Row, Visit, named, safe
from poe.gateway.http.group_fields import told_of
from poe.protocol.pipeline_report import PipelineReport
from poe.record import POINTER_MAX

_PLACES: Final = ("oldest", "newest")


async def get_groups(visit: Visit) -> object:
    """Return the groups that there are, each with how far it is behind as a whole."""
    rows = []
    async with visit.node() as connection:
        for each in await connection.control("groups"):
            name = each["group"]
            lag: dict[bytes, dict[str, Any]] = {}
            with suppress(PoeError):  # it was deleted, or its topics were
                lag = await connection.control("group_lag", group=name)
            rows.append(
                {
                    **named(name.encode()),
                    "mode": each["mode"],
                    "topics": [named(topic) for topic in each["topics"]],
                    "lag": sum(row["messages"] or 0 for row in lag.values()),
                    "lag_s": max((row["seconds"] or 0 for row in lag.values()), default=0),
                }
            )
    return {"rows": sorted(rows, key=lambda row: str(row["name"]))}


async def get_group(visit: Visit) -> object:
    """Return a group: its members, and of each unit its place and how far it is behind."""
    name = _group(visit)
    async with visit.node() as connection:
        found = await connection.control("group", group=name)
        lag = await connection.control("group_lag", group=name)
    units = {row["unit"]: row for row in found["units"]}
    return {
        **named(name.encode()),
        "mode": found["mode"],
        "state": found["state"],
        "full": told_of(found["full"]),
        "generation": str(found["generation"]),
        "created_us": str(found["created_us"]),
        "counts": told_of(found["counts"]),
        "options": told_of(found["options"]),
        "members": safe(told_of(found["members"])),
        "events": [
            {"time_us": str(event[0]), "kind": event[1], "text": event[2]}
            for event in reversed(found["events"])
        ],
        "units": [
            {
                **named(unit),
                "position": str(row["position"] or 0),
                "newest": str(row["newest"] or 0),
                "messages": row["messages"],
                "seconds": row["seconds"],
                "more": safe(told_of(units.get(unit, {}))),
            }
            for unit, row in sorted(lag.items())
        ],
    }


async def post_pause(visit: Visit) -> object:
    """Have nothing handed out from now on."""
    return await _change(visit, "pauses", "group_pause")


async def post_resume(visit: Visit) -> object:
    """Have messages handed out again."""
    return await _change(visit, "resumes", "group_resume")


async def post_reset(visit: Visit) -> object:
    """Have a group go on somewhere else; with `dry` tell what that would mean."""
    name, given = _group(visit), await visit.body()
    to, dry, force = given.get("to"), given.get("dry", True), given.get("force", False)
    place: object = to
    if isinstance(to, str) and to.isdecimal() and int(to) <= POINTER_MAX:
        place = {"time_us": int(to)}
    elif to not in _PLACES:
        why = f"to is {to!r:.100}; give oldest, newest, or microseconds since the epoch, as text"
        raise RequestRefused(HTTPStatus.BAD_REQUEST, why)
    if (
        not isinstance(dry, bool)
        or not isinstance(force, bool)
        or given.keys()
        - {
            "to",
            "dry",
            "force",
        }
    ):
        raise RequestRefused(HTTPStatus.BAD_REQUEST, "send to, and dry and force as true or false")
    if not dry:
        visit.record("resets group", f"{name} to {to}")
    async with visit.node() as connection:
        moved = await connection.control("group_reset", group=name, to=place, dry=dry, force=force)
    return {
        "units": [
            {**named(unit), "old": str(old or 0), "new": str(new or 0), "messages": messages}
            for unit, (old, new, messages) in sorted(moved.items())
        ]
    }


async def delete_group(visit: Visit) -> object:
    """Delete a group, whose name must be typed."""
    name, given = _group(visit), await visit.body()
    if given.get("name") != name:
        why = f"type the name of the group to delete it: {name!r:.200}"
        raise RequestRefused(HTTPStatus.BAD_REQUEST, why)
    return await _change(visit, "deletes", "group_delete", force=True)


async def get_pipelines(visit: Visit) -> object:
    """Return the pipelines and mappings that report to the node."""
    async with visit.node() as connection:
        told = await connection.control("pipelines")
    rows = []
    for each in told:
        queries: list[dict[str, Any]] = []
        with suppress(PoeError, KeyError, TypeError):  # of a newer kind
            queries = [
                {
                    "name": query.name,
                    "state": query.state,
                    "progress": query.summary(),
                    "restarts": query.restarts,
                    "error": query.last_error,
                }
                for query in PipelineReport.from_map(each).queries
            ]
        kind = each.get("kind", "pipeline")
        rows.append({"name": str(each["name"]), "kind": kind, "state": each.get("state", "")})
        rows[-1] |= {"queries": queries, "more": safe(told_of(each)) if not queries else None}
    return {"rows": rows}


async def post_stop(visit: Visit) -> object:
    """Ask a pipeline to stop."""
    name = visit.name("name").decode("utf-8", "replace")
    visit.record("stops pipeline", name)
    async with visit.node() as connection:
        await connection.control("pipeline_stop", name=name)
    return {}


async def _change(visit: Visit, action: str, op: str, **arguments: object) -> object:
    name = _group(visit)
    visit.record(f"{action} group", name)
    async with visit.node() as connection:
        await connection.control(op, group=name, **arguments)
    return {}


def _group(visit: Visit) -> str:
    try:
        return visit.name("group").decode()
    except UnicodeDecodeError as error:
        why = "the name of a group is UTF-8, percent-encoded"
        raise RequestRefused(HTTPStatus.BAD_REQUEST, why) from error


ROWS: Final = (
    Row("/groups", {"GET": Level.READ}, get_groups),
    Row("/groups/{group}", {"GET": Level.READ}, get_group),
    Row("/groups/{group}", {"DELETE": Level.DESTROY}, delete_group),
    Row("/groups/{group}/pause", {"POST": Level.OPERATE}, post_pause),
    Row("/groups/{group}/resume", {"POST": Level.OPERATE}, post_resume),
    Row("/groups/{group}/reset", {"POST": Level.OPERATE}, post_reset),
    Row("/pipelines", {"GET": Level.READ}, get_pipelines),
    Row("/pipelines/{name}/stop", {"POST": Level.OPERATE}, post_stop),
)
