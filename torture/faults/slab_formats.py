"""Slab logs of queuefka open; what a newer version wrote is refused, unless it may be ignored.

Newer ones are made of ours, by what docs/slab-log.md says of side files.
"""

from collections.abc import Callable, Iterator
from functools import partial
from itertools import product

from xxhash import xxh3_64_digest, xxh3_64_intdigest

from poe.errors import ReadFailed
from poe.storage.slab_log import Writer
from torture.checker import Journal, Record
from torture.faults.formats import OPTIONAL, REQUIRED
from torture.layers.memory import MemoryFiles
from torture.scenario import Run, Trial
from torture.slab_workload import make_puts, note_pointer, read_log, write_puts

_HASHED_BYTES, _HEADER_BYTES, _BODY_BYTES, _ENTRY_BYTES = 56, 64, 40, 48


def play(run: Run) -> None:
    """Do each case, in a trial of its own."""
    for number, case in enumerate(_cases()):
        run.one(number, case)


def _cases() -> Iterator[Callable[[Trial], None]]:
    for is_closed, is_newest in product((False, True), (False, True)):
        for at, value in REQUIRED.values():
            yield partial(_refused, is_closed=is_closed, is_newest=is_newest, at=at, value=value)
        yield partial(_opened, is_closed=is_closed, is_newest=is_newest)
        yield partial(_foreign, is_newest=is_newest)


def _make(trial: Trial, *, is_closed: bool = True) -> tuple[MemoryFiles, list[str], list[Record]]:
    """Make a log of several slabs; name the side files, and tell what it has."""
    files = MemoryFiles()
    writer = write_puts(files, make_puts(trial.random, Journal(), 100), note_pointer)
    if is_closed:
        writer.close()
    return files.copy("boot"), sorted(p for p in files.inodes if p.endswith(".sum")), _read(files)


def _refused(trial: Trial, *, is_closed: bool, is_newest: bool, at: int, value: int) -> None:
    files, paths, records = _make(trial, is_closed=is_closed)
    path = paths[-is_newest]
    _change_header(files, path, at, value)
    before = files.snapshot()
    for use in (_read, _write) if is_newest else (_read,):
        try:
            use(files)
            trial.failures.append(f"{path} of a newer version is taken, {use=}")
        except ReadFailed:
            trial.note(refused=1)
    after = files.snapshot()
    del after["writer.lock"], before["writer.lock"]
    trial.expect(is_true=before == after, otherwise="what was refused has changed")
    trial.expect(is_true=bool(records), otherwise="nothing was written")


def _opened(trial: Trial, *, is_closed: bool, is_newest: bool) -> None:
    files, paths, records = _make(trial, is_closed=is_closed)
    _change_header(files, paths[-is_newest], *OPTIONAL)
    _expect_to_go_on(trial, files, records)


def _foreign(trial: Trial, *, is_newest: bool) -> None:
    """Of queuefka are logs without side files, and slabs of them before ours."""
    files, paths, records = _make(trial)
    for path in paths if is_newest else paths[:-1]:
        files.unlink(path)
    _expect_to_go_on(trial, files, records)


def _expect_to_go_on(trial: Trial, files: MemoryFiles, records: list[Record]) -> None:
    trial.expect(is_true=_read(files) == records, otherwise="other messages are read")
    added = _write(files)
    trial.expect(is_true=_read(files) == [*records, added], otherwise="then others are read")
    trial.note(opened=1)


def _read(files: MemoryFiles) -> list[Record]:
    records, damages = read_log(files)
    return records if not damages else []


def _write(files: MemoryFiles) -> Record:
    with Writer(files) as writer:
        return writer.write(b"next"), b"next"


def _change_header(files: MemoryFiles, path: str, at: int, value: int) -> None:
    """Change a byte of a header, and all that is chained to it."""
    content = files.inodes[path].content
    content[at] = value
    link = content[_HASHED_BYTES:_HEADER_BYTES] = xxh3_64_digest(content[:_HASHED_BYTES])
    seed = xxh3_64_intdigest(content[24:48])
    for start in range(_HEADER_BYTES, len(content), _ENTRY_BYTES):
        end = start + _BODY_BYTES
        link = content[end : start + _ENTRY_BYTES] = xxh3_64_digest(content[start:end] + link, seed)
