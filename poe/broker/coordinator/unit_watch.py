"""Waits for news on one unit of a group, so that the group itself waits for nothing."""

from typing import cast
from weakref import proxy

from poe.actors import ActorRef, GenServer, Stop
from poe.broker.registry.routing_table import RoutingTable
from poe.broker.requests.request_handler import WAIT_MAX_S, RequestHandler
from poe.errors import PoeError

_PAUSE_S = 1.0


class UnitWatch(GenServer):
    """Tells a group, its parent, once that something follows a pointer; then waits to be asked."""

    def init(self, group: ActorRef, unit: bytes, routes: RoutingTable) -> None:
        """Begin without anything to look for."""
        self._group = group
        self._unit = unit
        self._handler = RequestHandler(cast("GenServer", proxy(self)), routes)

    async def handle_cast(self, pointer: int | None) -> Stop | None:
        """Wait until something follows the pointer, or for a while; then say so. None: end."""
        if pointer is None:
            return Stop("normal")
        try:
            await self._handler.wait(self._unit, pointer, WAIT_MAX_S)
        except PoeError:  # who reads it is told why
            await self.sleep(_PAUSE_S)
        self.cast(self._group, News(self._unit))
        return None


class News:
    """Cast to a group: there may be something new on a unit."""

    __slots__ = ("unit",)

    def __init__(self, unit: bytes) -> None:
        self.unit = unit
