"""Measures actors and supervision, and refreshes their table in docs/conformance.md.

usage: python -m bench.conformance [--rounds N]
"""

import argparse
import os
import time

from bench.build import ROOT
from bench.processes import interrupt_once
from bench.rounds import ROUNDS
from bench.row import as_table
from bench.run import machine, run_script, write_document

DOCUMENT = ROOT / "docs" / "conformance.md"
SCRIPTS = ("actors", "supervision")


def main() -> None:
    """Run both scripts and write what they found."""
    parser = argparse.ArgumentParser(prog="python -m bench.conformance")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    rounds = parser.parse_args().rounds
    interrupt_once()
    load = os.getloadavg()[0]
    rows = [row for script in SCRIPTS for row in run_script(script, rounds, quick=False)]
    lines = [
        f"Measured on {time.strftime('%Y-%m-%d')}: {machine()}.",
        f"Load average before it, of whatever else ran: {load:.1f}.",
        "",
        *as_table(rows),
    ]
    write_document("\n".join(lines) + "\n", DOCUMENT)


if __name__ == "__main__":
    main()
