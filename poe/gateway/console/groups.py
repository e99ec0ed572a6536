"""The pages of groups, and of those who report: pipelines and mappings."""

from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final

from poe.broker.requests.log_groups import UNREACHED
from poe.client.async_socket import AsyncSocket
from poe.errors import CallTimeout, PoeError
from poe.gateway.console.history import pace_of
from poe.gateway.console.lags import Units, lag_of, tolerant
from poe.gateway.console.level import Level
from poe.gateway.console.visit import Row, Visit, group_name, named, paged, pointer_of, safe
from poe.gateway.http.group_fields import told_of
from poe.gateway.http.refusal import refuse
from poe.protocol.pipeline_report import PipelineReport

_PLACES: Final = ("oldest", "newest")
_UNITS_MAX: Final = 50
_RESET: Final = {"to", "dry", "force"}
_UNKNOWN: Final = {
    "lag": None,
    "lag_s": None,
    "error": "it was not answered in time how far this group is behind, or one before it",
}


async def get_groups(visit: Visit) -> object:
    """Return a page of groups; how far behind is looked up for those alone that are shown."""
    asked = paged(visit, "name")
    wanted = asked.filter.casefold()
    async with visit.node() as connection:
        found = [
            each
            for each in await connection.control("groups")
            if wanted in str(each["group"]).casefold()
        ]
    found.sort(key=lambda each: str(each["group"]), reverse=asked.is_descending)
    shown = found[asked.offset : asked.offset + asked.limit]
    rows = [
        {
            **named(each["group"].encode()),
            "mode": each["mode"],
            "topics": [named(topic) for topic in each["topics"]],
            **_UNKNOWN,
        }
        for each in shown
    ]
    with suppress(CallTimeout):  # then those that were asked before are told all the same
        async with visit.node() as connection:
            for row, each in zip(rows, shown, strict=True):
                row.update(await _behind(connection, each))
    return {"rows": rows, "total": len(found)}


async def _behind(connection: AsyncSocket, group: Mapping[str, Any]) -> dict[str, Any]:
    """Return how far a group is behind as a whole; nothing where that is not known."""
    if group["mode"] == UNREACHED:
        why = "nobody can be asked for it just now: nodes of its cluster are down"
        return {"lag": None, "lag_s": None, "error": why}
    told: dict[str, Any] = {"lag": None, "lag_s": None, "error": None}
    # It was deleted, or its topics were, or this user may not know.
    with tolerant(lambda error: told.update(error=str(error))):
        lag = await connection.control("group_lag", group=group["group"])
        told["lag"], told["lag_s"] = lag_of(lag)
    return told


async def get_group(visit: Visit) -> object:
    """Return a group: its members, and of each unit its place and how far it is behind."""
    name = group_name(visit)
    async with visit.node() as connection:
        found = await connection.control("group", group=name)
        lag = await connection.control("group_lag", group=name)
    units = {row["unit"]: row for row in found["units"]}
    return {
        **named(name.encode()),
        "mode": found["mode"],
        "state": found["state"],
        "full": told_of(found.get("full")),
        "generation": str(found["generation"]),
        "created_us": str(found["created_us"]),
        "counts": told_of(found.get("counts")),
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


async def get_group_history(visit: Visit) -> object:
    """Return how far a group was behind since somebody looks, its pace, and what it may lose."""
    name = group_name(visit)
    async with visit.node() as connection:
        units = await connection.control("group_lag", group=name)
        loss = await loss_of(connection, name, units)
    samples = visit.look.history.watch(name)
    pace = pace_of(samples)
    return {
        "times_s": [round(each.time_s, 1) for each in samples],
        "messages": [each.messages for each in samples],
        "seconds": [round(each.seconds, 3) for each in samples],
        "per_s": pace.per_s,
        "catch_up_s": pace.catch_up_s,
        **loss,
    }


async def loss_of(connection: AsyncSocket, group: str, units: Units) -> dict[str, float | None]:
    """Return how long topics keep messages, and when the group loses the first of those unread."""
    default = None
    with tolerant():  # of the node's options only who administers it is told
        default = (await connection.config()).get("max_age", {}).get("value")
    keeps: list[float] = []
    losses: list[float] = []
    for unit, row in list(units.items())[:_UNITS_MAX]:
        with tolerant():  # it is gone
            properties = (await connection.describe(unit)).properties
            age_s = default if properties.max_age is None else properties.max_age
            if not isinstance(age_s, int | float) or group in properties.keep_unread:
                continue
            keeps.append(age_s)
            if row["messages"]:
                losses.append(age_s - row["seconds"])
    loss_s = max(0.0, min(losses)) if losses else None
    return {"keeps_s": min(keeps, default=None), "loss_s": loss_s}


async def post_shadow(visit: Visit) -> object:
    """Make a group of the same topics, which reads them again and disturbs nobody.

    It begins where the group is (`here`), at the oldest or newest message, or at a time.
    """
    group, given = group_name(visit), await visit.body()
    name, to = given.get("name"), given.get("to", "here")
    if not isinstance(name, str) or not name or given.keys() - {"name", "to"}:
        refuse("send name (text) of the new group, and to (here, oldest, newest or microseconds)")
    place = "here" if to == "here" else _place(to)
    visit.record("makes a shadow of group", f"{group}: {name}, from {to}")
    async with visit.node() as connection:
        found = await connection.control("group", group=group)
        lag = await connection.control("group_lag", group=group)
        await connection.control(
            "group_create",
            group=name,
            mode=found["mode"],
            topics=found["topics"],
            options={**found["options"], "dead_letter_topic": None},
        )
        if place == "here":
            place = {unit: row["position"] or 0 for unit, row in lag.items()}
        try:
            await connection.control("group_reset", group=name, to=place, dry=False, force=False)
        except PoeError:
            with tolerant():
                await connection.control("group_delete", group=name)
            raise
    return named(name.encode())


async def post_pause(visit: Visit) -> object:
    """Have nothing handed out from now on."""
    return await _change(visit, "pauses", "group_pause")


async def post_resume(visit: Visit) -> object:
    """Have messages handed out again."""
    return await _change(visit, "resumes", "group_resume")


async def post_reset(visit: Visit) -> object:
    """Have a group go on somewhere else; with `dry` tell what that would mean.

    One that has members is reset only with `force`, which sends them away: they join anew.
    """
    name, given = group_name(visit), await visit.body()
    to, dry, force = given.get("to"), given.get("dry", True), given.get("force", False)
    place = _place(to)
    if not (isinstance(dry, bool) and isinstance(force, bool)) or given.keys() - _RESET:
        refuse("send to, and dry and force as true or false")
    if not dry:
        visit.record("resets group", f"{name} to {to}")
    async with visit.node() as connection:
        members = (await connection.control("group", group=name))["members"]
        moved = await connection.control("group_reset", group=name, to=place, dry=dry, force=force)
    return {
        "members": len(members),
        "units": [
            {**named(unit), "old": str(old or 0), "new": str(new or 0), "messages": messages}
            for unit, (old, new, messages) in sorted(moved.items())
        ],
    }


def _place(to: object) -> Any:  # noqa: ANN401 - as the op takes it
    time_us = pointer_of(to)
    if time_us is not None:
        return {"time_us": time_us}
    if to not in _PLACES:
        refuse(f"to is {to!r:.100}; give oldest, newest, or microseconds since the epoch, as text")
    return to


async def delete_group(visit: Visit) -> object:
    """Delete a group, whose name must be typed."""
    name, given = group_name(visit), await visit.body()
    if given.get("name") != name:
        refuse(f"type the name of the group to delete it: {name!r:.200}")
    return await _change(visit, "deletes", "group_delete", force=True)


async def get_pipelines(visit: Visit) -> object:
    """Return the pipelines and mappings that report to the node."""
    async with visit.node() as connection:
        told = await connection.control("pipelines")
    rows = []
    for each in told:
        if each.get("kind") == "mapping":
            continue
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
    name = group_name(visit)
    visit.record(f"{action} group", name)
    async with visit.node() as connection:
        await connection.control(op, group=name, **arguments)
    return {}


ROWS: Final = (
    Row("/groups", {"GET": Level.READ}, get_groups),
    Row("/groups/{group}", {"GET": Level.READ}, get_group),
    Row("/groups/{group}", {"DELETE": Level.DESTROY}, delete_group),
    Row("/groups/{group}/history", {"GET": Level.READ}, get_group_history),
    Row("/groups/{group}/shadow", {"POST": Level.OPERATE}, post_shadow),
    Row("/groups/{group}/pause", {"POST": Level.OPERATE}, post_pause),
    Row("/groups/{group}/resume", {"POST": Level.OPERATE}, post_resume),
    Row("/groups/{group}/reset", {"POST": Level.OPERATE}, post_reset),
    Row("/pipelines", {"GET": Level.READ}, get_pipelines),
    Row("/pipelines/{name}/stop", {"POST": Level.OPERATE}, post_stop),
)
