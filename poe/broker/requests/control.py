"""The control operations by name: arguments that msgpack carried in, what it can carry out.

Each checks its arguments, asks the request handler, and turns what it answers into plain values.
"""

import math
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from dataclasses import fields
from typing import Any, TypeAlias

from poe.actors import ActorRef
from poe.broker.appendix.message import SegmentInfo, Span
from poe.broker.registry.topic_registry import Delete, EnsureWriter, Trim
from poe.broker.requests.copying import Copy, copy
from poe.broker.requests.listing import describe, pages
from poe.broker.requests.pipelines import PIPELINE_OPERATIONS, PIPELINES, add_pipelines
from poe.broker.requests.request_handler import NODE_SUP, WAIT_MAX_S, RequestHandler
from poe.errors import RemoteProtocolError
from poe.storage import POINTER_MAX, PRODUCER_BYTES, LastPut
from poe.supervision import TreeRow, tree
from poe.version import VERSION

Arguments: TypeAlias = dict[str, Any]

_U32_MAX = 2**32 - 1
_NAMES_COUNT = 1000
"""Names that a listing of nothing else tells in a turn."""
_ROW_FIELDS = tuple(field.name for field in fields(TreeRow))
_SEGMENT_FIELDS = ("path", "role", "count", "size_bytes", "pointer_low", "pointer_high")


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
    return await operation(handler, arguments)


async def _health(handler: RequestHandler, _: Arguments) -> dict[str, Any]:
    told = handler.routes.health()
    return {"status": "refusing" if told.get("refusal") else "ok", "version": VERSION, **told}


async def _topics(handler: RequestHandler, arguments: Arguments) -> list[bytes]:
    async with aclosing(
        pages(handler.actor, handler.routes, *_page(arguments), _NAMES_COUNT)
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
    async with aclosing(pages(actor, routes, *_page(arguments))) as found:
        async for names in found:
            told = {}
            for name in names:
                removed = handler.newest_removed(name)
                rows = await describe(actor, routes, name)
                told[name] = [tell(*row, removed) for row in rows]
            yield told


def _page(arguments: Arguments) -> tuple[bytes, float]:
    """Return behind which topic a page begins, and how many it has at most."""
    after = _topic(arguments, "after") if arguments.get("after") else b""
    return after, _whole(arguments, "count", _U32_MAX) if "count" in arguments else math.inf


async def _segments(handler: RequestHandler, arguments: Arguments) -> list[dict[str, Any]]:
    topic = _topic(arguments)
    removed = handler.newest_removed(topic)
    return [_as_map(*row, removed) for row in await handler.describe(topic)]


async def _removed(handler: RequestHandler, arguments: Arguments) -> dict[str, Any]:
    """Return what was removed of a topic from a pointer on; the topic need not exist any more."""
    pointer = _whole(arguments, "pointer", POINTER_MAX)
    extents, unknown_high = handler.removed(_topic(arguments), pointer)
    return {
        "removed": [[each.first, each.last] for each in extents],
        "unknown_high": unknown_high,
    }


async def _tree(handler: RequestHandler, arguments: Arguments) -> list[dict[str, Any]]:
    """Tell of the node's whole tree, a look that waits for no actor, and of its pipelines."""
    all_rows = _flag(arguments, "all")
    root = handler.actor.whereis(NODE_SUP)
    rows = [] if root is None else tree(root, all_rows=all_rows)
    rows = await add_pipelines(handler.actor, rows)
    return [{name: getattr(row, name) for name in _ROW_FIELDS} for row in rows]


async def _sync(handler: RequestHandler, arguments: Arguments) -> None:
    await handler.sync(_topic(arguments) if "topic" in arguments else None)


async def _create(handler: RequestHandler, arguments: Arguments) -> bool:
    await handler.ask_registry(EnsureWriter(_topic(arguments)))
    return True


async def _wait(handler: RequestHandler, arguments: Arguments) -> bool:
    pointer = _whole(arguments, "pointer", POINTER_MAX)
    timeout_s = float(_number(arguments, "timeout_s", WAIT_MAX_S))
    return await handler.wait(_topic(arguments), pointer, timeout_s)


async def _copy(handler: RequestHandler, arguments: Arguments) -> int:
    put_id = (
        _producer(arguments),
        _whole(arguments, "epoch", _U32_MAX),
        _whole(arguments, "sequence", _U32_MAX),
    )
    pointer = _whole(arguments, "pointer", POINTER_MAX)
    last = _whole(arguments, "last", POINTER_MAX)
    wanted = Copy(_topic(arguments, "source"), pointer, last, _topic(arguments), put_id)
    return await copy(handler, wanted)


async def _last_put(handler: RequestHandler, arguments: Arguments) -> LastPut | None:
    return await handler.last_put(_topic(arguments), _producer(arguments))


async def _span(handler: RequestHandler, arguments: Arguments) -> list[int] | None:
    span = Span(
        _whole(arguments, "pointer", POINTER_MAX),
        _whole(arguments, "last", POINTER_MAX),
        _whole(arguments, "limit", _U32_MAX),
        _whole(arguments, "bytes_max", _U32_MAX),
    )
    found = await handler.get_range(_topic(arguments), span)
    return None if found is None else [found.last_pointer, found.record_count, found.length]


async def _trim(handler: RequestHandler, arguments: Arguments) -> Any:  # noqa: ANN401 - a number
    topic = _topic(arguments)
    trim = Trim(topic, _whole(arguments, "pointer", POINTER_MAX))
    await handler.recover(topic)
    return await handler.ask_registry(trim)


async def _delete(handler: RequestHandler, arguments: Arguments) -> None:
    topic = _topic(arguments)
    await handler.recover(topic)
    await handler.ask_registry(Delete(topic))


def _pipelines(op: str) -> Callable[[RequestHandler, Arguments], Awaitable[Any]]:
    """Return what has the actor of that name carry out an op."""
    return lambda handler, arguments: handler.actor.call(PIPELINES, (op, arguments))


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
    "trim": _trim,
    "delete": _delete,
    "copy": _copy,
    **{op: _pipelines(op) for op in PIPELINE_OPERATIONS},
}


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


def _topic(arguments: Arguments, name: str = "topic") -> bytes:
    topic = arguments.get(name)
    topic = topic.encode() if isinstance(topic, str) else topic
    if not isinstance(topic, bytes) or not topic:
        msg = f"argument {name} is {topic!r}; send bytes or text of length 1 or more"
        raise RemoteProtocolError(msg)
    return topic


def _producer(arguments: Arguments) -> bytes:
    producer = arguments.get("producer")
    if not isinstance(producer, bytes) or len(producer) != PRODUCER_BYTES:
        msg = f"argument producer is {producer!r}; send {PRODUCER_BYTES} bytes"
        raise RemoteProtocolError(msg)
    return producer


def _flag(arguments: Arguments, name: str) -> bool:
    value = arguments.get(name, False)
    if not isinstance(value, bool):
        msg = f"argument {name} is {value!r}; send true or false"
        raise RemoteProtocolError(msg)
    return value


def _number(arguments: Arguments, name: str, maximum: float) -> float:
    value = arguments.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= maximum:
        msg = f"argument {name} is {value!r}; send a number from 0 to {maximum}"
        raise RemoteProtocolError(msg)
    return value


def _whole(arguments: Arguments, name: str, maximum: int) -> int:
    value = _number(arguments, name, maximum)
    if not isinstance(value, int):
        msg = f"argument {name} is {value!r}; send a whole number"
        raise RemoteProtocolError(msg)
    return value
