"""Lets one thread wait for what actors do, without a lock that they could wait for in turn.

A `threading.Event` is made in Python, around a lock. Ctrl-C between that and its release leaves it
locked, and whoever sets the event then waits for ever: here, the thread that runs all actors.
"""

import threading


class Latch:
    """Is set once."""

    __slots__ = ("_unset",)

    def __init__(self) -> None:
        self._unset = threading.Lock()
        self._unset.acquire()

    def set(self) -> None:
        """Let the thread go on that waits."""
        self._unset.release()

    def is_set(self) -> bool:
        """Return whether it was set."""
        return not self._unset.locked()

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait until it is set, or the time is over; return whether it was set."""
        is_set = self._unset.acquire(timeout=-1 if timeout_s is None else timeout_s)
        if is_set:
            self._unset.release()
        return is_set
