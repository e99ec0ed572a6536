"""The control operations on replicated topics: how they are, and whether copies agree."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final

from poe.actors import ActorRef
from poe.broker.requests import arguments as arg
from poe.broker.requests.arguments import Arguments
from poe.broker.requests.log_messages import (
    LOGS,
    DescribeLogs,
    DescribeReplica,
    TrimLog,
    VerifyLog,
)
from poe.broker.requests.request_handler import RequestHandler
from poe.errors import NoLogEngine, PoeError, UnknownTopic

_BEGIN_S: Final = 5.0
"""A replica that does not begin to compare within so long is at something else, as to fetch."""


async def cluster_logs(handler: RequestHandler, arguments: Arguments) -> dict[str, Any]:
    """Return how the engine of the replicated log is, and each copy on this node.

    With `brief` the engine is not asked for the stream of each.

    Raises:
        NoLogEngine: this node has none.
    """
    has_streams = not arg.flag(arguments, "brief")
    _replicas(handler)
    told: dict[str, Any] = await handler.actor.call(LOGS, DescribeLogs(has_streams), timeout_s=None)
    return told


async def cluster_verify(
    handler: RequestHandler, arguments: Arguments
) -> dict[bytes, list[dict[str, Any]]]:
    """Compare the copies of replicated topics, or of one, with those of the other nodes.

    Raises:
        NoLogEngine: this node has no engine for them.
        UnknownTopic: there is no replicated topic of that name.
    """
    replicas = _replicas(handler)
    parts: Sequence[bytes] = sorted(replicas)
    if "topic" in arguments:
        topic = arg.topic(arguments)
        parts = replicated_partitions(handler, topic)
        if not parts:
            raise UnknownTopic(topic)
    # All at once: those that do not answer are not waited for one after the other.
    begun = {
        each: handler.actor.call(replicas[each], DescribeReplica(), timeout_s=_BEGIN_S)
        for each in parts
        if each in replicas
    }
    errors: dict[bytes, PoeError] = {}
    for each, call in begun.items():
        try:
            await call
        except PoeError as error:
            errors[each] = error
    return {
        each: _failed(errors[each]) if each in errors else await _verify(handler, replicas[each])
        for each in begun
    }


async def _verify(handler: RequestHandler, replica: ActorRef) -> list[dict[str, Any]]:
    """Compare one copy; one that cannot be told of now holds up no others."""
    call = handler.actor.call
    try:
        comparer = await call(replica, VerifyLog(), timeout_s=_BEGIN_S)
        rows: list[dict[str, Any]] = await call(comparer, VerifyLog(), timeout_s=None)
    except PoeError as error:
        return _failed(error)
    return rows


def _failed(error: PoeError) -> list[dict[str, Any]]:
    row = {"node": "this node", "segments": 0, "messages": 0, "differing": []}
    return [{**row, "error": str(error)}]


async def trim_log(handler: RequestHandler, topic: bytes, pointer: int) -> int:
    """Trim all partitions of a replicated topic, or one of them; return how many segments went.

    Raises:
        NoLogEngine: this node has none.
        NoQuorum, PutUnconfirmed: as of a put.
    """
    replicas = _replicas(handler)
    gone = 0
    for part in replicated_partitions(handler, topic):
        if part in replicas:
            gone += await handler.actor.call(replicas[part], TrimLog(pointer), timeout_s=None)
    return gone


def replicated_partitions(handler: RequestHandler, topic: bytes) -> tuple[bytes, ...]:
    """Return the partitions that a name stands for; none where it is not of a replicated topic."""
    properties = handler.routes.properties
    holder = None if properties is None else properties.holder(topic) or properties.find(topic)
    if holder is None or not holder.properties.is_replicated:
        return ()
    return holder.partition_topics() if topic == holder.name else (topic,)


def _replicas(handler: RequestHandler) -> Mapping[bytes, ActorRef]:
    if handler.routes.replicas is None:
        raise NoLogEngine
    return handler.routes.replicas


LOG_OPERATIONS: Final[dict[str, Callable[[RequestHandler, Arguments], Awaitable[Any]]]] = {
    "cluster_logs": cluster_logs,
    "cluster_verify": cluster_verify,
}
"""The operations by name."""
