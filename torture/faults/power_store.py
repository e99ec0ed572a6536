"""The power fails at a chosen operation of a process that only stores: thousands of times."""

import os
import shutil
import signal
from pathlib import Path
from random import Random

from torture import product
from torture.checker import Journal
from torture.disk import PoweredDisk, powered_disk, write_back_parts
from torture.layers.watched import Operation
from torture.scenario import Run, Trial
from torture.store_process import recover_and_read, run_steps
from torture.workload import START_US, make_steps

_LIVES_PER_FOLDER = 4


def play(run: Run, *, is_torn: bool = False) -> None:
    """Cut the power in the midst of steps, some times on each folder, and look what is left.

    If it `is_torn`, parts of the files are written back just before, whatever was synced.
    """
    with powered_disk(run.folder) as disk:
        run.each(lambda trial: _trial(trial, disk, is_torn=is_torn))


def _trial(trial: Trial, disk: PoweredDisk, *, is_torn: bool) -> None:
    random = trial.random
    journal = Journal()
    folder = disk.folder / str(trial.number)
    for life in range(random.randint(1, _LIVES_PER_FOLDER)):
        steps = make_steps(random, journal, 30, length_max=random.choice([100, 2000]))
        now_us = START_US + life * 1_000_000_000
        torn = folder if is_torn else None
        cutting = Cutting(disk, random, torn)
        run_steps(folder, steps, "fsync", now_us, cutting, boot_id=disk.boot_id)
        disk.restore()
        stored = recover_and_read(folder, "fsync", disk.boot_id)
        trial.failures += journal.judge(stored, are_halves_told=product.HAS_SUMS)
        trial.note(cuts=1)
    trial.note(acked=journal.acked_count())
    shutil.rmtree(folder)


class Cutting:
    """Cuts the power at an operation chosen at random, and ends the process with it."""

    def __init__(self, disk: PoweredDisk, random: Random, torn: Path | None) -> None:
        self._disk, self._random, self._torn = disk, random, torn
        self._left_count = random.randrange(300)

    def __call__(self, operation: Operation) -> None:
        if self._left_count == 0:
            operation.do_in_part(0.5)
            if self._torn is not None:
                write_back_parts(self._torn, self._random)
            self._disk.cut(has_flushed_log=self._random.random() < 0.3)
            os.kill(os.getpid(), signal.SIGKILL)
        self._left_count -= 1
