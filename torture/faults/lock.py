"""A hundred starts at once on one folder: one of them runs; stale locks are in nobody's way."""

import os
import signal
from collections.abc import Callable
from pathlib import Path

from poe.errors import PoeError, StoreLocked
from poe.storage import SegmentOptions, Store
from torture.scenario import Run, Trial
from torture.store_process import recover_and_read

_STARTS = 100
_RUNS, _LOCKED, _FAILED = b"r", b"l", b"f"


def play(run: Run) -> None:
    """Fork starts, count those that run, kill them, start again."""
    run.each(_trial)


def _trial(trial: Trial) -> None:
    folder = trial.folder / "data"
    _make_stale_locks(folder)
    start_at_once(trial, lambda: _start(folder), StoreLocked)
    found = recover_and_read(folder, "flushed")
    trial.expect(is_true=found == {b"t": []}, otherwise=f"then {found} was there")


def _start(folder: Path) -> Store:
    store = Store.open(folder, SegmentOptions())
    store.topics[b"t"][-1].unseal()
    return store


def start_at_once(trial: Trial, start: Callable[[], object], refusal: type[PoeError]) -> None:
    """Have processes start something, expect that one of them runs, and kill them; twice."""
    for _ in range(2):  # the second time over the stale lock of the first
        begin_read, begin_write = os.pipe()
        told_read, told_write = os.pipe()
        pids = [_fork_start(start, refusal, begin_read, told_write) for _ in range(_STARTS)]
        os.close(told_write)
        os.close(begin_read)
        os.write(begin_write, b"!" * _STARTS)
        told = b""
        while len(told) < _STARTS and (part := os.read(told_read, _STARTS)):
            told += part
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
        os.close(begin_write)
        os.close(told_read)
        running_count = told.count(_RUNS)
        trial.expect(is_true=running_count == 1, otherwise=f"{running_count} of them run")
        trial.expect(is_true=len(told) == _STARTS, otherwise=f"{len(told)} have told anything")
        failed_count = told.count(_FAILED)
        trial.expect(is_true=not failed_count, otherwise=f"{failed_count} failed of something else")
    trial.note(starts=2 * _STARTS)


def _fork_start(
    start: Callable[[], object], refusal: type[PoeError], begin_read: int, told_write: int
) -> int:
    pid = os.fork()
    if pid:
        return pid
    try:
        os.read(begin_read, 1)
        try:
            kept = start()
            os.write(told_write, _RUNS)
            signal.pause()
            del kept
        except refusal:
            os.write(told_write, _LOCKED)
        except Exception:  # noqa: BLE001 - whatever it is, the one who counts must hear of it
            os.write(told_write, _FAILED)
    finally:
        os._exit(1)


def _make_stale_locks(folder: Path) -> None:
    """Leave the empty lock of a dead original, and a store lock of our own with a dead pid."""
    topic = folder / "topics" / "t"
    topic.mkdir(parents=True)
    for suffix in ("data", "index", "lock"):
        (topic / f"1_{suffix}").touch()
    (folder / "store.lock").write_text("999999\n")
