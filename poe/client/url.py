"""Where brokers are: `poe://host:port[,host:port]` or `kafka://host:port,…`, taken apart."""

from collections.abc import Sequence
from typing import NamedTuple

from poe.client.local_server import AnyServer, LocalServer
from poe.errors import OptionError
from poe.protocol.server import Server

DEFAULT_PORTS = {"poe": 5555, "kafka": 9092}
"""By scheme, for hosts that name no port."""


class BrokerUrl(NamedTuple):
    """What a url says."""

    scheme: str
    """`poe` or `kafka`."""

    servers: list[Server]
    """One or more, in the order to try them in."""


def parse_url(url: str) -> BrokerUrl:
    """Take a url apart. IPv6 addresses stand in brackets, as in `poe://[::1]:5555`.

    Raises:
        OptionError: it is none.
    """
    scheme, _, rest = str(url).partition("://")
    places = rest.rstrip("/").split(",")
    if scheme in DEFAULT_PORTS:
        servers = [_server(place.strip(), DEFAULT_PORTS[scheme]) for place in places]
        if None not in servers:
            return BrokerUrl(scheme, [each for each in servers if each])
    allowed = "poe://host:port or kafka://host:port, with more hosts after commas"
    raise OptionError("url", url, allowed)


def servers_of(url: str | LocalServer) -> tuple[str, Sequence[AnyServer]]:
    """Return the scheme and the servers of a url; the node of this process stands for one.

    Raises:
        OptionError: it is none.
    """
    return ("poe", [url]) if isinstance(url, LocalServer) else parse_url(url)


def _server(place: str, default_port: int) -> Server | None:
    """Return the server at a place; None if it is no place."""
    host, colon, port = place.rpartition(":")
    if not colon or place.endswith("]"):
        host, port = place, str(default_port)
    is_port = port.isascii() and port.isdigit() and 1 <= int(port) <= 65535  # noqa: PLR2004 - 16 bits
    is_bracketed = host.startswith("[") and host.endswith("]")
    host = host[1:-1] if is_bracketed else host
    if not host or not is_port or set(host) & set("/?#@[] ") or (":" in host and not is_bracketed):
        return None
    return Server(host, int(port))
