"""The control operations by name: arguments that msgpack carried in, what it can carry out.

Each checks its arguments, asks the request handler, and turns what it answers into plain values.
"""

from collections.abc import Awaitable, Callable
from dataclasses import fields
from typing import Any, TypeAlias

from poe.actors import ActorRef
from poe.broker.appendix_message import SegmentInfo, Span
from poe.broker.copying import Copy, copy
from poe.broker.pipelines import PIPELINE_OPERATIONS, PIPELINES, add_pipelines
from poe.broker.request_handler import NODE_SUP, WAIT_MAX_S, RequestHandler
from poe.broker.topic_registry import Delete, EnsureWriter, Trim
from poe.errors import RemoteProtocolError
from poe.storage import POINTER_MAX, PRODUCER_BYTES, LastPut
from poe.supervision import TreeRow, tree
from poe.version import VERSION

Arguments: TypeAlias = dict[str, Any]

_U32_MAX = 2**32 - 1
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


async def _topics(handler: RequestHandler, _: Arguments) -> list[bytes]:
    return handler.routes.topics()


async def _status(handler: RequestHandler, _: Arguments) -> dict[bytes, list[list[str]]]:
    described = await handler.describe_all()
    return {topic: [[str(ref), info.role] for ref, info in rows] for topic, rows in described}


async def _info(handler: RequestHandler, _: Arguments) -> dict[bytes, list[dict[str, Any]]]:
    described = await handler.describe_all()
    return {
        topic: [_as_map(*row, handler.newest_removed(topic)) for row in rows]
        for topic, rows in described
    }


async def _segments(handler: RequestHandler, arguments: Arguments) -> list[dict[str, Any]]:
    topic = _topic(arguments)
    removed = handler.newest_removed(topic)
    return [_as_map(*row, removed) for row in await handler.describe(topic)]


async def _removed(handler: RequestHandler, arguments: Arguments) -> dict[str, Any]:
    """Tell what was removed of a topic from a pointer on; the topic need not exist any more."""
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
    "status": _status,
    "info": _info,
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


def _as_map(ref: ActorRef, info: SegmentInfo, removed: int | None) -> dict[str, Any]:
    row = {"ref": str(ref), **{name: getattr(info, name) for name in _SEGMENT_FIELDS}}
    return row | {"removed": removed}


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
