"""A clock that tests move by hand; a system without one uses the real monotonic clock."""


class SimulatedClock:
    """A clock that stands still until it is told to move."""

    def __init__(self, start_s: float = 0.0) -> None:
        self._now_s = start_s

    def monotonic_s(self) -> float:
        """Return the simulated time in seconds."""
        return self._now_s

    def advance(self, seconds: float) -> None:
        """Move on by `seconds`, 0 or more."""
        self._now_s += seconds
