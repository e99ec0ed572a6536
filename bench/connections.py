"""Measures what ten thousand idle connections cost the one that works."""

import argparse
import contextlib
import socket
import statistics
import tempfile
from pathlib import Path

from bench.load import Load, run
from bench.processes import HOST, Running, poe, raise_descriptor_limit
from bench.row import Row, print_rows

ROUNDS = 5


def busy_rate(running: Running, seconds: float) -> float:
    """Messages per second of one connection; the median of the rounds."""
    load = Load(HOST, running.port, "write", 1, 1, 100, 100, seconds)
    return statistics.median(float(str(run(load)["msgs_s"])) for _ in range(ROUNDS))


def measure(connection_count: int, seconds: float) -> list[Row]:
    """Alone first, then beside the idle ones."""
    options = ["--connections-max", str(connection_count + 100)]
    with (
        tempfile.TemporaryDirectory(prefix="poe-bench-") as folder,
        poe(Path(folder), options) as running,
        contextlib.ExitStack() as idle,
    ):
        alone = busy_rate(running, seconds)
        before = running.memory_bytes()
        for _ in range(connection_count):
            idle.enter_context(socket.create_connection((HOST, running.port)))
        beside = busy_rate(running, seconds)
        held = running.memory_bytes() - before
    name = f"{connection_count:,} idle connections"
    return [
        Row.at_least(f"one busy beside {name}, rate", beside / alone, "× alone", 0.9),
        Row.at_most(f"{name}, RSS", held / 1e6, "MB", 100),
    ]


def main() -> None:
    """Measure on one server."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    quick = parser.parse_args().quick
    raise_descriptor_limit()
    print_rows(measure(500, 0.2) if quick else measure(10_000, 1.0))


if __name__ == "__main__":
    main()
