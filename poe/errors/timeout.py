"""The one check of what somebody gives for a time: in actors, sockets, producers and consumers."""

import sys
from typing import TypeGuard

from poe.errors.config import OptionError
from poe.errors.protocol import LocalProtocolError

FOR_EVER_S = 1e9
"""30 years. Locks and timers take no more than ten times that."""
_LONG_S = 2e6


class InvalidTimeout(OptionError, LocalProtocolError, ValueError):
    """A time-out or a delay is no time.

    Whoever caught what a client, a socket or an actor raised for it before catches this.
    """

    code = 103

    def __init__(self, key: str, value: object, allowed: str) -> None:
        super().__init__(key, value, allowed)
        self.args = (f"{key} is {value!r}; use {allowed}",)


def check_timeout(timeout_s: object, key: str = "timeout_s") -> float:
    """Return how many seconds to wait; `FOR_EVER_S` for None, infinity, and whatever is longer.

    Raises:
        InvalidTimeout: it is no time.
    """
    if timeout_s is None:
        return FOR_EVER_S
    if _is_number(timeout_s) and timeout_s >= 0:
        return float(min(timeout_s, FOR_EVER_S))
    raise InvalidTimeout(key, timeout_s, "0 or more seconds, or None")


def limit_of(timeout_s: float | None, key: str = "timeout_s") -> float | None:
    """Return a time-out as it was given, or None, for no limit, where it is longer than 23 days.

    Sockets take no longer one.

    Raises:
        InvalidTimeout: it is no time.
    """
    return None if check_timeout(timeout_s, key) > _LONG_S else timeout_s


def check_delay(delay_s: object, key: str = "delay_s") -> None:
    """Check a time that has to come.

    Raises:
        InvalidTimeout: it is none, or never comes.
    """
    # Not `< math.inf`: a whole number may be greater than any float.
    if not (_is_number(delay_s) and 0 <= delay_s <= sys.float_info.max):
        raise InvalidTimeout(key, delay_s, "0 or more seconds")


def _is_number(value: object) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool)
