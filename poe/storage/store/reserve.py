"""A file that only takes room, and is given up when the last steps find none on a full disk.

Those are recovery, without which a topic could not even be read, and a stop. It is there while a
server runs, and when that was killed.
"""

import logging
from collections.abc import Callable
from typing import TypeVar

from poe.errors import StorageFull
from poe.storage.files import Files

RESERVE_FILE = "store.reserve"
_PART = 16
_BYTES_MAX = 8 << 20

_log = logging.getLogger(__name__)

T = TypeVar("T")


class Reserve:
    """Disk blocks in reserve: a sixteenth of `min_free`, 8 MiB at most."""

    __slots__ = ("_files", "_size_bytes")

    def __init__(self, files: Files, min_free: int) -> None:
        self._files = files
        self._size_bytes = min(min_free // _PART, _BYTES_MAX)

    def make(self) -> None:
        """Take the room, if there is some."""
        if not self._size_bytes:
            return
        try:
            self._files.open(RESERVE_FILE, "w+").allocate(self._size_bytes)
        except OSError as error:
            _log.warning("no room is kept in %s: %s", RESERVE_FILE, error)
            self.release()

    def release(self) -> bool:
        """Give the room up; tell whether there was some."""
        try:
            has_room = bool(self._files.size(RESERVE_FILE))
            self._files.unlink(RESERVE_FILE)
        except OSError as error:
            _log.warning("%s cannot be removed: %s", RESERVE_FILE, error)
            return False
        return has_room

    def use(self, action: Callable[[], T]) -> T:
        """Do something that may be done again, if need be with the room that is given up for it.

        Raises:
            StorageFull: even that was not enough, or there was none.
        """
        try:
            return action()
        except StorageFull:
            if not self.release():
                raise
            _log.warning("%s is given up, the disk is full", RESERVE_FILE)
            return action()
