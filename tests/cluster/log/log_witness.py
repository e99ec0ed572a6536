"""Puts numbered messages at nodes while faults happen, and judges what all nodes hold in the end.

A producer a node: it numbers its puts, and puts again what was not answered, at the next node. The
rules are those that a replicated log promises.
"""

import threading
import time

import pytest

from poe import protocol
from poe.errors import PoeError
from poe.protocol import PutId
from tests.cluster.nodes import CALL_S, PORT
from tests.waiting import wait_until

_PAUSE_S = 0.01


class LogWitness:
    """Producers of one topic, and what they were told; `first` numbers the first of them."""

    def __init__(self, nodes, topic=b"t", count=3, batch=5, first=0):
        self.nodes = list(nodes)
        self.topic = topic
        self.batch = batch
        self.acked: dict[int, list[int]] = {number: [] for number in range(first, first + count)}
        """Of each producer, the pointer of each put that was acknowledged."""
        self.gaps: list[float] = []
        """How long each put took, in seconds."""
        self._is_over = threading.Event()
        self._threads = [
            threading.Thread(target=self._produce, args=(number,), daemon=True)
            for number in self.acked
        ]

    def __enter__(self):
        for each in self._threads:
            each.start()
        return self

    def __exit__(self, kind, error, traceback):
        self._is_over.set()
        for each in self._threads:
            each.join(60)
        assert not any(each.is_alive() for each in self._threads)

    def count(self):
        return sum(map(len, self.acked.values()))

    def wait_more(self, count=20, timeout_s=60):
        """Wait until so many more puts were acknowledged."""
        goal = self.count() + count
        wait_until(lambda: self.count() >= goal, timeout_s)

    def value(self, producer, number):
        return b"%d-%d" % (producer, number)

    def _produce(self, producer):
        hosts = [each.host.client_address for each in self.nodes]
        at = producer
        socket = None
        began_s = time.monotonic()
        while not self._is_over.is_set():
            number = len(self.acked[producer])
            put_id = PutId(b"%016d" % producer, 0, number)
            try:
                if socket is None:
                    socket = protocol.socket(hosts[at % len(hosts)], PORT, timeout_s=CALL_S)
                pointer = socket.write(
                    self.topic, [self.value(producer, number)] * self.batch, put_id=put_id
                )
            except (PoeError, OSError):
                if socket is not None:
                    socket.close()
                socket = None
                at += 1
                self._is_over.wait(_PAUSE_S)
                continue
            self.acked[producer].append(pointer)
            self.gaps.append(time.monotonic() - began_s)
            began_s = time.monotonic()
        if socket is not None:
            socket.close()

    # ---- judging --------------------------------------------------------------------------------

    def held(self, node):
        """All messages at a node, with their pointers."""
        found: list[tuple[int, bytes]] = []
        pointer = 0
        with protocol.socket(node.host.client_address, PORT, timeout_s=CALL_S) as socket:
            while True:
                batch = socket.read(self.topic, pointer, 10_000)
                if not batch:
                    return found
                found += batch
                pointer = batch[-1][0]

    def has_all(self, node):
        """Whether a node's copy goes up to the end of the stream, as its engine tells it.

        That all have the same does not say so: after a start they may all have nothing yet.
        """
        try:
            told = node.control("cluster_logs")["topics"].get(self.topic)
        except PoeError:  # it has just begun
            return False
        return told is not None and told["place"] == told.get("last_place")

    def differences(self):
        """What some nodes hold, and others do not."""
        first, *others = [set(self.held(node)) for node in self.nodes]
        return [record for other in others for record in sorted(first ^ other)]

    def judge(self):
        """Assert what is promised, once all nodes have all."""
        # What was in doubt may still come, at one node sooner than at another one.
        try:
            wait_until(lambda: all(map(self.has_all, self.nodes)) and self.differences() == [], 60)
        except AssertionError:
            copies = [each.control("cluster_logs")["topics"].get(self.topic) for each in self.nodes]
            pytest.fail(f"not all have all: {copies}, {self.differences()[:10]}")
        first = self.held(self.nodes[0])
        pointers = [pointer for pointer, _ in first]
        assert pointers == sorted(set(pointers)), "pointers rise"
        last: dict[bytes, list[int]] = {}
        for pointer, value in first:
            last.setdefault(bytes(value), []).append(pointer)
        for producer, acked in self.acked.items():
            for number, pointer in enumerate(acked):
                at = last.get(self.value(producer, number), [])
                assert len(at) == self.batch, "an acknowledged put is there, whole and once"
                assert at[-1] == pointer, "at the pointer that was told"
            assert acked == sorted(acked), "a producer's puts are in its order"
        for value, at in last.items():
            assert value != b"refused"
            if value != b"in doubt":
                assert len(at) == self.batch, f"{value!r} is whole, and there once"
