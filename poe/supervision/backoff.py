"""Back-off: how long a child waits before it is restarted, longer each time it fails again.

Off by default, as in OTP, where a budget of restarts is spent in microseconds. It changes *when* a
restart is carried out and never how restarts are counted: each counts at the same place as without.
"""

import math
import random
from collections.abc import Hashable, Iterator
from dataclasses import dataclass

from poe.errors import InvalidChildSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class Backoff:
    """Waits of `first_s`, then `factor` times as long at each restart in a row, up to `max_s`.

    A child that ran for `reset_after_s` since it was restarted begins with `first_s` again.

    Raises:
        InvalidChildSpec: on construction, naming the field, its value and what is allowed.
    """

    first_s: float = 0.1

    factor: float = 2.0
    """1 or more."""

    max_s: float = 10.0
    """Never less than `first_s`."""

    jitter: float = 0.0
    """Share of each wait, 0 to 1, that is random, so that children which failed together do not
    come back together: 0.2 gives between 0.8 and 1.2 times the wait."""

    seed: int | None = None
    """Makes the jitter repeatable, for each child and each of its waits; None: other every time."""

    reset_after_s: float = 60.0

    def __post_init__(self) -> None:
        """Refuse what would never end or never wait."""
        for key in ("first_s", "factor", "max_s", "jitter", "reset_after_s"):
            self._check(key, isinstance(getattr(self, key), int | float), "a number")
        self._check("first_s", 0 < self.first_s < math.inf, "more than 0 seconds")
        self._check("factor", 1 <= self.factor < math.inf, "1 or more")
        self._check("max_s", self.first_s <= self.max_s < math.inf, "first_s or more")
        self._check("jitter", 0 <= self.jitter <= 1, "0 to 1")
        self._check("reset_after_s", self.reset_after_s >= 0, "0 or more seconds")

    def _check(self, key: str, is_valid: bool, allowed: str) -> None:  # noqa: FBT001 - private, three columns
        if not is_valid:
            value = getattr(self, key)
            msg = f"back-off: {key} is {value!r}; use {allowed}"
            raise InvalidChildSpec(msg, key, value)

    def waits_s(self) -> Iterator[float]:
        """Yield the waits of a child that fails again and again, without jitter."""
        wait_s = self.first_s
        while True:
            yield wait_s
            wait_s = self.after(wait_s)

    def after(self, wait_s: float) -> float:
        """Return the wait that follows a wait of `wait_s`, without jitter."""
        return min(self.max_s, wait_s * self.factor)

    def jittered(self, wait_s: float, child: Hashable) -> float:
        """Return how long a child really waits."""
        # No generator is kept: with a seed, a wait depends on the child and its length alone,
        # and not on who else has failed before.
        seed = None if self.seed is None else f"{self.seed} {child!r} {wait_s}"
        generator = random.Random(seed)  # noqa: S311 - no secret
        return wait_s * (1 + self.jitter * generator.uniform(-1, 1))
