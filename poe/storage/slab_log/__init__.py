"""A log inside a program's own process: messages go into slab files, and come out by address.

    with Writer("spool") as writer:
        address = writer.write(b"hello")
    Reader("spool", address).read()  # -> b"hello"

It needs neither a server nor actors. One process writes, any number of others read meanwhile. The
slabs are byte-compatible with those of queuefka; side files add checksums of 64 bits.
"""

from poe.errors import CorruptRecord
from poe.storage.slab_log.errors import (
    CorruptSlabRecord,
    EndOfLog,
    LogClosed,
    MessageTooLarge,
    OutOfBounds,
)
from poe.storage.slab_log.reader import Reader
from poe.storage.slab_log.retention import expire
from poe.storage.slab_log.writer import Writer

__all__ = [
    "CorruptRecord",
    "CorruptSlabRecord",
    "EndOfLog",
    "LogClosed",
    "MessageTooLarge",
    "OutOfBounds",
    "Reader",
    "Writer",
    "expire",
]
