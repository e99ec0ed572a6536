"""Measures replicated topics of three nodes, engines included: puts, reads, a wiped node.

The bare engine is loaded beside it in the same round: the same three servers, the same entries of
one batch each, as many under way, and nobody who follows the stream.
"""

import contextlib
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from bench import rounds
from bench.build import build
from bench.processes import HOST, Running, free_port, poe
from bench.row import Sample
from bench.scenarios import Scenario, load
from poe.cluster.log.engine import NotStored, Stored
from poe.errors import PoeError
from poe.protocol import Socket
from poe.protocol import socket as open_socket
from tests.cluster.log.engines import Engines

UNDER_WAY = 32
"""Puts that wait for a majority at a time."""
TOPIC = "t0"
"""The one that load generators put onto and read from."""
SINGLE = Scenario("single", "write", 1, 1, {}, connections=1)
BATCHED = Scenario("batched", "write", 1, 100, {}, connections=UNDER_WAY)
READ = Scenario("read", "read", 1, 100, {})
ENTRY = b"x" * 10_424
"""A batch of 100 messages of 100 bytes, as an entry has it."""
FILLED = 200_000
WIPED = 10_000_000
WAIT_S = 120


def measure_rounds(count: int, *, quick: bool) -> Iterator[list[Sample]]:
    """Begin with new nodes, round by round."""
    build()
    seconds = 1 if quick else 4
    for _ in range(count):
        bare, bare_ms = _bare_engine(seconds)
        with _three() as running:
            first = running[0]
            samples = _puts(first, seconds, bare, bare_ms)
            samples += _reads(first, seconds)
        yield samples
    if not quick:
        print(f"a wiped node with {WIPED:,} messages: {_wiped():.1f} s", file=sys.stderr)


def _puts(first: Running, seconds: float, bare: float, bare_ms: float) -> list[Sample]:
    batched = load("poeload", first.port, BATCHED, seconds)["msgs_s"]
    single = load("poeload", first.port, SINGLE, seconds)
    p50_ms, p99_ms = single["p50_us"] / 1e3, single["p99_us"] / 1e3
    name = f"100 messages a put, {UNDER_WAY} connections, 3 replicas"
    return [
        Sample.at_least(name, batched, "msg/s", 150_000),
        Sample.at_least(f"{name}, beside the bare engine", batched / bare, "× engine", 0.6),
        Sample.at_most("one message at a time, 3 replicas, p50", p50_ms, "ms", 5),
        Sample.at_most("one message at a time, 3 replicas, p99", p99_ms, "ms", 20),
        Sample.at_most(
            "one at a time beside the bare engine, p50", p50_ms / bare_ms, "× engine", 2
        ),
    ]


def _reads(first: Running, seconds: float) -> list[Sample]:
    with tempfile.TemporaryDirectory(prefix="poe-bench-") as folder, poe(Path(folder)) as plain:
        with open_socket(HOST, plain.port) as socket:
            _fill(socket, FILLED)
        there = load("poeload", plain.port, READ, seconds)["msgs_s"]
        here = load("poeload", first.port, READ, seconds)["msgs_s"]
    return [Sample.at_least("reading a copy, beside a plain topic", here / there, "× plain", 0.95)]


def _bare_engine(seconds: float) -> tuple[float, float]:
    """Return messages a second that the engine alone takes, and how long one entry takes, in ms."""
    with (
        tempfile.TemporaryDirectory(prefix="poe-bench-") as folder,
        Engines(Path(folder), 3) as engines,
    ):
        engines.start()
        engines.wait_whole()
        engines.make_stream("s")
        publish = engines["a"].engine.publish
        alone = _published(publish, seconds / 2, 1)
        many = _published(publish, seconds, UNDER_WAY)
    return many * 100 / seconds, seconds / 2 / alone * 1e3


def _published(publish: Callable[..., None], seconds: float, under_way: int) -> int:
    """Return how many entries are stored in so many seconds, with so many under way."""
    is_over, stored = threading.Event(), [0]
    left = threading.Semaphore(0)
    number = iter(range(1 << 60))

    def begin() -> None:
        publish("s", f"{under_way}-{next(number)}", ENTRY, 10.0, told)

    def told(outcome: Stored | NotStored) -> None:
        if is_over.is_set():
            left.release()
            return
        stored[0] += isinstance(outcome, Stored)
        begin()

    for _ in range(under_way):
        begin()
    time.sleep(seconds)
    is_over.set()
    for _ in range(under_way):
        left.acquire(timeout=10)
    return stored[0]


def _wiped() -> float:
    """Return how long a node takes that begins with nothing, until it serves all and is checked."""
    ports = [free_port() for _ in range(6)]
    with contextlib.ExitStack() as stack:
        folders = [
            Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="poe-bench-")))
            for _ in range(3)
        ]
        first, _ = (
            stack.enter_context(poe(folder, _options(number, ports)))
            for number, folder in enumerate(folders[:2])
        )
        with poe(folders[2], _options(2, ports)), open_socket(HOST, first.port) as socket:
            _make(socket)
            _fill(socket, WIPED, batch=1000)
        for name in ("topics", "log"):
            shutil.rmtree(folders[2] / name)
        begun_s = time.perf_counter()
        third = stack.enter_context(poe(folders[2], _options(2, ports)))
        with open_socket(HOST, third.port, timeout_s=WAIT_S) as socket:
            _wait_until(lambda: _is_whole(socket))
            return time.perf_counter() - begun_s


def _is_whole(socket: Socket) -> bool:
    try:
        (rows,) = socket.control("cluster_verify", topic=TOPIC).values()
    except (PoeError, ValueError):
        return False
    return all(row["messages"] == WIPED and not row["differing"] for row in rows)


@contextlib.contextmanager
def _three() -> Iterator[list[Running]]:
    """Run three nodes of one cluster on this machine, with a replicated topic that has messages."""
    ports = [free_port() for _ in range(6)]
    with contextlib.ExitStack() as stack:
        running = []
        for number in range(3):
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="poe-bench-")))
            running.append(stack.enter_context(poe(folder, _options(number, ports))))
        with open_socket(HOST, running[0].port, timeout_s=WAIT_S) as socket:
            _make(socket)
            _fill(socket, FILLED)
        yield running


def _options(number: int, ports: list[int]) -> list[str]:
    peers = [f"{HOST}:{port}" for port in ports[:3]]
    logs = [f"{HOST}:{port}" for port in ports[3:]]
    return [
        *("--cluster", "bench", "--cluster-port", str(ports[number])),
        *("--seeds", ",".join(peers[:number] + peers[number + 1 :]), "--log-engine", "nats"),
        *("--log-port", str(ports[3 + number])),
        *("--log-seeds", ",".join(logs[:number] + logs[number + 1 :])),
    ]


def _make(socket: Socket) -> None:
    def is_made() -> bool:
        with contextlib.suppress(PoeError):
            socket.control("topic_create", topic=TOPIC, properties={"replicas": 3})
            return True
        return False

    _wait_until(is_made)


def _fill(socket: Socket, count: int, batch: int = 1000) -> None:
    messages = [b"x" * 100] * batch
    for _ in range(count // batch):
        socket.write(TOPIC, messages)


def _wait_until(condition: Callable[[], bool]) -> None:
    deadline_s = time.perf_counter() + WAIT_S
    while not condition():
        if time.perf_counter() > deadline_s:
            msg = f"not so within {WAIT_S} s: {condition}"
            raise TimeoutError(msg)
        time.sleep(0.02)


if __name__ == "__main__":
    rounds.main(measure_rounds)
