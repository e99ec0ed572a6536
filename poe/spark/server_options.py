"""Which servers a read or a write asks, and how it gets in: the options that all of them share.

Spark keeps options in plans, and hands them to each of its processes. So only paths are among them:
each process reads the files itself, whenever it connects.
"""

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from poe.client.url import parse_url
from poe.errors import OptionError
from poe.protocol.server import Server
from poe.security import Certificate, Credentials, Entry, PasswordFile, Tls, TokenFile
from poe.security.names import USER_NAMES, is_user_name
from poe.security.token import hide_tokens
from poe.spark import option_text

DEFAULT_SERVER: Final = Server("127.0.0.1", 5555)

_TLS: Final = {
    "caFile": "ca",
    "certificateFile": "certificate",
    "keyFile": "key",
    "serverName": "server_name",
}
"""Options by the fields of `Tls` that they are."""

FILES: Final = frozenset({"caFile", "certificateFile", "keyFile", "tokenFile", "passwordFile"})
"""Options that are paths."""


def take_servers(values: dict[str, Any]) -> tuple[Server, ...]:
    """Take the values of `PARSERS` out of others, and return the servers that they name.

    Nothing where there are none of them.

    Raises:
        OptionError: they do not go together.
    """
    given = {name: values.pop(name) for name in PARSERS if name in values}
    if not given:
        return ()
    entry = Entry(_tls(given), _credentials(given))
    if "url" not in given:
        place = {name: given[name] for name in ("host", "port") if name in given}
        return (replace(DEFAULT_SERVER, **place, entry=entry),)
    for name in ("host", "port"):
        if name in given:
            raise OptionError(name, given[name], "either url, or host and port")
    return tuple(parse_url(given["url"], entry).servers)


def parse_servers(options: Mapping[str, str]) -> tuple[Server, ...]:
    """Return the servers that options of the data source name, of which no others are given.

    Raises:
        OptionError: an unknown name, a value that is not allowed, or they do not go together.
    """
    return take_servers(option_text.parse(options, PARSERS)) or (DEFAULT_SERVER,)


def for_tasks(server: Server) -> Server:
    """Return a server as it may be handed to tasks: got into by files, whose paths are absolute.

    Raises:
        OptionError: it is got into by a secret that is in no file.
    """
    [found] = parse_servers(options_of(server))
    return found


def options_of(server: Server, *others: Server) -> dict[str, str]:
    """Return the options that name servers, got into as the first; paths in them are absolute.

    Raises:
        OptionError: it is got into by a secret that is in no file.
    """
    tls, credentials = server.entry.tls, server.entry.credentials
    places = ",".join(map(_place, (server, *others)))
    options = {"url": f"poe{'s' * (tls is not None)}://{places}"}
    if isinstance(tls, Tls):
        values = {name: getattr(tls, field) for name, field in _TLS.items()}
        options |= {name: str(value) for name, value in values.items() if value is not None}
    match credentials:
        case TokenFile(path):
            options["tokenFile"] = str(path)
        case PasswordFile(user, path):
            options |= {"user": user, "passwordFile": str(path)}
        case None | Certificate():
            pass
        case _:
            allowed = "a file that holds it: Spark hands this to processes that nobody can ask"
            raise OptionError("credentials", "(hidden)", allowed)
    return {
        name: str(Path(text).absolute()) if name in FILES else text
        for name, text in options.items()
    }


def _place(server: Server) -> str:
    host = f"[{server.host}]" if ":" in server.host else server.host
    return f"{host}:{server.port}"


def names_server(options: Iterable[str]) -> bool:
    """Return whether some of the options, by their names, say which servers are asked."""
    names = {name.lower() for name in PARSERS}
    return any(each.lower() in names for each in options)


def check_files(server: Server) -> None:
    """Read all files that a client needs to get in.

    Raises:
        SecurityFileError: one of them cannot be used.
    """
    entry = server.entry
    if isinstance(entry.tls, Tls):
        entry.tls.context()
    if entry.credentials is not None:
        entry.credentials.resolve()


def _tls(given: Mapping[str, Any]) -> Tls | None:
    is_tls = given.get("url", "").startswith("poes://")
    for name in _TLS:
        if name in given and not is_tls:
            raise OptionError(name, given[name], "it with a url of TLS: poes://host:port")
    if "keyFile" in given and "certificateFile" not in given:
        raise OptionError("keyFile", given["keyFile"], "it with certificateFile")
    fields = {field: given[name] for name, field in _TLS.items() if name in given}
    return Tls(**fields) if is_tls else None


def _credentials(given: Mapping[str, Any]) -> Credentials | None:
    said = [name for name in ("user", "passwordFile") if name in given]
    if said and "tokenFile" in given:
        allowed = "either tokenFile, or user and passwordFile"
        raise OptionError(said[0], given[said[0]], allowed)
    if len(said) == 1:
        raise OptionError(said[0], given[said[0]], "user and passwordFile together")
    if said:
        return PasswordFile(given["user"], given["passwordFile"])
    if "tokenFile" in given:
        return TokenFile(given["tokenFile"])
    return Certificate() if "certificateFile" in given else None


def _url(name: str, text: str) -> str:
    """Read a url, of one server or of several."""
    if "@" in text:
        allowed = "one without a user; tokenFile, or user and passwordFile, say who asks"
        raise OptionError(name, "(hidden)", allowed)
    with suppress(OptionError):
        if parse_url(text).scheme != "kafka":
            return text
    allowed = "poe://host:port, or poes://host:port by TLS, with more hosts after commas"
    raise OptionError(name, text, allowed)


def _file(name: str, text: str) -> str:
    """Read the path of a file; who gives what should be in it has shown it to Spark already."""
    if hide_tokens(text) != text:
        raise OptionError(name, "(hidden)", "the path of a file that holds the token")
    return option_text.any_text(name, text)


def _user(name: str, text: str) -> str:
    if not is_user_name(text):
        raise OptionError(name, text, USER_NAMES)
    return text


PARSERS: Final[option_text.Parsers] = {
    "url": ("url", _url),
    "host": ("host", option_text.any_text),
    "port": ("port", option_text.number(1, 65535)),
    "caFile": ("caFile", _file),
    "certificateFile": ("certificateFile", _file),
    "keyFile": ("keyFile", _file),
    "serverName": ("serverName", option_text.any_text),
    "tokenFile": ("tokenFile", _file),
    "user": ("user", _user),
    "passwordFile": ("passwordFile", _file),
}
"""Values are kept under the options' own names."""
