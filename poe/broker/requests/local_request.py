"""Requests of application threads that calling an appendix server directly did not settle.

They take the way of a socket's requests, through a `RequestHandler`, in an actor of their own.
"""

from collections.abc import Awaitable, Callable
from typing import Any, cast
from weakref import proxy

from poe.actors import Call, Error, GenServer
from poe.broker.registry.routing_table import RoutingTable
from poe.broker.requests.request_handler import RequestHandler
from poe.errors import PoeError


class LocalRequest(GenServer):
    """Serves one request of an application thread; it lives as long as the request.

    One for each, since a request may wait (for a writer, for news) and must not keep others
    waiting. It is called with a function that makes the request: `lambda handler: handler.put(...)`
    """

    def init(self, routes: RoutingTable) -> None:
        """Make the handler that connections use, too."""
        self._handler = RequestHandler(cast("GenServer", proxy(self)), routes)

    async def handle_call(
        self, request: Callable[[RequestHandler], Awaitable[Any]], caller: Call
    ) -> Any:  # noqa: ANN401 - what the request returns
        """Carry out one request; its error goes to the caller."""
        del caller
        try:
            return await request(self._handler)
        except PoeError as error:
            return Error(error)
