"""Actors that put as connections do, several of them before anything else happens."""

from typing import Any

from poe.actors import GenServer
from poe.broker import RequestHandler, RoutingTable
from poe.errors import PoeError
from poe.storage import PutKey


class Putter(GenServer):
    """Puts one message after the other, as it is told to, and keeps the answers."""

    def init(self, routes: RoutingTable, topic: bytes):
        self.handler = RequestHandler(self, routes)
        self.topic = topic
        self.answers: list[Any] = []

    async def handle_cast(self, put: tuple[bytes, PutKey | None]):
        message, put_id = put
        try:
            answer: Any = await self.handler.put(self.topic, [message], put_id=put_id)
        except PoeError as error:
            answer = error
        self.answers.append(answer)


def put_at_once(system, routes, topic, messages):
    """Have as many actors put as there are messages, and tell their answers."""
    putters: list[Any] = [system.start(Putter, routes, topic) for _ in messages]

    def tell_all():
        for putter, message in zip(putters, messages, strict=True):
            putter.cell.instance.cast(putter, (message, None))

    system.run_outside(tell_all)
    return [next(iter(putter.cell.instance.answers), None) for putter in putters]
