"""Mappings that run, and the dry run: what rules that were typed would do with messages.

Rules are data, but may be made to take long: they are judged in a process that has no way to the
node, and is killed when it takes too long.
"""

import asyncio
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from http import HTTPStatus
from typing import Any, Final

from poe.client.async_socket import AsyncSocket
from poe.errors import PoeError, RequestRefused
from poe.gateway.console import judging
from poe.gateway.console.level import Level
from poe.gateway.console.visit import Row, Visit, named, safe
from poe.gateway.http.refusal import refuse
from poe.protocol.pipeline_report import PipelineReport, QueryReport, RuleReport
from poe.record import POINTER_MAX
from poe.topic_name import topic_text

LIMIT_MAX: Final = 100_000
_BYTES_MAX: Final = 64 << 20
_AT_ONCE: Final = 2
_TIME_S: Final = 15.0
_PIECE_COUNT: Final = 4096
_PIECE_BYTES: Final = 8 << 20

_running = asyncio.Semaphore(_AT_ONCE)


async def get_mappings(visit: Visit) -> object:
    """Return the mappings that run: their rules in order, what has met each, and their places."""
    async with visit.node() as connection:
        told = await connection.control("pipelines")
    return {"rows": merged(told)}


def merged(told: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return mappings by name, whose processes have each told of themselves."""
    found: dict[str, dict[str, Any]] = {}
    for each in told:
        with suppress(PoeError, ValueError):  # of another kind, or newer
            report = PipelineReport.from_map(each)
            if report.kind != "mapping":
                continue
            name, process = report.name.rsplit(" ", 1)
            about: dict[str, Any] = {"rules": {}, "processes": [], "units": []}
            row = found.setdefault(name, {**named(name.encode()), **about})
            state = str(each.get("state", report.state))
            row["processes"].append({"name": report.name, "process": process, "state": state})
            row["units"] += (_unit(process, unit) for unit in report.queries)
            for rule in report.rules:
                _add(row["rules"], rule)
    for row in found.values():
        row["rules"] = list(row["rules"].values())
        row["group"] = named(f"mapping.{row['name']}".encode())
    return [found[name] for name in sorted(found)]


def _unit(process: str, unit: QueryReport) -> dict[str, Any]:
    told = {"process": process, "name": unit.name, "state": unit.state, "lag_s": unit.lag_s}
    return {**told, "per_s": unit.rows_per_s, "error": unit.last_error}


def _add(rules: dict[str, dict[str, Any]], rule: RuleReport) -> None:
    row = rules.setdefault(
        rule.name, {"name": rule.name, "what": rule.what, "per_s": 0.0, "counts": {}}
    )
    row["per_s"] += rule.per_s
    for action, count in rule.counts.items():
        row["counts"][action] = row["counts"].get(action, 0) + count


async def post_dry_run(visit: Visit) -> object:
    """Return what rules would do with messages since a time; nothing is put."""
    given = await visit.body()
    text, ago_s, limit = given.get("rules"), given.get("ago_s", 600), given.get("limit", 10_000)
    if not isinstance(text, str) or given.keys() - {"rules", "ago_s", "limit"}:
        refuse("send rules (text in TOML), and ago_s (null: the oldest) and limit where you like")
    if type(limit) is not int or not 1 <= limit <= LIMIT_MAX:
        refuse(f"limit is {limit!r:.100}; give a whole number from 1 to {LIMIT_MAX}")
    if ago_s is not None and (type(ago_s) not in {int, float} or not 0 <= ago_s < 2**40):
        refuse(f"ago_s is {ago_s!r:.100}; give seconds, or null")
    after = 0 if ago_s is None else max(0, round((time.time() - ago_s) * 1e6))
    if _running.locked():
        why = f"{_AT_ONCE} dry runs are at work; try again in a moment"
        raise RequestRefused(HTTPStatus.SERVICE_UNAVAILABLE, why)
    async with _running:
        try:
            async with asyncio.timeout(_TIME_S), judging.process() as process:
                return await _run(visit, process, text, after, limit)
        except TimeoutError as error:
            why = f"it has taken longer than {_TIME_S:g} s and was ended; look at fewer messages"
            raise RequestRefused(HTTPStatus.UNPROCESSABLE_ENTITY, why) from error


async def _run(
    visit: Visit, process: asyncio.subprocess.Process, text: str, after: int, limit: int
) -> object:
    async with visit.node() as connection:
        names = await connection.topic_names()
        await judging.send(process, {"rules": text, "names": names})
        asked = await judging.answer(process)
        topics = [bytes.fromhex(each) for each in asked["topics"]]
        count, size = limit, _BYTES_MAX
        for topic in topics:
            count, size = await _feed(connection, process, topic, after, count, size)
    assert process.stdin is not None, "it was asked for"
    process.stdin.close()
    told = await judging.answer(process)
    about = {"name": asked["name"], "order": asked["rules"], "warnings": asked["warnings"]}
    read = {"topics": [topic_text(each) for each in topics], "is_whole": count > 0 and size > 0}
    return {**about, **read, **_with_text_pointers(safe(told))}


async def _feed(  # noqa: PLR0913, PLR0917 - two bounds go through all topics
    connection: AsyncSocket,
    process: asyncio.subprocess.Process,
    topic: bytes,
    after: int,
    count: int,
    size: int,
) -> tuple[int, int]:
    """Have the messages of a topic judged; return what is left of the bounds."""
    found = await connection.describe(topic)
    for partition in found.partitions:
        behind = after
        while count > 0 and size > 0:
            records = await connection.read_range(
                partition.topic, behind, POINTER_MAX, min(count, _PIECE_COUNT), _PIECE_BYTES
            )
            if not len(records):
                break
            pointers = records.pointers.tolist()
            asked = [topic, pointers, records.messages(), found.properties.envelope]
            await judging.send(process, asked)
            behind, count, size = pointers[-1], count - len(pointers), size - len(records.data)
    return count, size


def _with_text_pointers(told: dict[str, Any]) -> dict[str, Any]:
    for samples in told["samples"].values():
        for each in samples:
            each["pointer"] = str(each["pointer"])
    return told


ROWS: Final = (
    Row("/mappings", {"GET": Level.READ}, get_mappings),
    Row("/dry-run", {"POST": Level.READ}, post_dry_run),
)
