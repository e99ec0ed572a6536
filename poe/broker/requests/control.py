"""The control operations by name: arguments that msgpack carried in, what it can carry out.

Each checks its arguments, asks the request handler, and turns what it answers into plain values.
"""

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from dataclasses import fields
from typing import Any

from poe.actors import ActorRef
from poe.broker.access.access import ACCESS_OPERATIONS, GATEKEEPER, NO_USERS, NOTHING_TO_RELOAD
from poe.broker.access.permission import Need
from poe.broker.appendix.message import GetSpan, SegmentInfo
from poe.broker.registry.topic_registry import EnsureWriter
from poe.broker.requests import arguments as arg
from poe.broker.requests.arguments import Arguments
from poe.broker.requests.copying import Copy, copy
from poe.broker.requests.events import events, note_change
from poe.broker.requests.groups import GROUP_OPERATIONS, group_operation
from poe.broker.requests.listing import describe, may_tell, page_of, pages
from poe.broker.requests.logs import LOG_OPERATIONS
from poe.broker.requests.looking import config, connections, counters, producers
from poe.broker.requests.needs import CHANGES, OPERATION_NEEDS, check_complete
from poe.broker.requests.pipelines import PIPELINE_OPERATIONS, PIPELINES, add_pipelines
from poe.broker.requests.queues import QUEUE_OPERATIONS
from poe.broker.requests.request_handler import NODE_SUP, WAIT_MAX_S, RequestHandler
from poe.broker.requests.scan import scan
from poe.broker.requests.topics import TOPIC_OPERATIONS
from poe.errors import NotATopic, RemoteProtocolError, ReservedTopic, SecurityError
from poe.protocol.put import check_client_producer
from poe.storage import POINTER_MAX, LastPut
from poe.supervision import TreeRow, tree
from poe.version import VERSION

_NAMES_COUNT = 1000
"""Names that a listing of nothing else tells in a turn."""
_ROW_FIELDS = tuple(field.name for field in fields(TreeRow))
_SEGMENT_FIELDS = ("path", "role", "count", "size_bytes", "pointer_low", "pointer_high", "base")


async def control(handler: RequestHandler, op: str, arguments: Arguments) -> Any:  # noqa: ANN401
    """Carry out a control request and return what msgpack can carry.

    Raises:
        RemoteProtocolError: an unknown op, or a missing or wrong argument.
        PoeError: the op's refusal.
    """
    operation = _OPERATIONS.get(op)
    if operation is None:
        msg = f"control op {op[:40]!r} is unknown; use {', '.join(_OPERATIONS)}"
        raise RemoteProtocolError(msg)
    result = await operation(handler, arguments)
    if op in CHANGES:
        note_change(handler, op, arguments)
    return result


async def _health(handler: RequestHandler, _: Arguments) -> dict[str, Any]:
    """Return how the node is; files and versions only for who administers it."""
    told, permissions = handler.routes.health(), handler.permissions
    status = {"status": "refusing" if told.get("refusal") else "ok"}
    if permissions.may(Need.of_node("admin")):
        return {**status, "version": VERSION, **told}
    return {
        **status,
        "read_only": [each for each in told["read_only"] if may_tell(permissions, each)],
    }


async def _topics(handler: RequestHandler, arguments: Arguments) -> list[bytes]:
    wanted = page_of(arguments)
    async with aclosing(
        pages(handler.actor, handler.routes, wanted, _NAMES_COUNT, handler.permissions)
    ) as found:
        return [name async for names in found for name in names]


async def _listing(handler: RequestHandler, op: str, arguments: Arguments) -> dict[bytes, Any]:
    told: dict[bytes, Any] = {}
    async with aclosing(listed(handler, op, arguments)) as found:
        async for page in found:
            told.update(page)
    return told


async def listed(
    handler: RequestHandler, op: str, arguments: Arguments
) -> AsyncGenerator[dict[bytes, list[Any]], None]:
    """Yield the result of one of `LISTINGS`, a map, in parts; others have their turn between them.

    Raises:
        RemoteProtocolError: a wrong argument.
    """
    tell, actor, routes = LISTINGS[op], handler.actor, handler.routes
    wanted, permissions = page_of(arguments), handler.permissions
    async with aclosing(pages(actor, routes, wanted, permissions=permissions)) as found:
        async for names in found:
            told = {}
            for name in names:
                removed = handler.newest_removed(name)
                rows = await describe(actor, routes, name)
                told[name] = [tell(*row, removed) for row in rows]
            yield told


async def _segments(handler: RequestHandler, arguments: Arguments) -> list[dict[str, Any]]:
    topic = arg.topic(arguments)
    removed = handler.newest_removed(topic)
    return [_as_map(*row, removed) for row in await handler.describe(topic)]


async def _removed(handler: RequestHandler, arguments: Arguments) -> dict[str, Any]:
    """Return what was removed of a topic from a pointer on; the topic need not exist any more."""
    pointer = arg.whole(arguments, "pointer", POINTER_MAX)
    extents, unknown_high = handler.removed(arg.topic(arguments), pointer)
    return {
        "removed": [[each.first, each.last] for each in extents],
        "unknown_high": unknown_high,
    }


async def _tree(handler: RequestHandler, arguments: Arguments) -> list[dict[str, Any]]:
    """Return the node's whole tree, a look that waits for no actor, with its pipelines."""
    all_rows = arg.flag(arguments, "all")
    root = handler.actor.whereis(NODE_SUP)
    rows = [] if root is None else tree(root, all_rows=all_rows)
    rows = await add_pipelines(handler.actor, rows)
    return [{name: getattr(row, name) for name in _ROW_FIELDS} for row in rows]


async def _sync(handler: RequestHandler, arguments: Arguments) -> None:
    await handler.sync(arg.topic(arguments) if "topic" in arguments else None)


async def _create(handler: RequestHandler, arguments: Arguments) -> bool:
    topic = arg.topic(arguments)
    if handler.is_refused(topic):
        raise ReservedTopic(topic)
    if handler.routes.queue(topic) is not None:
        raise NotATopic(topic)
    await handler.ask_registry(EnsureWriter(topic))
    return True


async def _wait(handler: RequestHandler, arguments: Arguments) -> bool:
    pointer = arg.whole(arguments, "pointer", POINTER_MAX)
    timeout_s = float(arg.number(arguments, "timeout_s", WAIT_MAX_S))
    return await handler.wait(arg.topic(arguments), pointer, timeout_s)


async def _copy(handler: RequestHandler, arguments: Arguments) -> int:
    producer = arg.producer(arguments)
    check_client_producer(producer)
    put_id = (
        producer,
        arg.whole(arguments, "epoch", arg.U32_MAX),
        arg.whole(arguments, "sequence", arg.U32_MAX),
    )
    pointer = arg.whole(arguments, "pointer", POINTER_MAX)
    last = arg.whole(arguments, "last", POINTER_MAX)
    wanted = Copy(arg.topic(arguments, "source"), pointer, last, arg.topic(arguments), put_id)
    return await copy(handler, wanted)


async def _last_put(handler: RequestHandler, arguments: Arguments) -> LastPut | None:
    return await handler.last_put(arg.topic(arguments), arg.producer(arguments))


async def _span(handler: RequestHandler, arguments: Arguments) -> list[int] | None:
    span = GetSpan(
        arg.whole(arguments, "pointer", POINTER_MAX),
        arg.whole(arguments, "last", POINTER_MAX),
        arg.whole(arguments, "limit", arg.U32_MAX),
        arg.whole(arguments, "bytes_max", arg.U32_MAX),
    )
    found = await handler.get_range(arg.topic(arguments), span)
    return None if found is None else [found.last_pointer, found.record_count, found.length]


async def _ordinal(handler: RequestHandler, arguments: Arguments) -> int:
    pointer = arg.whole(arguments, "pointer", POINTER_MAX)
    return await handler.ordinal(arg.topic(arguments), pointer)


async def _pointer(handler: RequestHandler, arguments: Arguments) -> int | None:
    ordinal = arg.whole(arguments, "ordinal", arg.U64_MAX)
    return await handler.pointer_at(arg.topic(arguments), ordinal)


def _groups(op: str) -> Callable[[RequestHandler, Arguments], Awaitable[Any]]:
    """Return what asks a group to carry out an op."""
    return lambda handler, arguments: group_operation(handler, op, arguments)


def _pipelines(op: str) -> Callable[[RequestHandler, Arguments], Awaitable[Any]]:
    """Return what has the actor of that name carry out an op."""
    return lambda handler, arguments: handler.actor.call(PIPELINES, (op, arguments))


def _access(op: str) -> Callable[[RequestHandler, Arguments], Awaitable[Any]]:
    """Return what has the gatekeeper carry out an op, where there is one."""

    async def ask(handler: RequestHandler, arguments: Arguments) -> Any:  # noqa: ANN401 - as it answers
        if handler.actor.whereis(GATEKEEPER) is None:
            raise SecurityError(NOTHING_TO_RELOAD if op == "reload" else NO_USERS)
        return await handler.actor.call(GATEKEEPER, (op, arguments), timeout_s=None)

    return ask


async def _auth(_handler: RequestHandler, _: Arguments) -> None:
    """Refuse what connections carry out themselves, where they ask nobody who they are."""
    raise SecurityError(NO_USERS)


_OPERATIONS: dict[str, Callable[[RequestHandler, Arguments], Awaitable[Any]]] = {
    "topics": _topics,
    "status": lambda handler, arguments: _listing(handler, "status", arguments),
    "info": lambda handler, arguments: _listing(handler, "info", arguments),
    "segments": _segments,
    "removed": _removed,
    "tree": _tree,
    "sync": _sync,
    "create": _create,
    "health": _health,
    "wait": _wait,
    "last_put": _last_put,
    "span": _span,
    "ordinal": _ordinal,
    "pointer": _pointer,
    "copy": _copy,
    "auth": _auth,
    **{op: _access(op) for op in ACCESS_OPERATIONS},
    "counters": counters,
    "events": events,
    "scan": scan,
    "connections": connections,
    "producers": producers,
    "config": config,
    **TOPIC_OPERATIONS,
    **QUEUE_OPERATIONS,
    **LOG_OPERATIONS,
    **{op: _pipelines(op) for op in PIPELINE_OPERATIONS},
    **{op: _groups(op) for op in GROUP_OPERATIONS},
}
check_complete("operation", _OPERATIONS, OPERATION_NEEDS)


def _as_map(ref: ActorRef | None, info: SegmentInfo, removed: int | None) -> dict[str, Any]:
    row = {"ref": _text(ref), **{name: getattr(info, name) for name in _SEGMENT_FIELDS}}
    return row | {"removed": removed}


def _as_pair(ref: ActorRef | None, info: SegmentInfo, _removed: int | None) -> list[str]:
    return [_text(ref), info.role]


def _text(ref: ActorRef | None) -> str:
    return "-" if ref is None else str(ref)


LISTINGS: dict[str, Callable[[ActorRef | None, SegmentInfo, int | None], Any]] = {
    "status": _as_pair,
    "info": _as_map,
}
"""The operations whose result is a map of topics, and what they tell of a segment."""
