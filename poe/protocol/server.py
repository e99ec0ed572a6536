"""A server as its clients know it."""

from dataclasses import dataclass

from poe.errors import ConnectFailed


@dataclass(frozen=True, slots=True)
class Server:
    """Where a server listens."""

    host: str
    """Name or address."""

    port: int

    def __str__(self) -> str:
        return f"server {self.host}:{self.port}"

    def unreachable(self, reason: str) -> ConnectFailed:
        """Return the error for who cannot reach it."""
        return ConnectFailed(self.host, self.port, reason)
