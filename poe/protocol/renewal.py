"""When a client has to log in again on a connection that goes on; pure."""

from typing import Final

_SHARE: Final = 0.8
"""Of the time that a login is good for, after which it is renewed; likewise of what is left then,
where that has failed, or has brought no more time."""
_PAUSE_MIN_S: Final = 1.0
"""Between two of them, whatever the server says of the end."""


class Renewal:
    """The time at which the login of one connection is to be renewed, by the monotonic clock."""

    def __init__(self, expires_s: float, now_s: float) -> None:
        """Begin with a login that is good for `expires_s` from now on."""
        self._end_s = now_s + expires_s
        self.due_s = now_s
        self._plan(now_s)

    def is_over(self, now_s: float) -> bool:
        """Return whether the login is good no more."""
        return now_s >= self._end_s

    def put_off(self, now_s: float) -> None:
        """Note that it could not be renewed now: that is to be tried again."""
        self._plan(now_s)

    def _plan(self, now_s: float) -> None:
        self.due_s = now_s + max(_SHARE * (self._end_s - now_s), _PAUSE_MIN_S)
