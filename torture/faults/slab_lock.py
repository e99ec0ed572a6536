"""A hundred writers of a slab log start at once: one of them runs; a dead one hinders nobody."""

from poe.errors import SegmentLocked
from poe.storage.slab_log import Writer
from torture.faults.lock import start_at_once
from torture.scenario import Run, Trial


def play(run: Run) -> None:
    """Fork starts, count those that run, kill them, start again."""
    run.each(_trial)


def _trial(trial: Trial) -> None:
    folder = trial.folder / "log"
    start_at_once(trial, lambda: Writer(folder), SegmentLocked)
