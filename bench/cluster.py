"""Measures queues across three nodes: puts in two copies, leases, faults, and what a cluster costs.

Rates and waits are those of three nodes on this machine's loopback, loaded by the programs that
load topics. What a cut, a slow link or a frozen node does is measured on hosts of their own, as
tests of clusters make them; where network namespaces are not permitted that is left out.
"""

import contextlib
import json
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from bench import fabric, rounds
from bench.build import BUILD, build
from bench.processes import HOST, Running, free_port, poe
from bench.row import Sample
from bench.scenarios import CONNECTIONS, Scenario, load
from poe.protocol import Done, LeaseRequest, Socket
from poe.protocol import socket as open_socket
from tests.cluster.network import reason_for_no_network
from tests.cluster.nodes import PORT, Nodes, RunningNode, nodes

COPIES = 2
QUEUE = "t0"
"""The one that load generators put onto and take from."""
SINGLE = Scenario("single", "write", 1, 1, {}, connections=1)
BATCHED = Scenario("batched", "write", 1, fabric.BATCH, {})
LARGE_BYTES = 60_000
WAIT_S = 60
"""How long anything may take before the measurement is given up."""


def measure_rounds(count: int, *, quick: bool) -> Iterator[list[Sample]]:
    """Begin with new nodes, round by round."""
    build()
    reason = reason_for_no_network()
    if reason is not None:
        print(f"faults are left out: {reason}", file=sys.stderr)
    for _ in range(count):
        samples = [_import(), *_idle(2 if quick else 20), *_rates(quick=quick)]
        if reason is None:
            samples += _neighbour(0.5 if quick else 4)
            samples += _seen()
        yield samples


# --- Rates ---------------------------------------------------------------------------------------


def _rates(*, quick: bool) -> list[Sample]:
    """What clients of one node can do, while two others hold second copies."""
    seconds = 0.5 if quick else 2
    bare = _bare_fabric(quick=quick)
    with _three() as (first, *_):
        _make_queue(first)
        single = load("poeload", first.port, SINGLE, seconds)
        batched = load("poeload", first.port, BATCHED, seconds)
        leased = _lease_load(first.port, min(seconds, 1))
    name = f"batches of {fabric.BATCH}, 2 copies"
    return [
        Sample.at_least("one message, 2 copies, p50", single["p50_us"] / 1e3, "ms", 0),
        Sample.at_most("one message, 2 copies, p99", single["p99_us"] / 1e3, "ms", 3),
        Sample.at_least("one message, 2 copies, one at a time", single["msgs_s"], "msg/s", 800),
        Sample.at_least(name, batched["msgs_s"], "msg/s", 60_000),
        Sample.at_least(
            f"{name}, beside the bare fabric", batched["msgs_s"] / bare, "× fabric", 0.5
        ),
        Sample.at_least(
            "100 per lease, acknowledged, of a queue in 2 copies", leased["msgs_s"], "msg/s", 60_000
        ),
    ]


def _bare_fabric(*, quick: bool) -> float:
    """Return what the fabric alone carries to one other node, in messages per second."""
    command = [sys.executable, "-m", "bench.fabric", "--rounds", "1", *["--quick"] * quick]
    (samples,) = map(rounds.parse_round, subprocess.check_output(command, text=True).splitlines())
    (rate,) = (
        each.value for each in samples if "batches" in each.measure and "1 other" in each.measure
    )
    return rate


def _lease_load(port: int, seconds: float) -> dict[str, float]:
    """Take 100 messages at a time from the queue, and acknowledge them with the next request."""
    command = [BUILD / "groupload", HOST, port, CONNECTIONS, 100, seconds]
    told: dict[str, float] = json.loads(subprocess.check_output([*map(str, command)]))
    return told


@contextlib.contextmanager
def _three() -> Iterator[list[Running]]:
    """Run three nodes of one cluster on this machine."""
    ports = [free_port() for _ in range(3)]
    with contextlib.ExitStack() as stack:
        running = []
        for port in ports:
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="poe-bench-"))
            running.append(stack.enter_context(poe(Path(folder), _options(port, ports))))
        _wait_until(lambda: all(_live(each.port) == len(ports) for each in running))
        yield running


def _options(port: int, seeds: list[int]) -> list[str]:
    others = [f"{HOST}:{each}" for each in seeds if each != port]
    return ["--cluster", "bench", "--cluster-port", str(port), "--seeds", ",".join(others)]


def _live(port: int) -> int:
    with open_socket(HOST, port) as socket:
        return len(_names(socket))


def _names(socket: Socket) -> set[str]:
    """Return the names of the nodes that live, as one sees it."""
    members = socket.control("cluster_members")
    return {each["name"] for each in members if each["liveness"] != "down"}


def _make_queue(running: Running) -> None:
    """Make a queue that takes more than is put onto it, and a group, so that nothing is dropped."""
    with open_socket(HOST, running.port) as socket:
        _create(socket, QUEUE)
        _join(socket, "bench", QUEUE)


def _create(socket: Socket, name: str) -> None:
    room = {"bytes_max": 8 << 30, "messages_max": 1 << 26}
    socket.control("queue_create", topic=name, copies=COPIES, **room)


def _join(socket: Socket, group: str, queue: str) -> bytes:
    member = b"\xff" * 16
    named = {"group": group, "mode": "shared", "topics": [queue]}
    socket.control("group_join", member=member, **named)
    return member


# --- What a cluster costs ------------------------------------------------------------------------


def _import() -> Sample:
    """How much of zenoh is loaded by who only imports Poe."""
    code = "import poe, sys; print(sum(name.split('.')[0] == 'zenoh' for name in sys.modules))"
    told = subprocess.check_output([sys.executable, "-c", code])
    return Sample.at_most("modules of zenoh that `import poe` loads", int(told), "modules", 0)


def _idle(seconds: float) -> list[Sample]:
    """What an idle node takes, beside one without a cluster."""
    with tempfile.TemporaryDirectory(prefix="poe-bench-") as folder, poe(Path(folder)) as alone:
        with open_socket(HOST, alone.port) as socket:
            socket.control("topics")
        alone_bytes = alone.memory_bytes()
    with _three() as running:
        time.sleep(1)  # until all have told each other what there is to tell
        before_s = [each.cpu_s() for each in running]
        begun_s = time.perf_counter()
        time.sleep(seconds)
        took_s = time.perf_counter() - begun_s
        shares = [
            (each.cpu_s() - before) / took_s for each, before in zip(running, before_s, strict=True)
        ]
        grown = statistics.median(each.memory_bytes() for each in running) - alone_bytes
    return [
        Sample.at_most("an idle node of three, memory beside none", grown / 1e6, "MB more", 40),
        Sample.at_most("an idle node of three, processor", max(shares) * 100, "% of a core", 1),
    ]


# --- Faults --------------------------------------------------------------------------------------


def _neighbour(seconds: float) -> list[Sample]:
    """How long one message waits at a healthy node, while another one is slow, or frozen."""
    samples = []
    for what, hurt in (("on a link of 10 Mbit/s", _slow_down), ("frozen", _freeze)):
        with _hosts() as cluster:
            first, third = cluster["a"], cluster["c"]
            with _connect(first) as socket:
                for name in ("probe", "large"):
                    _create(socket, name)
            hurt(cluster, third)
            with _stream(first):
                waits = sorted(_waits(first, seconds))
            third.process.thaw()
        p99_ms = waits[len(waits) * 99 // 100] * 1e3
        name = f"one message, 2 copies, while another node is {what}, p99"
        samples.append(Sample.at_most(name, p99_ms, "ms", 5))
    return samples


def _slow_down(cluster: Nodes, node: RunningNode) -> None:
    cluster.net.slow_down(node.host, "10mbit")


def _freeze(_: Nodes, node: RunningNode) -> None:
    node.process.freeze()


@contextlib.contextmanager
def _stream(node: RunningNode) -> Iterator[None]:
    """Put large messages onto another queue through a node all the while, up to 12 MB a second."""
    is_over = threading.Event()

    def put() -> None:
        with _connect(node) as socket:
            while not is_over.wait(0.005):
                socket.control("queue_put", topic="large", messages=[bytes(LARGE_BYTES)])

    thread = threading.Thread(target=put)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()


def _waits(node: RunningNode, seconds: float) -> Iterator[float]:
    """Put one message after the other, a hundred in a second; yield how long each took."""
    with _connect(node) as socket:
        end_s = time.perf_counter() + seconds
        while (begun_s := time.perf_counter()) < end_s:
            socket.control("queue_put", topic="probe", messages=[b"x" * 100])
            yield time.perf_counter() - begun_s
            time.sleep(0.01)


def _seen() -> list[Sample]:
    """How soon a kill and a cut are seen, and how soon after a heal all nodes know the same."""
    with _hosts() as cluster:
        killed_s = _until_missed(cluster, cluster["c"].kill)
    with _hosts() as cluster:
        third = cluster["c"]
        with _connect(cluster["a"]) as socket:
            _create(socket, QUEUE)
            _join(socket, "bench", QUEUE)
            batch = [b"x" * 100] * 100
            for _ in range(100):
                socket.control("queue_put", topic=QUEUE, messages=batch, copies=3)
        cut_s = _until_missed(cluster, lambda: cluster.net.cut_off(third.host))
        _wait_until(lambda: third.live() == {"c"})
        _drain(cluster["a"])
        assert _held(third)
        begun_s = time.perf_counter()
        cluster.net.connect(third.host)
        _wait_until(lambda: not any(map(_held, cluster)))
        equal_s = time.perf_counter() - begun_s
    return [
        Sample.at_most("until a kill is seen by all others", killed_s, "s", 0.1),
        Sample.at_most("until a cut is seen by all others", cut_s, "s", 2.5),
        Sample.at_most("from a heal until all nodes know the same", equal_s, "s", 15),
    ]


def _until_missed(cluster: Nodes, hurt: Callable[[], None]) -> float:
    """Return how long it takes until the first two nodes see each other alone."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(_connect(cluster[name])) for name in "ab"]
        begun_s = time.perf_counter()
        hurt()
        _wait_until(lambda: all(_names(each) == {"a", "b"} for each in sockets))
        return time.perf_counter() - begun_s


def _drain(node: RunningNode) -> None:
    """Take all that a node hands out, and acknowledge it."""
    with _connect(node) as socket:
        member = _join(socket, "bench", QUEUE)
        done: list[Done] = []
        while True:
            request = LeaseRequest("bench", member, 1000, 1 << 20, wait_s=0.5, done=done)
            lease = socket.lease(request).lease
            if not lease.id:
                return
            done = [Done(lease.id)]


def _held(node: RunningNode) -> int:
    """Return how many messages of the queue a node holds."""
    rows: list[dict[str, Any]] = node.control("queues")
    return sum(row["messages"] for row in rows if row["name"] == QUEUE.encode())


@contextlib.contextmanager
def _hosts() -> Iterator[Nodes]:
    """Run three nodes on hosts of their own."""
    with (
        tempfile.TemporaryDirectory(prefix="poe-bench-") as folder,
        nodes(Path(folder), 3) as cluster,
    ):
        yield cluster


def _connect(node: RunningNode) -> Socket:
    return open_socket(node.host.client_address, PORT, timeout_s=WAIT_S)


def _wait_until(condition: Callable[[], bool]) -> None:
    deadline_s = time.perf_counter() + WAIT_S
    while not condition():
        if time.perf_counter() > deadline_s:
            msg = f"not so within {WAIT_S} s: {condition}"
            raise TimeoutError(msg)
        time.sleep(0.001)


if __name__ == "__main__":
    rounds.main(measure_rounds)
