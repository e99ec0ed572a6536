"""The options by which a command is told which server to ask, and how to get in.

What is typed outdoes the environment, and that outdoes what `poe login` has saved.
"""

import os
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from inspect import signature
from typing import Annotated, Any, Final, NamedTuple, TypeVar

import typer

from poe.cli.administrator import administrator_token, asks_who
from poe.cli.argument import flag_of, number
from poe.cli.endpoint import Endpoint
from poe.cli.parameters import option, with_parameters
from poe.cli.saved_login import SavedLogins
from poe.cli.secret import STDIN, ask_password, piped_secret, warn_of_readers
from poe.cli.sentence import WAYS_IN
from poe.errors import ConfigError, OptionError, PoeError
from poe.option import NONE_WORDS
from poe.protocol.server import Server
from poe.security.credentials import Certificate, Credentials, PasswordFile, Scram, Token, TokenFile
from poe.security.entry import Entry
from poe.security.tls import Tls
from poe.topic_name import topic_text

T = TypeVar("T")

_COMPLETE_TIMEOUT_S = 1.0
"""Somebody waits who has pressed a key."""
_COMPLETED_MAX = 1000

_DEFAULT_HOST = "127.0.0.1"
_DEFAULT_PORT = 5555

_OPTIONS: Final = {
    "url": ("URL", "Where the server is: poe://HOST:PORT, poes://… for TLS; else the last login."),
    "host": ("TEXT", f"Where it listens, without --url.  [default: {_DEFAULT_HOST}]"),
    "port": ("INTEGER", f"Its port.  [default: {_DEFAULT_PORT}]"),
    "ca": ("PATH", "Authorities that are trusted, with TLS; else those of the system."),
    "certificate": ("PATH", "The client's own certificate, with TLS."),
    "key": ("PATH", "Its private key."),
    "server_name": ("NAME", "Name in the server's certificate, if that is not the host."),
    "user": ("NAME", "Who asks; the password is asked for, unless --password-file is given."),
    "password_file": ("PATH", "File of the password, - for standard input."),
    "token_file": ("PATH", "File of a token, instead of a user; - for standard input."),
    "dir": ("PATH", "The server's --dir, if that is yours: you get in without a credential."),
}
"""Of each option what its value is called, and its help. It may stand in POE_<NAME>, too."""
_PLACE: Final = frozenset({"url", "host", "port"})
_TLS: Final = frozenset({"ca", "certificate", "key", "server_name"})
_SAYS_WHO: Final = frozenset({"user", "password_file", "token_file"})
_PROVES: Final = _SAYS_WHO | {"certificate", "key"}


def asks_server(command: Callable[..., T]) -> Callable[..., T]:
    """Give a command the options of a server in the place of its parameter `endpoint`.

    One that has a parameter `url` of its own has no option for where the server is.
    """
    has_url = "url" in signature(command).parameters
    names = [name for name in _OPTIONS if not (has_url and name in _PLACE)]

    def call(**values: Any) -> T:  # noqa: ANN401 - as typer has parsed them
        given = {name: values.pop(name) for name in names}
        if has_url:
            given["url"] = values["url"]
        return command(endpoint=endpoint_of(given), **values)

    made = [
        option(name, Annotated[str | None, _option_of(name, *_OPTIONS[name])]) for name in names
    ]
    return with_parameters(command, "endpoint", made, call)


def complete_topic(context: typer.Context, incomplete: str) -> list[str]:
    """Return the topics of the server whose names go on so, for a shell; none without a server.

    A topic of several partitions and these are both told: commands take the one or the other.
    """
    try:
        given = {name: context.params.get(name) for name in _OPTIONS}
        endpoint = endpoint_of(given, may_ask=False)
        with endpoint.connect(_COMPLETE_TIMEOUT_S) as connection:
            topics = set(connection.topics())
            with suppress(PoeError):  # it is older, or slow: partitions are better than nothing
                topics.update(connection.topic_names())
    except PoeError:
        return []
    names = map(topic_text, sorted(topics))
    return [name for name in names if name.startswith(incomplete)][:_COMPLETED_MAX]


PartitionOption = Annotated[
    int | None,
    typer.Option(
        "--partition",
        metavar="INTEGER",
        parser=number("--partition", int, 0),
        help="Of a topic that has several, this one.",
        show_default=False,
    ),
]


def endpoint_of(
    given: Mapping[str, str | None],
    environment: Mapping[str, str] = os.environ,
    logins: SavedLogins | None = None,
    *,
    may_ask: bool = True,
) -> Endpoint:
    """Return what the options of a command, the environment and a login name, in this order.

    A place that is given outdoes any later one: with --host, POE_URL is passed over, and so is
    what was saved for another url. With --dir it is the server of this machine, as its owner.

    Args:
        given: the options by name; None, where one was not given.
        environment: variables.
        logins: where to look for a login; in the user's folder by default.
        may_ask: ask for a password, or take it from standard input, if need be.

    Raises:
        OptionError: a value is none, or two contradict each other.
        ConfigError: there is nobody to ask for a password.
    """
    typed = {name: value for name, value in given.items() if value is not None}
    told = {
        name: environment[variable]
        for variable, name in variables().items()
        if variable in environment
    }
    for name, value in typed.items():
        _check_is_something(flag_of(name), name, value)
    for name, value in told.items():
        _check_is_something(_variable(name), name, value)
    for name in sorted({"host", "port"} & typed.keys()):
        if "url" in typed:
            raise OptionError(flag_of(name), typed[name], "--url alone, or --host and --port")
    values = _merged(told, typed)
    is_told = "dir" in typed or not _PLACE.isdisjoint(values)
    place = place_of(values) if is_told else None
    saved = (logins or SavedLogins()).find(place and place.text)
    if "dir" in typed:
        saved = {name: value for name, value in saved.items() if name not in _PROVES}
    values = _merged(saved, values)
    place = place or place_of(values)
    _check(typed, place)
    if not typed.keys() & _PLACE:
        _check(told, place)
    entry = _entry(values, place, may_ask=may_ask)
    server = replace(place.server, entry=entry)
    return Endpoint(place.text, server, is_told=is_told, others=place.others)


def _option_of(name: str, metavar: str, text: str) -> Any:  # noqa: ANN401 - typer's
    return typer.Option(
        flag_of(name), metavar=metavar, help=f"{text}  [env var: {_variable(name)}]"
    )


def variables() -> dict[str, str]:
    """Return the options of a server by the variables that may hold them."""
    return {_variable(name): name for name in _OPTIONS}


def _variable(name: str) -> str:
    return f"POE_{name.upper()}"


def _check_is_something(where: str, name: str, value: str) -> None:
    """Refuse an empty value, which rarely means what it looks like.

    Raises:
        OptionError: it is empty.
    """
    if not value:
        raise OptionError(where, value, f"{_OPTIONS[name][0]}, or leave it out")


class Place(NamedTuple):
    """Where servers are."""

    text: str
    """The url as logins are kept by it."""
    scheme: str
    server: Server
    others: tuple[Server, ...] = ()
    """Those behind the first one."""


def _merged(lower: Mapping[str, str], upper: Mapping[str, str]) -> dict[str, str]:
    """Return options of two places; of what contradicts each other that of the upper one stays."""
    passed = set(upper)
    if "url" in upper:
        passed |= {"host", "port"}
    if upper.keys() & {"host", "port"}:
        passed.add("url")
    if "token_file" in upper:
        passed |= {"user", "password_file"}
    if "certificate" in upper:
        passed.add("key")
    if "user" in upper:
        # A password is that of the user beside it.
        passed |= {"token_file"} | ({"password_file"} if "user" in lower else set())
    return {name: lower[name] for name in lower if name not in passed} | dict(upper)


def place_of(values: Mapping[str, str]) -> Place:
    """Return where the server is.

    Raises:
        OptionError: this names none.
    """
    url = values.get("url")
    if url is None:
        host = values.get("host", _DEFAULT_HOST)
        told = str(values.get("port", _DEFAULT_PORT))
        flag = "--port (or POE_PORT)"
        if told.lower() in NONE_WORDS:  # in the environment of a server that has TLS alone
            raise OptionError(flag, told, "--url poes://host:port (or POE_URL) of its port for TLS")
        port = number(flag, int, 1, 65535)(told)
        return Place(_url("poe", [Server(host, port)]), "poe", Server(host, port))
    # Late: a command without a url is to load no asyncio client.
    from poe.client.url import parse_url  # noqa: PLC0415

    flag, allowed = "--url (or POE_URL)", "poe://host:port, or poes:// for TLS"
    try:
        found = parse_url(url)
    except OptionError as error:
        raise url_refusal(flag, url, error, allowed) from None
    if found.scheme == "kafka":
        raise OptionError(flag, url, allowed)
    scheme = url.partition("://")[0]
    first, *others = found.servers
    return Place(_url(scheme, found.servers), scheme, first, tuple(others))


def url_refusal(flag: str, url: str, error: OptionError, allowed: str | None = None) -> OptionError:
    """Return the error for a url that was typed, in the words of the command line.

    Args:
        flag: of the command.
        url: what was typed.
        error: what was said of it.
        allowed: what the command takes, where that is less.
    """
    is_hidden = error.value != url  # a user, and what stands beside it
    wanted = f"no user in a url, where secrets are seen: give {WAYS_IN}"
    return OptionError(flag, error.value, wanted if is_hidden else allowed or error.allowed)


def _url(scheme: str, servers: Iterable[Server]) -> str:
    places = (f"[{each.host}]" if ":" in each.host else each.host for each in servers)
    ports = (each.port for each in servers)
    return f"{scheme}://" + ",".join(map("{}:{}".format, places, ports))


def _check(values: Mapping[str, str], place: Place) -> None:
    """Refuse options that contradict each other.

    Raises:
        OptionError: two of them do.
    """
    for other in sorted({"user", "password_file"} & values.keys()):
        if "token_file" in values:
            raise OptionError(flag_of(other), values[other], "a token, or a user")
    for name in sorted(_TLS & values.keys()):
        if place.scheme == "poe":
            raise OptionError(flag_of(name), values[name], "it with --url poes://…, for TLS")


def _entry(values: Mapping[str, str], place: Place, *, may_ask: bool) -> Entry:
    """Return how to get in.

    Raises:
        OptionError: something is missing.
    """
    tls = None
    if place.scheme == "poes":
        tls = Tls(**{name: values[name] for name in _TLS if name in values})
        if tls.key is not None and tls.certificate is None:
            raise OptionError("--key", tls.key, "it with --certificate")
    found = _credentials(values, place, may_ask=may_ask)
    if found is None:
        token = administrator_token(place.server, values.get("dir"))
        if token is not None and asks_who(replace(place.server, entry=Entry(tls))):
            found = TokenFile(token)
    return Entry(tls, found)


def _credentials(values: Mapping[str, str], place: Place, *, may_ask: bool) -> Credentials | None:
    """Return what a command proves itself with, if anything is named.

    Raises:
        OptionError: something is missing.
        ConfigError: nobody can be asked.
    """
    if not may_ask and (STDIN in values.values() or {"user"} == values.keys() & _SAYS_WHO):
        msg = "nobody can be asked for the password now"
        raise ConfigError(msg)
    found: Credentials | None = None
    match values:
        case {"token_file": "-"}:
            found = Token(piped_secret("--token-file"))
        case {"token_file": path}:
            warn_of_readers(path)
            found = TokenFile(path)
        case {"user": user, "password_file": "-"}:
            found = Scram(user, piped_secret("--password-file"))
        case {"user": user, "password_file": path}:
            warn_of_readers(path)
            found = PasswordFile(user, path)
        case {"user": user}:
            question = f"password of {user} at {place.text}"
            found = Scram(user, ask_password(question, "--password-file"))
        case {"password_file": path}:
            raise OptionError("--password-file", path, "it with --user")
        case {"certificate": _} if place.scheme == "poes":
            found = Certificate()
    return found
