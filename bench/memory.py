"""Measures what a node holds: just started, per hibernating segment, per message in an open one."""

import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from bench import rounds
from bench.load import connect, exchange, pointer_frame, put_frame, walk
from bench.processes import HOST, Running, poe
from bench.row import Sample
from bench.sealed import write_sealed_segments

SETTLE_S = 2.5
MESSAGES_PER_SEGMENT = 10
BATCH = 1000
FRAME = put_frame(b"t0", [b"a" * 100] * BATCH)
# The first messages grow what every node needs once; they are not counted. Both counts are
# multiples of six batches, after which as many entries wait to be written to the index.
COUNT_BEFORE = 600_000
ONE_LARGE_SEGMENT = (
    *("--count-limit", "1000000000", "--size-limit", str(1 << 36)),
    *("--worker-timeout", "3600"),
)


def measure_rounds(count: int, *, quick: bool) -> Iterator[list[Sample]]:
    """Start each server anew, round by round; the sealed segments are written once."""
    segment_count, message_count = (500, 600_000) if quick else (10_000, 6_000_000)
    with tempfile.TemporaryDirectory(prefix="poe-bench-") as name:
        folder = Path(name)
        write_sealed_segments(folder, "bench", segment_count, MESSAGES_PER_SEGMENT, 100)
        for _ in range(count):
            just_started = node_sample()
            yield [
                just_started,
                segment_sample(folder, segment_count, just_started.value * 1e6),
                message_sample(message_count),
            ]


def node_sample() -> Sample:
    """The node just started."""
    with tempfile.TemporaryDirectory(prefix="poe-bench-") as folder, poe(Path(folder)) as running:
        return Sample.at_most("node just started, RSS", settled_bytes(running) / 1e6, "MB", 60)


def segment_sample(folder: Path, segment_count: int, empty_bytes: float) -> Sample:
    """The share of each hibernating segment."""
    with poe(folder) as running:
        share = (settled_bytes(running) - empty_bytes) / segment_count
    return Sample.at_most(f"hibernating segment, of {segment_count:,}", share, "B", 10_000)


def message_sample(count: int) -> Sample:
    """The share of each message in one open segment that no limit closes."""
    with (
        tempfile.TemporaryDirectory(prefix="poe-bench-") as folder,
        poe(Path(folder), ONE_LARGE_SEGMENT) as running,
    ):
        store_and_read(running, COUNT_BEFORE)
        before = settled_bytes(running)
        store_and_read(running, count)
        share = (settled_bytes(running) - before) / count
    return Sample.at_most(f"message in an open segment, of {count:,}", share, "B", 12)


def settled_bytes(running: Running) -> int:
    """Memory after every idle actor has had the time to hibernate."""
    time.sleep(SETTLE_S)
    return running.memory_bytes()


def store_and_read(running: Running, count: int) -> None:
    """Store so many messages, exactly, then read all that is stored.

    Read, too, because only a look-up maps the index into memory.
    """
    reply = bytearray(1 << 20)
    pointer, found = 0, BATCH
    with connect(HOST, running.port) as connection:
        for _ in range(count // BATCH):
            exchange(connection, FRAME, reply)
        while found:
            length = exchange(connection, pointer_frame(b"t0", pointer, BATCH), reply)
            found, pointer = walk(reply, length)


if __name__ == "__main__":
    rounds.main(measure_rounds)
