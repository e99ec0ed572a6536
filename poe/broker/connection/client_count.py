"""How many clients there are, in all and from each address, and who may still come."""

from collections import Counter

from poe.errors import Overloaded


class ClientCount:
    """Counts the clients of a listener; used in the event loop's thread only.

    Always:

        count == sum of the clients of all addresses <= clients_max
        clients of an address <= per_address_max, where there is such a limit
    """

    __slots__ = ("_by_address", "_clients_max", "_per_address_max", "count")

    def __init__(self, clients_max: int, per_address_max: int | None) -> None:
        self.count = 0
        self._by_address: Counter[str] = Counter()
        self._clients_max = clients_max
        self._per_address_max = per_address_max

    def admit(self, address: str) -> Overloaded | None:
        """Count one more client, or tell why there is no room for it."""
        if self.count >= self._clients_max:
            return Overloaded("connections_max", self._clients_max)
        per_address_max = self._per_address_max
        if per_address_max is not None and self._by_address[address] >= per_address_max:
            return Overloaded("connections_per_address_max", per_address_max)
        self.count += 1
        self._by_address[address] += 1
        return None

    def leave(self, address: str) -> None:
        """Count one client less."""
        self.count -= 1
        self._by_address[address] -= 1
        if not self._by_address[address]:
            del self._by_address[address]
