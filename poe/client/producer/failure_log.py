"""Tells the log of messages that were given up: nobody may keep what else would tell of it."""

import logging
import threading
from functools import partial

from poe.client.producer.accumulator import Scheduler
from poe.errors import PoeError
from poe.errors.short_text import short_repr

_INTERVAL_S = 1.0

_log = logging.getLogger(__name__)


class FailureLog:
    """One line a second for each topic, with how many messages it is about; any thread may call."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._lock = threading.Lock()
        self._untold: dict[bytes, tuple[int, PoeError | None]] = {}
        """Count and last error, of topics that had a line within the last second."""

    def add(self, topic: bytes, count: int, error: PoeError) -> None:
        """Note messages that are given up."""
        with self._lock:
            untold = self._untold.get(topic)
            self._untold[topic] = (0 if untold is None else untold[0]) + count, error
        if untold is None:
            self._tell(topic)

    def close(self) -> None:
        """Tell what was not told yet."""
        for topic in list(self._untold):
            self._tell(topic)

    def _tell(self, topic: bytes) -> None:
        with self._lock:
            count, error = self._untold.pop(topic, (0, None))
            if not count:
                return
            self._untold[topic] = 0, None
        _log.warning("topic %s: %d messages are given up: %s", short_repr(topic), count, error)
        self._scheduler.call_later(_INTERVAL_S, partial(self._tell, topic))
