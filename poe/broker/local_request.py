"""Requests of application threads that asking an appendix server directly did not settle.

They take the way of a socket's requests, through a `RequestHandler`, in an actor of their own.
"""

from dataclasses import dataclass
from typing import Any

from poe.actors import Call, Error, GenServer
from poe.broker.request_handler import RequestHandler
from poe.broker.routing_table import RoutingTable
from poe.errors import PoeError
from poe.storage import Messages


@dataclass(frozen=True, slots=True)
class PutSlowly:
    """Append a batch wherever the topic's writer is by then."""

    topic: bytes
    messages: Messages


@dataclass(frozen=True, slots=True)
class NextSlowly:
    """Read the message behind a pointer wherever it is by then."""

    topic: bytes
    pointer: int


@dataclass(frozen=True, slots=True)
class ControlLocally:
    """Carry out a control request for an application thread."""

    op: str
    arguments: dict[str, Any]


@dataclass(frozen=True, slots=True)
class DescribeLocally:
    """Answer `[(ref, SegmentInfo)]` of a topic."""

    topic: bytes


class LocalRequest(GenServer):
    """Serves one request of an application thread; it lives as long as the request.

    One for each, since a request may wait (for a writer, for news) and must not keep others
    waiting.
    """

    def init(self, routes: RoutingTable) -> None:
        """Make the handler that connections use, too."""
        self._handler = RequestHandler(self, routes)

    async def handle_call(self, request: Any, caller: Call) -> Any:  # noqa: ANN401
        """Carry out one request; its error goes to the caller."""
        handler = self._handler
        try:
            match request:
                case PutSlowly(topic, messages):
                    return await handler.put(topic, messages)
                case NextSlowly(topic, pointer):
                    return await handler.next(topic, pointer)
                case ControlLocally(op, arguments):
                    return await handler.control(op, arguments)
                case DescribeLocally(topic):
                    return await handler.describe(topic)
        except PoeError as error:
            return Error(error)
        return super().handle_call(request, caller)
