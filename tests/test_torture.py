"""Every scenario passes in its CI column, and notices the mistakes that it is there for."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.python_process import environment
from torture.table import SCENARIOS

ROOT = Path(__file__).parent.parent
REPORTS = ROOT / "build" / "torture"
"""Where `python -m tools.torture_table` finds what was counted."""
PASSED, FAILED, UNAVAILABLE = 0, 1, 3
# The properties, which one scenario runs for long, run beside this file anyway.
NAMES = [name for name in SCENARIOS if name != "model"]
BITES = [(each, mutant) for each in SCENARIOS.values() for mutant in each.mutants]


def torture(*arguments):
    """Run a scenario in a process of its own; tell its exit code and what it printed."""
    command = [sys.executable, "-m", "torture", "--seed", "1", *arguments]
    run = subprocess.run(
        command, cwd=ROOT, env=environment(), check=False, capture_output=True, text=True
    )
    if run.returncode == UNAVAILABLE:
        pytest.skip(run.stdout.strip().rpartition("skipped: ")[2])
    return run.returncode, run.stdout[-20_000:] + run.stderr[-3000:]


@pytest.mark.torture
@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", NAMES)
def test_ci_column_passes(name):
    REPORTS.mkdir(parents=True, exist_ok=True)
    code, told = torture(name, "--column", "ci", "--json", str(REPORTS / f"{name}.json"))
    assert code == PASSED, told


@pytest.mark.torture
@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("scenario", "mutant"), BITES, ids=[f"{each.name}-{mutant}" for each, mutant in BITES]
)
def test_a_mutant_is_noticed(scenario, mutant):
    count = str(scenario.bite_count or scenario.ci)
    code, told = torture(scenario.name, "--mutant", mutant, "--count", count)
    assert code == FAILED, told


def test_the_list_names_every_scenario():
    code, told = torture("list")
    assert code == PASSED
    assert [line.split()[0] for line in told.splitlines()] == list(SCENARIOS)
