"""What the tests of storage share: a folder with one topic, and ways to read all of a segment."""

import random
from pathlib import Path

from poe.storage import RealFiles, Segment, SegmentOptions, Store, decode_records
from torture.numbered_topic import slices_around

NOW = 1_700_000_000_000_000
FOLDER = "topics/t"


def files_at(base: Path) -> RealFiles:
    files = RealFiles.at(base)
    files.make_folder("topics")
    files.make_folder(FOLDER)
    return files


def create(files, timestamp=NOW, **options):
    return Segment.create(files, FOLDER, timestamp, SegmentOptions(**options))


def reopen(files, timestamp=NOW, **options):
    return Segment.open(files, FOLDER, timestamp, SegmentOptions(**options))


def read_all(segment):
    """Read a segment in slices, and check that message by message gives the same."""
    in_slices = []
    pointer = 0
    while (found := segment.read(pointer, 7, 10_000)) is not None:
        records = decode_records(found.read())
        assert len(records) == found.record_count
        assert records[-1][0] == found.last_pointer
        in_slices += records
        pointer = found.last_pointer
    one_by_one = []
    pointer = 0
    while (record := segment.next(pointer)) is not None:
        one_by_one.append(record)
        pointer = record[0]
    assert one_by_one == in_slices
    assert len(in_slices) == segment.count
    return in_slices


def read_around(segment, limit, bytes_max=10_000):
    """Read everything, going on behind what is damaged as the errors say."""
    slices = slices_around(segment, limit, bytes_max)
    return [record for each in slices for record in decode_records(each.read())]


def path_of(base: Path, suffix: str, timestamp=NOW) -> Path:
    return base / FOLDER / f"{timestamp}_{suffix}"


def names_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def wait_for_line(program):
    """Wait until a program started with a pipe has written a line."""
    return program.stdout.readline()


def some_of(size: int) -> range:
    """Return one in seven numbers below a size: over a few records, each byte of a record."""
    return range(0, size, 7)


ENDS = ["none", "stop", "kill", "power cut"]


def started_again(disk, store, how):
    """End a server in one of `ENDS`, and start another one; with none it goes on."""
    if how == "none":
        return store
    if how == "stop":
        store.close()
    if how == "power cut":
        disk.cut_power(random.Random(1))
    else:
        disk.kill()
    return Store.open(disk.files())
