"""Nodes of one process that are linked by actors which hand frames over: no fabric, no sockets.

Each is a real node in a folder of its own. `cut` and `heal` two of them; what is sent meanwhile is
lost.
"""

import contextlib
import threading
from queue import SimpleQueue
from typing import Any

from poe import Node
from poe.actors import GenServer
from poe.broker.requests.queue_messages import QUEUES
from poe.cluster.actor_messages import (
    FABRIC,
    MEMBERS,
    CloseFabric,
    FabricMetrics,
    FramesHeard,
    TellNodes,
)
from poe.cluster.fabric.interface import PeerDown, PeerUp
from poe.errors import PoeError
from poe.supervision import ChildSpec


class Links:
    """Who is linked to whom; any thread may ask."""

    def __init__(self):
        self._lock = threading.Lock()
        self._there = {}
        self._cut = set()
        self._posts: SimpleQueue[Any] = SimpleQueue()  # an actor may not call another system
        self._postman = threading.Thread(target=self._carry, daemon=True)
        self._postman.start()

    def _carry(self):
        while post := self._posts.get():
            system, name, message = post
            with contextlib.suppress(PoeError):
                system.cast(name, message)

    def end(self):
        self._posts.put(None)
        self._postman.join()

    def _post(self, system, name, message):
        self._posts.put((system, name, message))

    def open(self, peer, system):
        with self._lock:
            others = list(self._there.values())
            self._there[peer.ref] = (peer, system)
        for other, its_system in others:
            if not self.is_cut(peer.ref, other.ref):
                self._post(its_system, MEMBERS, PeerUp(peer))
                self._post(system, MEMBERS, PeerUp(other))

    def close(self, ref):
        with self._lock:
            self._there.pop(ref, None)
            others = list(self._there.values())
        for other, its_system in others:
            if not self.is_cut(ref, other.ref):
                self._post(its_system, MEMBERS, PeerDown(ref, "closed"))

    def send(self, sender, node, frame):
        found = self._there.get(node)
        if found is not None and sender in self._there and not self.is_cut(sender, node):
            self._post(found[1], QUEUES, FramesHeard(sender, [frame]))

    def is_cut(self, one, other):
        return frozenset({one, other}) in self._cut

    def cut(self, one, other):
        self._cut.add(frozenset({one, other}))
        for here, there in ((one, other), (other, one)):
            self._post(self._there[here][1], MEMBERS, PeerDown(there, "cut"))

    def heal(self, one, other):
        self._cut.discard(frozenset({one, other}))
        for here, there in ((one, other), (other, one)):
            self._post(self._there[here][1], MEMBERS, PeerUp(self._there[there][0]))


class LinkedFabric(GenServer):
    trap_exits = True

    def init(self, node, me):
        self.node, self.me = node, me
        self.told_count = 0
        self.send_after(0, "open")

    def handle_info(self, message):
        assert message == "open"
        self.node.me = self.me
        self.node.links.open(self.me, self.node.system)

    def handle_cast(self, message):
        match message:
            case TellNodes(nodes, frame):
                self.told_count += len(nodes)
                for node in nodes:
                    self.node.links.send(self.me.ref, node, frame)
            case CloseFabric():
                self.node.links.close(self.me.ref)

    def handle_call(self, request, caller):
        assert isinstance(request, FabricMetrics)
        return {"told": self.told_count}

    def terminate(self, reason):
        self.node.links.close(self.me.ref)


class LinkedNode(Node):
    """A node with `cluster`, and the links that it has in place of a fabric."""

    def __init__(self, links, folder, name, **options):
        self.links = links
        self.me = None
        given = {"dir": folder, "port": None, "cluster": "test", "node_name": name, **options}
        super().__init__(given, fabric=self._specs)

    def _specs(self, options, me):
        return [ChildSpec(id=FABRIC, actor=LinkedFabric, args=(self, me), name=FABRIC)]
