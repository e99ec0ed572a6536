"""docs/otp-cases.md names tests that exist, and leaves no case of supervisor_SUITE out."""

import re
from pathlib import Path

from tests.test_architecture import all_tests

DOCUMENT = (Path(__file__).parent.parent / "docs" / "otp-cases.md").read_text()
CASES_OF_SUPERVISOR_SUITE = 88


def test_every_test_that_is_named_exists():
    named = set(re.findall(r"`(test_\w+)`", DOCUMENT))
    assert len(named) > 100
    assert named - all_tests() == set()


def test_every_case_of_supervisor_suite_stands_there_once():
    section = DOCUMENT.split("\n## ")[1]
    rows = re.findall(r"^\| (`.*?) \| .* \|$", section, flags=re.MULTILINE)
    cases = re.findall(r"`(\w+)`", " ".join(rows))
    assert len(cases) == len(set(cases)) == CASES_OF_SUPERVISOR_SUITE
