"""Measures what runs beside a server: producer, producer on Kafka, gateway.

The scripts run one by one, each for all its rounds, and each with its peer in turns.

usage: python -m bench.clients [--quick] [--rounds N] [--write-docs]
"""

import argparse
import sys
import time

from bench.build import ROOT
from bench.processes import interrupt_once
from bench.rounds import ROUNDS
from bench.row import as_table
from bench.run import machine, run_script, write_document

DOCUMENT = ROOT / "docs" / "producer.md"
SCRIPTS = ("producer", "kafka", "gateway")


def main() -> int:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(prog="python -m bench.clients")
    parser.add_argument("--quick", action="store_true", help="small: a look, no figure")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--write-docs", action="store_true", help="refresh docs/producer.md")
    arguments = parser.parse_args()
    interrupt_once()
    rows = [
        row
        for script in SCRIPTS
        for row in run_script(script, arguments.rounds, quick=arguments.quick)
    ]
    lines = [
        f"Measured on {time.strftime('%Y-%m-%d')} by `python -m bench.clients`: {machine()},",
        "servers, clients and load on the same machine.",
        "",
        *as_table(rows),
    ]
    table = "\n".join(lines) + "\n"
    print(table)
    if arguments.write_docs:
        write_document(table, DOCUMENT)
    return 0 if all(row.met for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
