"""A clean-up for cron: removes the slabs of logs that are too old or too large.

    17 4 * * *  python slab_cleanup.py /var/spool/readings --days 7 --megabytes 500

It needs no lock: writers and readers of the logs go on meanwhile. Without arguments it shows itself
on a log of its own.
"""

import argparse
import os
import sys
import tempfile
import time
from pathlib import Path

from poe.errors import PoeError
from poe.storage.slab_log import OutOfBounds, Reader, Writer, expire


def clean_up(log: Path, days: float, megabytes: float) -> int:
    """Clean up one log, and return its lowest address."""
    return expire(log, age_max_s=days * 24 * 3600, bytes_max=int(megabytes * 1_000_000))


def show() -> None:
    """Write a log, make its oldest slabs older, and clean up while the writer is open."""
    with tempfile.TemporaryDirectory() as folder, Writer(folder, slab_size_hint=1_000) as writer:
        for number in range(500):
            writer.write(b"reading %d" % number)
        writer.flush()
        slabs = sorted(Path(folder).glob("*.slab"))
        ten_days_ago_s = time.time() - 10 * 24 * 3600
        for slab in slabs[:4]:
            os.utime(slab, (ten_days_ago_s, ten_days_ago_s))
        lowest = clean_up(Path(folder), days=7, megabytes=500)
        print(f"{len(slabs)} slabs before, {len(list(Path(folder).glob('*.slab')))} after")
        try:
            Reader(folder, 0)
        except OutOfBounds as error:
            print("the lowest address is", error.lowest, "now:", error.lowest == lowest)
        print("the oldest message left:", Reader(folder).read().decode())


parser = argparse.ArgumentParser(description="Remove old slabs.")
parser.add_argument("log", nargs="*", type=Path)
parser.add_argument("--days", type=float, default=7)
parser.add_argument("--megabytes", type=float, default=1_000)
arguments = parser.parse_args()
failures_count = 0
for log in arguments.log:
    try:
        print(f"{log}: lowest address {clean_up(log, arguments.days, arguments.megabytes)}")
    except PoeError as error:  # the other logs are cleaned up all the same
        print(f"{log}: {error}", file=sys.stderr)
        failures_count += 1
if not arguments.log:
    show()
sys.exit(min(failures_count, 1))
