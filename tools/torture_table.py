"""Write what a run of torture has counted into the tables of the documents.

    python -m torture all --seed 1 --json report.json; python -m tools.torture_table report.json
    python -m pytest tests/test_torture.py; python -m tools.torture_table build/torture/*.json

`docs/torture.md` has all of it, `docs/durability.md` what was survived. Rows of scenarios that the
report does not hold stay as they are.
"""

import argparse
import json
from pathlib import Path
from typing import Any

from torture.table import SCENARIOS

DOCS = Path(__file__).parent.parent / "docs"
_HEADINGS = {"torture.md": "| rows | name |", "durability.md": "| survived | name |"}
_SURVIVED_ROWS = "RLQ"
"""First letters of the rows that tell of faults; the others tell of the code."""


def row_of(report: dict[str, Any]) -> str:
    """Return the row of one scenario's report in `docs/torture.md`."""
    scenario = SCENARIOS[report["scenario"]]
    time = f"{report['duration_s']:.0f} s" if "duration_s" in report else ""
    release = f"{scenario.release} {scenario.unit}"
    mutants = ", ".join(scenario.mutants)
    name, tried = f"`{scenario.name}`", tried_of(report)
    return _row(scenario.rows, name, scenario.claim, tried, time, release, mutants)


def survival_of(report: dict[str, Any]) -> str:
    """Return the row of one scenario's report in `docs/durability.md`."""
    scenario = SCENARIOS[report["scenario"]]
    command = f"`python -m torture {scenario.name} --seed {report.get('seed', 1)}`"
    return _row(scenario.claim, f"`{scenario.name}`", tried_of(report), command)


def tried_of(report: dict[str, Any]) -> str:
    """Tell what was counted, and what failed."""
    if "unavailable" in report:
        return f"skipped: {report['unavailable']}"
    counts = [f"{name.replace('_', ' ')} {value}" for name, value in report["counts"].items()]
    largest = report["largest"].items()
    counts += [f"{name.replace('_', ' ')} <= {value:.4g}" for name, value in largest]
    failed = [f"**{report['failed']} failed**"] if report["failed"] else []
    return ", ".join([*failed, *counts])


def with_rows(text: str, heading: str, rows: dict[str, str]) -> str:
    """Return a document with new rows, in the order of the scenarios."""
    before, heading, after = text.partition(heading)
    table, _, rest = after.partition("\n\n")
    title, dashes, *lines = table.split("\n")
    kept = {line.split("|")[2].strip().strip("`"): line for line in lines} | rows
    ordered = [kept[name] for name in SCENARIOS if name in kept]
    return before + heading + "\n".join([title, dashes, *ordered]) + "\n\n" + rest


def _row(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"


def main() -> None:
    """Rewrite the document."""
    parser = argparse.ArgumentParser(prog="python -m tools.torture_table", description=__doc__)
    parser.add_argument("report", type=Path, nargs="+")
    reports: list[dict[str, Any]] = []
    for path in parser.parse_args().report:
        told = json.loads(path.read_text("utf-8"))
        reports += told if isinstance(told, list) else [told]
    survived = [each for each in reports if SCENARIOS[each["scenario"]].rows[0] in _SURVIVED_ROWS]
    rows = {
        "torture.md": {each["scenario"]: row_of(each) for each in reports},
        "durability.md": {each["scenario"]: survival_of(each) for each in survived},
    }
    for name, heading in _HEADINGS.items():
        text = (DOCS / name).read_text("utf-8")
        (DOCS / name).write_text(with_rows(text, heading, rows[name]), "utf-8")


if __name__ == "__main__":
    main()
