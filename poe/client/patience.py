"""When a call that has failed is made again: what both retrying sockets share but the waiting."""

import logging
import math
import random

from poe.errors import (
    AuthenticationFailed,
    AuthenticationRequired,
    PoeError,
    SecurityError,
    TlsFailed,
)
from poe.errors.delivery import OUTCOME_UNKNOWN

_log = logging.getLogger(__name__)

_WAIT_S = 0.1
_WAIT_MAX_S = 5.0
_JITTER = 0.2
"""Share of each wait that is random: clients that were cut off together do not come together."""

NOT_LET_IN = (AuthenticationRequired, AuthenticationFailed, TlsFailed)
"""Refusals of the client, whatever it asks for: the next connection meets the same."""

REFUSED_WAIT_MAX_S = 30.0
"""The longest wait of who goes on asking after a refusal: somebody may take that back."""
_REFUSED_WAIT_S = 1.0
_REFUSED_PAUSE_S = 5.0


def may_pass(error: PoeError) -> bool:
    """Return whether the same call, made again, may do better."""
    return error.retriable or isinstance(error, OUTCOME_UNKNOWN)


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
        if not may_pass(error) or self._limit_s == 0:
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


class Gate:
    """Keeps a client that was not let in from connecting again at once: that would be guessing."""

    def __init__(self) -> None:
        self._refusal: PoeError | None = None
        self._until_s = 0.0
        self._wait_s = _REFUSED_WAIT_S

    def check(self, now_s: float) -> None:
        """Let who wants to connect pass.

        Raises:
            PoeError: the last refusal, while it is too early.
        """
        if self._refusal is not None and now_s < self._until_s:
            raise self._refusal.with_traceback(None)

    def shut(self, refusal: PoeError, now_s: float) -> None:
        """Let nobody pass for a while, longer each time."""
        self._refusal = refusal
        self._until_s = now_s + self._wait_s
        self._wait_s = min(2 * self._wait_s, REFUSED_WAIT_MAX_S)

    def open(self) -> None:
        """Forget what was refused."""
        if self._refusal is not None:
            self._refusal, self._wait_s = None, _REFUSED_WAIT_S


def pause_after(error: PoeError, usual_s: float) -> float:
    """Return how long to wait before asking again in the background, where others are told."""
    is_refusal = isinstance(error, SecurityError) and not error.retriable
    return _REFUSED_PAUSE_S if is_refusal else usual_s
