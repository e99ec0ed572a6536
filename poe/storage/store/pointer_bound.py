"""A bound of the pointers that were given, which outlives a power cut that takes messages back.

Consumers see messages before they are on the disk, and a power cut takes the last ones. Were their
pointers given again, to other messages, whoever has read the former ones would pass over those. A
clock that goes on makes greater ones by itself; one that was set back does not, as that of a
machine without a battery, which begins at the time that it has noted last.

Strategy: `store.bound` tells, durably, what no pointer given so far exceeds. It is raised to 20 s
ahead when half of that is left, in a thread, and no put waits for it: of the first one after a rest
it is not yet true for as long as a sync takes. Only after a power cut it matters: topics go on
behind it then, and from then on, since nobody knows which ones have lost something.

It follows the clock, or the floor where the clock is behind that, and topics that run ahead of both
by a day at most. Of one that runs further ahead, since the clock was years ahead once, all others
would do so, too, after the next power cut.

Layout: two places of 512 bytes, written by turns, so that a torn one leaves the other (big endian):
    magic    8 bytes  "poe-bnd1"
    number   u64      of the writes; the greater one holds
    bound    u64
    floor    u64      the bound at the last power cut, 0 before the first
    hash     u64      of the bytes before and of the store id
"""

import logging
import struct
import threading
from typing import Final

from poe.record import POINTER_MAX
from poe.storage.files import Files
from poe.storage.formats.hashed import HASH_BYTES, seal
from poe.storage.replacement import replace_file

BOUND_FILE: Final = "store.bound"
AHEAD_US: Final = 20_000_000
_AHEAD_OF_CLOCK_US_MAX = 86_400_000_000

_MAGIC = b"poe-bnd1"
_FIELDS = struct.Struct(">8sQQQ")
_PLACE_BYTES = 512

_log = logging.getLogger(__name__)


class PointerBound:
    """What no pointer of a store exceeds that was given, and what those to come have to exceed.

    `floor` is the latter. Of a pointer greater than `quiet_until`, `given` has to be told; and when
    it `is_due`, somebody has to `raise_it`, in any thread: it blocks.

    A disk that does not take it is no reason to refuse anything: it is told, and tried again.
    """

    __slots__ = (
        "_bound",
        "_files",
        "_lock",
        "_newest",
        "_number",
        "_store_id",
        "floor",
        "is_due",
        "quiet_until",
    )

    def __init__(
        self, files: Files, store_id: bytes, *, was_closed: bool, is_after_power_cut: bool
    ) -> None:
        """Read it; of a store that `was_closed` nothing can be lost any more."""
        self._files: Files | None = files
        self._store_id = store_id
        self._lock = threading.Lock()
        self._newest = 0
        self._number, bound, self.floor = self._read(files)
        self.is_due = False
        self._bound = self.floor if was_closed else bound
        self.quiet_until = self._bound - AHEAD_US // 2
        if is_after_power_cut and bound > self.floor:
            self.floor = bound
            self._try_to_write(files, bound)
        elif was_closed and bound > self.floor:  # else a power cut before the first put finds it
            self._try_to_write(files, self.floor)

    def given(self, pointer: int, now_us: int) -> bool:
        """Take note of a pointer and the time; tell whether it is the first beyond the bound."""
        ahead_max = max(now_us, self.floor) + _AHEAD_OF_CLOCK_US_MAX
        newest = max(self._newest, min(pointer, ahead_max))
        is_urgent = self._newest <= self._bound < newest
        self._newest = newest
        self.is_due = newest > self.quiet_until
        return is_urgent

    def raise_it(self) -> None:
        """Make durable that pointers are given for some more time."""
        with self._lock:
            if self._newest > self.quiet_until and self._files is not None:
                bound = min(self._newest + AHEAD_US, POINTER_MAX)
                self._try_to_write(self._files, bound)
                self._bound, self.quiet_until = bound, bound - AHEAD_US // 2
            self.is_due = self._newest > self.quiet_until

    def close(self) -> None:
        """Wait until nobody writes it, and let go of the folder, which others may have now.

        A thread that comes too late finds nothing to do.
        """
        with self._lock:
            self._files = None

    def _try_to_write(self, files: Files, bound: int) -> None:
        try:
            self._write(files, bound)
        except OSError as error:
            _log.warning(
                "%s was not written; should the clock be set back, and the power fail, pointers "
                "would be given again: %s",
                BOUND_FILE,
                error,
            )

    def _write(self, files: Files, bound: int) -> None:
        number = self._number + 1
        fields = _FIELDS.pack(_MAGIC, number, bound, self.floor)
        content, place = seal(fields, self._store_id), number % 2 * _PLACE_BYTES
        try:
            file = files.open(BOUND_FILE, "r+")
        except FileNotFoundError:
            whole = bytearray(2 * _PLACE_BYTES)
            whole[place : place + len(content)] = content
            replace_file(files, BOUND_FILE, bytes(whole))
            files.sync_folder("")
        else:
            file.write_at(content, place)
            file.sync()
        self._number = number  # last: what failed is written over, and not what is good

    def _read(self, files: Files) -> tuple[int, int, int]:
        """Return number, bound and floor as they were written last; zeros where nothing is."""
        try:
            content = files.open(BOUND_FILE, "r").read_at(2 * _PLACE_BYTES, 0)
        except FileNotFoundError:
            return 0, 0, 0
        except OSError as error:
            _log.error("%s cannot be read: %s", BOUND_FILE, error)
            return 0, 0, 0
        found = [(0, 0, 0)]
        for at in (0, _PLACE_BYTES):
            piece = content[at : at + _FIELDS.size]
            is_whole = content[at : at + _FIELDS.size + HASH_BYTES] == seal(piece, self._store_id)
            if is_whole and piece.startswith(_MAGIC):
                _, *numbers = _FIELDS.unpack(piece)
                found.append((numbers[0], numbers[1], numbers[2]))
        if len(found) == 1:
            _log.error("%s is damaged, or of another store, and begun anew", BOUND_FILE)
        return max(found)
