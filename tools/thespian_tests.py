"""Runs Thespian's own functional tests on `simpleSystemBase` and on `ThespianBase`, and compares.

The tests are not part of Poe: the source distribution of the installed version is downloaded with
pip, or unpacked from a file given with `--sdist`. Each round is a pytest of its own, into which
this file goes as a plugin; a test that passes on the simple base must pass on ours. Fails, with
exit status 1, when one does not and is not listed in `KNOWN_DIFFERENCES`.

    python -m tools.thespian_tests [--sdist FILE] [-k EXPRESSION] [test_load.py ...]
"""

import argparse
import importlib.metadata
import json
import os
import re
import subprocess
import sys
import tarfile
import tempfile
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, NoReturn

import pytest

ROOT = Path(__file__).parent.parent
SIMPLE, LOOP = "simpleSystemBase", "loopSystemBase"

KNOWN_DIFFERENCES = {
    f"test_threadedExternal.py::TestFuncThreadedExternal::{test}[100]": (
        "100 actors sleep for 62 s in all, up to 7 s a round, and each answer is due after 5 s; "
        "a base that runs all actors in one thread at a time cannot be faster, and the simple "
        "base is not: there the first of these tests skips itself, and the second fails"
    )
    for test in (
        "test_multiple_threads_private_context",
        "test_multiple_threads_private_context_ask",
    )
}
"""Tests that cannot pass on our base, each with the reason."""

THREADED = "test_threadedExternal.py"
"""Its tests of `private()` skip themselves on the simple base, where no thread would serve them."""

TEST_TIMEOUT_S = 45

PROCESSES = 12
"""Files that are tested at the same time; the tests hardly compute, they sleep."""

NO_DOWNLOAD = 3
"""Exit status when pip could not download the tests."""


@dataclass(frozen=True, slots=True)
class Round:
    """One run of tests: on which base, and by which name the tests know that base.

    Under the simple base's name ours gets the same tests, skipped by the same rules.
    """

    title: str
    base: str
    base_name: str


ON_SIMPLE = Round("simpleSystemBase", SIMPLE, SIMPLE)
ON_LOOP = Round("ThespianBase", LOOP, SIMPLE)
ON_LOOP_WITH_THREADS = Round("private() in threads", LOOP, LOOP)
ROUNDS = {each.title: each for each in (ON_SIMPLE, ON_LOOP, ON_LOOP_WITH_THREADS)}

Outcomes = dict[str, str]
"""By `file::test`, without the base's name: passed, failed or skipped."""


# ---- the plugin, in a process of its own ---------------------------------------------------------


class Plugin:
    """Serves one base wherever a test asks for the simple one, and notes what became of the tests.

    It works by replacing three functions before any test module is imported: Thespian chooses a
    base by name in two places, and its fixtures list the names of all bases.
    """

    def __init__(self, one_round: Round) -> None:
        self.outcomes: Outcomes = {}
        _register_loop_base()
        _serve_base(one_round.base)
        _narrow_fixtures(one_round.base_name)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note the worst of set-up, test and tear-down."""
        test = _test_name(report.nodeid)
        if report.failed:
            self.outcomes[test] = "failed"
        elif report.skipped or report.when == "call":
            self.outcomes.setdefault(test, report.outcome)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """A module that cannot be imported is a failure too."""
        if report.failed:
            self.outcomes[_test_name(report.nodeid)] = "failed"


def _register_loop_base() -> None:
    from poe.thespian import ThespianBase  # noqa: PLC0415 - must find the distribution's Thespian

    module = ModuleType(f"thespian.system.{LOOP}")
    vars(module)["ActorSystemBase"] = ThespianBase
    sys.modules[module.__name__] = module


def _serve_base(base: str) -> None:
    from thespian.actors import ActorSystem  # noqa: PLC0415 - as above

    start_up = ActorSystem._startupActorSys  # noqa: SLF001 - there is no public way

    def start_up_with_base(
        system: Any,
        current: object,
        wanted: object,
        *rest: object,
    ) -> object:
        if wanted == SIMPLE or (wanted is None and current is None):
            wanted = base
        return start_up(system, current, wanted, *rest)

    ActorSystem._startupActorSys = start_up_with_base  # noqa: SLF001


def _narrow_fixtures(base_name: str) -> None:
    make_fixture: Callable[..., Any] = pytest.fixture

    def fixture(*args: Any, **options: Any) -> Any:
        if SIMPLE in (options.get("params") or ()):
            options["params"] = [base_name]
        return make_fixture(*args, **options)

    pytest.fixture = fixture


def _test_name(node_id: str) -> str:
    name = re.sub(rf"\b({SIMPLE}|{LOOP})-?", "", node_id.rpartition("/")[2])
    return name.replace("[]", "").replace("-]", "]")


def run_round_here(one_round: Round, results: Path, pytest_arguments: Sequence[str]) -> NoReturn:
    """Run the tests in this process and write their outcomes to a file."""
    plugin = Plugin(one_round)
    pytest.main(list(pytest_arguments), plugins=[plugin])
    results.write_text(json.dumps(plugin.outcomes))
    sys.stdout.flush()
    # A test that was given up may have left threads behind, which would keep the process.
    os._exit(0)


# ---- the comparison ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Distribution:
    """Thespian's unpacked sources, and how their tests are run."""

    source: Path
    expression: str
    """Of pytest's option -k."""

    @property
    def tests(self) -> Path:
        """The folder of the functional tests."""
        return self.source / "thespian" / "test"

    def run(self, *jobs: tuple[Round, Sequence[str]]) -> dict[str, Outcomes]:
        """Run rounds with some files, or all there are; return the outcomes by round's title."""
        all_names = [path.name for path in self.tests.glob("test_*.py")]
        files = [(name, one_round) for one_round, names in jobs for name in names or all_names]
        # Backwards: the slowest are at the end of the alphabet, in each round.
        files.sort(key=lambda each: each[0], reverse=True)
        found: dict[str, Outcomes] = {one_round.title: {} for one_round, _ in jobs}
        with ThreadPoolExecutor(PROCESSES) as pool:
            running = [
                (one_round.title, pool.submit(self._run_file, one_round, name))
                for name, one_round in files
            ]
            for title, future in running:
                found[title] |= future.result()
        return found

    def _run_file(self, one_round: Round, name: str) -> Outcomes:
        results = self.source / f"{one_round.title}-{name}.json"
        results.unlink(missing_ok=True)
        options = ["-q", "--no-header", "--tb=short", "-p", "no:cacheprovider", "-k"]
        options += [self.expression, "-p", "pytest_timeout", "--timeout", str(TEST_TIMEOUT_S)]
        options += ["-c", os.devnull]
        options += ["--rootdir", str(self.source), str(self.tests / name)]
        command = [sys.executable, "-m", "tools.thespian_tests", "--round", one_round.title]
        command += ["--results", str(results), "--", *options]
        paths = os.pathsep.join([str(self.source), str(ROOT)])
        log = subprocess.run(
            command,
            cwd=ROOT,
            # Loading all plugins that are installed takes longer than most files.
            env={**os.environ, "PYTHONPATH": paths, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        ).stdout
        if not results.exists():
            print(log, file=sys.stderr)
            return {name: "failed"}
        outcomes: Outcomes = json.loads(results.read_text())
        if one_round is not ON_SIMPLE and set(failed(outcomes)) - KNOWN_DIFFERENCES.keys():
            print(log, file=sys.stderr)
        return outcomes


def unpack(sdist: Path | None, folder: Path) -> Path:
    """Return the folder with Thespian's sources, downloaded unless `sdist` is given."""
    if sdist is None:
        version = importlib.metadata.version("thespian")
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-binary", ":all:"]
        command += ["--no-deps", "--dest", str(folder), f"thespian=={version}"]
        if subprocess.run(command, check=False).returncode:
            sys.exit(NO_DOWNLOAD)
        sdist = next(folder.glob("thespian-*.tar.gz"))
    with tarfile.open(sdist) as archive:
        archive.extractall(folder, filter="data")
    return next(path for path in folder.glob("thespian-*") if path.is_dir())


def worse(simple: Outcomes, ours: Outcomes) -> list[str]:
    """Name the tests that pass on the simple base only."""
    return [
        test
        for test, outcome in sorted(simple.items())
        if outcome == "passed" and ours.get(test) != "passed"
    ]


def failed(outcomes: Outcomes) -> list[str]:
    """Name the tests that failed."""
    return [test for test, outcome in sorted(outcomes.items()) if outcome == "failed"]


def table(rounds: dict[str, Outcomes]) -> str:
    """Count, by file, what became of the tests of each round."""
    files = sorted({test.partition("::")[0] for each in rounds.values() for test in each})
    lines = [_line("file", list(rounds))]
    for prefix, name in [*((file, file) for file in files), ("", "all")]:
        cells = []
        for outcomes in rounds.values():
            counts = Counter(
                outcome for test, outcome in outcomes.items() if test.startswith(prefix)
            )
            cells.append(", ".join(f"{count} {kind}" for kind, count in sorted(counts.items())))
        lines.append(_line(name, cells))
    return "\n".join(lines)


def _line(name: str, cells: list[str]) -> str:
    return f"{name:34}" + "".join(f"{cell:34}" for cell in cells).rstrip()


def main() -> int:
    """Run what the command line asks for; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("files", nargs="*", help="test files, by their names; all of them if none")
    parser.add_argument("-k", dest="expression", default="", help="as pytest's")
    parser.add_argument("--sdist", type=Path, help="Thespian's source distribution, if at hand")
    parser.add_argument("--round", choices=sorted(ROUNDS), help=argparse.SUPPRESS)
    parser.add_argument("--results", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.round is not None:
        run_round_here(ROUNDS[arguments.round], arguments.results, arguments.files)
    with tempfile.TemporaryDirectory(prefix="thespian-tests-") as folder:
        distribution = Distribution(unpack(arguments.sdist, Path(folder)), arguments.expression)
        return compare(distribution, arguments.files)


def compare(distribution: Distribution, files: Sequence[str]) -> int:
    """Test both bases, tell what was found, and return the exit status."""
    jobs = [(ON_SIMPLE, files), (ON_LOOP, files)]
    if not files or THREADED in files:
        jobs.insert(0, (ON_LOOP_WITH_THREADS, [THREADED]))
    rounds = distribution.run(*jobs)
    simple, ours = rounds[ON_SIMPLE.title], rounds[ON_LOOP.title]
    # Many of these tests give an answer a quarter of a second: those that fail get a second try,
    # one after the other and with the machine to themselves.
    for file in sorted({test.partition("::")[0] for test in worse(simple, ours)}):
        again = distribution.run((ON_LOOP, [file]))[ON_LOOP.title]
        ours |= {test: again.get(test, "failed") for test in worse(simple, ours) if test in again}
    print(table(rounds))
    differences = dict.fromkeys(
        [*worse(simple, ours), *failed(rounds.get(ON_LOOP_WITH_THREADS.title, {}))]
    )
    for test in differences:
        print(f"does not pass on ours: {test}: {KNOWN_DIFFERENCES.get(test, 'WHY?')}")
    return 1 if differences.keys() - KNOWN_DIFFERENCES.keys() else 0


if __name__ == "__main__":
    sys.exit(main())
