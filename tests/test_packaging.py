"""What an installation relies on: bounds that are tested, and a lock that is complete."""

import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
LOCK = (ROOT / "requirements" / "ci.txt").read_text()
EXTRAS_LOCK = (ROOT / "requirements" / "extras.txt").read_text()
LOWEST = (ROOT / "requirements" / "lowest.txt").read_text()

TEST_TOOLS = {"pytest", "hypothesis", "pytest-timeout", "pytest-asyncio"}


def bounds(requirements: list[str]) -> dict[str, str]:
    found = (re.match(r"([\w-]+)>=([\w.]+)", line) for line in requirements)
    return {match[1]: match[2] for match in found if match}


def pins(lock: str) -> dict[str, list[str]]:
    """Versions by name of what has hashes; there may be one for each version of Python."""
    found: dict[str, list[str]] = {}
    for name, pin in re.findall(
        r"^([\w-]+)==(\S.*?) ?\\\n\s+--hash=sha256:", lock, flags=re.MULTILINE
    ):
        found.setdefault(name, []).append(pin)
    return found


RUNTIME_BOUNDS = bounds(PROJECT["dependencies"])
EXTRAS = PROJECT["optional-dependencies"]
CHECK_BOUNDS = bounds(EXTRAS["check"])
LOCKED = [
    line
    for name in ("spark", "examples", "kafka", "http", "log", "mapping", "metrics", "tls", "test")
    for line in EXTRAS[name]
]
EXTRAS_BOUNDS = bounds(LOCKED)


def test_every_dependency_has_a_lower_bound():
    assert len(RUNTIME_BOUNDS) == len(PROJECT["dependencies"])
    assert len(CHECK_BOUNDS) == len(EXTRAS["check"])
    assert len(EXTRAS_BOUNDS) == len({line.partition(">=")[0] for line in LOCKED})


def test_the_extra_dev_brings_all_that_tests_import_but_spark():
    assert EXTRAS["dev"] == ["poe-queue[check,cluster,http,kafka,log,mapping,metrics,test,tls]"]


def test_the_lowest_versions_are_the_lower_bounds():
    pinned = dict(re.findall(r"^([\w-]+)==([\w.]+)", LOWEST, flags=re.MULTILINE))
    tools = {name: bound for name, bound in CHECK_BOUNDS.items() if name in TEST_TOOLS}
    assert pinned == RUNTIME_BOUNDS | tools


BUILDERS = ["hatchling", "editables", "setuptools"]


@pytest.mark.parametrize("name", [*RUNTIME_BOUNDS, *CHECK_BOUNDS, *BUILDERS])
def test_the_lock_pins_it_with_hashes(name):
    assert name in pins(LOCK)


@pytest.mark.parametrize("name", EXTRAS_BOUNDS)
def test_what_tests_of_the_extras_need_is_pinned_with_hashes(name):
    assert name in pins(EXTRAS_LOCK)


def test_what_both_locks_pin_has_one_version():
    both = pins(LOCK).keys() & pins(EXTRAS_LOCK).keys()
    assert {name: pins(LOCK)[name] for name in both} == {
        name: pins(EXTRAS_LOCK)[name] for name in both
    }


@pytest.mark.parametrize("lock", [LOCK, EXTRAS_LOCK], ids=["ci", "spark"])
def test_the_lock_names_no_index(lock):
    assert "://" not in lock
    assert "index-url" not in lock


def test_the_package_says_that_it_is_typed():
    assert (ROOT / "poe" / "py.typed").is_file()
