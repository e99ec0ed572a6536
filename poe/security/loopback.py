"""Which addresses are this machine's own: what goes there meets no network, but other users."""

import ipaddress
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

_LISTEN = "0A"


class Listener(NamedTuple):
    """A socket that somebody of this machine listens on."""

    address: str
    """In hex, as the kernel has it."""

    user: int


def listeners(port: int) -> Iterator[Listener]:
    """Yield the sockets that listen on a port, on whatever address; none where nobody tells.

    Layout of a line: number, local address and port in hex, remote ones, state, queues, timer,
    retransmits, user …
    """
    for name in ("tcp", "tcp6"):
        try:
            lines = Path("/proc/net", name).read_text("ascii").splitlines()[1:]
        except OSError:
            continue
        for _, local, _, state, _, _, _, user, *_ in map(str.split, lines):
            address, _, local_port = local.rpartition(":")
            if state == _LISTEN and int(local_port, 16) == port:
                yield Listener(address, int(user))


@lru_cache(maxsize=1024)
def is_loopback(address: str) -> bool:
    """Return whether this machine alone can reach an address, which is given as a number.

    Raises:
        ValueError: it is no address.
    """
    found = ipaddress.ip_address(address.partition("%")[0])
    # An IPv4 address that is written as one of IPv6; Python looks into it from 3.13 on only.
    mapped = found.ipv4_mapped if isinstance(found, ipaddress.IPv6Address) else None
    return (mapped or found).is_loopback
