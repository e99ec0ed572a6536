"""What an installation relies on: bounds that are tested, and a lock that is complete."""

import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
LOCK = (ROOT / "requirements" / "ci.txt").read_text()
LOWEST = (ROOT / "requirements" / "lowest.txt").read_text()

TEST_TOOLS = {"pytest", "hypothesis", "pytest-timeout", "pytest-asyncio"}


def bounds(requirements: list[str]) -> dict[str, str]:
    found = (re.match(r"([\w-]+)>=([\w.]+)", line) for line in requirements)
    return {match[1]: match[2] for match in found if match}


RUNTIME_BOUNDS = bounds(PROJECT["dependencies"])
DEV_BOUNDS = bounds(PROJECT["optional-dependencies"]["dev"])


def test_every_dependency_has_a_lower_bound():
    assert len(RUNTIME_BOUNDS) == len(PROJECT["dependencies"])
    assert len(DEV_BOUNDS) == len(PROJECT["optional-dependencies"]["dev"])


def test_the_lowest_versions_are_the_lower_bounds():
    pinned = dict(re.findall(r"^([\w-]+)==([\w.]+)", LOWEST, flags=re.MULTILINE))
    tools = {name: bound for name, bound in DEV_BOUNDS.items() if name in TEST_TOOLS}
    assert pinned == RUNTIME_BOUNDS | tools


@pytest.mark.parametrize("name", [*RUNTIME_BOUNDS, *DEV_BOUNDS, "hatchling", "editables"])
def test_the_lock_pins_it_with_hashes(name):
    assert re.search(rf"^{name}==\S+.*\\\n\s+--hash=sha256:", LOCK, flags=re.MULTILINE)


def test_the_lock_names_no_index():
    assert "://" not in LOCK
    assert "index-url" not in LOCK


def test_the_package_says_that_it_is_typed():
    assert (ROOT / "poe" / "py.typed").is_file()
