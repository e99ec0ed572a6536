"""Which server a read or a write asks: the options that all of them share."""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from poe.client.url import parse_url
from poe.errors import OptionError
from poe.protocol.server import Server
from poe.spark import option_text

DEFAULT_SERVER: Final = Server("127.0.0.1", 5555)


def take_server(values: dict[str, Any]) -> Server | None:
    """Take the values of `PARSERS` out of others, and return the server that they name.

    None where there are none of them.

    Raises:
        OptionError: they do not go together.
    """
    given = {field: values.pop(field) for field, _ in PARSERS.values() if field in values}
    url: Server | None = given.get("url")
    for name in ("host", "port"):
        if url is not None and name in given:
            raise OptionError(name, given[name], "either url, or host and port")
    if not given:
        return None
    return url or Server(**{"host": DEFAULT_SERVER.host, "port": DEFAULT_SERVER.port, **given})


def parse_server(options: Mapping[str, str]) -> Server:
    """Return the server that options of the data source name, of which no others are given.

    Raises:
        OptionError: an unknown name, a value that is not allowed, or they do not go together.
    """
    return take_server(option_text.parse(options, PARSERS)) or DEFAULT_SERVER


def names_server(options: Iterable[str]) -> bool:
    """Return whether some of the options, by their names, say which server is asked."""
    names = {name.lower() for name in PARSERS}
    return any(each.lower() in names for each in options)


def _url(name: str, text: str) -> Server:
    """Read the url of one server."""
    try:
        found = parse_url(text)
    except OptionError as error:
        raise OptionError(name, error.value, error.allowed) from error
    if found.scheme == "kafka" or len(found.servers) != 1:
        raise OptionError(name, text, "one server: poe://host:port")
    return found.servers[0]


PARSERS: Final[option_text.Parsers] = {
    "url": ("url", _url),
    "host": ("host", option_text.any_text),
    "port": ("port", option_text.number(1, 65535)),
}
