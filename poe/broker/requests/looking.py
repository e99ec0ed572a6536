"""What those ask who look after a node: its counters, connections, producers and options."""

import os
import resource
from contextlib import aclosing, suppress
from pathlib import Path
from typing import Any, Final

from poe.broker.access.permission import Need
from poe.broker.appendix.message import MOVED, FindProducers
from poe.broker.requests import arguments as arg
from poe.broker.requests.arguments import Arguments
from poe.broker.requests.listing import page_of, pages
from poe.broker.requests.request_handler import RequestHandler
from poe.broker.requests.retry import until_answered

_MEMORY: Final = Path("/proc/self/statm")
ROWS_MAX: Final = 1000
"""Connections or producers in one answer."""
_TOPICS_PER_TURN: Final = 500
_ID_SHOWN_BYTES: Final = 4


async def counters(handler: RequestHandler, arguments: Arguments) -> dict[str, Any]:
    """Return what the node and its topics have done since the start; topics by page.

    Of the node only who administers it is told. Topics of which nothing was asked are left out;
    `next` is where the next page begins, None behind the last.
    """
    routes, permissions = handler.routes, handler.permissions
    wanted = page_of(arguments)
    count_max = max(wanted.count_max, 1)
    told: dict[bytes, Any] = {}
    behind: bytes | None = None
    every = wanted._replace(count_max=float("inf"))
    async with aclosing(
        pages(handler.actor, routes, every, _TOPICS_PER_TURN, permissions)
    ) as found:
        async for names in found:
            for name in names:
                counter = routes.counters.topics.get(name)
                if counter is None:
                    continue
                if len(told) >= count_max:
                    behind = max(told)
                    break
                if any((row := counter.as_map()).values()):
                    told[name] = row
            if behind is not None:
                break
    node = _node(handler) if permissions.may(Need.of_node("admin")) else {}
    return {"node": node, "topics": told, "next": behind}


def _node(handler: RequestHandler) -> dict[str, Any]:
    routes = handler.routes
    known, used = routes.counters, resource.getrusage(resource.RUSAGE_SELF)
    return {
        "started_us": known.started_us,
        "topics": len(routes),
        "is_in_cluster": routes.queues is not None,
        "connections": len(routes.present),
        "accepted": routes.present.accepted_count,
        "in_flight_bytes": routes.present.in_flight_bytes(),
        "syncs": known.syncs.count,
        "sync_us": known.syncs.time_us,
        "restarts": routes.events.restarts_count,
        "newest_event": routes.events.newest_seq,
        "gaps": routes.gaps_count,
        "read_only": len(routes.read_only),
        "disk_free_bytes": routes.free_bytes(),
        "scrub": known.scrub.as_map(),
        "refused": dict(known.refused),
        "cpu_s": used.ru_utime + used.ru_stime,
        "memory_bytes": _memory_bytes(),
    }


def _memory_bytes() -> int:
    """Return what the process has of physical memory; 0 where nobody tells."""
    with suppress(OSError, ValueError, IndexError):
        return int(_MEMORY.read_bytes().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    return 0


async def connections(handler: RequestHandler, arguments: Arguments) -> dict[str, Any]:
    """Return who is connected, oldest first; without the first `after`, `count` at most."""
    after = arg.whole(arguments, "after", arg.U32_MAX) if "after" in arguments else 0
    present = handler.routes.present
    return {"connections": list(present.rows(after, _count(arguments))), "count": len(present)}


async def producers(handler: RequestHandler, arguments: Arguments) -> list[dict[str, Any]]:
    """Return those who number their puts onto a topic, the one that put last first.

    Who does not administer the node sees the begin of their ids: whoever numbers puts as another
    one does has those of that one taken for stored.

    Raises:
        UnknownTopic: nobody put anything onto it.
        StorageError: it cannot be read.
        TopicUnavailable: it had no writer for 5 s.
    """
    topic, count = arg.topic(arguments), _count(arguments)
    await handler.describe(topic)

    async def ask() -> Any:  # noqa: ANN401 - pairs, or MOVED
        route = handler.routes.get(topic)
        if route is None:
            return MOVED
        return await handler.actor.call(route.writer, FindProducers(count), timeout_s=None)

    found = await until_answered(handler.actor, handler.routes, topic, ask)
    shown_bytes = None if handler.permissions.may(Need.of_node("admin")) else _ID_SHOWN_BYTES
    return [{"producer": producer[:shown_bytes].hex(), **put._asdict()} for producer, put in found]


async def config(handler: RequestHandler, arguments: Arguments) -> dict[str, Any]:
    """Return the options that the node goes by, each with where it came from."""
    del arguments
    return {name: dict(told) for name, told in handler.routes.options.items()}


def _count(arguments: Arguments) -> int:
    count = arg.whole(arguments, "count", arg.U32_MAX) if "count" in arguments else ROWS_MAX
    return min(count, ROWS_MAX)
