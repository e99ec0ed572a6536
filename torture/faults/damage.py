"""Bits that flip and parts that change places in the files of a stopped store: all of it is told.

What is read afterwards is what was stored, and never anything else; what is missing is told.
"""

from collections.abc import Iterator
from random import Random
from typing import Literal

from poe.errors import PoeError
from poe.storage import SegmentOptions
from torture.checker import Journal, Record
from torture.layers.memory import Inode, MemoryFiles
from torture.scenario import Run, Trial
from torture.workload import START_US, do_steps, make_steps, open_store, read_store

_STEPS = 60
_EVERY = 83
"""Of the bits one in so many is flipped in CI: one in each entry of an index, or of sums."""
Kind = Literal["flip", "swap"]
Changes = dict[str, bytes | None]
"""Contents of files by path; None where there is none any more."""


def play(run: Run, kind: Kind) -> None:
    """Damage a store of its own in each trial, in all ways or in many."""
    run.each(lambda trial: _trial(run, trial, kind))


def _trial(run: Run, trial: Trial, kind: Kind) -> None:
    made = MemoryFiles()
    steps = make_steps(trial.random, Journal(), _STEPS)
    do_steps(made, steps, "flushed", lambda *_: None, START_US).close()
    truth = read_store(open_store(made.copy("boot"), SegmentOptions()))
    flips = run.thinned(_flips(made), _EVERY)
    ways = flips if kind == "flip" else _swaps(made, trial.random)
    for changes in ways:
        damaged = made.copy("boot")
        damaged.folders |= {path.rpartition("/")[0] for path in changes}
        for path, content in changes.items():
            damaged.inodes.pop(path, None)
            if content is not None:
                damaged.inodes[path] = Inode(content)
        trial.note(damages=1)
        wrong = _look(damaged, truth)
        if wrong:
            trial.failures.append(f"{', '.join(changes)}: {wrong}")
            return


def _flips(files: MemoryFiles) -> Iterator[Changes]:
    """Flip each bit."""
    for path, content in files.snapshot().items():
        for at in range(len(content)):
            for bit in range(8):
                yield {path: content[:at] + bytes([content[at] ^ 1 << bit]) + content[at + 1 :]}


def _swaps(files: MemoryFiles, random: Random) -> Iterator[Changes]:
    """Exchange, repeat or drop parts of files, or put the content of another file."""
    snapshot = {path: content for path, content in files.snapshot().items() if len(content) > 48}
    for _ in range(400):
        path, content = random.choice(list(snapshot.items()))
        a, b, c = sorted(random.randrange(len(content) + 1) for _ in range(3))
        yield {
            path: random.choice(
                [
                    content[:a] + content[b:c] + content[a:b] + content[c:],
                    content[:b] + content[a:],
                    content[:a] + content[b:],
                    random.choice(list(snapshot.values())),
                ]
            )
        }
    for _ in range(100):
        yield _misplaced(files.snapshot(), random)


def _misplaced(snapshot: dict[str, bytes], random: Random) -> Changes:
    """Give segments, with all their files, the places of others, or new ones."""
    segments = sorted({path[: -len("_data")] for path in snapshot if path.endswith("_data")})
    one, other = random.sample(segments, 2)
    folder, number = random.choice(segments).rpartition("/")[0], one.rpartition("/")[2]
    moves = random.choice(
        [
            {one: other, other: one},
            {one: other},
            {one: f"{folder}/{int(number) + 1}"},
            {one: f"topics/new/{number}"},
        ]
    )
    return {
        to + suffix: snapshot.get(path + suffix)
        for path, to in moves.items()
        for suffix in ("_data", "_index", "_sum", "_seq")
    }


def _look(files: MemoryFiles, truth: dict[bytes, list[Record]]) -> str:
    """Read all that can be read, and say what is wrong with it."""
    try:
        store = open_store(files, SegmentOptions())
        stored = read_store(store)
    except PoeError:
        return ""  # told, and not served
    segments = [segment for each in store.topics.values() for segment in each]
    is_told = bool(store.failed or store.foreign()) or any(each.damage for each in segments)
    if not set(stored) <= set(truth):
        return "there is a topic that nobody made"
    for topic, records in truth.items():
        found = stored.get(topic, [])
        if not set(found) <= set(records) or found != sorted(found):
            return f"{topic!r} has records that nobody stored"
        if len(found) < len(records) and not is_told:
            return f"{topic!r} has lost {len(records) - len(found)} records, and nothing is told"
    return ""
