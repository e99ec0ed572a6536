"""Every disk that a crash may leave, rebuilt from recorded operations; a store opens on each."""

from collections.abc import Sequence
from dataclasses import replace
from random import Random

from poe.storage import Segment, SegmentCheck, SegmentOptions, repair_segments
from poe.storage.store.topic_folders import TOPICS_FOLDER
from torture import product
from torture.checker import Journal
from torture.layers.crash_state import after_kill, store_after_power_cut
from torture.layers.memory import MemoryFiles
from torture.layers.recorder import Event, Recorder
from torture.scenario import Run, Trial
from torture.workload import START_US, Ack, do_steps, make_steps, open_store, read_store

_STATES = 500
_STEPS = 25
_AGAIN_SHARE = 0.2
"""Part of the states on which recovery dies, too."""
_REPAIR_SHARE = 0.2
"""Part of the states that are repaired before the start."""


def play(run: Run) -> None:
    """Record a history in each trial, and look at `_STATES` of the states it may end in."""
    run.each(_trial)


def _trial(trial: Trial) -> None:
    random = trial.random
    acks: list[Ack] = ["memory", "flushed", "flushed", "fsync", "fsync"]
    ack = random.choice(acks)
    journal = Journal()
    recorder = Recorder(MemoryFiles())
    steps = make_steps(random, journal, _STEPS, length_max=random.choice([60, 600]))
    do_steps(recorder.files, steps, ack, recorder.ack, START_US).close()
    trial.note(events=len(recorder.events))
    for number in range(_STATES):
        failures = _look(recorder.events, journal, ack, Random(f"{trial.number}/{number}"))
        trial.note(states=1)
        if failures:
            trial.failures += [f"state {number}, {ack}: {failure}" for failure in failures]
            return


def _look(events: Sequence[Event], journal: Journal, ack: Ack, random: Random) -> list[str]:
    """Open a store on one of the states, and judge what it has."""
    before = events[: random.randint(0, len(events))]
    is_power_cut = random.random() < 0.7
    if is_power_cut:
        files = store_after_power_cut(before, random)
    else:
        files = after_kill(before, random.choice([0.0, random.random(), 1.0]))
    options = SegmentOptions(ack=ack)
    if random.random() < _AGAIN_SHARE:
        files = _die_in_recovery(files, options, random)
    looked_at: list[Segment | SegmentCheck] = []
    if random.random() < _REPAIR_SHARE and TOPICS_FOLDER in files.folders:
        looked_at += repair_segments(files)
    store = open_store(files, options)
    looked_at += [segment for segments in store.topics.values() for segment in segments]
    damage = [f"{each.path}: {finding}" for each in looked_at for finding in each.damage]
    # Without sums a power cut may leave the first records of a put that was not acknowledged.
    are_halves_told = product.HAS_SUMS or not is_power_cut
    stored = read_store(store)
    is_lasting = ack == "fsync" or (ack == "flushed" and not is_power_cut)
    failures = damage + _promised(journal, before).judge(
        stored, may_lose=lambda _: not is_lasting, are_halves_told=are_halves_told
    )
    store.close()
    if not failures and read_store(open_store(files.copy("one more boot"), options)) != stored:
        failures = ["after a clean stop something else is there"]
    return failures


def _die_in_recovery(files: MemoryFiles, options: SegmentOptions, random: Random) -> MemoryFiles:
    recorder = Recorder(files.copy(files.boot_id))
    open_store(recorder.files, options)
    done = random.randint(0, len(recorder.events))
    return after_kill(recorder.events[:done], random.random(), files.copy(files.boot_id))


def _promised(journal: Journal, events: Sequence[Event]) -> Journal:
    """Copy the journal as it was at a moment: only what was acknowledged by then is promised."""
    pointers = {id(event.put): event.pointer for event in events if event.kind == "ack"}
    return Journal(
        {
            topic: [replace(put, pointer=pointers.get(id(put))) for put in puts]
            for topic, puts in journal.puts.items()
        }
    )
