"""The log of a queue that outlives its process: messages of a topic of the node's own.

An actor beside the queue's, which so goes on while the disk works: it puts what it is given, in
order, and says when that is done, and durable: whatever `ack` says of topics.
"""

import logging
from collections import deque
from collections.abc import AsyncIterator
from typing import Any, Final, NamedTuple, cast
from weakref import proxy

from poe.actors import ActorRef, GenServer
from poe.broker.appendix.message import GetRange
from poe.broker.registry.routing_table import RoutingTable
from poe.broker.registry.topic_registry import Trim
from poe.broker.requests.request_handler import RequestHandler
from poe.broker.requests.slices import read_records
from poe.errors import CorruptRecord, PoeError
from poe.protocol import RANGE_COUNT_MAX
from poe.record import POINTER_MAX

logger = logging.getLogger("poe.cluster")

LOG_TOPIC_PREFIX: Final = b"poe.queue."
_READ_BYTES: Final = 8 * 1024 * 1024


class Append(NamedTuple):
    """Cast to the log: put these messages; their numbers rise."""

    numbers: list[int]
    messages: list[bytes]


class LetGo(NamedTuple):
    """Cast to the log: what was put before the message of this number is needed no more."""

    number: int


class Appended(NamedTuple):
    """Cast to the queue: what has become of an `Append`."""

    numbers: list[int]
    error: PoeError | None


class QueueLog(GenServer):
    """Puts what a queue writes."""

    def init(self, owner: ActorRef, topic: bytes, routes: RoutingTable, pointer: int) -> None:
        """Begin behind what the topic holds: the last message of earlier lives has this pointer."""
        self._owner = owner
        self._topic = topic
        self._handler = RequestHandler(cast("GenServer", proxy(self)), routes)
        self._ends: deque[tuple[int, int]] = deque([(0, pointer)])
        """Of earlier lives, and of each `Append`: last number and pointer. Those before the newest
        trim are gone."""

    async def handle_cast(self, message: Append | LetGo) -> None:
        """Put messages, or trim the topic."""
        match message:
            case Append(numbers, messages):
                try:
                    pointer = await self._handler.put(self._topic, messages)
                    await self._handler.sync(self._topic)
                except PoeError as error:
                    self.cast(self._owner, Appended(numbers, error))
                else:
                    self._ends.append((numbers[-1], pointer))
                    self.cast(self._owner, Appended(numbers, None))
            case LetGo(number):
                await self._trim(number)

    async def _trim(self, number: int) -> None:
        pointer = 0
        while self._ends and self._ends[0][0] < number:
            pointer = self._ends.popleft()[1]
        if pointer:
            try:
                await self._handler.ask_registry(Trim(self._topic, pointer))
            except PoeError as error:
                logger.error("topic %r is not trimmed: %s", self._topic, error)


async def read_log(
    actor: GenServer, topic: bytes, routes: RoutingTable
) -> AsyncIterator[tuple[int, bytes]]:
    """Yield the messages of a log and their pointers; what is damaged is left out, and told."""
    handler = RequestHandler(cast("GenServer", proxy(actor)), routes)
    pointer = 0
    while True:
        wanted = GetRange(pointer, POINTER_MAX, RANGE_COUNT_MAX, _READ_BYTES)
        try:
            found: Any = await handler.get_range(topic, wanted)
            if found is None:
                return
            records = read_records(topic, found)
        except CorruptRecord as error:
            logger.error("topic %r is damaged: %s", topic, error)
            if error.pointer is None or error.pointer <= pointer:
                raise
            pointer = error.pointer
            continue
        for pointer, message in records.pairs():
            yield pointer, message
