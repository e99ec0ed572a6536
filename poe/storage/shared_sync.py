"""One sync of the whole disk for many segments, each of which would need several of its own.

It is for syncs that nobody waits for: what came of one is told by what is written behind it alone.
"""

import logging
import threading
from weakref import WeakSet

from poe.storage.files import Files

_log = logging.getLogger(__name__)

_MANY = 16
"""From so many segments on that are to be synced, one sync of the whole disk costs less."""


class SyncTicket:
    """A place among those that are to be synced, as long as somebody refers to it."""

    __slots__ = ("__weakref__", "_shared", "number")

    def __init__(self, shared: "SharedSync", number: int) -> None:
        self._shared = shared
        self.number = number

    def is_synced(self) -> bool:
        """Sync what was written before the ticket was given, if others share that; in any thread.

        False: who has the ticket is to sync by itself.
        """
        return self._shared.sync_to(self.number)


class SharedSync:
    """Gives out tickets, and lets threads that have them share syncs.

    The first failure is the last sync: it is told once, and the next sync would say that all is
    well, of what the failure was about, too.

    Always: what was written before a ticket was given is durable, if its number is `_synced` or
    less.
    """

    __slots__ = ("_files", "_is_refused", "_lock", "_number", "_synced", "_syncing", "_waiting")

    def __init__(self, files: Files) -> None:
        self._files = files
        self._lock = threading.Lock()
        self._syncing = threading.Lock()
        self._waiting: WeakSet[SyncTicket] = WeakSet()
        self._number = self._synced = 0
        self._is_refused = False

    def is_for(self, count: int) -> bool:
        """Return whether so many at a time would share a sync."""
        return count >= _MANY and not self._is_refused

    def ticket(self) -> SyncTicket:
        """Give a ticket for what is written so far."""
        with self._lock:
            self._number += 1
            ticket = SyncTicket(self, self._number)
            self._waiting.add(ticket)
        return ticket

    def sync_to(self, number: int) -> bool:
        """Make what was written before a ticket durable, or tell that this is not done here."""
        with self._syncing:
            if self._synced < number and len(self._waiting) >= _MANY:
                self._sync()
            return number <= self._synced

    def sync_all(self) -> bool:
        """Make all that is written durable, in any thread; False: each is to sync by itself."""
        with self._syncing:
            return self._sync()

    def _sync(self) -> bool:
        if self._is_refused:
            return False
        with self._lock:
            number = self._number
        try:
            self._files.sync_all()
        except OSError as error:
            # Each by itself, so as to find out whose failure it was.
            _log.info("segments are synced one by one from now on: %s", error)
            self._is_refused = True
            return False
        self._synced = number
        return True
