"""Which of several servers is asked: what connections share that are to ask the same one."""

from collections.abc import Sequence

from poe.client.local_server import AnyServer


class ServerOrder:
    """Servers, of which the first is asked until it fails; belongs to one event loop.

    A member of a group is one at one server: its connections go on to the next one together.
    """

    def __init__(self, servers: Sequence[AnyServer]) -> None:
        self._servers = list(servers)

    @property
    def current(self) -> AnyServer:
        """Return the server to ask."""
        return self._servers[0]

    @property
    def others_count(self) -> int:
        """Return how many there are beside the current one."""
        return len(self._servers) - 1

    def failed(self, server: AnyServer) -> None:
        """Ask the next one, unless another connection has found that out before."""
        if server is self._servers[0]:
            self._servers.append(self._servers.pop(0))
