"""Nodes of one process that agree on topics by a simulated engine."""

import hashlib
import itertools
import shutil
from collections.abc import Mapping
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

from poe import Node
from poe.broker.requests.log_messages import LOGS, DescribeLogs
from poe.errors import NoQuorum
from poe.storage import Clock
from poe.testing import wait_until
from poe.testing.simulated_log import SimulatedLog

START_US = 1_750_000_000_000_000


class Replicated:
    """Some nodes, each of which may be stopped, started, cut off and wiped.

    Attributes:
        ports: where some of them listen, in all their lives.
        clocks: those that some of them have, likewise.
    """

    def __init__(
        self,
        folder: Path,
        names: str = "abc",
        ports: Mapping[str, int] | None = None,
        clocks: Mapping[str, Clock] | None = None,
        **options,
    ):
        self.ports = ports or {}
        self.clocks = clocks or {}
        self.folder = folder
        self.options = options
        ticks = itertools.count()
        self.log = SimulatedLog(list(names), lambda: START_US + 1000 * next(ticks))
        self.nodes: dict[str, Node] = {}
        for name in names:
            self.start(name)

    def __getitem__(self, name: str) -> Node:
        return self.nodes[name]

    def start(self, name: str) -> Node:
        given = {"dir": self.folder / name, "port": self.ports.get(name), **self.options}
        engine = self.log.engine(name)
        node = Node(given, clock=self.clocks.get(name), log_engine=engine).start()
        self.nodes[name] = node
        return node

    def stop(self, name: str) -> None:
        self.nodes.pop(name).stop()

    def put_own(self, name: str, topic: str, message: bytes) -> None:
        """Have a node make a topic of its own, once it has heard which ones are replicated."""

        self._heard(lambda: self[name].put(topic, message))

    def create_own(self, name: str, topic: str) -> None:
        """Make a topic of one node's own, likewise."""
        self._heard(lambda: self[name].create_topic(topic))

    @staticmethod
    def _heard(make) -> None:
        def is_made():
            with suppress(NoQuorum):
                make()
                return True
            return False

        wait_until(is_made, 10)

    def wipe(self, name: str) -> None:
        """Remove all that a node has, which is stopped."""
        shutil.rmtree(self.folder / name)

    def close(self) -> None:
        for name in list(self.nodes):
            self.stop(name)

    @property
    def streams(self):
        return self.log.streams

    def files(self, name: str, topic: str = "t", suffix: str = "_data") -> dict[str, str]:
        """Hashes of the files of a topic at a node, by name."""
        found = {}
        for path in sorted((self.folder / name / "topics" / topic).glob(f"*{suffix}")):
            with suppress(FileNotFoundError):  # it was trimmed just now
                found[path.name] = hashlib.sha256(path.read_bytes()).hexdigest()
        return found

    def are_same(self, topic: str = "t") -> bool:
        """Whether all nodes that run have the same data files."""
        try:
            first, *others = (self.files(name, topic) for name in self.nodes)
        except FileNotFoundError:  # it went meanwhile
            return False
        return all(each == first for each in others)

    def wait_same(self, topic: str = "t") -> None:
        wait_until(lambda: self.are_same(topic), 10)

    def wait_all(self, is_so) -> None:
        """Wait until something is so at each node, by its name."""
        for name in self.nodes:
            wait_until(partial(is_so, name), 10)

    def logs(self, name: str):
        """What a node tells of its replicas."""
        return self.nodes[name].system.call(LOGS, DescribeLogs())

    def state(self, name: str, topic: bytes = b"t") -> str:
        told = self.logs(name)["topics"].get(topic)
        return "none" if told is None else told["state"]

    def verify(self, name: str, topic: bytes | None = b"t"):
        arguments = {} if topic is None else {"topic": topic}
        return self.nodes[name].control("cluster_verify", **arguments)

    def values(self, name: str, topic: str = "t") -> list[bytes]:
        """All messages of a topic at a node."""
        node, pointer, found = self.nodes[name], 0, []
        while (message := node.next(topic, pointer)) is not None:
            pointer, value = message
            found.append(value)
        return found


@contextmanager
def replicated(folder: Path, names: str = "abc", **options):
    nodes = Replicated(folder, names, **options)
    try:
        yield nodes
    finally:
        nodes.close()
