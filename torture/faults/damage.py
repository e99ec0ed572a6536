"""Bits that flip and parts that change places in the files of a stopped store: all of it is told.

What is read afterwards is what was stored, and never anything else; what is missing is told.
"""

from collections.abc import Iterator
from random import Random
from typing import Literal

from poe.errors import PoeError
from poe.storage import SegmentOptions
from torture.checker import Journal, Record
from torture.layers.memory import MemoryFiles
from torture.scenario import Run, Trial
from torture.workload import START_US, do_steps, make_steps, open_store, read_store

_STEPS = 60
Kind = Literal["flip", "swap"]


def play(run: Run, kind: Kind) -> None:
    """Damage a store of its own in each trial, in all ways or in many."""
    run.each(lambda trial: _trial(run, trial, kind))


def _trial(run: Run, trial: Trial, kind: Kind) -> None:
    made = MemoryFiles()
    steps = make_steps(trial.random, Journal(), _STEPS)
    do_steps(made, steps, "flushed", lambda *_: None, START_US).close()
    truth = read_store(open_store(made.copy("boot"), SegmentOptions()))
    is_thorough = run.column == "release"
    ways = _flips(made, is_thorough) if kind == "flip" else _swaps(made, trial.random)
    for path, content in ways:
        damaged = made.copy("boot")
        damaged.inodes[path].content[:] = content
        trial.note(damages=1)
        wrong = _look(damaged, truth)
        if wrong:
            trial.failures.append(f"{path}: {wrong}")
            return


def _flips(files: MemoryFiles, is_thorough: bool) -> Iterator[tuple[str, bytes]]:  # noqa: FBT001 - one caller
    """Flip each bit, or one in each byte."""
    for path, content in files.snapshot().items():
        for at in range(len(content)):
            for bit in range(8) if is_thorough else [at % 8]:
                yield path, content[:at] + bytes([content[at] ^ 1 << bit]) + content[at + 1 :]


def _swaps(files: MemoryFiles, random: Random) -> Iterator[tuple[str, bytes]]:
    """Exchange, repeat or drop parts of files, or put the content of another file."""
    snapshot = {path: content for path, content in files.snapshot().items() if len(content) > 48}
    for _ in range(500):
        path, content = random.choice(list(snapshot.items()))
        a, b, c = sorted(random.randrange(len(content) + 1) for _ in range(3))
        yield (
            path,
            random.choice(
                [
                    content[:a] + content[b:c] + content[a:b] + content[c:],
                    content[:b] + content[a:],
                    content[:a] + content[b:],
                    random.choice(list(snapshot.values())),
                ]
            ),
        )


def _look(files: MemoryFiles, truth: dict[bytes, list[Record]]) -> str:
    """Read all that can be read, and say what is wrong with it."""
    try:
        store = open_store(files, SegmentOptions())
        stored = read_store(store)
    except PoeError:
        return ""  # told, and not served
    segments = [segment for each in store.topics.values() for segment in each]
    is_told = bool(store.failed) or any(segment.damage for segment in segments)
    for topic, records in truth.items():
        found = stored.get(topic, [])
        if not set(found) <= set(records) or found != sorted(found):
            return f"{topic!r} has records that nobody stored"
        if len(found) < len(records) and not is_told:
            return f"{topic!r} has lost {len(records) - len(found)} records, and nothing is told"
    return ""
