"""A writer of the slab log is killed at any operation, then the next ones in their recovery."""

from collections.abc import Sequence
from pathlib import Path

from poe.storage import Files
from poe.storage.slab_log import Writer
from torture.checker import Journal, Put
from torture.layers.watched import Killing
from torture.scenario import Run, Trial
from torture.slab_workload import LOG, make_puts, read_log, write_puts
from torture.store_process import run_acking, run_alone
from torture.workload import Acked

_LIVES = 5
_PUTS = 100


def play(run: Run) -> None:
    """Have several writers die on a log, one after the other."""
    run.each(_trial)


def _trial(trial: Trial) -> None:
    random = trial.random
    journal = Journal()
    folder = trial.folder / "log"
    for _ in range(_LIVES):
        puts = make_puts(random, journal, _PUTS, random.choice([10, 60, 600]))
        was_killed = _run(folder, puts, Killing(random.randrange(200), random))
        while was_killed and random.random() < 0.7:
            was_killed = run_alone(folder, Killing(random.randrange(20), random), _recover)
            trial.note(recoveries_killed=was_killed)
        found, damages = read_log(folder)
        acked = {(p.pointer, p.messages[0]) for p in journal.puts[LOG] if p.pointer is not None}
        trial.expect(is_true=acked <= set(found), otherwise="a reader that came first misses some")
        _recover(folder)
        found, more_damages = read_log(folder)
        trial.failures += journal.judge({LOG: found})
        trial.failures += [f"damage at {at}" for at, _ in damages + more_damages]
        trial.note(lives=1)
    trial.note(acked=journal.acked_count())


def _run(folder: Path, puts: Sequence[Put], killing: Killing) -> bool:
    def work(files: Files, acked: Acked) -> None:
        write_puts(files, puts, acked).close()

    return run_acking(folder, puts, killing, work)


def _recover(files: Path | Files) -> None:
    Writer(files).close()
