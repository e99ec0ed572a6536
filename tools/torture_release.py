"""Add runs of torture's release column, which takes days, to what was run of it before.

    python -m torture crash --column release --seed 7 --count 100 --json crash-7.json
    python -m tools.torture_release --commit f0a18fb crash-7.json

Each piece has a seed of its own. `docs/torture_release.json` keeps the sums, and `docs/torture.md`
shows them, the failed ones among them: what came of those stands below the table.
"""

import argparse
import json
from pathlib import Path
from typing import Any

from tools.torture_table import DOCS, tried_of
from torture.table import SCENARIOS

_SUMS = DOCS / "torture_release.json"
_HEADING = "| name | release column | seconds | commits | counted |\n|---|---|---|---|---|\n"


def add(sums: dict[str, Any], report: dict[str, Any], commit: str) -> None:
    """Add a report to the sums, unless its seed is among them."""
    row = sums.setdefault(
        report["scenario"],
        {"tried": 0, "failed": 0, "duration_s": 0, "commits": [], "seeds": [], "counts": {},
         "largest": {}},
    )  # fmt: skip
    if report["seed"] in row["seeds"]:
        return
    row["seeds"].append(report["seed"])
    row["tried"] += report["count"]
    row["failed"] += report["failed"]
    row["duration_s"] += round(report["duration_s"])
    row["commits"] = sorted({*row["commits"], commit})
    for name, value in report["counts"].items():
        row["counts"][name] = row["counts"].get(name, 0) + value
    for name, value in report["largest"].items():
        row["largest"][name] = max(row["largest"].get(name, 0), value)


def row_of(name: str, row: dict[str, Any]) -> str:
    """Return the row of a scenario in the table."""
    scenario = SCENARIOS[name]
    tried = f"{row['tried']:,} of {scenario.release:,} {scenario.unit}"
    cells = f"`{name}`", tried, f"{row['duration_s']:,}", ", ".join(row["commits"]), tried_of(row)
    return f"| {' | '.join(cells)} |\n"


def main() -> None:
    """Rewrite the sums and the table."""
    parser = argparse.ArgumentParser(prog="python -m tools.torture_release", description=__doc__)
    parser.add_argument("--commit", required=True)
    parser.add_argument("report", type=Path, nargs="+")
    arguments = parser.parse_args()
    sums = json.loads(_SUMS.read_text("utf-8")) if _SUMS.exists() else {}
    for path in arguments.report:
        add(sums, json.loads(path.read_text("utf-8")), arguments.commit)
    _SUMS.write_text(json.dumps(sums, indent=1, sort_keys=True) + "\n", "utf-8")
    text = (DOCS / "torture.md").read_text("utf-8")
    before, heading, after = text.partition(_HEADING)
    if not heading:
        parser.error(f"docs/torture.md has no table that begins with {_HEADING!r}")
    rows = "".join(row_of(name, sums[name]) for name in SCENARIOS if name in sums)
    rest = after.partition("\n\n")[2]
    (DOCS / "torture.md").write_text(f"{before}{heading}{rows}\n{rest}", "utf-8")


if __name__ == "__main__":
    main()
