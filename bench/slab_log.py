"""Measures the slab log beside a plain loop and other packages, with the seed's 20-byte messages.

In every round each way is measured right behind the plain loop, so that a machine that is slow for
a while is so for both. What is told is the median of the rounds' ratios.

usage: python -m bench.slab_log [--quick] [--rounds N] [--write-docs]
"""

import argparse
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from bench.build import ROOT
from bench.rounds import ROUNDS
from bench.row import Summary, as_figure
from bench.run import machine
from bench.slab_log_ways import PLAIN_READ, PLAIN_WRITE, READS, WRITES, Way
from bench.warm_pages import warm_pages

DOCUMENT = ROOT / "docs" / "slab-log.md"
BEGIN, END = "<!-- begin: bench.slab_log -->", "<!-- end: bench.slab_log -->"
COUNT = 1_000_000

Rates = dict[str, list[float]]
"""Messages per second and ratios to the plain loop, a value a round, by way."""


def main() -> int:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(prog="python -m bench.slab_log")
    parser.add_argument("--quick", action="store_true", help="small: a look, no figure")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--write-docs", action="store_true", help="refresh docs/slab-log.md")
    arguments = parser.parse_args()
    rounds = 1 if arguments.quick else arguments.rounds
    table, is_met = measure(rounds, COUNT // 10 if arguments.quick else COUNT)
    print(table)
    if arguments.write_docs:
        write_document(table)
    return 0 if is_met else 1


def measure(rounds: int, count: int) -> tuple[str, bool]:
    """Run all ways; return the table, and whether every bar is reached."""
    messages = [b"%020d" % number for number in range(count)]
    rates: Rates = {}
    for number in range(rounds):
        with tempfile.TemporaryDirectory() as folder:
            run_round(Path(folder), messages, rates)
        print(f"slab_log, round {number + 1} of {rounds}", file=sys.stderr, flush=True)
    lines = [
        f"Measured on {time.strftime('%Y-%m-%d')} by `python -m bench.slab_log`: {machine()}.",
        f"{count:,} messages of {len(messages[0])} bytes, of slow packages fewer; {rounds} rounds.",
        *table_of("write", PLAIN_WRITE, WRITES, rates),
        *table_of("read", PLAIN_READ, READS, rates),
    ]
    is_met = all(is_reached(kind, way, rates) for kind, way in all_ways() if way.is_installed())
    return "\n".join(lines) + "\n", is_met


def run_round(folder: Path, messages: list[bytes], rates: Rates) -> None:
    """Measure each way once."""
    for kind, plain, ways in (("write", PLAIN_WRITE, WRITES), ("read", PLAIN_READ, READS)):
        for way in ways:
            if not way.is_installed():
                continue
            if kind == "write":
                # What the last of the log's ways leaves is read later.
                if "Writer" in way.name:
                    shutil.rmtree(folder / "log", ignore_errors=True)
                warm_pages(0.1)
            some = messages[: len(messages) // way.part]
            plain_rate = rate_of(plain, folder, messages)
            rate = rate_of(way, folder, some)
            rates.setdefault(f"{kind} {plain.name}", []).append(plain_rate)
            rates.setdefault(f"{kind} {way.name}", []).append(rate)
            rates.setdefault(f"{kind} {way.name} ×", []).append(rate / plain_rate)


def rate_of(way: Way, folder: Path, messages: list[bytes]) -> float:
    """Messages per second."""
    given = way.given(messages)
    started = time.perf_counter()
    way.run(folder, given)
    return len(messages) / (time.perf_counter() - started)


def all_ways() -> list[tuple[str, Way]]:
    """Every row but those of the plain loop."""
    return [("write", way) for way in WRITES] + [("read", way) for way in READS]


def is_reached(kind: str, way: Way, rates: Rates) -> bool:
    """Whether the median of the ratios reaches the bar; true where there is none."""
    return way.bar is None or Summary(tuple(rates[f"{kind} {way.name} ×"])).median >= way.bar


def table_of(kind: str, plain: Way, ways: Sequence[Way], rates: Rates) -> list[str]:
    """The rows of one kind, in Markdown."""
    plain_summary = Summary(tuple(rates[f"{kind} {plain.name}"]))
    lines = [
        "",
        f"| {kind} | messages / s | × plain loop (least … greatest) | bar | met |",
        "|---|---|---|---|---|",
        f"| {plain.name} | {as_figure(plain_summary.median)} | 1 | | |",
    ]
    for way in ways:
        if not way.is_installed():
            lines.append(f"| {way.name} | not installed | | | |")
            continue
        rate = Summary(tuple(rates[f"{kind} {way.name}"]))
        ratio = Summary(tuple(rates[f"{kind} {way.name} ×"]))
        bar = "" if way.bar is None else f"≥ {way.bar:g}"
        met = "" if way.bar is None else "yes" if is_reached(kind, way, rates) else "**no**"
        cells = (way.name, as_figure(rate.median), f"{as_figure(ratio.median)} ({ratio.spread()})")
        lines.append(f"| {' | '.join(cells)} | {bar} | {met} |")
    return lines


def write_document(table: str) -> None:
    """Replace what lies between the markers of docs/slab-log.md."""
    head, _, rest = DOCUMENT.read_text().partition(BEGIN)
    _, _, tail = rest.partition(END)
    DOCUMENT.write_text(f"{head}{BEGIN}\n\n{table}\n{END}{tail}")


if __name__ == "__main__":
    sys.exit(main())
