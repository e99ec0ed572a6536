"""Removes the oldest slabs of a log, so that its lowest address moves up.

Only whole slabs go, the oldest first, and never the newest, which belongs to the writer. So it may
run beside the writer and readers, in a process of its own; a reader that has a slab open reads it
to its end.
"""

from itertools import pairwise
from pathlib import Path

from poe.errors import OptionError
from poe.storage.clock import Clock, SystemClock
from poe.storage.failure import reading, writing
from poe.storage.files import Files
from poe.storage.slab_log.slab_name import find_slabs, open_log, slab_path, sum_path

_US_PER_S = 1_000_000


def expire(
    path: str | Path | Files,
    *,
    age_max_s: float | None = None,
    bytes_max: int | None = None,
    address_min: int | None = None,
    clock: Clock | None = None,
) -> int:
    """Remove slabs that are old, too many or done with; return the lowest address that is left.

    Args:
        path: the folder of the log, or a file layer in its place.
        age_max_s: a slab goes when it was last written longer ago than this; None: however old.
        bytes_max: slabs go until this many bytes are left, or the newest slab; None: however many.
        address_min: a slab goes when it holds nothing at or behind this address; None: wherever.
        clock: what to measure the age with; None: the system's.

    Raises:
        OptionError: there is no log, or a limit is negative or no number; nothing is removed.
        ReadFailed: the log cannot be read.
        WriteFailed: a slab cannot be removed.
    """
    for key, limit in (
        ("age_max_s", age_max_s),
        ("bytes_max", bytes_max),
        ("address_min", address_min),
    ):
        if limit is not None and not limit >= 0:  # no comparison holds for NaN
            raise OptionError(key, limit, "0 or more, or None for no limit")
    files = open_log(path)
    now_us = (clock or SystemClock()).now_us()
    with reading(files.base):
        starts = find_slabs(files)
        end = starts[-1] + (files.size(slab_path(starts[-1])) or 0)
    lowest = starts[0]
    with writing(files.base):
        for start, next_start in pairwise(starts):
            modified_us = files.modified_us(slab_path(start)) or 0
            is_old = age_max_s is not None and now_us - modified_us > age_max_s * _US_PER_S
            is_too_much = bytes_max is not None and end - start > bytes_max
            is_done_with = address_min is not None and next_start <= address_min
            if not (is_old or is_too_much or is_done_with):
                break
            # In this order: a slab without its side file would be read with less care.
            files.unlink(slab_path(start))
            files.unlink(sum_path(start))
            lowest = next_start
        if lowest != starts[0]:
            files.sync_folder("")
    return lowest
