"""Calls of functions that belong to others: what they raise is logged and counted, and ends there.

Whoever produces must not lose messages because somebody's callback or metrics have a bug. Nor may
it end the thread that it is called in, as `sys.exit` and pytest's `fail` and `skip` would: that
thread serves all topics.
"""

import logging
import time
from collections.abc import Callable

_LOG_INTERVAL_S = 1.0

_logger = logging.getLogger(__name__)


class Contained:
    """Calls functions; logs what they raise, once a second at most. Any thread may use it."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._next_log_s = 0.0
        self.raised_count = 0
        """Calls that ended with an exception."""

    def call(self, what: str, function: Callable[..., object], *arguments: object) -> None:
        """Call the function; never raises. `what` names it in the log."""
        try:
            function(*arguments)
        except BaseException:
            self.raised_count += 1
            now_s = self._clock()
            if now_s >= self._next_log_s:
                self._next_log_s = now_s + _LOG_INTERVAL_S
                _logger.exception("%s raised (%d have so far)", what, self.raised_count)
