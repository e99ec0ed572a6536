"""A queue on disk between two processes: the producer never waits for the consumer, or for its end.

The consumer keeps one number, where it stands, in a file of its own. It ends in the middle, and the
next one goes on there: what the first had not noted down is done again, nothing is left out.
"""

import subprocess
import sys
import tempfile
import time
from pathlib import Path

from poe.storage.slab_log import Reader, Writer

JOBS_COUNT = 10_000


def note_down(bookmark: Path, address: int) -> None:
    """Replace the bookmark as a whole: a kill leaves the old one or the new one."""
    new = bookmark.with_suffix(".new")
    new.write_text(str(address))
    new.replace(bookmark)


def consume(folder: Path, jobs_max: int) -> None:
    """Do jobs until there are enough; note down every 100 how far this went."""
    bookmark = folder / "bookmark"
    reader = Reader(folder / "jobs", int(bookmark.read_text()) if bookmark.exists() else None)
    first, count = "", 0
    while count < jobs_max:
        for job in reader:  # ends where nothing follows yet; the next turn goes on from there
            first = first or job.decode()
            count += 1
            if count % 100 == 0:
                note_down(bookmark, reader.address)
            if count == jobs_max:
                break
        time.sleep(0.01)
    print(f"consumer: {count} jobs from {first!r} on")


def consumer(folder: str, jobs_max: int) -> subprocess.Popen[bytes]:
    """Start this file as the other process."""
    return subprocess.Popen([sys.executable, __file__, folder, str(jobs_max)])


if len(sys.argv) > 1:
    consume(Path(sys.argv[1]), int(sys.argv[2]))
    sys.exit()

with tempfile.TemporaryDirectory() as folder, Writer(Path(folder, "jobs")) as writer:
    running = consumer(folder, 4_250)
    for number in range(JOBS_COUNT):
        writer.write(b"job %d" % number)
        if number % 50 == 0:
            writer.flush()
    writer.flush()
    running.wait()
    consumer(folder, JOBS_COUNT - 4_200).wait()
