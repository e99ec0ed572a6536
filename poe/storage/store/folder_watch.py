"""Tells when the base folder of a running server is not there any more, or is another one.

Somebody has removed it, renamed it or put another in its place: what is written then goes to files
that no start will find. So is the folder of all topics in it. Strategy: the lock file is looked up
by its path and compared with the one that is open, and `topics/` has to be there; this costs three
system calls, and is done at each check tick, never for a put.
"""

import contextlib
import logging
from typing import Final

from poe.errors import StoreGone
from poe.storage.files import Files, OpenFile
from poe.storage.store.topic_folders import TOPICS_FOLDER

LOCK_FILE: Final = "store.lock"

_log = logging.getLogger(__name__)


class FolderWatch:
    """Whether the folder that a lock is in is still there; one thread at a time may call it."""

    __slots__ = ("_files", "_lock", "gone")

    def __init__(self, files: Files, lock: OpenFile) -> None:
        """Watch the folder of a lock that was just taken."""
        self._files = files
        self._lock = lock
        self.gone = ""
        """Path of the folder that was not there, or another one, when last looked; else empty."""

    def look(self) -> None:
        """Look again; what cannot be looked at is as it was."""
        with contextlib.suppress(OSError):
            was_gone = self.gone
            self.gone = self._find()
            if self.gone and not was_gone:
                _log.error("puts are refused: %s", StoreGone(self.gone))
            elif was_gone and not self.gone:
                _log.warning("puts are accepted again: %s is back", was_gone)

    def _find(self) -> str:
        """Return what is gone; the base folder first."""
        base = self._files.base
        if not self._files.is_in_place(LOCK_FILE, self._lock):
            return base
        return f"{base}/{TOPICS_FOLDER}" if self._files.modified_us(TOPICS_FOLDER) is None else ""
