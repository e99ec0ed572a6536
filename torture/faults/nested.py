"""The recovery after a kill is killed, up to five times; the last one finds everything."""

from poe.storage import SegmentOptions
from torture.checker import Journal
from torture.layers.watched import Killing
from torture.scenario import Run, Trial
from torture.store_process import recover_and_read, run_alone, run_steps
from torture.workload import START_US, make_steps, open_store

_NESTED_MAX = 5
_LIVES = 3


def play(run: Run) -> None:
    """Kill at an operation on files that is chosen at random, while storing and recovering."""
    run.each(_trial)


def _trial(trial: Trial) -> None:
    random = trial.random
    journal = Journal()
    options = SegmentOptions()
    for life in range(_LIVES):
        now_us = START_US + life * 1_000_000_000
        steps = make_steps(random, journal, 40)
        run_steps(trial.folder, steps, "flushed", now_us, Killing(random.randrange(250), random))
        for _ in range(random.randint(1, _NESTED_MAX)):
            killing = Killing(random.randrange(40), random)
            if run_alone(trial.folder, killing, lambda files: open_store(files, options)):
                trial.note(recoveries_killed=1)
        trial.failures += journal.judge(recover_and_read(trial.folder, "flushed"))
    trial.note(acked=journal.acked_count())
