"""The control operations on replicated topics: how they are, and whether copies agree."""

from collections.abc import Awaitable, Callable
from typing import Any, Final

from poe.broker.requests import arguments as arg
from poe.broker.requests.arguments import Arguments
from poe.broker.requests.log_messages import LOGS, DescribeLogs, VerifyLogs
from poe.broker.requests.request_handler import RequestHandler
from poe.errors import NoLogEngine


async def cluster_logs(handler: RequestHandler, arguments: Arguments) -> dict[str, Any]:
    """Tell how the engine of the replicated log is, and each copy on this node.

    With `brief` the engine is not asked for the stream of each.

    Raises:
        NoLogEngine: this node has none.
    """
    has_streams = not arg.flag(arguments, "brief")
    told: dict[str, Any] = await _ask(handler, DescribeLogs(has_streams))
    return told


async def cluster_verify(
    handler: RequestHandler, arguments: Arguments
) -> dict[bytes, list[dict[str, Any]]]:
    """Compare the copies of replicated topics, or of one, with those of the other nodes.

    Raises:
        NoLogEngine: this node has no engine for them.
        UnknownTopic: there is no replicated topic of that name.
    """
    topic = arg.topic(arguments) if "topic" in arguments else None
    told: dict[bytes, list[dict[str, Any]]] = await _ask(handler, VerifyLogs(topic))
    return told


async def _ask(handler: RequestHandler, request: DescribeLogs | VerifyLogs) -> Any:  # noqa: ANN401
    if handler.routes.replicas is None:
        raise NoLogEngine
    return await handler.actor.call(LOGS, request, timeout_s=None)


LOG_OPERATIONS: Final[dict[str, Callable[[RequestHandler, Arguments], Awaitable[Any]]]] = {
    "cluster_logs": cluster_logs,
    "cluster_verify": cluster_verify,
}
"""The operations by name."""
