"""Which server a command asks, and how it gets in: the options that all client commands share."""

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Annotated, Any, Final, NamedTuple, Self, TypeVar

import typer

from poe import protocol
from poe.cli.argument import flag_of, number
from poe.cli.parameters import option, with_parameters
from poe.errors import (
    CallTimeout,
    ConnectFailed,
    OptionError,
    OriginalServer,
    PoeError,
    RemoteProtocolError,
)
from poe.topic_name import topic_text

T = TypeVar("T")

CALL_TIMEOUT_S = 30.0
"""A server that does not answer for so long is given up, rather than waited for without end."""

LOOK_TIMEOUT_S = 5.0

_COMPLETE_TIMEOUT_S = 1.0
"""Somebody waits who has pressed a key."""
_COMPLETED_MAX = 1000

_DEFAULT_HOST = "127.0.0.1"
_DEFAULT_PORT = 5555

_OPTIONS: Final = {
    "url": ("URL", "Where the server is: poe://HOST:PORT."),
    "host": ("TEXT", f"Where it listens, without --url.  [default: {_DEFAULT_HOST}]"),
    "port": ("INTEGER", f"Its port.  [default: {_DEFAULT_PORT}]"),
}
"""Of each option what its value is called, and its help. It may stand in POE_<NAME>, too."""
_PLACE: Final = ("url", "host", "port")


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where the server is."""

    url: str
    """As producers, consumers and queues take it."""
    host: str
    port: int

    @classmethod
    def of(
        cls, given: Mapping[str, str | None], environment: Mapping[str, str] | None = None
    ) -> Self:
        """Return the server that the options of a command and the environment name.

        What is given wins, and then counts alone: with --host, POE_URL is passed over.

        Raises:
            OptionError: a value is none, or two contradict each other.
        """
        typed = {name: value for name, value in given.items() if value is not None}
        told = _from_environment(os.environ if environment is None else environment)
        if "url" in typed:
            for name in ("host", "port"):
                if name in typed:
                    allowed = "--url alone, or --host and --port"
                    raise OptionError(flag_of(name), typed[name], allowed)
        if typed.keys() & set(_PLACE):
            told = {name: told[name] for name in told if name != "url" and "url" not in typed}
        values = {**told, **typed}
        flag, url = "--url" if "url" in typed else "POE_URL", values.get("url")
        if url is None:
            host = values.get("host", _DEFAULT_HOST)
            place = values.get("port", _DEFAULT_PORT)
            port = number("--port (or POE_PORT)", int, 1, 65535)(str(place))
            return cls(
                f"poe://[{host}]:{port}" if ":" in host else f"poe://{host}:{port}", host, port
            )
        return cls(url, *_addresses(flag, url)[0])

    def connect(self, timeout_s: float = CALL_TIMEOUT_S) -> protocol.Socket:
        """Connect to it.

        Raises:
            ConnectFailed: nobody listens there.
        """
        return protocol.socket(self.host, self.port, timeout_s=timeout_s)

    @contextmanager
    def looking(self) -> Iterator[protocol.Socket]:
        """Connect for a look, which changes nothing and has a short time limit.

        Raises:
            ConnectFailed: nobody listens there, or it does not answer as a server of Poe does.
        """
        with self.connect(LOOK_TIMEOUT_S) as connection:
            try:
                yield connection
            except CallTimeout as error:
                reason = f"what listens there gave no answer within {LOOK_TIMEOUT_S:g} s"
                raise ConnectFailed(self.host, self.port, reason) from error
            except RemoteProtocolError as error:
                if connection.is_usable:  # a refusal that a server of Poe has sent
                    raise
                reason = (
                    f"what answers there is no server of Poe, or one of another version: {error}"
                )
                raise ConnectFailed(self.host, self.port, reason) from error

    def partitions_of(self, topic: bytes) -> "Partitions":
        """Ask which topics hold the partitions of a topic; itself, where the server cannot tell.

        Raises:
            PropertyMismatch: it would be a partition that its topic has not got.
            PoeError: nobody answers.
        """
        with self.connect() as connection:
            try:
                found = connection.find_topic(topic)
            except OriginalServer:
                found = None
        if found is None or not found.is_told:
            return Partitions((topic,), is_known=found is not None)
        names = tuple(each.topic for each in found.partitions)
        return Partitions(names, has_envelope=found.properties.envelope, is_known=True)


def asks_server(command: Callable[..., T]) -> Callable[..., T]:
    """Give a command the options of a server in the place of its parameter `endpoint`."""

    def call(**values: Any) -> T:  # noqa: ANN401 - as typer has parsed them
        endpoint = Endpoint.of({name: values.pop(name) for name in _OPTIONS})
        return command(endpoint=endpoint, **values)

    made = [
        option(name, Annotated[str | None, _option_of(name, metavar, text)])
        for name, (metavar, text) in _OPTIONS.items()
    ]
    return with_parameters(command, "endpoint", made, call)


def complete_topic(context: typer.Context, incomplete: str) -> list[str]:
    """Return the topics of the server whose names go on so, for a shell; none without a server."""
    try:
        endpoint = Endpoint.of({name: context.params.get(name) for name in _OPTIONS})
        with endpoint.connect(_COMPLETE_TIMEOUT_S) as connection:
            names = [topic_text(topic) for topic in connection.topics()]
    except PoeError:
        return []
    return [name for name in names if name.startswith(incomplete)][:_COMPLETED_MAX]


class Partitions(NamedTuple):
    """The topics that hold the partitions of a topic."""

    topics: tuple[bytes, ...]
    has_envelope: bool = False
    is_known: bool = False
    """Whether the server knows it; one that is older does not say."""

    def one(self, number: int | None) -> int | None:
        """Return which partition is meant; None where several are, and none was named.

        Raises:
            OptionError: there is none of this number.
        """
        if number is not None and number >= len(self.topics):
            allowed = f"0 to {len(self.topics) - 1}: the topic has {len(self.topics)} partitions"
            raise OptionError("--partition", number, allowed)
        return 0 if number is None and len(self.topics) == 1 else number


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


def _option_of(name: str, metavar: str, text: str) -> Any:  # noqa: ANN401 - typer's
    return typer.Option(
        flag_of(name), metavar=metavar, help=f"{text}  [env var: {_variable(name)}]"
    )


def variables() -> dict[str, str]:
    """Return the options of a server by the variables that may hold them."""
    return {_variable(name): name for name in _OPTIONS}


def _variable(name: str) -> str:
    return f"POE_{name.upper()}"


def _from_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """Return, by the option's name, what variables hold.

    Raises:
        OptionError: one is empty, which rarely means what it looks like.
    """
    told = {}
    for variable, name in variables().items():
        value = environment.get(variable)
        if value == "":
            raise OptionError(variable, "", f"{_OPTIONS[name][0]}, or unset it")
        if value is not None:
            told[name] = value
    return told


def _addresses(where: str, url: str) -> list[tuple[str, int]]:
    """Return (host, port) of each server that a url names.

    Raises:
        OptionError: it is none of Poe.
    """
    # Late: a command without a url is to load no asyncio client.
    from poe.client.url import parse_url  # noqa: PLC0415

    try:
        found = parse_url(url)
    except OptionError as error:
        raise OptionError(where, error.value, error.allowed) from error
    if found.scheme == "kafka":
        raise OptionError(where, url, "poe://host:port")
    return [(each.host, each.port) for each in found.servers]
