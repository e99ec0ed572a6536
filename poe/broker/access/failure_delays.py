"""How long somebody who has not proved who they are waits for the answer.

Each failure from an address doubles the wait, and nobody is locked out: a name that somebody else
guesses at is served as before.
"""

import random
from collections.abc import Callable, Hashable
from typing import Final

from poe.broker.access.strangers import network_of

FIRST_S: Final = 0.5
LONGEST_S: Final = 30.0
_FORGOTTEN_S: Final = 60.0
"""After so long without a failure an address begins anew."""
_ADDRESSES_MAX: Final = 4096
_DOUBLINGS_MAX: Final = 10


class FailureDelays:
    """Counts failures by address, of IPv6 by /64; `part` tells a number from 0 to 1, by chance."""

    __slots__ = ("_failures", "_part")

    def __init__(self, part: Callable[[], float] = random.random) -> None:
        self._part = part
        self._failures: dict[Hashable, tuple[int, float]] = {}

    def failed(self, address: str, now_s: float) -> float:
        """Count a failure, and return the seconds to wait: from half of to all of what is due."""
        network = network_of(address)
        count, last_s = self._failures.pop(network, (0, now_s))
        if now_s - last_s > _FORGOTTEN_S:
            count = 0
        if len(self._failures) >= _ADDRESSES_MAX:
            del self._failures[next(iter(self._failures))]  # who has failed least lately
        self._failures[network] = count + 1, now_s
        longest_s = min(LONGEST_S, FIRST_S * (1 << min(count + 1, _DOUBLINGS_MAX)))
        return longest_s * (1 + self._part()) / 2
