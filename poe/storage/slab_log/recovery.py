"""Makes the newest slab of a log fit for writing, whatever the last writer left.

What an entry of the side file covers is never cut: should it be damaged, readers are told. Behind
the last entry whole records are kept, and covered anew; what is behind those is cut, being the rest
of a write that nobody was told had succeeded. Where another program wrote, or the side file is
lost or damaged, good records behind damage are kept as well, and the damage is marked.
"""

import logging
import os

from poe.storage.failure import reading, writing
from poe.storage.files import Files
from poe.storage.slab_log.errors import CorruptSlabRecord
from poe.storage.slab_log.record import LENGTH_MAX, Window
from poe.storage.slab_log.slab_name import full_path, slab_path
from poe.storage.slab_log.slab_reader import SlabReader
from poe.storage.slab_log.slab_sum import Flag, SumCursor
from poe.storage.slab_log.slab_writer import LOG_ID_BYTES, SlabWriter, make_sum

_log = logging.getLogger(__name__)


def recover(files: Files, start: int) -> SlabWriter:
    """Open the newest slab of a log for writing, after what it takes.

    Raises:
        ReadFailed: it cannot be read, or a later version of Poe wrote it.
        StorageFull: no room to repair it.
        WriteFailed: repairing it failed for another reason.
    """
    path = full_path(files, slab_path(start))
    with reading(path):
        file = files.open(slab_path(start), "r")
        size = file.size()
        # A record larger than what is written today is a record all the same.
        tail = SlabReader(file, start, None, files.base, LENGTH_MAX)
        cursor = SumCursor.open(files, start)
        is_own_tail = cursor is not None and _read_covered(cursor, size)
        covered_bytes = _covered_bytes(files, start)
    if covered_bytes > size:
        _log.error("%s ends at %d, its checksums at %d: what was there is lost",
                   path, size, covered_bytes)  # fmt: skip
    with writing(path):
        if cursor is None:
            log_id = os.urandom(LOG_ID_BYTES)
            slab = SlabWriter(files, start, start, log_id, *make_sum(files, start, log_id))
        else:
            at = start + cursor.end
            slab = SlabWriter(files, start, at, cursor.log_id, cursor.chain, cursor.at)
    with reading(path):
        while (found := _next(tail, slab.end, size if is_own_tail else None)) is not None:
            batch = file.read_at(found.end - slab.end, slab.end - start)
            flags = Flag.NONE if found.messages else Flag.CORRUPT
            last = found.addresses[len(found.messages) - 1]
            slab.adopt(batch, last, len(found.messages), flags)
    # Also says that a live writer's records end here, where the one before was closed.
    slab.mark(Flag.NONE)
    slab.cut()
    return slab


def _read_covered(cursor: SumCursor, size: int) -> bool:
    """Read the entries of what the slab holds; tell whether its last writer was ours and died."""
    while cursor.next(size) is not None:
        pass
    return not cursor.is_broken and not cursor.flags & (Flag.CLEAN | Flag.SEALED)


def _covered_bytes(files: Files, start: int) -> int:
    """Return how large the slab was when the last of its entries was written."""
    cursor = SumCursor.open(files, start)
    if cursor is None:
        return 0
    while cursor.next() is not None:
        pass
    return cursor.end


def _next(tail: SlabReader, address: int, own_size: int | None) -> Window | None:
    """Find the next records that nothing covers, or the damage before them; None at the end.

    With the size of a slab that our own writer left, there is nothing to look for behind damage.
    """
    if own_size is not None:
        return tail.load_unsummed(address, own_size)
    try:
        return tail.load(address)
    except CorruptSlabRecord as damage:
        return Window([damage.next_address], [])
