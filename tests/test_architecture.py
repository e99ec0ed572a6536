"""The rules of the house that a program can check: imports, public names, clean text."""

import re
import subprocess
import sys
from pathlib import Path

import grimp
import pytest

from tests import public_names

ROOT = Path(__file__).parent.parent

CODE_FOLDERS = ("poe", "tests", "properties", "torture", "examples", "bench", "tools")
MODULES = sorted(path for folder in CODE_FOLDERS for path in (ROOT / folder).rglob("*.py"))
TEXTS = sorted(
    path
    for pattern in ("*.md", "*.toml", "*.c", "docs/**/*.md", ".ci/*", "Makefile")
    for path in ROOT.glob(pattern)
    if path.is_file()
)

# Brackets keep the patterns from finding themselves.
UNFINISHED = re.compile(r"\b(?:TOD[O]|FIXM[E]|XX[X])\b(?!\(#\d+\))")
PERSONAL_PATH = re.compile(r"/(?:hom[e]|roo[t]|User[s])/\w")


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


def names_of_tests(path: Path) -> set[str]:
    return set(re.findall(r"^ *(?:async )?def (test_\w+)", path.read_text(), flags=re.MULTILINE))


def all_tests() -> set[str]:
    return {
        test for path in MODULES if path.name.startswith("test_") for test in names_of_tests(path)
    }


def loaded_by(statement: str) -> set[str]:
    """Import in a fresh interpreter and tell which modules that loaded."""
    code = f"{statement}; import sys; print(*sys.modules)"
    run = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, check=True, capture_output=True, text=True
    )
    return set(run.stdout.split())


def test_only_a_package_lists_its_public_names():
    listing = [
        name_of(path)
        for path in MODULES
        if re.search(r"^__all__\b", path.read_text(), flags=re.MULTILINE)
    ]
    assert [name for name in listing if not name.endswith("/__init__.py")] == []


@pytest.mark.slow
def test_text_has_no_unfinished_mark_and_no_personal_path():
    """A mark needs its issue, as in (#12)."""
    found = [
        f"{name_of(path)}:{number}: {line.strip()}"
        for path in [*MODULES, *TEXTS]
        for number, line in enumerate(path.read_text().splitlines(), start=1)
        if UNFINISHED.search(line) or PERSONAL_PATH.search(line)
    ]
    assert found == []


def circles(imports: dict[str, set[str]]) -> list[set[str]]:
    """Return the sets of modules each of which imports, by way of others, all of its set."""
    reached: dict[str, set[str]] = {}
    for module in imports:
        found: set[str] = set()
        todo = [module]
        while todo:
            new = imports[todo.pop()] - found
            found |= new
            todo += new
        reached[module] = found
    return [
        set(circle)
        for circle in {
            frozenset(each for each in reached[module] if module in reached[each])
            for module in imports
        }
        if len(circle) > 1
    ]


@pytest.mark.slow
def test_no_modules_import_each_other():
    """Those that only a type checker follows count, too.

    Where two modules need each other they are one noun, or a third is missing.
    """
    graph = grimp.build_graph("poe", cache_dir=None)
    assert (
        circles({each: graph.find_modules_directly_imported_by(each) for each in graph.modules})
        == []
    )


@pytest.mark.slow
def test_imports_point_down():
    lint_imports = Path(sys.executable).with_name("lint-imports")
    run = subprocess.run(
        [lint_imports, "--no-cache"], cwd=ROOT, check=False, capture_output=True, text=True
    )
    assert run.returncode == 0, run.stdout + run.stderr


@pytest.mark.slow
@pytest.mark.parametrize(
    "package", ["poe.storage", "poe.storage.slab_log", "poe.protocol", "poe.client"]
)
def test_files_and_bytes_load_without_the_actor_runtime(package):
    assert "thespian" not in loaded_by(f"import {package}")


@pytest.mark.slow
def test_import_poe_loads_neither_spark_nor_the_command_line():
    assert not {"pyspark", "confluent_kafka", "typer", "rich"} & loaded_by("import poe")


@pytest.mark.slow
def test_a_node_that_serves_knows_nothing_of_mappings():
    statement = "from poe.testing import broker; entered = broker().__enter__()"
    loaded = loaded_by(f"{statement}; entered.node.put('t', b'x'); entered.node.stop()")
    assert "poe.broker.root" in loaded or any(each.startswith("poe.broker.") for each in loaded)
    assert not {each for each in loaded if each.startswith("poe.mapping")}


def test_public_names_are_the_checked_in_ones():
    listed = public_names.LIST.read_text().split()
    for package in public_names.present_packages():
        expected = [name for name in listed if name.rpartition(".")[0] == package]
        assert public_names.names_of(package) == expected, "run: python -m tests.public_names"
