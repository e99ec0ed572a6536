"""Measures the time from process start to readiness line, with many sealed segments.

The segments are written once, and lie in the page cache. A start leaves no files beside them, so
every round finds the same folder.
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
        for _ in range(count):
            yield [start_sample(folder, segment_count)]


def start_sample(folder: Path, segment_count: int) -> Sample:
    """Seconds from process start to readiness line."""
    name = f"start-up with {segment_count:,} sealed segments of {MESSAGES_PER_SEGMENT:,} messages"
    with poe(folder) as running:
        return Sample.at_most(name, running.ready_after_s, "s", 1)


if __name__ == "__main__":
    rounds.main(measure_rounds)
