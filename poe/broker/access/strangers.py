"""How many clients there are that are not let in yet: shaking hands, or to say who they are.

They cost memory and time, and nobody knows them. Beyond a number, one of them is closed without a
word for each that comes: the oldest one of those who crowd the most. So half-open connections, be
there ever so many, keep out nobody who is quick; those that are let in count no longer.

Who has failed to prove who it is waits for its answer in its place, and no other of its network
takes that away: else a guesser would wait for nothing, and only begin anew.
"""

import ipaddress
from collections.abc import Hashable, Iterable
from functools import lru_cache

from poe.actors import ActorRef

_PATIENCE_S = 0.5
"""How long a client has its place for sure: some ten times what a handshake takes."""


class Strangers:
    """Counts clients that are not let in yet; used in the event loop's thread only.

    Always:

        count == sum of the clients of all networks <= count_max
        clients of a network <= per_network_max
    """

    __slots__ = (
        "_by_network",
        "_count_max",
        "_per_network_max",
        "count",
        "taken_count",
    )

    def __init__(self, count_max: int, per_network_max: int) -> None:
        self.count = 0
        self.taken_count = 0
        """Places that were taken from one for another, ever."""
        self._by_network: dict[Hashable, dict[Place, None]] = {}
        """Their places, the oldest first."""
        self._count_max = count_max
        self._per_network_max = per_network_max

    def admit(self, address: str, now_s: float) -> "tuple[Place, Place | None] | None":
        """Return a place for one more client, and the one that was taken from another for it.

        Whose place was taken has to be closed. None: there is no place, for all of the client's
        network are taken by those who wait for an answer, or who have only just come. Were these
        closed for those that come behind them, of thousands at once nobody would get through.
        """
        until_s = now_s - _PATIENCE_S
        network = network_of(address)
        taken = None
        crowd = self._by_network.get(network, {})
        if len(crowd) >= self._per_network_max:
            taken = _oldest(crowd, until_s)
            if taken is None:
                return None
        elif self.count >= self._count_max:
            crowd = max(self._by_network.values(), key=len)
            taken = _oldest(crowd, until_s, and_kept=True)
            if taken is None:
                return None
        if taken is not None:
            taken.is_taken_away = True
            taken.leave()
            self.taken_count += 1
        place = Place(self, network, now_s)
        self._by_network.setdefault(network, {})[place] = None
        self.count += 1
        return place, taken

    def leave(self, place: "Place", network: Hashable) -> None:
        """Count one client less."""
        self.count -= 1
        places = self._by_network[network]
        del places[place]
        if not places:
            del self._by_network[network]


class Place:
    """What one client takes among the strangers, until it leaves them, one way or the other."""

    __slots__ = ("_network", "_strangers", "connection", "is_kept", "is_taken_away", "since_s")

    def __init__(self, strangers: Strangers, network: Hashable, since_s: float) -> None:
        self._strangers: Strangers | None = strangers
        self._network = network
        self.since_s = since_s
        self.connection: ActorRef | None = None
        """Whose it is, once that was started."""
        self.is_taken_away = False
        """Whether another client has it now, and its own is to be closed."""
        self.is_kept = False
        """Whether its client waits to be told that it has failed."""

    def leave(self) -> None:
        """Count no more; twice is harmless."""
        strangers, self._strangers = self._strangers, None
        if strangers is not None:
            strangers.leave(self, self._network)


def _oldest(crowd: Iterable[Place], until_s: float, *, and_kept: bool = False) -> Place | None:
    """Return the first place that may be taken away; None: none may."""
    old = [each for each in crowd if each.since_s <= until_s]
    free = (each for each in old if not each.is_kept)
    return next(free, old[0] if old and and_kept else None)


@lru_cache(maxsize=1024)
def network_of(address: str) -> Hashable:
    """Return what counts as one address: of IPv6 the /64, which one machine has all of."""
    found = ipaddress.ip_address(address.partition("%")[0])
    if isinstance(found, ipaddress.IPv6Address):
        mapped = found.ipv4_mapped
        return found.packed[:8] if mapped is None else mapped.packed
    return found.packed
