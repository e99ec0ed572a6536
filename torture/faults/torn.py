"""Files cut at every byte: what remains is all that has sums before the cut, and nothing else."""

from bisect import bisect_right
from collections.abc import Iterator
from itertools import product as pairs

from poe.storage import SegmentOptions
from torture.checker import Journal, Record, Sender
from torture.layers.memory import MemoryFiles
from torture.scenario import Run, Trial
from torture.workload import START_US, open_store, read_store, writer_of

_RECORDS = 200
_TOPIC = b"t"
_PATH = f"topics/t/{START_US}"
_EVERY = 9
"""Of the cuts one in so many is tried in CI."""
_LIVES = ("closed", "killed", "rebooted")

Cut = tuple[int, int]
"""Bytes that remain of the data, and of the index."""


def play(run: Run) -> None:
    """Cut a segment of its own in each trial, in all ways, after each kind of end."""
    run.each(lambda trial: _trial(run, trial))


def _trial(run: Run, trial: Trial) -> None:
    made = MemoryFiles()
    store = open_store(made, SegmentOptions())
    segment = store.create_segment(_TOPIC, START_US)
    sender = Sender(Journal(), trial.random)
    summed = [0]  # sizes of the data at which an entry of the sums ends
    while segment.count < _RECORDS:
        segment.append(sender.begin(_TOPIC, length_max=60).messages, START_US)
        if segment.count >= _RECORDS or trial.random.random() < 0.3:
            segment.flush()
            summed.append(segment.size_bytes)
    records = read_store(store)[_TOPIC]
    ends = [0]
    for _, message in records:
        ends.append(ends[-1] + 11 + len(message))
    killed = made.copy("boot")
    store.close()
    del store
    for life in _LIVES:
        begun_with = made if life == "closed" else killed
        boot_id = "another boot" if life == "rebooted" else "boot"
        for cut in run.thinned(_cuts(ends), _EVERY):
            trial.note(opens=1)
            kept = summed[bisect_right(summed, cut[0]) - 1]
            expected = records[: bisect_right(ends, kept) - 1]
            wrong = _look(begun_with.copy(boot_id), cut, expected)
            if wrong:
                trial.failures.append(f"{life}, cut to {cut}: {wrong}")
                break


def _cuts(ends: list[int]) -> Iterator[Cut]:
    """Tell all cuts: each byte of each file, and all pairs of borders between records."""
    data_bytes, index_bytes = ends[-1], 12 * (len(ends) - 1)
    yield from ((size, index_bytes) for size in range(data_bytes))
    yield from ((data_bytes, size) for size in range(index_bytes))
    # Every border of the data, with every tenth of the index: what is wrong at one is at others.
    yield from pairs(ends, range(0, index_bytes + 1, 120))


def _look(files: MemoryFiles, cut: Cut, expected: list[Record]) -> str:
    """Open what is left, and say what is wrong."""
    data_bytes, index_bytes = cut
    files.inodes[_PATH + "_data"].resize(data_bytes)
    files.inodes[_PATH + "_index"].resize(index_bytes)
    store = open_store(files, SegmentOptions())
    if (found := read_store(store).get(_TOPIC, [])) != expected:
        return f"{len(found)} records instead of {len(expected)}, or others"
    # What comes next must not land behind a stump.
    pointer = writer_of(store, _TOPIC, START_US).append([b"next"], START_US)
    if read_store(store)[_TOPIC] != [*expected, (pointer, b"next")]:
        return "what is put next is not found"
    return ""
