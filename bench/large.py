"""Measures whether much data slows a node down: 10⁸ messages on one topic, or 100,000 topics.

A small topic is read and written in a folder of its own, and beside 100,000 others of ten messages
each; and one of 1,000 segments. The segments are written once, for all rounds, by the layout of the
files; the messages have one byte, so that they fit into the page cache. The three take turns.
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
    """Yield for each of the two the ratios to the small topic, the start and the memory."""
    build()
    segment_count, topic_count, seconds = (50, 500, 0.3) if quick else (1000, 99_999, 1.0)
    with tempfile.TemporaryDirectory(prefix="poe-bench-") as name:
        small, large, many = (Path(name, each) for each in ("small", "large", "many"))
        write_sealed_segments(small, "t0", SMALL_COUNT, MESSAGES_PER_SEGMENT, 1)
        write_sealed_segments(large, "t0", segment_count, MESSAGES_PER_SEGMENT, 1)
        write_sealed_segments(many, "t0", SMALL_COUNT, MESSAGES_PER_SEGMENT, 1)
        for number in range(topic_count):
            write_sealed_segments(many, f"other{number}", 1, 10, 1)
        with poe(many):
            pass  # files of another program are looked into; from then on they rest
        messages_count = segment_count * MESSAGES_PER_SEGMENT
        names = {
            large: f"{messages_count:,} messages in {segment_count:,} segments",
            many: f"a topic beside {topic_count:,} others of 10",
        }
        folders = [large, small, many]
        for _ in range(count):
            found = {folder: _measure(folder, seconds) for folder in folders}
            small_read, small_write, *_ = found[small]
            yield [
                sample
                for folder, what in names.items()
                for sample in _samples(what, *found[folder], small_read, small_write)
            ]
            folders.reverse()  # who comes second finds the memory warm


def _samples(  # noqa: PLR0913, PLR0917 - what was measured, and what of the small one
    what: str,
    read: float,
    write: float,
    start_s: float,
    memory: int,
    small_read: float,
    small_write: float,
) -> list[Sample]:
    return [
        Sample.at_least(f"{what}: read", read / small_read, "× a small topic", 0.9),
        Sample.at_least(f"{what}: write", write / small_write, "× a small topic", 0.9),
        Sample.at_most(f"{what}: start", start_s, "s", 3),
        Sample.at_least(f"{what}: RSS", memory / 1e6, "MB", 0),
    ]


def _measure(folder: Path, seconds: float) -> tuple[float, float, float, int]:
    """Return messages per second read and written, the seconds of the start, and the memory."""
    with poe(folder) as running:
        read = load("poeload", running.port, READ, seconds)["msgs_s"]
        warm_pages(seconds)
        write = load("poeload", running.port, WRITE, seconds)["msgs_s"]
        return read, write, running.ready_after_s, running.memory_bytes()


if __name__ == "__main__":
    rounds.main(measure_rounds)
