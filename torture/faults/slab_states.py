"""Every disk that a crash of a slab log's writer may leave, rebuilt from recorded operations."""

from collections.abc import Sequence
from dataclasses import replace
from random import Random

from poe.storage.slab_log import Writer
from torture.checker import Journal, Record
from torture.layers.crash_state import after_kill, after_power_cut
from torture.layers.memory import MemoryFiles
from torture.layers.recorder import Event, Recorder
from torture.scenario import Run, Trial
from torture.slab_workload import LOG, make_puts, read_log, write_puts

_STATES = 200
_AGAIN_SHARE = 0.5
"""Part of the power cuts after which another life ends in one, too."""


def play(run: Run) -> None:
    """Record a history in each trial, and look at `_STATES` of the states it may end in."""
    run.each(_trial)


def _trial(trial: Trial) -> None:
    random = trial.random
    journal = Journal()
    is_synced = random.random() < 0.7
    recorder = Recorder(MemoryFiles())
    for _ in range(2):
        puts = make_puts(random, journal, 30, random.choice([60, 600]))
        write_puts(recorder.files, puts, recorder.ack, is_synced=is_synced).close()
    for number in range(_STATES):
        seed = f"{trial.number}/{number}"
        failures = _look(recorder.events, journal, Random(seed), is_synced=is_synced)
        trial.note(states=1)
        if failures:
            trial.failures += [f"state {number}, {is_synced=}: {failure}" for failure in failures]
            return


def _look(
    events: Sequence[Event], journal: Journal, random: Random, *, is_synced: bool
) -> list[str]:
    """Recover one of the states, and judge what it has; then also one of those that come of it."""
    before = events[: random.randint(0, len(events))]
    if is_synced:
        files = after_power_cut(before, random, has_torn_sectors=True, has_stale_ends=True)
    else:
        files = after_kill(before, random.choice([0.0, random.random(), 1.0]))
    begun_with = files.copy(files.boot_id)
    recorder = Recorder(files)
    Writer(recorder.files).close()
    recovered_count = len(recorder.events)
    found, damages = read_log(files)
    promised = _promised(journal, before)
    failures = promised.judge({LOG: found})
    if damages and not is_synced:
        failures.append(f"after a kill: {damages[0]}")
    failures += _go_on(files.copy(files.boot_id), found)
    if failures or not is_synced or random.random() > _AGAIN_SHARE:
        return failures
    puts = make_puts(random, promised, 10, random.choice([60, 600]))
    write_puts(recorder.files, puts, recorder.ack, is_synced=True).close()
    before = recorder.events[: random.randint(recovered_count, len(recorder.events))]
    files = after_power_cut(
        before, random, has_torn_sectors=True, has_stale_ends=True, begun_with=begun_with
    )
    files.boot_id = "one more boot"
    Writer(files).close()
    found = read_log(files)[0]
    failures = _promised(promised, before).judge({LOG: found}) + _go_on(files, found)
    return [f"after another power cut: {failure}" for failure in failures]


def _go_on(files: MemoryFiles, found: list[Record]) -> list[str]:
    """Whatever there was, the log goes on."""
    with Writer(files) as writer:
        address = writer.write(b"next")
    if (again := read_log(files)[0]) != [*found, (address, b"next")]:
        return [f"what came next is not found: {again[-1:]}"]
    return []


def _promised(journal: Journal, events: Sequence[Event]) -> Journal:
    """Copy the journal as it was at a moment: only what was acknowledged by then is promised."""
    pointers = {id(event.put): event.pointer for event in events if event.kind == "ack"}
    puts = [replace(put, pointer=pointers.get(id(put), put.pointer)) for put in journal.puts[LOG]]
    return Journal({LOG: puts}, journal.senders_count)
