"""The command line that all benchmark scripts share: measure round by round, print what was found.

A script gives a generator that yields the samples of one round after the other; what rounds have in
common, such as files that take long to write, it sets up once. A round is printed as one JSON line,
which `bench/run.py` reads.
"""

import argparse
import dataclasses
import json
import sys
from collections.abc import Iterator
from typing import Protocol

from bench.processes import interrupt_once, raise_descriptor_limit
from bench.row import Sample

ROUNDS = 5
"""Rounds of a figure, unless the command line says otherwise."""


class MeasureRounds(Protocol):
    """What a script does."""

    def __call__(self, count: int, *, quick: bool) -> Iterator[list[Sample]]:
        """Yield the samples of `count` rounds; `quick` means small, a look that proves nothing."""


def main(measure_rounds: MeasureRounds) -> None:
    """Run a script from its command line."""
    parser = argparse.ArgumentParser(description=sys.modules["__main__"].__doc__)
    parser.add_argument("--quick", action="store_true", help="small: a look, no figure")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    arguments = parser.parse_args()
    interrupt_once()
    raise_descriptor_limit()
    try:
        for samples in measure_rounds(arguments.rounds, quick=arguments.quick):
            print(json.dumps([dataclasses.asdict(sample) for sample in samples]), flush=True)
    except KeyboardInterrupt:
        sys.exit(130)


def parse_round(line: str) -> list[Sample]:
    """The samples of such a line."""
    return [Sample(**fields) for fields in json.loads(line)]
