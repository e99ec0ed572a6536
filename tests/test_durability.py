"""docs/durability.md names tests and scenarios that exist, and leaves no known defect out."""

import re
from pathlib import Path

import pytest

from tests.test_architecture import all_tests, names_of_tests
from torture.table import SCENARIOS

ROOT = Path(__file__).parent.parent
DOCUMENT = (ROOT / "docs" / "durability.md").read_text()
ROWS = re.findall(r"^\| (P\d\d) \| .* \| (`.*`) \|$", DOCUMENT, flags=re.MULTILINE)


def test_every_defect_of_the_original_stands_there_once():
    assert [row for row, _ in ROWS] == [f"P{number:02}" for number in range(1, 58)]


@pytest.mark.parametrize(("row", "tests"), ROWS, ids=[row for row, _ in ROWS])
def test_every_defect_has_tests_that_exist(row, tests):
    named = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", tests)
    assert named, f"{row} names no test"
    for file, test in named:
        assert test in names_of_tests(ROOT / file), f"{file}::{test}"
    scenarios = re.findall(r"`torture ([\w-]+)`", tests)
    assert set(scenarios) <= set(SCENARIOS)
    assert len(named) + len(scenarios) == tests.count("`") / 2


def test_every_other_test_that_is_named_exists():
    named = set(re.findall(r"`(test_\w+)`", DOCUMENT))
    assert named - all_tests() == set()
