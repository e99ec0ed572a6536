"""Nodes of one process whose fabrics hand over what they carry: real nodes, no sockets.

`cut` and `heal` two of them; what is sent meanwhile is lost.
"""

import threading
from typing import Any

from poe import Node
from poe.cluster.fabric.interface import Asked, PeerDown, PeerUp, Published


class Links:
    """Who is linked to whom; any thread may ask."""

    def __init__(self):
        self._lock = threading.RLock()
        self._there: dict[Any, LinkedFabric] = {}
        self._cut: set[frozenset[Any]] = set()

    def open(self, fabric):
        with self._lock:
            others = self.reached(fabric.me.ref)
            self._there[fabric.me.ref] = fabric
            for other in others:
                other.hear(PeerUp(fabric.me))
                fabric.hear(PeerUp(other.me))

    def close(self, ref):
        with self._lock:
            for other in self.reached(ref) if self._there.pop(ref, None) else ():
                other.hear(PeerDown(ref, "closed"))

    def find(self, sender, node):
        with self._lock:
            is_there = sender in self._there and not self._is_cut(sender, node)
            return self._there.get(node) if is_there else None

    def cut(self, one, other):
        with self._lock:
            self._cut.add(frozenset({one, other}))
            self._there[one].hear(PeerDown(other, "cut"))
            self._there[other].hear(PeerDown(one, "cut"))

    def lose(self, one, other):
        """Lose what they tell each other, and tell nobody of it."""
        self._cut.add(frozenset({one, other}))

    def heal(self, one, other):
        with self._lock:
            self._cut.discard(frozenset({one, other}))
            self._there[one].hear(PeerUp(self._there[other].me))
            self._there[other].hear(PeerUp(self._there[one].me))

    def _is_cut(self, one, other):
        return frozenset({one, other}) in self._cut

    def reached(self, ref):
        return [
            each
            for other, each in self._there.items()
            if other != ref and not self._is_cut(ref, other)
        ]


class LinkedFabric:
    """The fabric of one node."""

    def __init__(self, links):
        self.links = links
        self.me: Any = None
        self.hear: Any = None

    def open(self, me, hear):
        self.me, self.hear = me, hear
        self.links.open(self)

    def close(self):
        if self.me is not None:
            self.links.close(self.me.ref)

    def ask(self, node, payload, deadline_s, answered):
        other = self if node == self.me.ref else self.links.find(self.me.ref, node)
        if other is None:
            answered(None)
        else:
            other.hear(Asked(self.me.ref, payload, answered))

    def publish(self, payload):
        for other in self.links.reached(self.me.ref):
            other.hear(Published(self.me.ref, payload))

    def seek(self, locators):
        """Links are there, or are not."""

    def metrics(self):
        return {}


class LinkedNode(Node):
    """A node with `cluster`."""

    def __init__(self, links, folder, name, clock=None, log_engine=None, **options):
        self.links = links
        self.fabric = LinkedFabric(links)
        given = {"dir": folder, "port": None, "cluster": "test", "node_name": name, **options}
        super().__init__(given, fabric=self.fabric, clock=clock, log_engine=log_engine)

    @property
    def me(self):
        return self.fabric.me
