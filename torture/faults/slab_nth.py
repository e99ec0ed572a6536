"""The Nth operation on a slab log's files fails, for every N: once or for ever, with each error."""

import contextlib
from collections.abc import Sequence

from poe.errors import PoeError, SyncFailed
from poe.storage.slab_log import Reader, Writer
from torture.checker import Journal, Put
from torture.layers.memory import MemoryFiles
from torture.layers.watched import ERRORS, Failing, WatchedFiles
from torture.scenario import Run, Trial
from torture.slab_workload import LOG, make_puts, read_log

_PUTS = 24
_SLAB_BYTES = 400
_BUFFER_BYTES = 150
_EVERY = 3


def play(run: Run) -> None:
    """Live a life of its own in each trial, with a fault at each operation."""
    run.each(lambda trial: _trial(run, trial))


def _trial(run: Run, trial: Trial) -> None:
    random = trial.random
    # The first is lived without a fault, to count what may fail.
    journal = Journal()
    puts = make_puts(random, journal, _PUTS, length_max=30)
    failing = Failing()
    _live(failing, puts)
    operations_count = failing.count
    trial.note(operations=operations_count)
    for nth in run.thinned(range(operations_count), _EVERY):
        for error_number in ERRORS:
            for is_for_ever in (False, True):
                for put in puts:
                    put.pointer, put.is_refused = None, False
                failing.fail(nth, error_number, is_for_ever=is_for_ever)
                files = _live(failing, puts)
                trial.note(lives=1)
                if failures := _wrong_with(files, journal, puts[-1]):
                    trial.failures += failures
                    trial.failures.append(f"at operation {nth}, {error_number=}, {is_for_ever=}")
                    return


def _live(failing: Failing, puts: Sequence[Put]) -> MemoryFiles:
    """Write as a program that tries again; the disk works again before the last message."""
    memory = MemoryFiles()
    files = WatchedFiles(memory, failing)
    writer: Writer | None = None
    waiting: list[tuple[Put, int]] = []
    for put in puts:
        if put is puts[-1]:
            failing.heal()
        put.is_refused = True
        try:
            writer = writer or Writer(files, _SLAB_BYTES, buffer_bytes_max=_BUFFER_BYTES)
            waiting.append((put, writer.write(put.messages[0])))
            put.is_refused = False
            with contextlib.suppress(PoeError):
                Reader(files).read_many()
            if put.number % 6 == 0:
                writer.sync()
            elif put.number % 2 == 0:
                writer.flush()
            else:
                continue
            _acknowledge(waiting)
        except SyncFailed:
            # It may be there, or not; this writer takes no more.
            writer = None
            waiting.clear()
        except PoeError:
            pass
    if writer is not None:
        writer.close()
        _acknowledge(waiting)
    return memory


def _acknowledge(waiting: list[tuple[Put, int]]) -> None:
    for put, pointer in waiting:
        put.pointer = pointer
    waiting.clear()


def _wrong_with(files: MemoryFiles, journal: Journal, last: Put) -> list[str]:
    """Judge what is there, before and after the next writer has opened it."""
    failures = [] if last.pointer is not None else ["the last message is not taken"]
    for _ in range(2):
        found, damages = read_log(files)
        failures += journal.judge({LOG: found})
        failures += [f"damage at {at}" for at, _ in damages]
        Writer(files).close()
    return failures
