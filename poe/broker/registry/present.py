"""Who is connected just now: each connection tells of itself when somebody asks.

So nobody counts for that meanwhile; what the kernel counts anyway is asked of the kernel.
"""

import contextlib
import socket
import struct
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any, Final, TypeAlias

Tell: TypeAlias = Callable[[], dict[str, Any]]

_TCP_INFO_BYTES: Final = 256
_BYTES: Final = struct.Struct("@QQ")
_BYTES_AT: Final = 120
"""tcpi_bytes_acked and tcpi_bytes_received of linux/tcp.h; since Linux 4.1."""
_UNSENT: Final = struct.Struct("@I")
_UNSENT_AT: Final = 144
"""tcpi_notsent_bytes; since Linux 4.6."""
_IDLE_AT: Final = 52
"""tcpi_last_data_recv, in milliseconds."""


class Present:
    """The connections of a node, oldest first; used in the event loop's thread only."""

    __slots__ = ("_connections", "accepted_count", "in_flight_bytes")

    def __init__(self) -> None:
        self._connections: dict[str, Tell] = {}
        self.accepted_count = 0
        """All that there were."""
        self.in_flight_bytes: Callable[[], int] = int
        """Tells what they hold in memory together; the listener's own, 0 without one."""

    def __len__(self) -> int:
        return len(self._connections)

    def enter(self, ref: str, tell: Tell) -> None:
        """Count a connection in."""
        self._connections[ref] = tell
        self.accepted_count += 1

    def leave(self, ref: str) -> None:
        """Count it out; twice is harmless."""
        self._connections.pop(ref, None)

    def rows(self, after: int, limit: int) -> Iterator[dict[str, Any]]:
        """Yield what `limit` of them tell at most, without the first `after`."""
        for ref, tell in islice(list(self._connections.items()), after, after + limit):
            yield {"ref": ref, **tell()}


def traffic(client: socket.socket) -> dict[str, Any]:
    """Return what the kernel knows of a connection; None where it does not tell.

    bytes_in, bytes_out: received, and acknowledged by the peer; of TLS, what it makes of them.
    unsent_bytes: what is to be sent and the peer does not take. quiet_s: since it sent something.
    """
    found: dict[str, Any] = dict.fromkeys(("bytes_in", "bytes_out", "unsent_bytes", "quiet_s"))
    with contextlib.suppress(OSError, AttributeError, struct.error):
        told = client.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _TCP_INFO_BYTES)
        found["quiet_s"] = _UNSENT.unpack_from(told, _IDLE_AT)[0] / 1000
        found["bytes_out"], found["bytes_in"] = _BYTES.unpack_from(told, _BYTES_AT)
        found["unsent_bytes"] = _UNSENT.unpack_from(told, _UNSENT_AT)[0]
    return found


def peer_name(client: socket.socket) -> str:
    """Return the address and port of a client; nothing of one that has gone."""
    with contextlib.suppress(OSError):
        host, port, *_ = client.getpeername()
        return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    return ""
