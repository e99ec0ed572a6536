"""When a call that has failed is made again: what both retrying sockets share but the waiting."""

import logging
import math
import random

from poe.errors import PoeError
from poe.errors.delivery import OUTCOME_UNKNOWN

_log = logging.getLogger(__name__)

_WAIT_S = 0.1
_WAIT_MAX_S = 5.0
_JITTER = 0.2
"""Share of each wait that is random: clients that were cut off together do not come together."""


class Patience:
    """How long a call is made again after its first failure, and with which waits in between.

    When that is over it begins anew; after a success, begin with another one.
    """

    def __init__(self, limit_s: float | None) -> None:
        """Begin with nothing failed; `limit_s` None: for ever, 0: never."""
        self._limit_s = limit_s
        self._give_up_s: float | None = None
        self._wait_s = _WAIT_S

    def wait_s(self, error: PoeError, now_s: float) -> float:
        """Return how long to wait before the next try, longer each time.

        Raises:
            PoeError: the error, where it does not pass, or has not passed for too long.
        """
        may_pass = isinstance(error, OUTCOME_UNKNOWN)
        if not (may_pass or error.retriable) or self._limit_s == 0:
            raise error
        if self._give_up_s is None:
            self._give_up_s = now_s + (math.inf if self._limit_s is None else self._limit_s)
            _log.warning("%s; trying again", error)
        elif now_s >= self._give_up_s:
            self._give_up_s, self._wait_s = None, _WAIT_S
            raise error
        jittered_s = self._wait_s * random.uniform(1 - _JITTER, 1 + _JITTER)  # noqa: S311 - no secret
        self._wait_s = min(2 * self._wait_s, _WAIT_MAX_S)
        # Waits grow, and the last one would last for much longer than it was allowed.
        return min(jittered_s, max(0.0, self._give_up_s - now_s))
