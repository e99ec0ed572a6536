"""Every address of a slab log: a record is found at its own, and at no other."""

from poe.storage.slab_log import CorruptSlabRecord, OutOfBounds, Reader
from torture.checker import Journal
from torture.layers.memory import MemoryFiles
from torture.scenario import Run, Trial
from torture.slab_workload import make_puts, note_pointer, write_puts

_RECORDS = 100


def play(run: Run) -> None:
    """Seek to every byte of a log of its own in each trial, in a new reader and in a used one."""
    run.each(_trial)


def _trial(trial: Trial) -> None:
    random = trial.random
    files = MemoryFiles()
    puts = make_puts(random, Journal(), _RECORDS, random.choice([0, 30]))
    writer = write_puts(files, puts, note_pointer, slab_bytes=random.choice([100, 10_000]))
    end = writer.address
    if random.random() < 0.5:
        writer.close()
    messages = {put.pointer: put.messages[0] for put in puts}
    used = Reader(files)
    for address in random.sample(range(end), end):
        for reader in (used, Reader(files, address)):
            try:
                reader.seek(address)
                found = reader.read()
            except CorruptSlabRecord as error:
                found = None
                trial.expect(
                    is_true=error.next_address in messages or error.next_address == end,
                    otherwise=f"{error}, where nothing begins",
                )
            trial.expect(
                is_true=found == messages.get(address),
                otherwise=f"at address {address} there is {found!r}",
            )
        trial.note(seeks=2)
    used.seek(end)
    trial.expect(is_true=used.read_many() == [], otherwise="there is something behind the end")
    for address in (-1, end + 1):
        try:
            used.seek(address)
            trial.failures.append(f"address {address} is taken")
        except OutOfBounds:
            pass
