"""Measures what a node holds: just started, per hibernating segment, per message in an open one."""

import argparse
import tempfile
import time
from pathlib import Path

from bench.load import Load, run
from bench.processes import HOST, Running, poe, raise_descriptor_limit
from bench.row import Row, print_rows
from bench.sealed import write_sealed_segments

SETTLE_S = 2.5
MESSAGES_PER_SEGMENT = 10


def settled_bytes(running: Running, field: str = "VmRSS") -> int:
    """Memory after every idle actor has had the time to hibernate."""
    time.sleep(SETTLE_S)
    return running.memory_bytes(field)


def measure_segments(segment_count: int) -> list[Row]:
    """The node just started, and the share of each hibernating segment."""
    with tempfile.TemporaryDirectory(prefix="poe-bench-") as folder, poe(Path(folder)) as running:
        empty = settled_bytes(running)
    with tempfile.TemporaryDirectory(prefix="poe-bench-") as folder:
        write_sealed_segments(Path(folder), "bench", segment_count, MESSAGES_PER_SEGMENT, 100)
        with poe(Path(folder)) as running:
            per_segment = (settled_bytes(running) - empty) / segment_count
    return [
        Row.at_most("node just started, RSS", empty / 1e6, "MB", 60),
        Row.at_most(f"hibernating segment, of {segment_count:,}", per_segment, "B", 10_000),
    ]


def measure_messages(seconds: float) -> list[Row]:
    """The share of each message in one open segment that no limit closes."""
    options = ["--count-limit", "1000000000", "--size-limit", str(1 << 36)]
    options += ["--worker-timeout", "3600"]
    with (
        tempfile.TemporaryDirectory(prefix="poe-bench-") as folder,
        poe(Path(folder), options) as running,
    ):
        # The first messages grow what every connection needs once; they are not counted.
        stored_and_read(running, 0.3)
        before = settled_bytes(running)
        count = stored_and_read(running, seconds)
        held = settled_bytes(running) - before
    return [Row.at_most(f"message in an open segment, of {count:,}", held / count, "B", 12)]


def stored_and_read(running: Running, seconds: float) -> int:
    """Write for a while, then read as long; return how many messages that stored.

    Read, too, because only a look-up maps the index into memory.
    """
    write = Load(HOST, running.port, "write", 2, 1, 100, 100, seconds)
    count = int(float(str(run(write)["msgs_s"])) * seconds)
    run(Load(HOST, running.port, "read", 2, 1, 1000, 100, seconds))
    return count


def main() -> None:
    """Measure each in a server of its own."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    quick = parser.parse_args().quick
    raise_descriptor_limit()
    print_rows(measure_segments(500 if quick else 10_000) + measure_messages(0.5 if quick else 3.0))


if __name__ == "__main__":
    main()
