"""Measures how long a lone client waits for one message to be stored, or read, over a socket.

The servers take turns within a round, each started anew. A wait is told in whole microseconds.
"""

from collections.abc import Iterator

from bench import rounds
from bench.build import build
from bench.row import Sample
from bench.scenarios import POE, SERVERS, Scenario, left_out, measure

WORKS = {
    "lone put": Scenario("lone put", "write", 1, 1, {}, connections=1),
    "lone get": Scenario("lone get", "read", 1, 1, {}, connections=1),
}
BAR = 0.65
"""Of what Redis takes."""


def measure_rounds(count: int, *, quick: bool) -> Iterator[list[Sample]]:
    """Yield p50 and p99 of each server, and the ratio to Redis where that is here."""
    missing = left_out(build())
    servers = [each for each in SERVERS if each not in missing and each != "limit"]
    for _ in range(count):
        samples = []
        for name, work in WORKS.items():
            found = {each: measure(each, work, 0.3 if quick else 1.0) for each in servers}
            if "redis" in found:
                ratio = found[POE]["p50_us"] / found["redis"]["p50_us"]
                samples.append(Sample.at_most(f"{name}, p50", ratio, "× Redis", BAR))
            for server, each in found.items():
                for part in ("p50", "p99"):
                    measured = f"{name}, {server}, {part}"
                    samples.append(Sample.at_least(measured, each[f"{part}_us"], "µs", 0))
        yield samples
        servers.reverse()


if __name__ == "__main__":
    rounds.main(measure_rounds)
