"""Nodes for tests: in simulated time, with a reader that asks as connections do."""

import contextlib
import os
import time
from pathlib import Path
from typing import Any

import pytest

from poe import Node, protocol
from poe.actors import Call, Error, GenServer
from poe.actors.server_cell import cell_of_actor
from poe.broker import RoutingTable
from poe.broker.connection.connection import begin_get, begin_put
from poe.broker.requests.request_handler import RequestHandler
from poe.errors import ConnectFailed, ConnectionClosed, PoeError
from poe.storage import decode_records
from poe.testing import SimulatedClock, SimulatedSystem
from tests.scenarios.clients import tls_of

START_US = 1_700_000_000_000_000
KILLING = pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")
"""For tests that kill what owns sockets: the collector closes them, with a warning."""

BYTES_MAX = 64 * 1024 * 1024


class SimulatedWall:
    """A wall clock that follows the simulated monotonic one, and can be set wrong."""

    def __init__(self, clock: SimulatedClock):
        self.clock = clock
        self.offset_us = 0

    def now_us(self):
        return START_US + self.offset_us + round(self.clock.monotonic_s() * 1_000_000)


class FrameReads(GenServer):
    """Reads (topic, pointer, limit) through a request handler, as a connection does."""

    def init(self, routes: RoutingTable):
        self.handler = RequestHandler(self, routes)
        self.cell, self.routes = cell_of_actor(self), routes

    async def handle_call(self, request: Any, caller: Call):
        topic, pointer, limit = request
        try:
            begun = begin_get(self.cell, self.routes, topic, pointer, limit, BYTES_MAX)
            found = await self.handler.get(topic, pointer, limit, BYTES_MAX, begun)
        except PoeError as error:
            return Error(error)
        return [] if found is None else decode_records(found.read())


class FramePuts(GenServer):
    """Puts (topic, messages) through a request handler, as a connection does."""

    def init(self, routes: RoutingTable):
        self.handler = RequestHandler(self, routes)
        self.cell, self.routes = cell_of_actor(self), routes

    async def handle_call(self, request: Any, caller: Call):
        topic, messages = request
        try:
            begun = begin_put(self.cell, self.routes, topic, messages)
            return await self.handler.put(topic, messages, begun)
        except PoeError as error:
            return Error(error)


class SimulatedNode:
    """A node without sockets and threads: time moves by `advance` only.

    Each start of the node gets an actor system of its own, with the same clocks and seed.
    """

    def __init__(self, folder: Path, seed: int | None = None, **options: Any):
        self.seed = seed
        self.folder = folder
        self.options = options
        self.clock = SimulatedClock()
        self.wall = SimulatedWall(self.clock)
        self.start()

    def start(self):
        self.node = Node(dir=self.folder, port=None, clock=self.wall, **self.options)
        self.node.start(SimulatedSystem(clock=self.clock, seed=self.seed))
        self.system = self.node.system
        self.routes = self.node._routes  # noqa: SLF001 - what connections are given, too
        self.frame_reads = self._start(FrameReads)
        self.frame_puts = self._start(FramePuts)

    def _start(self, actor):
        ref = self.system.start(actor, self.routes)
        assert ref is not None
        return ref

    def stop(self):
        self.node.stop()

    def advance(self, seconds):
        self.system.advance(seconds)

    def read(self, topic, pointer, limit):
        """Read as a pointer request over a socket would."""
        return self.system.call(self.frame_reads, (topic, pointer, limit))

    def kill(self, name):
        """End the actor of a name without its consent."""
        kill(self.node, name)

    def servers(self):
        """Tell all appendix servers, by topic and age."""
        return [ref for _, rows in self.node.status() for ref, _ in rows]

    def roles(self, topic):
        return "".join(role for _, role in dict(self.node.status())[topic])


def address(node) -> Any:
    """Tell host and port of a node that listens, and how it is spoken to there."""
    assert node.address is not None
    return node.address


def connect(node, timeout_s=10):
    """Open a blocking client."""
    return protocol.socket(*address(node), timeout_s=timeout_s, **tls_of(node.address))


def is_served(node):
    """Tell whether a new client is answered; one that is kept waiting is a failure."""
    try:
        with connect(node, 10) as client:
            return client.control("health")["status"] == "ok"
    except (ConnectFailed, ConnectionClosed):
        return False


def kill(node, name):
    """End the actor of a name without its consent."""
    node.system.exit(node.system.actors.find(name).address, "kill")


def read_by_next(node, topic, pointer=0):
    """Read all of a topic message by message."""
    records = []
    while (record := node.next(topic, pointer)) is not None:
        records.append(record)
        pointer = record[0]
    return records


def read_by_frames(read, topic, limit=100, pointer=0):
    """Read all of a topic with `read(topic, pointer, limit)`."""
    records = []
    while found := read(topic, pointer, limit):
        records += found
        pointer = found[-1][0]
    return records


def stored(node, topic):
    """Read all messages of a topic over a socket."""
    with connect(node) as client:
        return [message for _, message in read_by_frames(client.read, topic, 100_000)]


def open_files(folder):
    """Tell the files below a folder that this process holds open, deleted ones included.

    The store's events, which are open or not, are left out.
    """
    base = os.path.realpath(folder) + "/"
    return [
        path.removeprefix(base).removesuffix(" (deleted)")
        for path in descriptors()
        if path.startswith(base) and path != base + "store.meta"
    ]


def descriptors():
    """Tell what the descriptors of this process lead to."""
    found = []
    for link in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):  # the descriptor of the listing itself
            found.append(str(link.readlink()))
    return sorted(found)


def rss_bytes(pid="self"):
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    raise AssertionError(pid)


def seconds(action):
    """Tell how long an action takes."""
    start_s = time.monotonic()
    action()
    return time.monotonic() - start_s


def check_pages(node, topics):
    """See that pages of all listings tell of 120 topics, t000 to t119, each once."""
    for op in ("topics", "status", "info"):
        whole, after = node.node.control(op), b""
        told: list[bytes] = []
        while page := node.node.control(op, after=after, count=50):
            assert len(page) == min(50, len(topics) - len(told))
            told += list(page)
            after = told[-1]
        assert told == list(whole) == topics
        assert list(node.node.control(op, count=2)) == topics[:2]
        assert list(node.node.control(op, after=b"t117")) == topics[118:]
        assert len(node.node.control(op, after="t1175", count=7)) == 2
        assert not node.node.control(op, count=0)
