"""Write what a run of torture has counted into the table of `docs/torture.md`.

    python -m torture all --seed 1 --json report.json; python -m tools.torture_table report.json
    python -m pytest tests/test_torture.py; python -m tools.torture_table build/torture/*.json

Rows of scenarios that the report does not hold stay as they are.
"""

import argparse
import json
from pathlib import Path
from typing import Any

from torture.table import SCENARIOS

PATH = Path(__file__).parent.parent / "docs" / "torture.md"
_HEADING = "| rows | name |"


def row_of(report: dict[str, Any]) -> str:
    """Return the table's row of one scenario's report."""
    scenario = SCENARIOS[report["scenario"]]
    if "unavailable" in report:
        tried, time = f"skipped: {report['unavailable']}", ""
    else:
        counts = [f"{name} {value}" for name, value in report["counts"].items()]
        counts += [f"{name} <= {value:.4g}" for name, value in report["largest"].items()]
        failed = f"**{report['failed']} failed**, " if report["failed"] else ""
        tried, time = failed + ", ".join(counts), f"{report['duration_s']:.0f} s"
    release = f"{scenario.release} {scenario.unit}"
    mutants = ", ".join(scenario.mutants)
    cells = [scenario.rows, f"`{scenario.name}`", scenario.claim, tried, time, release, mutants]
    return f"| {' | '.join(cells)} |"


def with_rows(text: str, reports: list[dict[str, Any]]) -> str:
    """Return the document with new rows, in the order of the scenarios."""
    before, heading, after = text.partition(_HEADING)
    table, _, rest = after.partition("\n\n")
    title, dashes, *lines = table.split("\n")
    rows = {line.split("|")[2].strip().strip("`"): line for line in lines}
    rows |= {report["scenario"]: row_of(report) for report in reports}
    kept = [rows[name] for name in SCENARIOS if name in rows]
    return before + heading + "\n".join([title, dashes, *kept]) + "\n\n" + rest


def main() -> None:
    """Rewrite the document."""
    parser = argparse.ArgumentParser(prog="python -m tools.torture_table", description=__doc__)
    parser.add_argument("report", type=Path, nargs="+")
    reports: list[dict[str, Any]] = []
    for path in parser.parse_args().report:
        told = json.loads(path.read_text("utf-8"))
        reports += told if isinstance(told, list) else [told]
    PATH.write_text(with_rows(PATH.read_text("utf-8"), reports), "utf-8")


if __name__ == "__main__":
    main()
