"""Whole nodes in simulated time, with replicated topics, and a simulated engine between them.

Each has an actor system, a disk and a clock of its own; the cluster moves all clocks together.
Everything runs in one thread, in an order that depends on random numbers alone.
"""

import hashlib
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

from poe.actors import ActorRef, GenServer
from poe.broker import RegistryOptions, RoutingTable
from poe.broker.requests.request_handler import RequestHandler
from poe.cluster.log.claims import Claims
from poe.cluster.log.logs import RESTARTS, LogParts
from poe.cluster.log.tree import log_spec
from poe.errors import PoeError
from poe.storage import decode_records
from poe.supervision import ChildSpec
from poe.testing.simulated_log import SimulatedEngine, SimulatedLog
from torture.layers.simulated_disk import SimulatedDisk
from torture.log_history import Record
from torture.simulated_node import SimulatedNode
from torture.workload import Ack

START_US = 1_800_000_000_000_000
SECOND_US = 1_000_000
_STREAM_BYTES = 1 << 30
_PORTIONS = (0, 1, 3, 10, 10_000)
_STEPS_MAX = 20_000
_QUIET_S = 0.03
_BYTES_MAX = 1 << 26

Told = Callable[[Any], None]
"""Takes the answer to a request, or the `PoeError`."""


class LogNode(SimulatedNode):
    """A node of a cluster that agrees on topics."""

    auto_create = False
    """Whether a put may make a topic of this node's own, from its next start on."""

    def __init__(
        self, name: str, log: SimulatedLog, ack: Ack, count_limit: int, random: Random
    ) -> None:
        self.name = name
        self.is_running = True
        self._log_of_all = log
        self.engine: SimulatedEngine
        self._count_limit = count_limit
        super().__init__(SimulatedDisk(), ack, count_limit, random)

    def start(self) -> None:
        """Start the tree on what the disk has."""
        self._options = RegistryOptions(auto_create=self.auto_create)
        self.is_running = True
        super().start()

    def _log(self) -> ChildSpec:
        self.engine = self._log_of_all.engine(self.name)
        parts = LogParts(
            self.engine,
            self.name,
            Path("memory"),
            self._routes,
            self.wall,
            self._store.check_sizes,
            bytes_max=_STREAM_BYTES,
            count_limit=self._count_limit,
            size_limit=1 << 20,
            claims=Claims(),
            restarts=replace(RESTARTS, seed=0),
        )
        return log_spec(parts)

    def die(self, end: Callable[[], None]) -> None:
        """Have its process die; `end` is what its disk meets."""
        self.is_running = False
        self.engine.abandon()
        self.abandon(end)

    def leave(self) -> None:
        """Have its process stop as by a signal."""
        self.is_running = False
        self.stop()

    def wipe(self) -> None:
        """Give a node that has died an empty disk."""
        self.disk = SimulatedDisk()

    def move_to(self, now_s: float) -> None:
        """Move its clock."""
        self.system.advance(max(0.0, now_s - self.clock.monotonic_s()))

    def due_s(self) -> float | None:
        """Return when its next timer is due."""
        due_s: float | None = self.system.run_queue.next_deadline_s()
        return due_s

    def ask(self, request: Callable[[RequestHandler], Awaitable[Any]], told: Told) -> None:
        """Have a client ask something; it is told in the end, unless the node dies before."""
        ref = self.start_client(_Client)
        self.system.cast(ref, (request, told))

    def files(self, topic: str) -> dict[str, str]:
        """Return what the data files of a topic hash to."""
        folder = f"topics/{topic}/"
        return {
            path.removeprefix(folder): hashlib.sha256(inode.content).hexdigest()
            for path, inode in self.disk.memory.inodes.items()
            if path.startswith(folder) and path.endswith("_data")
        }

    def segment_files(self, topic: str) -> dict[str, str]:
        """Return these of its segments alone.

        A disk that failed may have kept what was made of others in part. They are nobody's until
        the next start, which takes them for segments with nothing in them.
        """
        names = {f"{each.timestamp}_data" for each in self._store.topics.get(topic.encode(), ())}
        return {name: digest for name, digest in self.files(topic).items() if name in names}

    def knows(self, topic: str) -> bool:
        """Return whether it knows of a topic; one that was cut off since its begin does not."""
        properties = self._routes.properties
        return properties is not None and properties.find(topic.encode()) is not None

    def replicas(self) -> list[ActorRef]:
        """Return the actors that keep its copies."""
        return [ref for _, ref in sorted((self._routes.replicas or {}).items())]


async def read(
    topic: bytes, pointer: int, limit: int, handler: RequestHandler
) -> tuple[Record, ...]:
    """Read as a connection does."""
    found = await handler.get(topic, pointer, limit, _BYTES_MAX)
    return () if found is None else tuple(decode_records(found.read()))


async def read_all(topic: bytes, handler: RequestHandler) -> tuple[Record, ...]:
    """Read everything."""
    records: list[Record] = []
    while found := await read(topic, records[-1][0] if records else 0, 1 << 20, handler):
        records += found
    return tuple(records)


class _Client(GenServer):
    """Makes one request as a connection does, and tells of its end."""

    def init(self, routes: RoutingTable) -> None:
        self._handler = RequestHandler(self, routes)

    async def handle_cast(self, message: tuple[Any, Told]) -> None:
        request, told = message
        try:
            answer = await request(self._handler)
        except PoeError as error:
            answer = error
        told(answer)


class LogCluster:
    """Nodes, and what the engine of all of them is; `advance` moves time, and nothing else does."""

    def __init__(self, random: Random, count: int, count_limit: int) -> None:
        # What nodes keep to themselves counts for nobody: who makes a topic says it for all.
        counts = [count_limit, count_limit, 2 * count_limit]
        self.random = random
        self.now_s = 0.0
        names = [chr(ord("a") + number) for number in range(count)]
        self.log = SimulatedLog(names, lambda: START_US + self.now_us, dice=random)
        acks: list[Ack] = ["flushed", "fsync", "memory"]
        self.nodes = {
            name: LogNode(name, self.log, random.choice(acks), random.choice(counts), random)
            for name in names
        }

    @property
    def now_us(self) -> int:
        """Return the time, by which histories are told."""
        return round(self.now_s * SECOND_US)

    @property
    def running(self) -> list[LogNode]:
        """Return the nodes that run."""
        return [each for each in self.nodes.values() if each.is_running]

    def start(self, node: LogNode) -> None:
        """Start a node that has died or was stopped."""
        node.clock.advance(max(0.0, self.now_s - node.clock.monotonic_s()))
        node.start()

    def advance(self, seconds: float) -> None:
        """Let time pass: what the engine has on its way comes then, now more of it, now less."""
        end_s = self.now_s + seconds
        while True:
            due = [at_s for each in self.running if (at_s := each.due_s()) is not None]
            next_s = max(self.now_s, min([end_s, *due]))
            is_quiet = next_s - self.now_s > _QUIET_S
            self._steps(10_000 if is_quiet else self.random.choice(_PORTIONS))
            due = [at_s for each in self.running if (at_s := each.due_s()) is not None]
            next_s = max(self.now_s, min([end_s, *due]))
            self.now_s = next_s
            for node in self.running:
                node.move_to(next_s)
            if next_s >= end_s:
                return

    def settle(self) -> None:
        """Have all come that is on its way."""
        self._steps(_STEPS_MAX)

    def _steps(self, count: int) -> None:
        self.log.expire()
        for _ in range(count):
            if not self.log.step():
                return
