"""Where brokers are: `poe://host:port[,host:port]`, `poes://…` with TLS, or `kafka://…`."""

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from poe.client.local_server import AnyServer, LocalServer
from poe.errors import OptionError
from poe.protocol.server import PORT, TLS_PORT, Server
from poe.security.entry import Entry
from poe.security.tls import Tls

DEFAULT_PORTS = {"poe": PORT, "poes": TLS_PORT, "kafka": 9092}
"""By scheme, for hosts that name no port."""

_PORT_MAX = 65535
_OPEN = Entry()
_ENTRY = "tls or credentials"


class BrokerUrl(NamedTuple):
    """What a url says."""

    scheme: str
    """`poe`, with TLS or without, or `kafka`."""

    servers: list[Server]
    """One or more, in the order to try them in."""


def parse_url(url: str, entry: Entry = _OPEN) -> BrokerUrl:
    """Take a url apart. IPv6 addresses stand in brackets, as in `poe://[::1]:5555`.

    Raises:
        OptionError: it is none, or does not go with the entry.
    """
    scheme, _, rest = str(url).partition("://")
    if "@" in rest:
        hidden = f"{scheme}://(hidden)@{rest.rpartition('@')[2]}"
        allowed = (
            "no user in a url, where secrets are seen: give credentials=Scram(user, password), "
            "Token(…) or TokenFile(path)"
        )
        raise OptionError("url", hidden, allowed)
    if scheme in DEFAULT_PORTS:
        places = rest.rstrip("/").split(",")
        entry = _entry_by(scheme, entry)
        servers = [_server(place.strip(), DEFAULT_PORTS[scheme], entry) for place in places]
        if None not in servers:
            kind = "poe" if scheme == "poes" else scheme
            return BrokerUrl(kind, [each for each in servers if each])
    allowed = "poe://host:port, poes://host:port or kafka://host:port, with more hosts after commas"
    raise OptionError("url", url, allowed)


def servers_of(url: str | LocalServer, entry: Entry = _OPEN) -> tuple[str, Sequence[AnyServer]]:
    """Return the scheme and the servers of a url; the node of this process stands for one.

    Raises:
        OptionError: it is none, or does not go with the entry.
    """
    if not isinstance(url, LocalServer):
        return parse_url(url, entry)
    if entry != _OPEN:
        raise OptionError(_ENTRY, "given", "neither for the node of this process")
    return "poe", [url]


def _entry_by(scheme: str, entry: Entry) -> Entry:
    """Return how a client gets in by a scheme: with TLS or without, never as it happens.

    Raises:
        OptionError: that is not what the entry says.
    """
    if scheme == "poes":
        return replace(entry, tls=entry.tls or Tls())
    if scheme == "kafka" and entry != _OPEN:
        allowed = "nothing on Kafka: its TLS and SASL are settings in option kafka"
        raise OptionError(_ENTRY, "given", allowed)
    if entry.tls is not None:
        raise OptionError("tls", entry.tls, "it with poes://, or poe:// without it")
    return entry


def _server(place: str, default_port: int, entry: Entry) -> Server | None:
    """Return the server at a place; None if it is no place."""
    host, colon, port = place.rpartition(":")
    if not colon or place.endswith("]"):
        host, port = place, str(default_port)
    # Not more digits: of thousands Python makes no number.
    is_number = port.isascii() and port.isdigit() and len(port) <= len(str(_PORT_MAX))
    is_port = is_number and 1 <= int(port) <= _PORT_MAX
    is_bracketed = host.startswith("[") and host.endswith("]")
    host = host[1:-1] if is_bracketed else host
    if not host or not is_port or set(host) & set("/?#@[] ") or (":" in host and not is_bracketed):
        return None
    return Server(host, int(port), entry)
