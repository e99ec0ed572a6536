"""Measures bytes per second with messages of 1 B to 4 KB against messages of their mean size."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

from bench import rounds
from bench.load import Load, run
from bench.processes import HOST, poe
from bench.row import Sample
from bench.scenarios import CONNECTIONS
from bench.warm_pages import warm_pages

SIZE_MAX = 4096
NAME = "write of mixed sizes 1 B – 4 KB, bytes per second"


def measure_rounds(count: int, *, quick: bool) -> Iterator[list[Sample]]:
    """Load two servers one after the other, round by round, the first of a round in turns."""
    seconds = 0.5 if quick else 1.0
    works = [("write", SIZE_MAX // 2), ("write-mixed", SIZE_MAX)]
    for _ in range(count):
        rates = {mode: byte_rate(mode, size, seconds) for mode, size in works}
        yield [Sample.at_least(NAME, rates["write-mixed"] / rates["write"], "× equal sizes", 0.6)]
        works.reverse()


def byte_rate(mode: str, size: int, seconds: float) -> float:
    """Megabytes per second of a fresh server."""
    with (
        tempfile.TemporaryDirectory(prefix="poe-bench-") as folder,
        poe(Path(folder)) as running,
    ):
        warm_pages(seconds)
        work = Load(HOST, running.port, mode, CONNECTIONS, 1, 100, size, seconds)
        return float(str(run(work)["MB_s"]))


if __name__ == "__main__":
    rounds.main(measure_rounds)
