"""Tells when the base folder of a running server is not there any more, or is another one.

Somebody has removed it, renamed it or put another in its place: what is written then goes to files
that no start will find. Strategy: the lock file is looked up by its path and compared with the one
that is open; this costs two system calls, and is done at each check tick, never for a put.
"""

import contextlib
import logging
from typing import Final

from poe.errors import StoreGone
from poe.storage.files import Files, OpenFile

LOCK_FILE: Final = "store.lock"

_log = logging.getLogger(__name__)


class FolderWatch:
    """Whether the folder that a lock is in is still there; one thread at a time may call it."""

    __slots__ = ("_files", "_lock", "is_gone")

    def __init__(self, files: Files, lock: OpenFile) -> None:
        """Watch the folder of a lock that was just taken."""
        self.is_gone = False
        self._files = files
        self._lock = lock

    def look(self) -> None:
        """Look again; what cannot be looked at is as it was."""
        with contextlib.suppress(OSError):
            was_gone = self.is_gone
            self.is_gone = not self._files.is_in_place(LOCK_FILE, self._lock)
            if self.is_gone and not was_gone:
                _log.error("puts are refused: %s", self.error())
            elif was_gone and not self.is_gone:
                _log.warning("puts are accepted again: %s is back", self._files.base)

    def error(self) -> StoreGone:
        """Return what to refuse puts with."""
        return StoreGone(self._files.base)
