"""Measures the API within a process: one message at a time, and a hundred at a time.

`put` and `next` are timed over the first and the last stretch of a store that grows to ten million
messages; what lies between is filled by `put_many`, whose rate is measured apart.
"""

import tempfile
import time
from collections.abc import Iterator

import poe
from bench import rounds
from bench.row import Sample
from bench.warm_pages import warm_pages

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


def measure_rounds(count: int, *, quick: bool) -> Iterator[list[Sample]]:
    """Fill a new store in a temporary folder, round by round."""
    stored, stretch = (300_000, 50_000) if quick else (10_000_000, 1_000_000)
    for _ in range(count):
        with tempfile.TemporaryDirectory(prefix="poe-bench-") as folder:
            poe.start(dir=folder, port=None)
            try:
                samples = measure(stored, stretch)
            finally:
                poe.stop()
        yield samples


def measure(stored: int, stretch: int) -> list[Sample]:
    """All samples of a round, on a store that grows to `stored` messages."""
    warm_pages(1)
    fill(STORED_FIRST)
    first_put = put_rate(stretch)
    before_last = fill(stored - STORED_FIRST - 2 * stretch)
    warm_pages(1)
    last_put = put_rate(stretch)
    first_next = next_rate(0, stretch)
    last_next = next_rate(before_last, stretch)
    warm_pages(1)
    many = put_many_rate(2 * stretch)
    size = f"{stored:,} stored"
    return [
        Sample.at_least("poe.put, first stretch", first_put, "/ s", 100_000),
        Sample.at_least(f"poe.put, last stretch, {size}", last_put, "/ s", 100_000),
        Sample.at_least("poe.put, last / first", last_put / first_put, "×", 0.8),
        Sample.at_least("poe.next, first stretch", first_next, "/ s", 100_000),
        Sample.at_least(f"poe.next, last stretch, {size}", last_next, "/ s", 100_000),
        Sample.at_least("poe.next, last / first", last_next / first_next, "×", 0.8),
        Sample.at_least("poe.put_many, 100 at a time", many, "/ s", 2_000_000),
    ]


if __name__ == "__main__":
    rounds.main(measure_rounds)
