"""Measures the API within a process: one message at a time, and a hundred at a time.

`put` and `next` are timed over the first and the last stretch of a store that grows to ten million
messages; what lies between is filled by `put_many`, whose rate is measured apart.
"""

import argparse
import tempfile
import time

import poe
from bench.row import Row, print_rows

TOPIC = b"bench"
MESSAGE = b"m" * 74
BATCH = [b"m" * 100] * 100
STORED_FIRST = 10_000


def put_rate(count: int) -> float:
    """Puts per second, one at a time."""
    put = poe.put
    started = time.perf_counter()
    for _ in range(count):
        put(TOPIC, MESSAGE)
    return count / (time.perf_counter() - started)


def next_rate(pointer: int, count: int) -> float:
    """Messages per second, one at a time, from the one that follows `pointer`."""
    follow = poe.next
    started = time.perf_counter()
    for _ in range(count):
        found = follow(TOPIC, pointer)
        assert found is not None, "the store ended before the stretch did"
        pointer = found[0]
    return count / (time.perf_counter() - started)


def fill(count: int) -> int:
    """Store `count` more messages; return the pointer of the last."""
    pointer = 0
    messages = [MESSAGE] * 1000
    for _ in range(count // len(messages)):
        pointer = poe.put_many(TOPIC, messages)
    return pointer


def put_many_rate(count: int) -> float:
    """Messages per second, a hundred at a time."""
    started = time.perf_counter()
    for _ in range(count // len(BATCH)):
        poe.put_many(b"bench_many", BATCH)
    return count / (time.perf_counter() - started)


def measure(stored: int, stretch: int) -> list[Row]:
    """All rows, on a store that grows to `stored` messages."""
    fill(STORED_FIRST)
    first_put = put_rate(stretch)
    before_last = fill(stored - STORED_FIRST - 2 * stretch)
    last_put = put_rate(stretch)
    first_next = next_rate(0, stretch)
    last_next = next_rate(before_last, stretch)
    size = f"{stored:,} stored"
    return [
        Row.at_least("poe.put, first stretch", first_put, "/ s", 100_000),
        Row.at_least(f"poe.put, last stretch, {size}", last_put, "/ s", 100_000),
        Row.at_least("poe.put, last / first", last_put / first_put, "×", 0.8),
        Row.at_least("poe.next, first stretch", first_next, "/ s", 100_000),
        Row.at_least(f"poe.next, last stretch, {size}", last_next, "/ s", 100_000),
        Row.at_least("poe.next, last / first", last_next / first_next, "×", 0.8),
        Row.at_least("poe.put_many, 100 at a time", put_many_rate(2 * stretch), "/ s", 2_000_000),
    ]


def main() -> None:
    """Measure in a temporary folder."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    quick = parser.parse_args().quick
    stored, stretch = (300_000, 50_000) if quick else (10_000_000, 1_000_000)
    with tempfile.TemporaryDirectory(prefix="poe-bench-") as folder:
        poe.start(dir=folder, port=None)
        try:
            rows = measure(stored, stretch)
        finally:
            poe.stop()
    print_rows(rows)


if __name__ == "__main__":
    main()
