"""Measures what ten thousand idle connections cost the one that works.

Two servers, one with idle connections and one without, are loaded in turns of a fraction of a
second. One after the other would not do: a server's second five seconds were found to be up to a
quarter slower than its first five without any idle connection.
"""

import contextlib
import socket
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from bench import rounds
from bench.load import connect, exchange, put_frame
from bench.processes import HOST, Running, poe
from bench.row import Sample
from bench.warm_pages import warm_pages

TURNS = 10
TURN_S = 0.2
FRAME = put_frame(b"t0", [b"a" * 100] * 100)


def measure_rounds(count: int, *, quick: bool) -> Iterator[list[Sample]]:
    """Start two servers, round by round."""
    idle_count = 500 if quick else 10_000
    for number in range(count):
        yield measure(idle_count, idle_is_first=number % 2 == 0)


def measure(idle_count: int, *, idle_is_first: bool) -> list[Sample]:
    """The rate beside the idle connections, and the memory that these hold."""
    options = ["--connections-max", str(idle_count + 100)]
    name = f"{idle_count:,} idle connections"
    with contextlib.ExitStack() as stack:
        servers = [serve(stack, options) for _ in range(2)]
        crowded, lone = servers if idle_is_first else servers[::-1]
        before = crowded.memory_bytes()
        for _ in range(idle_count):
            stack.enter_context(socket.create_connection((HOST, crowded.port)))
        ratio = rate_ratio(crowded, lone)
        held = crowded.memory_bytes() - before
    return [
        Sample.at_least(f"one busy beside {name}, rate", ratio, "× alone", 0.9),
        Sample.at_most(f"{name}, RSS", held / 1e6, "MB", 100),
    ]


def serve(stack: contextlib.ExitStack, options: list[str]) -> Running:
    """A server in a folder of its own, until the stack unwinds."""
    folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="poe-bench-"))
    return stack.enter_context(poe(Path(folder), options))


def rate_ratio(crowded: Running, lone: Running) -> float:
    """The one server's calls per second over the other's, each loaded by one connection."""
    with connect(HOST, crowded.port) as beside, connect(HOST, lone.port) as alone:
        for connection in (beside, alone):
            calls_in_a_turn(connection)  # creates the topic
        warm_pages(1)
        calls = {beside: 0.0, alone: 0.0}
        for turn in range(TURNS):
            for connection in (beside, alone) if turn % 2 else (alone, beside):
                calls[connection] += calls_in_a_turn(connection)
    return calls[beside] / calls[alone]


def calls_in_a_turn(connection: socket.socket) -> float:
    """How many calls of a hundred messages fit in a turn."""
    reply = bytearray(1024)
    started = now = time.perf_counter()
    count = 0
    while now - started < TURN_S:
        exchange(connection, FRAME, reply)
        count += 1
        now = time.perf_counter()
    return count * TURN_S / (now - started)


if __name__ == "__main__":
    rounds.main(measure_rounds)
