"""The power fails at any operation of a writer of the slab log: what was synced is there."""

import shutil
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from poe.storage import Files, RealFiles
from poe.storage.slab_log import Writer
from torture.checker import Journal, Put
from torture.disk import PoweredDisk, powered_disk
from torture.faults.power_store import Cutting
from torture.scenario import Run, Trial
from torture.slab_workload import LOG, make_puts, read_log, write_puts
from torture.store_process import run_acking
from torture.workload import Acked

_LIVES = 4


def play(run: Run) -> None:
    """Cut the power some times on each log."""
    with powered_disk(run.folder) as disk:
        run.each(lambda trial: _trial(trial, disk))


def _trial(trial: Trial, disk: PoweredDisk) -> None:
    random = trial.random
    journal = Journal()
    folder = disk.folder / str(trial.number)
    for _ in range(random.randint(1, _LIVES)):
        puts = make_puts(random, journal, 60, random.choice([60, 2000]))
        # Parts of the files are written back before, of one cut in two.
        torn = folder if random.random() < 0.5 else None
        cutting = Cutting(disk, random, torn)
        run_acking(folder, puts, cutting, partial(_write, puts), disk.boot_id)
        disk.restore()
        _recover(folder, disk.boot_id)
        # What was not synced may be damaged, which is told; none of it was acknowledged.
        found, damages = read_log(folder)
        trial.failures += journal.judge({LOG: found})
        trial.note(cuts=1, damages_told=len(damages))
    trial.note(acked=journal.acked_count())
    shutil.rmtree(folder)


def _recover(folder: Path, boot_id: str) -> None:
    files = RealFiles.at(folder)
    files.boot_id = boot_id
    Writer(files).close()


def _write(puts: Sequence[Put], files: Files, acked: Acked) -> None:
    write_puts(files, puts, acked, is_synced=True).close()
