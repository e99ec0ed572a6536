"""Measures the time from process start to readiness line, with many sealed segments.

The segments are written once, and lie in the page cache. A first start is not counted: it alone
would find no files of Poe's own beside them.
"""

import tempfile
from collections.abc import Iterator
from pathlib import Path

from bench import rounds
from bench.processes import poe
from bench.row import Sample
from bench.sealed import write_sealed_segments

MESSAGES_PER_SEGMENT = 100_000


def measure_rounds(count: int, *, quick: bool) -> Iterator[list[Sample]]:
    """Start on the same folder, round by round."""
    segment_count = 50 if quick else 1000
    with tempfile.TemporaryDirectory(prefix="poe-bench-") as name:
        folder = Path(name)
        write_sealed_segments(folder, "bench", segment_count, MESSAGES_PER_SEGMENT, 1)
        start_s(folder)
        for _ in range(count):
            yield [start_sample(folder, segment_count)]


def start_sample(folder: Path, segment_count: int) -> Sample:
    """Start-up time with all segments."""
    name = f"start-up with {segment_count:,} sealed segments of {MESSAGES_PER_SEGMENT:,} messages"
    return Sample.at_most(name, start_s(folder), "s", 1)


def start_s(folder: Path) -> float:
    """Seconds from process start to readiness line."""
    with poe(folder) as running:
        return running.ready_after_s


if __name__ == "__main__":
    rounds.main(measure_rounds)
