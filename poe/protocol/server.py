"""A server as its clients know it."""

from dataclasses import dataclass
from typing import Final

from poe.errors import ConnectFailed, TlsFailed
from poe.security.entry import Entry

PORT: Final = 5555
TLS_PORT: Final = 5556

_OPEN: Final = Entry()


@dataclass(frozen=True, slots=True)
class Server:
    """Where a server listens, and how a client gets in."""

    host: str
    """Name or address."""

    port: int
    entry: Entry = _OPEN

    def __str__(self) -> str:
        return f"server {self.host}:{self.port}"

    def unreachable(self, reason: str) -> ConnectFailed:
        """Return the error for who cannot reach it."""
        return ConnectFailed(self.host, self.port, reason)

    def not_safe(self, reason: str) -> TlsFailed:
        """Return the error for who reaches it, but not by TLS as it should be."""
        return TlsFailed(self.host, self.port, reason)


def server_at(host: str, port: int | None, entry: Entry) -> Server:
    """Return the server at a host; without a port at the usual one, with TLS or without."""
    if port is None:
        port = PORT if entry.tls is None else TLS_PORT
    return Server(host, port, entry)
