"""The whole node, without sockets and without real time: its tree, on a simulated disk and clock.

Clients are actors that do what connections do. Everything runs in one thread, in an order that
depends on random numbers alone, so each failure replays.
"""

import contextlib
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import Any

from poe.actors import ActorRef, Call, Error, GenServer
from poe.actors.message import Entry
from poe.actors.run_queue import RunQueue
from poe.actors.server_cell import cell_of_actor
from poe.broker import (
    AppendixOptions,
    ConnectionOptions,
    ListenerOptions,
    ListenerParts,
    LocalRequest,
    NodeParts,
    NodeSup,
    RegistryOptions,
    RegistryParts,
    RoutingTable,
    ScrubberOptions,
    control,
)
from poe.broker.appendix.server import REGISTRY
from poe.broker.connection.connection import begin_get, begin_put
from poe.broker.registry.topic_registry import Trim
from poe.broker.requests.request_handler import RequestHandler
from poe.errors import ActorDead, PoeError, ReadFailed, SyncFailed
from poe.storage import SegmentOptions, Store, decode_records
from poe.supervision import ChildSpec
from poe.testing import SimulatedClock, SimulatedSystem
from torture.checker import Put, Record, Stored
from torture.layers.simulated_disk import SimulatedDisk
from torture.workload import Ack

_CLIENTS = 4
_BYTES_MAX = 1 << 26
_START_US = 1_800_000_000_000_000
"""Behind the begin of 2026, from which groups count their lives."""
WORK_S_MAX = 0.3
"""Simulated seconds that a sync takes at most."""


class SimulatedNode:
    """A node on a simulated disk; `advance` moves time, and nothing else does.

    With `random`, it chooses how long each sync takes.
    """

    def __init__(
        self, disk: SimulatedDisk, ack: Ack, count_limit: int, random: Random | None = None
    ) -> None:
        self.disk = disk
        self._random = random
        self.clock = SimulatedClock()
        self.wall = _Wall(self.clock)
        self._segment = SegmentOptions(ack=ack)
        self._appendix = AppendixOptions(count_limit=count_limit)
        self._options = RegistryOptions()
        self.start()

    def start(self) -> None:
        """Start the tree on what the disk has."""
        self._store = Store.open(self.disk.files(), self._segment)
        self._routes = RoutingTable()
        listener = ListenerParts(self._routes, ListenerOptions(port=None), ConnectionOptions())
        registry = RegistryParts(
            self._store, self._routes, self._options, self._appendix, self.wall
        )
        if self._random is None:
            self.system = SimulatedSystem(clock=self.clock)
        else:
            self.system = SimulatedSystem(
                clock=self.clock, run_queue=partial(_SlowQueue, self._random)
            )
        parts = NodeParts(registry, listener, ScrubberOptions(), log=self._log())
        self._sup = _started(self.system.start(NodeSup, parts))
        self._clients = [
            _started(self.system.start(_Client, self._routes, self.clock)) for _ in range(_CLIENTS)
        ]

    def _log(self) -> ChildSpec | None:
        """Return its part in the replicated log; None: it has none."""
        return None

    def stop(self) -> None:
        """Stop as a signal does."""
        self.system.stop(self._sup, "shutdown", 5.0)
        self.system.shutdown()
        self._store.close()
        self.disk.kill()

    def abandon(self, end: Callable[[], None]) -> None:
        """Let the process die: by `end`, after which its disk takes nothing from it any more."""
        end()
        self.system.shutdown()

    def advance(self, seconds: float) -> None:
        """Let time pass."""
        self.system.advance(seconds)

    def control(self, op: str, **arguments: Any) -> Any:
        """Carry out a control request.

        Raises:
            PoeError: as the client is told.
        """
        ref = _started(self.system.start(LocalRequest, self._routes))
        return self.system.call(ref, lambda handler: control(handler, op, arguments), None)

    def start_client(self, actor: type[GenServer]) -> ActorRef:
        """Start one more client, which is given the routes."""
        return _started(self.system.start(actor, self._routes))

    def begin_put(self, number: int, put: Put) -> None:
        """Have a client put; it notes what becomes of it."""
        self.system.cast(self._clients[number % _CLIENTS], put)

    def begin_trim(self, topic: bytes, pointer: int) -> None:
        """Have a client delete the segments that hold nothing behind a pointer."""
        self.system.cast(self._clients[0], Trim(topic, pointer))

    def read(self, topic: bytes, pointer: int, limit: int) -> list[Record]:
        """Read as a connection does.

        Raises:
            PoeError: as the client is told.
        """
        request = (topic, pointer, limit)
        records: list[Record] = self.system.call(self._clients[0], request, None)
        return records

    def read_all(self) -> Stored:
        """Read all topics."""
        return {topic: self._read_topic(topic) for topic in self._routes.topics()}

    def _read_topic(self, topic: bytes) -> list[Record]:
        records: list[Record] = []
        while found := self.read(topic, records[-1][0] if records else 0, 100):
            records += found
        return records

    def last_pointer(self, topic: bytes) -> int:
        """Tell what the next pointer of a topic exceeds."""
        if topic in self._routes.resting:
            self.read(topic, 0, 1)  # until somebody asks for it, nobody knows
        return self._store.last_pointer(topic)

    def damage(self) -> list[str]:
        """Tell what a start after a power cut, at which no topic rests, found lost or changed."""
        segments = [segment for each in self._store.topics.loaded.values() for segment in each]
        return [f"{each.path}: {finding}" for each in segments for finding in each.damage]

    def servers(self) -> list[ActorRef]:
        """Tell all appendix servers."""
        return [ref for _, route in self._routes.sorted_items() for ref in route.refs]

    def kill_actor(self, ref: ActorRef | str, reason: str = "kill") -> None:
        """End an actor without its consent."""
        cell = self.system.actors.find(ref)
        if cell is not None:
            self.system.exit(cell.address, reason)


class _SlowQueue(RunQueue):
    """The disk takes its time: a sync covers what was written by its begin, or by its end."""

    def __init__(self, random: Random, clock: SimulatedClock, queue: deque[Entry]) -> None:
        super().__init__(clock, queue)
        self._random = random

    def simulate_work(self, run: Callable[[], object], tell: Callable[[], object]) -> None:
        """Do it somewhen between now and the time when it is told of."""
        work_s = self._random.choice([0.0, 0.001, 0.02, WORK_S_MAX])
        begun_s = self._random.choice([0.0, 0.5, 1.0]) * work_s
        self.add_timer(begun_s, run)

        def end() -> None:
            run()  # unless that was done before
            tell()

        self.add_timer(work_s, end)


@dataclass(slots=True)
class _Wall:
    """A wall clock that can be set wrong."""

    clock: SimulatedClock
    offset_us: int = 0

    def now_us(self) -> int:
        return _START_US + self.offset_us + round(self.clock.monotonic_s() * 1_000_000)


class _Client(GenServer):
    """Puts and reads through a request handler, as a connection does, one request at a time."""

    def init(self, routes: RoutingTable, clock: SimulatedClock) -> None:
        self._handler = RequestHandler(self, routes)
        self._cell, self._routes = cell_of_actor(self), routes
        self._clock = clock

    async def handle_cast(self, message: Put | Trim) -> None:
        if isinstance(message, Trim):
            with contextlib.suppress(PoeError):  # all of it may be there as well
                await self.call(REGISTRY, message)
        else:
            await self._put(message)

    async def _put(self, message: Put) -> None:
        topic, messages, put_id = message.topic, message.messages, message.put_id
        begun = begin_put(self._cell, self._routes, topic, messages, put_id)
        try:
            message.answer = await self._handler.put(topic, messages, begun, put_id)
            message.pointer = message.pointer or message.answer  # put again, it stays
            message.acked_s = self._clock.monotonic_s()
            message.is_unanswered = False
        except ActorDead as error:
            message.answer = error  # it may be stored
        except SyncFailed as error:
            message.answer, message.is_doubtful = error, True
        except PoeError as error:
            # With an id it may be stored by an earlier try.
            message.answer, message.is_refused = error, put_id is None

    async def handle_call(self, request: Any, caller: Call) -> Any:
        topic, pointer, limit = request
        try:
            begun = begin_get(self._cell, self._routes, topic, pointer, limit, _BYTES_MAX)
            found = await self._handler.get(topic, pointer, limit, _BYTES_MAX, begun)
            return [] if found is None else decode_records(found.read())
        except PoeError as error:
            return Error(error)
        except OSError as error:  # a connection, whose sendfile that would be, is closed then
            return Error(ReadFailed("data", str(error)))


def _started(ref: ActorRef | None) -> ActorRef:
    assert ref is not None
    return ref
