"""The power fails at a chosen operation of a process that only stores: thousands of times."""

import os
import shutil
import signal

from torture import product
from torture.checker import Journal
from torture.disk import PoweredDisk, powered_disk
from torture.layers.watched import Operation
from torture.scenario import Run, Trial
from torture.store_process import recover_and_read, run_steps
from torture.workload import START_US, make_steps

_LIVES_PER_FOLDER = 4


def play(run: Run) -> None:
    """Cut the power in the midst of steps, some times on each folder, and look what is left."""
    with powered_disk(run.folder) as disk:
        run.each(lambda trial: _trial(trial, disk))


def _trial(trial: Trial, disk: PoweredDisk) -> None:
    random = trial.random
    journal = Journal()
    folder = disk.folder / str(trial.number)
    for life in range(random.randint(1, _LIVES_PER_FOLDER)):
        steps = make_steps(random, journal, 30, length_max=random.choice([100, 2000]))
        now_us = START_US + life * 1_000_000_000
        cutting = Cutting(disk, random.randrange(300), has_flushed_log=random.random() < 0.3)
        run_steps(folder, steps, "fsync", now_us, cutting, boot_id=disk.boot_id)
        disk.restore()
        stored = recover_and_read(folder, "fsync", disk.boot_id)
        trial.failures += journal.judge(stored, are_halves_told=product.HAS_SUMS)
        trial.note(cuts=1)
    trial.note(acked=journal.acked_count())
    shutil.rmtree(folder)


class Cutting:
    """Cuts the power at the Nth operation, and the process with it."""

    def __init__(self, disk: PoweredDisk, nth: int, *, has_flushed_log: bool) -> None:
        self._disk, self._left_count = disk, nth
        self._has_flushed_log = has_flushed_log

    def __call__(self, operation: Operation) -> None:
        if self._left_count == 0:
            operation.do_in_part(0.5)
            self._disk.cut(has_flushed_log=self._has_flushed_log)
            os.kill(os.getpid(), signal.SIGKILL)
        self._left_count -= 1
