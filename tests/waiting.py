"""Waits for a condition with a deadline; the tests' only way to wait."""

import time
from collections.abc import Callable

_POLL_S = 0.002


def wait_until(condition: Callable[[], object], timeout_s: float = 5.0) -> None:
    """Return as soon as `condition()` is true.

    Raises:
        AssertionError: it was still false after `timeout_s`.
    """
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline:
            msg = f"not true within {timeout_s} s: {condition}"
            raise AssertionError(msg)
        time.sleep(_POLL_S)
