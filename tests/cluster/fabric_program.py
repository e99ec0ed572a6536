"""The actors of a fabric in a process, which tell what they see, and how soon peers answer.

usage: python -m tests.cluster.fabric_program MODE NAME HOST LOAD_BYTES [SEED]

Each node answers the frames of others. One with a load sends each peer a frame of so many bytes 200
times a second, and prints how long they took to be answered.
"""

import os
import signal
import struct
import sys
import time
from collections import defaultdict
from typing import Any, Literal, cast

from poe.actors import GenServer, LoopSystem
from poe.broker.requests.queue_messages import QUEUES
from poe.cluster.actor_messages import FABRIC, MEMBERS, FramesHeard, PaceSeen, TellNodes
from poe.cluster.fabric.interface import PeerDown, PeerUp
from poe.cluster.fabric.zenoh_fabric import ZenohFabric
from poe.cluster.fabric_actor import FabricParts, fabric_specs
from poe.cluster.identity import PROTOCOL, NodeRef, Peer
from poe.cluster.options import ClusterOptions
from poe.supervision import Supervisor, SupervisorFlags

PERIOD_S = 0.005
REPORT_S = 1.0
_STAMP = struct.Struct(">cd")


def say(*words: object) -> None:
    print(*words, f"{time.monotonic():.6f}", flush=True)


class Members(GenServer):
    """Prints `up NAME`, `down NAME`, `slow NAME` and `ok NAME`, each with the time."""

    def init(self) -> None:
        self.names: dict[NodeRef, str] = {}

    def handle_cast(self, message: Any) -> None:
        if isinstance(message, PeerUp):
            self.names[message.peer.ref] = message.peer.name
            say("up", message.peer.name)
        elif isinstance(message, PeerDown):
            say("down", self.names[message.ref])
        elif isinstance(message, PaceSeen):
            say("slow" if message.is_slow else "ok", self.names[message.ref])
        self.cast(QUEUES, dict(self.names))


class Queues(GenServer):
    """Answers, asks, and prints `took NAME MILLISECONDS…` of all answers of a while, in order."""

    def init(self, load_bytes: int) -> None:
        self.names: dict[NodeRef, str] = {}
        self.took_s: dict[str, list[float]] = defaultdict(list)
        self.load = bytes(load_bytes)
        self.report_s = time.monotonic()
        if load_bytes:
            self.send_after(PERIOD_S, "ask")

    def handle_cast(self, message: Any) -> None:
        if not isinstance(message, FramesHeard):
            self.names = message
            return
        for frame in message.frames:
            what, asked_s = _STAMP.unpack_from(frame)
            if what == b"?":
                self.cast(FABRIC, TellNodes((message.sender,), _STAMP.pack(b"!", asked_s)))
            elif message.sender in self.names:
                self.took_s[self.names[message.sender]].append(time.monotonic() - asked_s)

    def handle_info(self, message: Any) -> None:
        self.send_after(PERIOD_S, "ask")
        now_s = time.monotonic()
        frame = _STAMP.pack(b"?", now_s) + self.load
        self.cast(FABRIC, TellNodes(tuple(self.names), frame))
        if now_s - self.report_s >= REPORT_S:
            self.report_s = now_s
            for name, took_s in self.took_s.items():
                say("took", name, *(f"{each * 1e3:.3f}" for each in sorted(took_s)))
            self.took_s.clear()


def main(mode: Literal["peer", "router"], name: str, host: str, load: str, *seeds: str) -> None:
    options = ClusterOptions(
        cluster_mode=mode,
        cluster="c",
        cluster_host=host,
        node_name=name,
        seeds=tuple(f"{each}:5557" for each in seeds),
    )
    me = Peer(NodeRef(os.urandom(8), 1), name, "", PROTOCOL, os.urandom(8), options.locator)
    with LoopSystem() as system:
        system.start(Members, name=MEMBERS)
        system.start(Queues, int(load), name=QUEUES)
        specs = fabric_specs(FabricParts(ZenohFabric(options), me))
        top = system.start(Supervisor, SupervisorFlags(), specs)
        assert top is not None
        signal.sigwait({signal.SIGTERM})
        system.stop(top, "shutdown")


if __name__ == "__main__":
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    _, given_mode, *others = sys.argv
    main(cast('Literal["peer", "router"]', given_mode), *others)
