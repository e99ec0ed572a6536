"""Every scenario passes in its CI column, and notices the mistakes that it is there for.

Those that judge how fast the product is have the machine to themselves.
"""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.python_process import environment
from torture.scenario import missing
from torture.table import SCENARIOS

ROOT = Path(__file__).parent.parent
REPORTS = ROOT / "build" / "torture"
"""Where `python -m tools.torture_table` finds what was counted."""
PASSED, FAILED, UNAVAILABLE = 0, 1, 3
# What these two do for long is done beside them, or in this file, anyway: properties, and others.
SCENARIO_NAMES = [name for name in SCENARIOS if name not in {"model", "soak"}]
# Those of a scenario that has another one for its mutants are tried there.
BITES = [
    (each.name, mutant)
    for each in SCENARIOS.values()
    for mutant in each.mutants
    if f"{each.name}-mutants" not in SCENARIOS
]
RUNS = [
    pytest.param(
        name,
        mutant,
        id=f"{name}-{mutant}" if mutant else name,
        # A mutant is to fail, and other load keeps it from that only where clients leak.
        marks=[pytest.mark.alone]
        if SCENARIOS[name].is_alone and mutant in {"", "leak-per-client"}
        else [],
    )
    for name, mutant in [*((name, "") for name in SCENARIO_NAMES), *BITES]
]


def torture(*arguments):
    """Run a scenario in a process of its own; tell its exit code and what it printed."""
    command = [sys.executable, "-m", "torture", "--seed", "1", *arguments]
    run = subprocess.run(
        command, cwd=ROOT, env=environment(), check=False, capture_output=True, text=True
    )
    return run.returncode, run.stdout[-20_000:] + run.stderr[-3000:]


def play(name, mutant):
    """Run the CI column of a scenario; with a mutant, as often as it takes to notice it."""
    scenario = SCENARIOS[name]
    if mutant:
        return torture(name, "--mutant", mutant, "--count", str(scenario.bite_count or scenario.ci))
    return torture(name, "--column", "ci", "--json", str(REPORTS / f"{name}.json"))


def test_a_scenario_that_limits_memory_is_skipped_where_files_are_memory_too(monkeypatch):
    if not Path("/dev/shm").is_dir():
        pytest.skip("there is no file system in memory at /dev/shm")
    monkeypatch.setattr("tempfile.tempdir", "/dev/shm")
    assert "set TMPDIR" in str(missing("disk"))
    monkeypatch.setattr("tempfile.tempdir", "/proc")
    assert missing("disk") is None
    assert "disk" in SCENARIOS["memory"].needs


@pytest.mark.torture
@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize(("name", "mutant"), RUNS)
def test_it_passes_or_notices_the_mutant(name, mutant):
    REPORTS.mkdir(parents=True, exist_ok=True)
    code, told = play(name, mutant)
    if code == UNAVAILABLE:
        pytest.skip(told.strip().rpartition("skipped: ")[2])
    assert code == (FAILED if mutant else PASSED), told


@pytest.mark.slow
def test_the_list_names_every_scenario():
    code, told = torture("list")
    assert code == PASSED
    assert [line.split()[0] for line in told.splitlines()] == list(SCENARIOS)
