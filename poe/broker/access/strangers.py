"""How many clients there are that are not let in yet: shaking hands, or to say who they are.

They cost memory and time, and nobody knows them. Beyond a number, the newest ones are closed
without a word; those that are let in count no longer.
"""

import ipaddress
from collections import Counter
from collections.abc import Hashable


class Strangers:
    """Counts clients that are not let in yet; used in the event loop's thread only.

    Always:

        count == sum of the clients of all networks <= count_max
        clients of a network <= per_network_max
    """

    __slots__ = ("_by_network", "_count_max", "_per_network_max", "count", "refused_count")

    def __init__(self, count_max: int, per_network_max: int) -> None:
        self.count = 0
        self.refused_count = 0
        """Those that were closed, ever."""
        self._by_network: Counter[Hashable] = Counter()
        self._count_max = count_max
        self._per_network_max = per_network_max

    def admit(self, address: str) -> "Place | None":
        """Count one more client; None: there is no place for it."""
        network = network_of(address)
        if self.count >= self._count_max or self._by_network[network] >= self._per_network_max:
            if not self._by_network[network]:
                del self._by_network[network]
            self.refused_count += 1
            return None
        self.count += 1
        self._by_network[network] += 1
        return Place(self, network)

    def leave(self, network: Hashable) -> None:
        """Count one client less."""
        self.count -= 1
        self._by_network[network] -= 1
        if not self._by_network[network]:
            del self._by_network[network]


class Place:
    """What one client takes among the strangers, until it leaves them, one way or the other."""

    __slots__ = ("_network", "_strangers")

    def __init__(self, strangers: Strangers, network: Hashable) -> None:
        self._strangers: Strangers | None = strangers
        self._network = network

    def leave(self) -> None:
        """Count no more; twice is harmless."""
        strangers, self._strangers = self._strangers, None
        if strangers is not None:
            strangers.leave(self._network)


def network_of(address: str) -> Hashable:
    """Return what counts as one address: of IPv6 the /64, which one machine has all of."""
    found = ipaddress.ip_address(address.partition("%")[0])
    if isinstance(found, ipaddress.IPv6Address):
        return found.ipv4_mapped or found.packed[:8]
    return found
