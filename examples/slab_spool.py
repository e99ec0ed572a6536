"""A spool for an uplink that fails: what was spooled survives a power cut, and is sent in the end.

With `fsync` a flush returns when the disk has the readings. One flush for many of them costs what
one for a single one does, so that readings which arrive together share it.
"""

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

from poe.storage.slab_log import Reader, Writer, expire


def uplink() -> Iterator[bool]:
    """Tell, per try, whether the other side took it: mostly not."""
    while True:
        yield from (False, False, True)


def note_down(bookmark: Path, address: int) -> None:
    """Replace the bookmark as a whole: a power cut leaves the old one or the new one."""
    new = bookmark.with_suffix(".new")
    with new.open("w") as file:
        file.write(str(address))
        file.flush()
        os.fsync(file.fileno())
    new.replace(bookmark)


def send_all(spool: Path, bookmark: Path, tries: Iterator[bool]) -> int:
    """Send what is in the spool, as often as it takes, and return the number of failures."""
    reader = Reader(spool, int(bookmark.read_text()) if bookmark.exists() else None)
    failures_count = 0
    while batch := reader.read_many(100):
        while not next(tries):
            failures_count += 1
        # Only now: should the power fail before, the batch is sent once more.
        note_down(bookmark, reader.address)
        print(f"sent {len(batch)}, the last is {batch[-1].decode()!r}")
    return failures_count


with tempfile.TemporaryDirectory() as folder:
    spool, bookmark = Path(folder, "spool"), Path(folder, "bookmark")
    tries = uplink()
    with Writer(spool, slab_size_hint=4_000, fsync=True) as writer:
        for number in range(250):
            writer.write(b"reading %d" % number)
            if number % 10 == 9:
                writer.flush()  # ten readings are safe now
        print("failures:", send_all(spool, bookmark, tries))

    with Writer(spool, slab_size_hint=4_000, fsync=True) as writer:
        writer.write(b"one more after a restart")
        writer.flush()
        print("failures:", send_all(spool, bookmark, tries))

    # All was sent, so that it may go, slab by slab; `expire` does not ask what was.
    print("something was removed:", expire(spool, bytes_max=2_000) > 0)
