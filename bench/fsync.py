"""Measures puts that wait for the disk against the disk itself.

64 connections put 100 messages at a time with `ack="fsync"`; beside it, on the same file system,
one thread appends and calls fdatasync, again and again: as many bytes each time as the server had
in a sync, on average, and as many as one put has. In turns, since a disk is faster in one second
than in the next. Where TMPDIR is in memory a sync costs nothing, and the figure says nothing.
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
from bench.scenarios import MESSAGE_BYTES, Scenario, load
from poe.storage.formats.hashed import FILE_HEADER_BYTES
from poe.storage.formats.sum_file import SUMS, Flag

CONNECTIONS = 64
BATCH = 100
NAME = f'write with ack="fsync", {CONNECTIONS} connections of {BATCH} messages'
SCENARIO = Scenario(NAME, "write", 1, BATCH, {}, CONNECTIONS)
PUT_BYTES = len(put_frame(b"t", [os.urandom(MESSAGE_BYTES)] * BATCH))


def measure_rounds(count: int, *, quick: bool) -> Iterator[list[Sample]]:
    """Load a server and the disk one after the other, round by round."""
    build()
    seconds = 0.5 if quick else 2.0
    for _ in range(count):
        before = disk_rate(seconds / 2, PUT_BYTES)
        rate, sync_bytes = server_rate(seconds)
        alike = disk_rate(seconds / 2, sync_bytes)
        yield [
            Sample.at_least(NAME, rate / alike, "× the disk, with as many bytes a sync", 0.5),
            Sample.at_least(f"{NAME}, alone", rate / before, "× the disk, with a sync each", 0.5),
            Sample.at_least(f"{NAME}, shared", sync_bytes / PUT_BYTES, "puts in a sync", 1),
        ]


def server_rate(seconds: float) -> tuple[float, int]:
    """Messages per second of a fresh server, and the bytes that a sync of it had."""
    with (
        tempfile.TemporaryDirectory(prefix="poe-bench-") as folder,
        poe(Path(folder), ["--ack", "fsync"]) as running,
    ):
        rate = load("poeload", running.port, SCENARIO, seconds)["msgs_s"]
        return rate, mean_sync_bytes(Path(folder))


def mean_sync_bytes(folder: Path) -> int:
    """Tell the bytes of data in a sync: the first entry behind each says that it was there."""
    synced_bytes = count = 0
    for path in folder.glob("topics/*/*_sum"):
        entries = [each.entry for each in SUMS.decode(path.read_bytes()[FILE_HEADER_BYTES:], 0)]
        syncs = [entry for entry in entries if entry.flags & Flag.EARLIER_SYNCED]
        if syncs:
            synced_bytes += syncs[-1].end
            count += len(syncs)
    return synced_bytes // count


def disk_rate(seconds: float, sync_bytes: int) -> float:
    """Messages per second when one thread appends and syncs so many bytes at a time."""
    group = os.urandom(sync_bytes)
    with tempfile.TemporaryFile(prefix="poe-bench-", buffering=0) as file:
        count = 0
        started = now = time.perf_counter()
        while now - started < seconds:
            file.write(group)
            os.fdatasync(file.fileno())
            count += 1
            now = time.perf_counter()
    return count * sync_bytes / PUT_BYTES * BATCH / (now - started)


if __name__ == "__main__":
    rounds.main(measure_rounds)
