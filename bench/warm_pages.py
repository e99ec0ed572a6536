"""Gives the page cache memory that this machine really has, so that servers are measured, not it.

A virtual machine may return freed memory to its host ("free page reporting"), seconds after it was
freed; using it again then costs a fault on the host. Measured on such a machine, a write of 4 KiB
to a file cost 0.7 µs into memory freed a moment ago and 9.4 µs into memory freed 15 s ago: a
server that runs after a busy neighbour looked twice as fast as after an idle one. Touching memory
before each measurement gives all of them the former.
"""

import mmap
from pathlib import Path

BYTES_PER_S = 2 << 30
"""What the fastest server here, which is C, writes in a second: 1.8 GB."""

# Linux's MADV_POPULATE_WRITE; Python has no name for it yet.
_POPULATE_WRITE = 23


def warm_pages(seconds: float) -> None:
    """Touch and free as much memory as is written in `seconds`; a quarter of what is free at most.

    It stays warm for two seconds, and most of it for some more.
    """
    size = min(int(BYTES_PER_S * seconds), _available_bytes() // 4)
    with mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as memory:
        # Freed in small pages, for the page cache takes small ones: after huge ones, only the first
        # part of what was touched came back to it.
        memory.madvise(mmap.MADV_NOHUGEPAGE)
        try:
            memory.madvise(_POPULATE_WRITE)
        except OSError:  # a kernel before 5.14
            for offset in range(0, size, mmap.PAGESIZE):
                memory[offset] = 1


def _available_bytes() -> int:
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    msg = "/proc/meminfo has no MemAvailable"
    raise LookupError(msg)
