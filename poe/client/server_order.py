"""Which of several servers is asked: what connections share that are to ask the same one."""

from collections.abc import Sequence
from typing import Generic, TypeVar

from poe.client.local_server import AnyServer

S = TypeVar("S", bound=AnyServer)


class ServerOrder(Generic[S]):
    """Servers, of which the first is asked until it fails; belongs to one event loop or thread.

    A member of a group is one at one server: its connections go on to the next one together.
    """

    def __init__(self, servers: Sequence[S]) -> None:
        self._servers = list(servers)

    @property
    def current(self) -> S:
        """Return the server to ask."""
        return self._servers[0]

    @property
    def others_count(self) -> int:
        """Return how many there are beside the current one."""
        return len(self._servers) - 1

    @property
    def all(self) -> Sequence[S]:
        """Return all of them, the current one first."""
        return tuple(self._servers)

    def failed(self, server: S) -> None:
        """Ask the next one, unless another connection has found that out before."""
        if server is self._servers[0]:
            self._servers.append(self._servers.pop(0))
