"""Measures puts that wait for the disk against the disk itself.

64 connections put 100 messages at a time with `ack="fsync"`; beside it, on the same file system,
one thread appends as many bytes as all of them put at once and calls fdatasync, again and again.
In turns, since a disk is faster in one second than in the next. Where TMPDIR is in memory a sync
costs nothing, and the figure says nothing.
"""

import os
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from bench import rounds
from bench.build import build
from bench.load import put_frame
from bench.processes import poe
from bench.row import Sample
from bench.scenarios import MESSAGE_BYTES, Scenario, message_rate

CONNECTIONS = 64
BATCH = 100
NAME = f'write with ack="fsync", {CONNECTIONS} connections of {BATCH} messages'
SCENARIO = Scenario(NAME, "write", 1, BATCH, {}, CONNECTIONS)


def measure_rounds(count: int, *, quick: bool) -> Iterator[list[Sample]]:
    """Load a server and the disk one after the other, round by round, the first in turns."""
    build()
    seconds = 0.5 if quick else 2.0
    measures = [server_rate, disk_rate]
    for _ in range(count):
        rates = {measure: measure(seconds) for measure in measures}
        yield [Sample.at_least(NAME, rates[server_rate] / rates[disk_rate], "× the disk", 0.5)]
        measures.reverse()


def server_rate(seconds: float) -> float:
    """Messages per second of a fresh server."""
    with (
        tempfile.TemporaryDirectory(prefix="poe-bench-") as folder,
        poe(Path(folder), ["--ack", "fsync"]) as running,
    ):
        return message_rate("poeload", running.port, SCENARIO, seconds)


def disk_rate(seconds: float) -> float:
    """Messages per second when one thread appends and syncs what a group of puts brings."""
    group = put_frame(b"t", [os.urandom(MESSAGE_BYTES)] * BATCH) * CONNECTIONS
    with tempfile.TemporaryFile(prefix="poe-bench-", buffering=0) as file:
        count = 0
        started = now = time.perf_counter()
        while now - started < seconds:
            file.write(group)
            os.fdatasync(file.fileno())
            count += 1
            now = time.perf_counter()
    return count * CONNECTIONS * BATCH / (now - started)


if __name__ == "__main__":
    rounds.main(measure_rounds)
