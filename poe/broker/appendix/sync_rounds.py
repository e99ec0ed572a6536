"""Has syncs that nobody waits for begin together, so that many of them share one sync of the disk.

Strategy: what is handed in within a moment is a round. One thread calls the syncs of a large one,
one after the other: the first of them syncs the disk, and the others find that done. A thread for
each would cost several turns of the interpreter, which the actors would have to give.
"""

import time
from collections.abc import Callable
from threading import Lock

from poe.actors.work import DISK_THREADS
from poe.broker.appendix.counters import SyncCount
from poe.storage import SharedSync

_GATHER_S = 0.02


class SyncRounds:
    """The rounds of one node; has threads for the works of its actors, as `Threads` has."""

    __slots__ = ("_jobs", "_lock", "shared", "syncs")

    def __init__(self, shared: SharedSync, syncs: SyncCount | None = None) -> None:
        self.shared = shared
        self.syncs = SyncCount() if syncs is None else syncs
        """Counts the syncs of all segments, not of these rounds alone."""
        self._lock = Lock()
        self._jobs: list[Callable[[], object]] = []

    def submit(self, job: Callable[[], object]) -> None:
        """Have a thread call `job`, which raises nothing, in a moment."""
        with self._lock:
            self._jobs.append(job)
            is_first = len(self._jobs) == 1
        if is_first:
            DISK_THREADS.submit(self._run)

    def _run(self) -> None:
        time.sleep(_GATHER_S)
        with self._lock:
            jobs, self._jobs = self._jobs, []
        if self.shared.is_for(len(jobs)):
            for job in jobs:
                job()
        else:
            for job in jobs:  # each of which may take as long as its topic's disk pleases
                DISK_THREADS.submit(job)
