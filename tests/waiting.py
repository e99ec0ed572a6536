"""The tests' only way to wait."""

from collections.abc import Callable

from poe import testing


def wait_until(condition: Callable[[], object], timeout_s: float = 30.0) -> None:
    """As the one for everybody, with time for a machine on which much else runs."""
    testing.wait_until(condition, timeout_s)
