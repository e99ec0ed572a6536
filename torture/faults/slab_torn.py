"""A slab log cut at every byte: all whole records before the cut are there, and no others."""

from collections.abc import Iterator
from itertools import product as pairs

from poe.storage.slab_log import Writer
from torture.checker import Journal, Record
from torture.layers.memory import MemoryFiles
from torture.scenario import Run, Trial
from torture.slab_workload import make_puts, note_pointer, read_log, write_puts

_RECORDS = 200
_EVERY = 9
"""Of the cuts one in so many is tried in CI."""
_SUM_HEADER_BYTES, _SUM_ENTRY_BYTES = 64, 48
_SLAB, _SUM = f"{0:020}.slab", f"{0:020}.sum"

Cut = tuple[int, int]
"""Bytes that remain of the slab, and of its side file."""


def play(run: Run) -> None:
    """Cut a slab of its own in each trial, in all ways, after each kind of end."""
    run.each(lambda trial: _trial(run, trial))


def _trial(run: Run, trial: Trial) -> None:
    made = MemoryFiles()
    puts = make_puts(trial.random, Journal(), _RECORDS, length_max=10)
    writer = write_puts(made, puts, note_pointer, slab_bytes=1 << 20)
    killed = made.copy("boot")
    writer.close()
    records = read_log(made)[0]
    ends = [0, *(address + 8 + len(message) for address, message in records)]
    for life, begun_with in (("killed", killed), ("closed", made)):
        for cut in run.thinned(_cuts(ends, len(begun_with.inodes[_SUM].content)), _EVERY):
            trial.note(opens=1)
            wrong = _look(begun_with.copy("boot"), cut, records, ends)
            if wrong:
                trial.failures.append(f"{life}, cut to {cut}: {wrong}")
                break


def _cuts(ends: list[int], sum_bytes: int) -> Iterator[Cut]:
    """Tell all cuts: each byte of each file, and all pairs of borders."""
    yield from ((size, sum_bytes) for size in range(ends[-1]))
    yield from ((ends[-1], size) for size in range(sum_bytes))
    # Every border of the slab, with each fifth of the side file: what is wrong at one is at others.
    yield from pairs(ends, range(_SUM_HEADER_BYTES, sum_bytes, 5 * _SUM_ENTRY_BYTES))


def _look(files: MemoryFiles, cut: Cut, records: list[Record], ends: list[int]) -> str:
    """Read and open what is left, and say what is wrong."""
    slab_bytes, sum_bytes = cut
    files.inodes[_SLAB].resize(slab_bytes)
    files.inodes[_SUM].resize(sum_bytes)
    expected = [record for record, end in zip(records, ends[1:], strict=True) if end <= slab_bytes]
    found, _ = read_log(files)
    if found != expected[: len(found)]:
        return "a reader that comes first finds other records"
    with Writer(files) as writer:
        # What comes next must not land behind a stump.
        address = writer.write(b"next")
    found, damages = read_log(files)
    if damages:
        return f"then there is damage at {damages[0][0]}"
    if found != [*expected, (address, b"next")]:
        return f"{len(found) - 1} records instead of {len(expected)}, or others"
    return ""
