"""Waiting for what other threads or processes do: poll with a deadline, never sleep and hope."""

import time
from collections.abc import Callable

_POLL_S, _POLL_MAX_S = 0.002, 0.02
_LONGER = 1.25


def wait_until(condition: Callable[[], object], timeout_s: float = 5.0) -> None:
    """Return as soon as `condition()` is true; real time, looked at every 2 ms, later every 20.

    Where time is simulated, use `SimulatedSystem.wait_until`.

    Raises:
        AssertionError: it was still false after `timeout_s`.
    """
    deadline_s = time.monotonic() + timeout_s
    pause_s = _POLL_S
    while not condition():
        if time.monotonic() > deadline_s:
            msg = f"not true within {timeout_s} s: {condition}"
            raise AssertionError(msg)
        time.sleep(pause_s)
        # A look may cost those that are waited for much of the processor.
        pause_s = min(_LONGER * pause_s, _POLL_MAX_S)
