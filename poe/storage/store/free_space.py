"""Tells when a disk is nearly full, so that puts stop while there is room for all the rest.

Puts stop, too, while the folder on it is gone; see folder_watch.py.

Recovery, indexes and locks need room, too, and so do the other programs of the machine. Strategy:
the disk is asked once a second at most, and for each new segment, never for a put. So a producer
may use what it writes in a second, or in a segment, of what should stay free.
"""

import logging

from poe.errors import StorageFull, StoreGone
from poe.storage.files import Files
from poe.storage.store.folder_watch import FolderWatch

_LOOK_INTERVAL_S = 1.0

_log = logging.getLogger(__name__)


class FreeSpace:
    """What is known of a disk's room, and of the folder; while `is_refusing`, puts are refused.

    One thread at a time may call it. With a `min_free` of 0 it does not ask for room.

    Always: is_refusing == is_low or the folder is gone
    """

    __slots__ = (
        "_files",
        "_folder",
        "_free_bytes",
        "_looked_at_s",
        "_min_free",
        "is_low",
        "is_refusing",
    )

    def __init__(self, files: Files, min_free: int, folder: FolderWatch | None = None) -> None:
        """Ask for room at once; None for a folder that nobody watches."""
        self.is_low = self.is_refusing = False
        self._folder = folder
        self._files = files
        self._min_free = min_free
        self._free_bytes = 0
        self._looked_at_s = float("-inf")
        self.measure()

    def measure(self) -> None:
        """Ask the disk; what cannot be asked is as it was."""
        if self._min_free:
            self._measure_room()
        self.look_for_folder()

    @property
    def free_bytes(self) -> int | None:
        """Room on the disk when it was asked last; None where it is not asked."""
        return self._free_bytes if self._min_free else None

    def leave(self) -> None:
        """Let go of the folder, and of its lock."""
        self._folder = None

    def look_for_folder(self) -> None:
        """Look whether the folder is there."""
        if self._folder is not None:
            self._folder.look()
        self.is_refusing = self.is_low or self.is_gone

    @property
    def is_gone(self) -> bool:
        """Whether the folder is not there, or another one."""
        return self._folder is not None and self._folder.gone != ""

    def gone(self) -> StoreGone | None:
        """Return what puts are refused with where the folder is not there; else None."""
        return StoreGone(self._folder.gone) if self._folder and self._folder.gone else None

    def _measure_room(self) -> None:
        try:
            self._free_bytes = self._files.free_bytes()
        except OSError as error:
            _log.warning("free space of %s is not known: %s", self._files.base, error)
            return
        was_low, self.is_low = self.is_low, self._free_bytes < self._min_free
        if self.is_low and not was_low:
            _log.error("puts are refused: %s of %s", self._reason(), self._files.base)
        elif was_low and not self.is_low:
            _log.warning("puts are accepted again: there is room in %s", self._files.base)

    def look(self, now_s: float) -> None:
        """Ask the disk, unless that was done within the last second of a monotonic clock.

        The folder is looked for in any case.
        """
        if now_s >= self._looked_at_s + _LOOK_INTERVAL_S:
            self._looked_at_s = now_s
            self.measure()
        else:
            self.look_for_folder()

    def check(self, path: str, now_s: float) -> None:
        """Refuse to put anything to `path` on a disk that is nearly full, or without its folder.

        Raises:
            StorageFull: it is full.
            StoreGone: the folder is not there, or another one.
        """
        if self.is_refusing:
            self.look(now_s)
        gone = self.gone()
        if gone is not None:
            raise gone
        if self.is_low:
            raise StorageFull(path, self._reason())

    def _reason(self) -> str:
        return (
            f"{self._free_bytes} bytes are free on the disk, less than min_free, {self._min_free}"
        )
