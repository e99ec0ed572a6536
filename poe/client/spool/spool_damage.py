"""The places of a spool that cannot be read any more."""

import logging

from poe.errors import PoeError

_log = logging.getLogger(__name__)


class SpoolDamage:
    """Counts the places, logs each once, and tells each once."""

    def __init__(self, path: str) -> None:
        """Begin with none; `path` is that of the spool, for the log."""
        self._path = path
        self._seen: set[int] = set()
        self._untold: list[range] = []

    @property
    def count(self) -> int:
        """How many there are, each a batch or more."""
        return len(self._seen)

    def note(self, address: int, next_address: int, error: PoeError) -> None:
        """Note a place that is skipped, however often."""
        if address not in self._seen:
            self._seen.add(address)
            self._untold.append(range(address, next_address))
            _log.error("spool %s: batches are lost: %s", self._path, str(error))

    def take(self) -> list[range]:
        """Return the addresses of what was found since this was last called."""
        untold, self._untold = self._untold, []
        return untold
