"""Serves a client of the same process: requests are the frames of a socket, one after the other."""

from collections.abc import Callable
from typing import cast
from weakref import proxy

from poe.actors import GenServer
from poe.broker.connection.reply import make_reply
from poe.broker.registry.routing_table import RoutingTable
from poe.broker.requests.byte_budget import ByteBudget, Holding, Room
from poe.broker.requests.request_handler import RequestHandler
from poe.protocol import FRAME_MAX, decode_request
from poe.protocol.frames import split_frame


class LocalClient(GenServer):
    """The connection of one client, which ends it by killing this actor.

    A client of the same process is bounded by that process: nothing is refused for want of room.
    """

    def init(
        self,
        routes: RoutingTable,
        put_timeout_s: float | None,
        deliver: Callable[[bytes], object],
    ) -> None:
        """Begin; `deliver` gets the frame of each reply, and must not wait."""
        self._deliver = deliver
        self._room = Room(Holding(ByteBudget(FRAME_MAX, 1), lambda: None), FRAME_MAX)
        self._handler = RequestHandler(
            cast("GenServer", proxy(self)),
            routes,
            put_timeout_s=put_timeout_s,
            room=self._room,
        )

    async def handle_cast(self, frame: bytes) -> None:
        """Carry a request out, and reply."""
        request = decode_request(*split_frame(frame))
        head, records = await make_reply(self._handler, request, None, self._room)
        self._room.holding.set(0)
        content = b"" if records is None else records.read()
        self._deliver(b"".join((head, content)))
