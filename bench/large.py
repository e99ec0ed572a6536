"""Measures whether a topic of 10⁸ messages is as fast as a small one, and what its node takes.

The segments are written once, for all rounds, by the layout of the files; the messages have one
byte, so that they fit into the page cache. Large and small take turns.
"""

import tempfile
from collections.abc import Iterator
from pathlib import Path

from bench import rounds
from bench.build import build
from bench.processes import poe
from bench.row import Sample
from bench.scenarios import Scenario, load
from bench.sealed import write_sealed_segments
from bench.warm_pages import warm_pages

MESSAGES_PER_SEGMENT = 100_000
SMALL_COUNT = 2
READ = Scenario("read", "read", 1, 100, {})
WRITE = Scenario("write", "write", 1, 100, {})


def measure_rounds(count: int, *, quick: bool) -> Iterator[list[Sample]]:
    """Yield the ratios of large to small, the start and the memory of the large one."""
    build()
    segment_count, seconds = (50, 0.3) if quick else (1000, 1.0)
    with tempfile.TemporaryDirectory(prefix="poe-bench-") as name:
        large, small = Path(name, "large"), Path(name, "small")
        write_sealed_segments(large, "t0", segment_count, MESSAGES_PER_SEGMENT, 1)
        write_sealed_segments(small, "t0", SMALL_COUNT, MESSAGES_PER_SEGMENT, 1)
        what = f"{segment_count * MESSAGES_PER_SEGMENT:,} messages in {segment_count:,} segments"
        folders = [large, small]
        for _ in range(count):
            found = {folder: _measure(folder, seconds) for folder in folders}
            (read, write, start_s, memory), (small_read, small_write, *_) = (
                found[large],
                found[small],
            )
            yield [
                Sample.at_least(f"{what}: read", read / small_read, "× a small topic", 0.9),
                Sample.at_least(f"{what}: write", write / small_write, "× a small topic", 0.9),
                Sample.at_most(f"{what}: start", start_s, "s", 3),
                Sample.at_least(f"{what}: RSS", memory / 1e6, "MB", 0),
            ]
            folders.reverse()  # who comes second finds the memory warm


def _measure(folder: Path, seconds: float) -> tuple[float, float, float, int]:
    """Return messages per second read and written, the seconds of the start, and the memory."""
    with poe(folder) as running:
        read = load("poeload", running.port, READ, seconds)["msgs_s"]
        warm_pages(seconds)
        write = load("poeload", running.port, WRITE, seconds)["msgs_s"]
        return read, write, running.ready_after_s, running.memory_bytes()


if __name__ == "__main__":
    rounds.main(measure_rounds)
