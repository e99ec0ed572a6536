"""Nodes as they run: each a process of `poe serve` on a host of its own."""

import shutil
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

from poe import protocol
from poe.errors import PoeError
from tests.cluster.network import Host, Network, network
from tests.cluster.program import Program
from tests.waiting import wait_until

CLUSTER = "tests"
NAMES = "abcdefgh"
PORT = 5555
PEER_PORT = 5557
CALL_S = 10
WHOLE_S = 40
"""How long a cluster may take to be whole again, at most."""


class RunningNode:
    """One node, life after life."""

    def __init__(self, host: Host, folder: Path, options: list[str]) -> None:
        self.host = host
        self.name = NAMES[host.number - 1]
        self.folder = folder / self.name
        self.log = folder / f"{self.name}.log"
        self.variables: dict[str, str] = {}
        """Of its environment, beside the usual ones; looked at when it starts."""
        self.prefix: list[str] = ["-m", "poe"]
        """What Python runs: another program may change something and then do the same."""
        self.program: Program | None = None
        self.options = options
        """What it is started with; looked at when it starts."""

    @property
    def url(self) -> str:
        return f"poe://{self.host.client_address}:{PORT}"

    @property
    def process(self) -> Program:
        assert self.program is not None, f"node {self.name} does not run"
        return self.program

    def start(self) -> None:
        """Begin a life; `wait` waits until it can be asked."""
        assert self.program is None
        arguments = [
            *self.prefix, "serve", "--dir", str(self.folder), "--insecure", "--port", str(PORT),
            "--host", self.host.client_address, *self.options,
        ]  # fmt: skip
        self.program = Program(self.host, arguments, self.log, **self.variables)

    def wait(self) -> None:
        """Wait until it says that it can be asked."""
        self.process.wait_for("ready on ")

    def kill(self) -> None:
        """End it at once, as by `kill -9`."""
        self.process.kill()
        self.program = None

    def stop(self) -> int:
        """Ask it to end, and return its exit code."""
        try:
            return self.process.stop()
        finally:
            self.program = None

    def lose_folder(self) -> None:
        """Have it begin with nothing, when it starts again."""
        assert self.program is None
        shutil.rmtree(self.folder)

    def control(self, op: str, **arguments: Any) -> Any:
        """Ask it something."""
        with protocol.socket(self.host.client_address, PORT, timeout_s=CALL_S) as socket:
            return socket.control(op, **arguments)

    def live(self) -> set[str]:
        """The names of the nodes that live as it sees it, itself among them."""
        members = self.control("cluster_members")
        return {each["name"] for each in members if each["liveness"] != "down"}


class Nodes:
    """A cluster, and the network between its nodes."""

    def __init__(self, net: Network, all_nodes: list[RunningNode]) -> None:
        self.net = net
        self.all = all_nodes

    @classmethod
    def alone(cls, net: Network, folder: Path) -> Self:
        """Nodes that are in no cluster."""
        return cls(net, [RunningNode(host, folder, []) for host in net.hosts])

    @classmethod
    def joined(cls, net: Network, folder: Path, options: Sequence[str]) -> Self:
        """Nodes of one cluster; each is a seed of all others."""
        made = []
        for host in net.hosts:
            seeds = [f"{each.address}:{PEER_PORT}" for each in net.hosts if each is not host]
            own = [
                *("--cluster", CLUSTER, "--cluster-host", host.address, "--cluster-port"),
                *(str(PEER_PORT), "--node-name", NAMES[host.number - 1]),
                *(["--seeds", ",".join(seeds)] if seeds else []),
            ]
            made.append(RunningNode(host, folder, [*own, *options]))
        return cls(net, made)

    def __iter__(self) -> Iterator[RunningNode]:
        return iter(self.all)

    def __getitem__(self, name: str) -> RunningNode:
        return next(node for node in self.all if node.name == name)

    @property
    def url(self) -> str:
        """That of all nodes, in their order."""
        addresses = ",".join(f"{node.host.client_address}:{PORT}" for node in self)
        return f"poe://{addresses}"

    def wait_until_whole(self) -> None:
        """Wait until all nodes that run see each other."""
        running = [node for node in self if node.program is not None]
        for node in running:
            node.wait()
        names = "".join(node.name for node in running)
        self.wait_until_seen(**dict.fromkeys(names, names))

    def wait_until_seen(self, **seen: str) -> None:
        """Wait until just these live as each one sees it, as in `a="ab", b="ab"`."""
        wait_until(
            lambda: all(self.sees(self[name], set(names)) for name, names in seen.items()), WHOLE_S
        )

    def sees(self, node: RunningNode, names: set[str]) -> bool:
        """Whether just these live as a node sees it; it does not where it cannot say so yet."""
        try:
            return node.live() == names
        except PoeError:
            return False

    @contextmanager
    def running(self, names: str = NAMES) -> Iterator[Self]:
        """Run some nodes, which see each other; what all log is shown where a test fails."""
        try:
            for node in self:
                if node.name in names:
                    node.start()
            self.wait_until_whole()
            yield self
        finally:
            for node in self:
                if node.program is not None:
                    node.kill()
                if node.log.exists():
                    told = node.log.read_text()[-8000:]
                    print(f"--- log of {node.name}:", told, sep="\n", file=sys.stderr)


@contextmanager
def nodes(folder: Path, count: int, *options: str) -> Iterator[Nodes]:
    """Run so many nodes of one cluster on hosts of their own."""
    with network(count) as net, Nodes.joined(net, folder, options).running() as made:
        yield made
