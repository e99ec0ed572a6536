"""Actors that put as connections do, several of them before anything else happens."""

from typing import Any

from poe.actors import GenServer
from poe.broker import RequestHandler, RoutingTable
from poe.errors import PoeError


class Putter(GenServer):
    """Puts one message when told to, and keeps the answer."""

    answer: Any = None

    def init(self, routes: RoutingTable, topic: bytes):
        self.handler = RequestHandler(self, routes)
        self.topic = topic

    async def handle_cast(self, message: bytes):
        try:
            self.answer = await self.handler.put(self.topic, [message])
        except PoeError as error:
            self.answer = error


def put_at_once(system, routes, topic, messages):
    """Have as many actors put as there are messages, and tell their answers."""
    putters: list[Any] = [system.start(Putter, routes, topic) for _ in messages]

    def tell_all():
        for putter, message in zip(putters, messages, strict=True):
            putter.cell.instance.cast(putter, message)

    system.run_outside(tell_all)
    return [putter.cell.instance.answer for putter in putters]
