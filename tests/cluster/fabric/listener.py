"""Nodes of a test that hear each other by zenoh on loopback, and wait for what they hear."""

import os
import threading
import time
from collections.abc import Callable, Iterable
from queue import SimpleQueue
from typing import Any, Self

from poe.cluster.fabric.interface import Asked, FabricEvent, PeerDown, PeerUp
from poe.cluster.identity import PROTOCOL, NodeRef, Peer
from poe.cluster.options import ClusterOptions
from tests.ports import free_port

PATIENCE_S = 20.0
SEEK_EVERY_S = 2.0


class Listener:
    """A node: hears everything, and answers asks in capitals, in a thread of its own."""

    def __init__(
        self, options: ClusterOptions, protocol: int = PROTOCOL, ref: NodeRef | None = None
    ) -> None:
        from poe.cluster.fabric.zenoh_fabric import ZenohFabric  # noqa: PLC0415 - an extra

        assert options.cluster is not None
        self.options = options
        self.me = Peer(
            ref or NodeRef(os.urandom(8), 1),
            options.name,
            options.zone or "",
            protocol,
            os.urandom(8),
            options.locator,
        )
        self.events: list[FabricEvent] = []
        self.is_silent = False
        self._heard = threading.Condition()
        self._asked: SimpleQueue[Asked | None] = SimpleQueue()
        self._answers = threading.Thread(target=self._answer, daemon=True)
        self._answers.start()
        self.fabric = ZenohFabric(options)
        self.fabric.open(self.me, self.hear)

    def hear(self, event: FabricEvent) -> None:
        """Note an event, in a thread of zenoh's."""
        if isinstance(event, Asked) and not self.is_silent:
            self._asked.put(event)
        with self._heard:
            self.events.append(event)
            self._heard.notify_all()

    def _answer(self) -> None:
        while (asked := self._asked.get()) is not None:
            asked.answer(asked.payload.upper())

    def close(self) -> None:
        """Leave."""
        self.fabric.close()
        self._asked.put(None)
        self._answers.join(PATIENCE_S)

    def wait_for(self, condition: Callable[[], object]) -> None:
        with self._heard:
            assert self._heard.wait_for(condition, PATIENCE_S), self.events

    def wait_for_all(self, nodes: Iterable[NodeRef]) -> None:
        refs = list(nodes)
        self.wait_for(lambda: all(map(self.is_up, refs)))

    def wait_for_one_that_is_lost(self, ref: NodeRef, locator: str) -> None:
        """Wait until a node is back, and seek it meanwhile, as actors of a node do.

        Zenoh itself connects nodes again that are no seed of each other only if what one of them
        hears of the other comes after both have noticed that their connection is gone.
        """
        deadline_s = time.monotonic() + PATIENCE_S
        with self._heard:
            while not self._heard.wait_for(lambda: self.is_up(ref), SEEK_EVERY_S):
                assert time.monotonic() < deadline_s, self.events
                self.fabric.seek([locator])

    def is_up(self, node: NodeRef) -> bool:
        """Whether a node is there, as far as this one was told."""
        told = [
            isinstance(event, PeerUp)
            for event in self.events
            if (isinstance(event, PeerUp) and event.peer.ref == node)
            or (isinstance(event, PeerDown) and event.ref == node)
        ]
        return bool(told) and told[-1]

    def ask(self, node: NodeRef, payload: bytes, deadline_s: float = 5.0) -> bytes | None:
        """Ask, and wait for the answer."""
        done = threading.Event()
        answers: list[bytes | None] = []

        def answered(answer: bytes | None) -> None:
            answers.append(answer)
            done.set()

        self.fabric.ask(node, payload, deadline_s, answered)
        assert done.wait(PATIENCE_S)
        assert len(answers) == 1
        return answers[0]


class Cluster:
    """Starts nodes, each with the first one as its seed."""

    def __init__(self) -> None:
        self.nodes: list[Listener] = []

    def start(
        self,
        name: str = "c",
        *,
        protocol: int = PROTOCOL,
        ref: NodeRef | None = None,
        **options: Any,
    ) -> Listener:
        """Start a node of the cluster with a name."""
        if self.nodes and "seeds" not in options:
            options["seeds"] = (self.nodes[0].options.locator,)
        made = ClusterOptions(cluster=name, cluster_port=free_port(), **options)
        self.nodes.append(Listener(made, protocol, ref))
        return self.nodes[-1]

    def start_all(self, count: int) -> list[Listener]:
        """Start so many nodes of one cluster, and wait until each knows all others."""
        nodes = [self.start() for _ in range(count)]
        for node in nodes:
            node.wait_for_all(other.me.ref for other in nodes if other is not node)
        return nodes

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *failure: object) -> None:
        for node in self.nodes:
            node.close()
