"""Measures the time from process start to readiness line, with many sealed segments."""

import argparse
import statistics
import tempfile
from pathlib import Path

from bench.processes import poe, raise_descriptor_limit
from bench.row import Row, print_rows
from bench.sealed import write_sealed_segments

ROUNDS = 3
MESSAGES_PER_SEGMENT = 100_000


def measure(segment_count: int) -> list[Row]:
    """The median of the rounds on one folder."""
    times = []
    with tempfile.TemporaryDirectory(prefix="poe-bench-") as folder:
        write_sealed_segments(Path(folder), "bench", segment_count, MESSAGES_PER_SEGMENT, 1)
        for _ in range(ROUNDS):
            with poe(Path(folder)) as running:
                times.append(running.ready_after_s)
    name = f"start-up with {segment_count:,} sealed segments of {MESSAGES_PER_SEGMENT:,} messages"
    return [Row.at_most(name, statistics.median(times), "s", 1)]


def main() -> None:
    """Measure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    quick = parser.parse_args().quick
    raise_descriptor_limit()
    print_rows(measure(50 if quick else 1000))


if __name__ == "__main__":
    main()
