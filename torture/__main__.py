"""`python -m torture NAME`: runs a scenario, prints what happened, and tells it by the exit code.

Exit codes: 0 all passed; 1 something failed; 2 wrong usage; 3 it cannot be run here, or not yet.
"""

import argparse
import json
import logging
import secrets
import sys
from pathlib import Path
from typing import get_args

from poe.cli.end import end_process
from poe.storage.store import store
from torture import mutants
from torture.scenario import Column, Run, Scenario, Unavailable, play
from torture.table import SCENARIOS

_PASSED, _FAILED, _USAGE, _UNAVAILABLE = range(4)


def main() -> int:
    """Run what the command line names."""
    options = _parse()
    # However few topics there are, they rest after a stop or a kill. Set here, since tests, too,
    # have parts of this package in their process.
    store.FEW_TOPICS = 0
    # What the product says of its repairs; a server as a victim has a log file of its own.
    logging.getLogger("poe").setLevel(logging.CRITICAL + 1)
    logging.basicConfig(level=logging.INFO if options.v else logging.ERROR)
    if options.name == "list":
        for scenario in SCENARIOS.values():
            print(_described(scenario))
        return _PASSED
    names = _names(options.name)
    told = [_run(SCENARIOS[name], options) for name in names]
    if options.json:
        Path(options.json).write_text(json.dumps(told if len(told) > 1 else told[0], indent=1))
    if any(row.get("failed") for row in told):
        return _FAILED
    return _UNAVAILABLE if all("unavailable" in row for row in told) else _PASSED


def _names(name: str) -> list[str]:
    """Tell which scenarios a name stands for: one, `all`, or those that begin with it (`slab`)."""
    if name in SCENARIOS:
        return [name]
    return [each for each in SCENARIOS if name == "all" or each.startswith(f"{name}-")]


def _run(scenario: Scenario, options: argparse.Namespace) -> dict[str, object]:
    """Run one scenario, print what happened, and return its report."""
    print(f"{scenario.name}: seed {options.seed}", flush=True)
    try:
        with mutants.chosen(options.mutant):
            run = play(
                scenario,
                seed=options.seed,
                column=options.column,
                count=options.count,
                mutant=options.mutant,
                only=options.trial,
            )
    except Unavailable as reason:
        count = options.count or scenario.count_of(options.column)
        print(f"{scenario.name}: {count} {scenario.unit} skipped: {reason}")
        return {"scenario": scenario.name, "unavailable": str(reason), "skipped": count}
    _tell(run)
    return run.as_dict()


def _tell(run: Run) -> None:
    for failure in run.failures:
        print(f"  {failure}")
    counts = {**run.counts, **{name: f"<= {value:.4g}" for name, value in run.largest.items()}}
    print("  " + ", ".join(f"{name} {value}" for name, value in counts.items()))
    print(
        f"{run.scenario.name}: {run.passed_count} passed, {run.failed_count} failed"
        f" in {run.duration_s:.1f} s",
        flush=True,
    )


def _described(scenario: Scenario) -> str:
    lacks = f"  (not yet: {scenario.not_yet})" if scenario.not_yet else ""
    needs = f"  (needs {', '.join(scenario.needs)})" if scenario.needs else ""
    counts = f"{scenario.ci} / {scenario.release} {scenario.unit}"
    return f"{scenario.name:16} {scenario.rows:9} {counts:28} {scenario.claim}{needs}{lacks}"


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m torture", description=__doc__)
    parser.add_argument("name", help="a scenario, all, list, or slab")
    parser.add_argument("--seed", type=int, default=secrets.randbelow(1 << 32))
    parser.add_argument("--count", type=int, help="trials; else what the column says")
    parser.add_argument("--column", choices=get_args(Column), default="ci")
    parser.add_argument("--json", metavar="FILE", help="write a report")
    parser.add_argument("--trial", type=int, help="replay this one alone")
    parser.add_argument("--mutant", choices=get_args(mutants.Mutant), help="break the product")
    parser.add_argument("-v", action="store_true", help="print tracebacks of failures")
    # `crash --nested` is another way to say `crash-nested`.
    options, kinds = parser.parse_known_args()
    options.name = "-".join([options.name, *(kind.removeprefix("--") for kind in kinds)])
    if options.name != "list" and not _names(options.name):
        parser.error(f"no scenario {options.name}; see: python -m torture list")
    return options


if __name__ == "__main__":
    code = main()
    end_process(code)
    sys.exit(code)
