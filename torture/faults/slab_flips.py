"""Bits of the slab log's files that flip: each is told, or costs nothing; a batch at most.

What is read afterwards is what was written, at its address, and never anything else.
"""

from itertools import chain

from poe.storage.slab_log import Writer
from torture.checker import Journal, Record
from torture.layers.memory import MemoryFiles
from torture.scenario import Run, Trial
from torture.slab_workload import Damage, make_puts, read_log

_RECORDS = 100
_BATCH_RECORDS = 5
_SLAB_BYTES = 1000
_NEXT = b"next"
_EVERY = 15

Batch = list[Record]


def play(run: Run) -> None:
    """Flip bits of a log of its own in each trial."""
    run.each(lambda trial: _trial(run, trial))


def _trial(run: Run, trial: Trial) -> None:
    made = MemoryFiles()
    batches: list[Batch] = []
    puts = make_puts(trial.random, Journal(), _RECORDS, length_max=20)
    with Writer(made, _SLAB_BYTES) as writer:
        for start in range(0, _RECORDS, _BATCH_RECORDS):
            messages = [put.messages[0] for put in puts[start : start + _BATCH_RECORDS]]
            batches.append([(writer.write(message), message) for message in messages])
            writer.flush()
    for path, content in made.snapshot().items():
        for number in run.thinned(range(8 * len(content)), _EVERY):
            at, bit = divmod(number, 8)
            files = made.copy("boot")
            files.inodes[path].content[at] ^= 1 << bit
            trial.note(flips=1)
            wrong = _look(files, batches)
            if wrong:
                trial.failures.append(f"{path}, byte {at}, bit {bit}: {wrong}")
                return


def _look(files: MemoryFiles, batches: list[Batch]) -> str:
    """Read what is left, then go on writing, and say what is wrong."""
    wrong = _wrong_with(*read_log(files), batches)
    with Writer(files) as writer:
        address = writer.write(_NEXT)
    found, damages = read_log(files)
    if found[-1:] != [(address, _NEXT)]:
        return "what is written next is not found"
    return wrong or _wrong_with(found[:-1], damages, batches)


def _wrong_with(found: list[Record], damages: list[Damage], batches: list[Batch]) -> str:
    missing = set(chain(*batches)) - set(found)
    if len(found) + len(missing) != _RECORDS or found != sorted(found):
        return "there are records that nobody wrote, or not where they were"
    if missing and not damages:
        return f"{len(missing)} records are missing, and nothing is told"
    if missing and not any(missing <= set(batch) for batch in batches):
        return f"{len(missing)} records are missing, of more than one batch"
    return ""
