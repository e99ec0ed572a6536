"""What a scenario is, and one run of it: trials, each with random numbers of its own.

A trial replays by itself: its random numbers depend on the run's seed and its own number only.
"""

import contextlib
import importlib
import json
import logging
import os
import shutil
import subprocess
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from importlib.util import find_spec
from itertools import islice
from pathlib import Path
from random import Random
from typing import Any, Literal, TypeVar

from torture import network, original
from torture.mutants import Mutant

Column = Literal["ci", "release"]
Need = Literal[
    "root", "loop", "xfs", "disk", "gcc", "strace", "erl", "original", "atheris", "cgroup",
    "network",
]  # fmt: skip

_T = TypeVar("_T")

_log = logging.getLogger("torture")
_FAILURES_MAX = 100
MEMORY_GROUPS = Path("/sys/fs/cgroup/memory")
"""Where cgroups of version 1 limit memory."""
NOTICED_FILE = Path(__file__).parent / "noticed.json"
"""By scenario and mutant, which trial of seed 1 noticed it; see `tools.torture_noticed`."""


def noticed() -> dict[str, dict[str, int]]:
    """Return which trials have noticed mutants before."""
    return json.loads(NOTICED_FILE.read_text())  # type: ignore[no-any-return]


class Unavailable(Exception):
    """This machine, or this version of the product, cannot run a scenario; it says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """A row of the table."""

    name: str
    rows: str
    """Rows of the specification, such as "R1"."""

    claim: str
    """What holds when it passes."""

    module: str
    """In `torture.faults`; its `play(run)` does it."""

    ci: int
    release: int
    unit: str = "trials"
    needs: tuple[Need, ...] = ()
    options: dict[str, Any] = field(default_factory=dict)
    """Passed on to `play`; how several rows share a module."""

    mutants: tuple[Mutant, ...] = ()
    """Ways to break the product that this must notice."""

    bite_count: int = 0
    """Trials within which each mutant is noticed, even on a busy machine; 0: the CI count."""

    is_alone: bool = False
    """Judges or tells how fast the product is: nothing else may run beside it."""

    not_yet: str = ""
    """What the product lacks for it; it is not run then. To switch it on, empty this line."""

    def count_of(self, column: Column) -> int:
        """Tell how many trials a column of the table asks for."""
        return self.ci if column == "ci" else self.release

    def play(self, run: "Run") -> None:
        """Do all trials."""
        play = importlib.import_module(f"torture.faults.{self.module}").play
        play(run, **self.options)


class Trial:
    """One trial: random numbers, a folder, and a place for what was found."""

    def __init__(self, run: "Run", number: int) -> None:
        self.number = number
        self.random = Random(f"{run.seed}/{number}")
        self.failures: list[str] = []
        self._run = run

    @property
    def folder(self) -> Path:
        """A folder for this trial alone, made when first asked for."""
        folder = self._run.folder / str(self.number)
        folder.mkdir(exist_ok=True)
        return folder

    def expect(self, *, is_true: bool, otherwise: str) -> None:
        """Note a failure unless something holds."""
        if not is_true:
            self.failures.append(otherwise)

    def note(self, **counts: int) -> None:
        """Add to the run's counts."""
        self._run.counts.update(counts)


@dataclass(slots=True)
class Run:
    """One run of a scenario."""

    scenario: Scenario
    seed: int
    count: int
    column: Column
    folder: Path
    mutant: Mutant | None = None
    only: int | None = None
    """The one trial to replay."""

    passed_count: int = 0
    failed_count: int = 0
    counts: Counter[str] = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)
    largest: dict[str, float] = field(default_factory=dict)
    """The largest value of each thing that was measured."""

    duration_s: float = 0.0

    def trials(self) -> Iterator[int]:
        """Tell the numbers of the trials to do; a mutant needs no more once it was noticed.

        What has noticed it before is tried first.
        """
        numbers = list(range(self.count)) if self.only is None else [self.only]
        first = noticed().get(self.scenario.name, {}).get(self.mutant or "")
        if first in numbers:
            numbers.remove(first)
            numbers.insert(0, first)
        for number in numbers:
            if self.mutant and self.failed_count:
                return
            yield number

    def thinned(self, ways: Iterable[_T], every: int) -> Iterator[_T]:
        """Yield all of them in the release column; else one in so many, by seed other ones."""
        step = 1 if self.column == "release" else every
        return islice(ways, self.seed % step, None, step)

    def each(self, do: Callable[[Trial], None]) -> None:
        """Do all trials; one that raises has failed."""
        for number in self.trials():
            self.one(number, do)

    def one(self, number: int, do: Callable[[Trial], None]) -> None:
        """Do one trial."""
        trial = Trial(self, number)
        try:
            do(trial)
        except Unavailable:
            raise
        except Exception as error:  # noqa: BLE001 - whatever it is, the trial has failed
            trial.failures.append(_told(error))
        self.count_trial(number, trial.failures)
        if not trial.failures:
            shutil.rmtree(self.folder / str(number), ignore_errors=True)

    def count_trial(self, number: int, failures: list[str], count: int = 1) -> None:
        """Note the end of a trial, or of `count` of them that have passed."""
        if not failures:
            self.passed_count += count
            return
        self.failed_count += 1
        if len(self.failures) < _FAILURES_MAX:
            self.failures += [f"trial {number}: {failure}" for failure in failures]

    def measure(self, name: str, value: float) -> None:
        """Keep the largest of the values that were measured."""
        self.largest[name] = max(value, self.largest.get(name, value))

    def as_dict(self) -> dict[str, object]:
        """Tell what happened, for the JSON report."""
        return {
            "scenario": self.scenario.name,
            "rows": self.scenario.rows,
            "claim": self.scenario.claim,
            "seed": self.seed,
            "count": self.count,
            "column": self.column,
            "mutant": self.mutant,
            "passed": self.passed_count,
            "failed": self.failed_count,
            "counts": dict(self.counts),
            "largest": {name: round(value, 4) for name, value in self.largest.items()},
            "failures": self.failures,
            "duration_s": round(self.duration_s, 2),
        }


@contextlib.contextmanager
def run_folder() -> Iterator[Path]:
    """Make a folder for the files of a run, and remove it."""
    folder = Path(tempfile.mkdtemp(prefix="poe-torture-"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def play(
    scenario: Scenario,
    *,
    seed: int,
    column: Column = "ci",
    count: int | None = None,
    mutant: Mutant | None = None,
    only: int | None = None,
) -> Run:
    """Run a scenario.

    Raises:
        Unavailable: the product or this machine lacks something for it.
    """
    if scenario.not_yet:
        raise Unavailable(f"not yet: {scenario.not_yet}")
    for need in scenario.needs:
        if (reason := missing(need)) is not None:
            raise Unavailable(f"needs {need}: {reason}")
    wanted = count or scenario.count_of(column)
    with run_folder() as folder:
        run = Run(scenario, seed, wanted, column, folder, mutant, only)
        started_s = time.monotonic()
        scenario.play(run)
        run.duration_s = time.monotonic() - started_s
    return run


def missing(need: Need) -> str | None:
    """Tell why a need is not met."""
    if need == "original":
        return original.missing()
    if need == "network":
        return network.reason_for_none()
    is_met, reason = {
        "root": (lambda: os.geteuid() == 0, "only root may do this"),
        "loop": (_can_mount, "loop devices cannot be mounted, or mkfs.ext4 is not installed"),
        "xfs": (_can_mount_xfs, "this kernel has no xfs, or mkfs.xfs is not installed"),
        "disk": (
            lambda: _file_system(tempfile.gettempdir()) not in {"tmpfs", "ramfs"},
            f"{tempfile.gettempdir()} is in memory, and files would count as that: set TMPDIR",
        ),
        "cgroup": (
            lambda: os.access(MEMORY_GROUPS / "cgroup.procs", os.W_OK),
            f"{MEMORY_GROUPS} (cgroups of version 1) cannot be written",
        ),
        "atheris": (lambda: find_spec("atheris"), "pip install atheris"),
    }.get(need, (lambda: shutil.which(need), f"{need} is not installed"))
    return None if is_met() else reason


def _can_mount() -> bool:
    has_loop = os.geteuid() == 0 and Path("/dev/loop-control").exists()
    return has_loop and shutil.which("mkfs.ext4") is not None


def _can_mount_xfs() -> bool:
    if not _can_mount() or shutil.which("mkfs.xfs") is None:
        return False
    if shutil.which("modprobe") is not None:
        subprocess.run(["modprobe", "--quiet", "xfs"], check=False, capture_output=True)
    return "xfs" in Path("/proc/filesystems").read_text().split()


def _file_system(folder: str) -> str:
    """Return the type of the file system of a folder, as `stat` does; empty: it is not known."""
    asked = ["stat", "--file-system", "--format", "%T", folder]
    return subprocess.run(asked, check=False, capture_output=True, text=True).stdout.strip()


def _told(error: Exception) -> str:
    frames = traceback.extract_tb(error.__traceback__)
    place = next((f for f in reversed(frames) if "/torture/" in f.filename), frames[-1])
    _log.info("trial failed", exc_info=error)
    return f"{type(error).__name__}: {error} ({Path(place.filename).name}:{place.lineno})"
