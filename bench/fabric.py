"""Measures the bare fabric between nodes: copies on other nodes by asks, without any queue.

Three processes on loopback: this one makes records of messages and sends them in an envelope; both
others open it, hash and keep what is in it, and answer with a few bytes. That is the least that any
copy costs; what a queue with as many copies does is held against these figures.
"""

import os
import socket
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from queue import SimpleQueue

from xxhash import xxh3_64_digest

from bench import rounds
from bench.row import Sample
from poe.cluster.fabric.envelope import decode_envelope, encode_envelope
from poe.cluster.fabric.interface import Asked, FabricEvent, PeerUp
from poe.cluster.fabric.zenoh_fabric import ZenohFabric
from poe.cluster.identity import PROTOCOL, NodeRef, Peer
from poe.cluster.options import ClusterOptions
from poe.storage.formats.record import encode_records

HOST = "127.0.0.1"
MESSAGE_BYTES = 100
BATCH = 256
UNDER_WAY = 4
"""Batches without answer, as a `Sender` allows."""
DEADLINE_S = 30.0
COPIES = (1, 2)
"""On other nodes: with the node that is put to, W is one more."""


class Node:
    """A node that answers asks in a thread, as an actor system would."""

    def __init__(self, *seeds: str) -> None:
        options = ClusterOptions(cluster="bench", cluster_port=_free_port(), seeds=seeds)
        self.locator = options.locator
        self.peers: SimpleQueue[NodeRef] = SimpleQueue()
        self._asked: SimpleQueue[Asked] = SimpleQueue()
        self.fabric = ZenohFabric(options)
        ref = NodeRef(os.urandom(8), 1)
        me = Peer(ref, options.name, "", PROTOCOL, os.urandom(8), self.locator)
        self.fabric.open(me, self._hear)

    def _hear(self, event: FabricEvent) -> None:
        if isinstance(event, Asked):
            self._asked.put(event)
        elif isinstance(event, PeerUp):
            self.peers.put(event.peer.ref)

    def serve(self) -> None:
        """Keep what comes, for ever."""
        kept = deque[bytes](maxlen=1000)
        while True:
            asked = self._asked.get()
            (records,) = decode_envelope(asked.payload)
            kept.append(records)
            asked.answer(encode_envelope([xxh3_64_digest(records)]))


def measure_rounds(count: int, *, quick: bool) -> Iterator[list[Sample]]:
    """Ask the same two nodes, round by round."""
    single_count, batch_count = (500, 200) if quick else (5000, 2000)
    node = Node()
    with ExitStack() as stack:
        for _ in range(max(COPIES)):
            stack.enter_context(_other_node(node.locator))
        others = [node.peers.get(timeout=DEADLINE_S) for _ in range(max(COPIES))]
        for _ in range(count):
            samples = list[Sample]()
            for copies in COPIES:
                samples += _one_at_a_time(node.fabric, others[:copies], single_count)
                samples += _batched(node.fabric, others[:copies], batch_count)
            yield samples
    node.fabric.close()


def _one_at_a_time(fabric: ZenohFabric, others: list[NodeRef], count: int) -> list[Sample]:
    message = bytes(MESSAGE_BYTES)
    took_s = []
    began_s = time.perf_counter()
    for _ in range(count):
        sent_s = time.perf_counter()
        payload = _envelope([message], sent_s)
        answers: SimpleQueue[bytes | None] = SimpleQueue()
        for other in others:
            fabric.ask(other, payload, DEADLINE_S, answers.put)
        for _ in others:
            assert answers.get() is not None
        took_s.append(time.perf_counter() - sent_s)
    rate = count / (time.perf_counter() - began_s)
    took_s.sort()
    name = f"bare fabric, one of {MESSAGE_BYTES} B at a time on {_nodes(others)}"
    return [
        Sample.at_most(f"{name}, p50", took_s[count // 2] * 1e3, "ms", 0.65),
        Sample.at_most(f"{name}, p99", took_s[count * 99 // 100] * 1e3, "ms", 1.3),
        Sample.at_least(name, rate, "/s", 1200),
    ]


def _batched(fabric: ZenohFabric, others: list[NodeRef], count: int) -> list[Sample]:
    batch = [bytes(MESSAGE_BYTES)] * BATCH
    free = threading.Semaphore(UNDER_WAY)
    began_s = time.perf_counter()
    for _ in range(count):
        free.acquire()
        payload = _envelope(batch, time.perf_counter())
        answered = _Countdown(len(others), free.release)
        for other in others:
            fabric.ask(other, payload, DEADLINE_S, answered)
    for _ in range(UNDER_WAY):
        free.acquire()
    rate = count * BATCH / (time.perf_counter() - began_s)
    name = f"bare fabric, batches of {BATCH} x {MESSAGE_BYTES} B on {_nodes(others)}"
    return [Sample.at_least(name, rate, "messages/s", 120_000)]


class _Countdown:
    """Calls `done` at the last of so many answers, which come one at a time."""

    def __init__(self, count: int, done: Callable[[], object]) -> None:
        self._left, self._done = count, done

    def __call__(self, answer: bytes | None) -> None:
        assert answer is not None
        self._left -= 1
        if not self._left:
            self._done()


def _nodes(others: list[NodeRef]) -> str:
    return f"{len(others)} other node{'s' * (len(others) > 1)}"


def _envelope(messages: list[bytes], now_s: float) -> bytes:
    records, _ = encode_records(messages, int(now_s * 1e6), MESSAGE_BYTES)
    return encode_envelope([bytes(records)])


@contextmanager
def _other_node(seed: str) -> Iterator[None]:
    root = Path(__file__).parent.parent
    process = subprocess.Popen([sys.executable, "-m", "bench.fabric", "--serve", seed], cwd=root)
    try:
        yield
    finally:
        process.kill()
        process.wait()


def _free_port() -> int:
    with socket.create_server((HOST, 0)) as server:
        port: int = server.getsockname()[1]
        return port


if __name__ == "__main__":
    if sys.argv[1:2] == ["--serve"]:
        Node(sys.argv[2]).serve()
    else:
        rounds.main(measure_rounds)
