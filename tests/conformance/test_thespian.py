"""Thespian's own functional tests pass on our base wherever they pass on its simple base."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tools.thespian_tests import NO_DOWNLOAD, Outcomes, table, worse

ROOT = Path(__file__).parent.parent.parent
KNOWN = "test_multiple_threads_private_context and 100"
"""Two tests that cannot pass, see `KNOWN_DIFFERENCES`, and take as long as all others."""
SIMPLE: Outcomes = {"test_a.py::x": "passed", "test_a.py::y": "skipped", "test_b.py::z": "passed"}
OURS: Outcomes = {"test_a.py::x": "failed", "test_a.py::y": "failed", "test_b.py::z": "passed"}


@pytest.mark.conformance
@pytest.mark.slow
@pytest.mark.timeout(900)
def test_thespians_own_tests_pass_on_the_loop_base():
    run = subprocess.run(
        [sys.executable, "-m", "tools.thespian_tests", "-k", f"not ({KNOWN})"],
        cwd=ROOT,
        check=False,
        capture_output=True,
        text=True,
    )
    if run.returncode == NO_DOWNLOAD and not os.environ.get("CI"):
        pytest.skip("Thespian's tests could not be downloaded")
    assert run.returncode == 0, run.stdout + run.stderr


def test_only_what_passes_on_the_simple_base_must_pass_on_ours():
    assert worse(SIMPLE, OURS) == ["test_a.py::x"]
    assert worse(SIMPLE, {}) == ["test_a.py::x", "test_b.py::z"]


def test_the_table_counts_by_file():
    lines = [line.split() for line in table({"simple": SIMPLE, "ours": OURS}).splitlines()]
    assert lines == [
        ["file", "simple", "ours"],
        ["test_a.py", *["1", "passed,", "1", "skipped", "2", "failed"]],
        ["test_b.py", *["1", "passed", "1", "passed"]],
        ["all", *["2", "passed,", "1", "skipped", "2", "failed,", "1", "passed"]],
    ]
