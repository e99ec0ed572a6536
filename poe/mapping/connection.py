"""A worker's own connection: to one of several servers, and to the next one where that fails."""

from collections.abc import Sequence

from poe.client.server_order import ServerOrder
from poe.errors import PoeError
from poe.protocol import Socket
from poe.protocol.client import open_socket
from poe.protocol.server import Server


class Connection:
    """Connects when it is asked for; one thread at a time. Whoever calls says what has failed.

    Attributes:
        others_count: servers beside the one that is asked.
        known: what the server was found to know, of whoever notes it here; empty with each new one.
    """

    def __init__(self, servers: Sequence[Server], timeout_s: float) -> None:
        """Begin without one.

        Args:
            servers: nodes of one cluster, in the order to try them in; or a single one.
            timeout_s: how long connecting, and each call, may take.
        """
        self._order = ServerOrder(servers)
        self._timeout_s = timeout_s
        self._socket: Socket | None = None
        self.others_count = self._order.others_count
        self.known: set[bytes] = set()

    @property
    def name(self) -> str:
        """Return what people call the server that is asked."""
        return str(self._order.current)

    @property
    def is_open(self) -> bool:
        """Return whether there is one that can be used."""
        return self._socket is not None and self._socket.is_usable

    def socket(self) -> Socket:
        """Return it; make it where there is none.

        Raises:
            PoeError: the server cannot be reached, or lets nobody in.
        """
        if self._socket is None or not self._socket.is_usable:
            self._socket, server = None, self._order.current
            try:
                self._socket = open_socket(server, self._timeout_s)
            except PoeError:
                self._order.failed(server)
                raise
            self.known.clear()
        return self._socket

    def failed(self) -> None:
        """Ask the next server from now on, if there is one: what one refuses, another may do."""
        if self.others_count and self._socket is not None:
            self.close()
            self._order.failed(self._order.current)

    def close(self) -> None:
        """Close it, if there is one."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None
