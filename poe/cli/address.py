"""Where the server is: the options that all client commands share."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, NamedTuple

import typer

from poe import protocol
from poe.cli.argument import number
from poe.errors import (
    CallTimeout,
    ConnectFailed,
    OptionError,
    OriginalServer,
    PoeError,
    RemoteProtocolError,
)
from poe.topic_name import topic_text

CALL_TIMEOUT_S = 30.0
"""A server that does not answer for so long is given up, rather than waited for without end."""

LOOK_TIMEOUT_S = 5.0

_COMPLETE_TIMEOUT_S = 1.0
"""Somebody waits who has pressed a key."""
_COMPLETED_MAX = 1000

HostOption = Annotated[
    str, typer.Option("--host", metavar="TEXT", envvar="POE_HOST", help="Where the server listens.")
]
PortOption = Annotated[
    int,
    typer.Option(
        "--port",
        metavar="INTEGER",
        envvar="POE_PORT",
        parser=number("--port (or POE_PORT)", int, 1, 65535),
        help="Its port.",
    ),
]

DEFAULT_HOST = "127.0.0.1"
DEFAULT_PORT = 5555


def connect(host: str, port: int, timeout_s: float = CALL_TIMEOUT_S) -> protocol.Socket:
    """Connect to the server.

    Raises:
        OptionError: a variable is empty, which typer takes for one that is not set.
        ConnectFailed: nobody listens there.
    """
    for variable, allowed in (("POE_HOST", "an address"), ("POE_PORT", "1 to 65535")):
        if os.environ.get(variable) == "":
            raise OptionError(variable, "", f"{allowed}, or unset it")
    return protocol.socket(host, port, timeout_s=timeout_s)


def url_of(host: str, port: int) -> str:
    """Return the url by which producers, consumers and queues know the server."""
    return f"poe://[{host}]:{port}" if ":" in host else f"poe://{host}:{port}"


def complete_topic(context: typer.Context, incomplete: str) -> list[str]:
    """Return the topics of the server whose names go on so, for a shell; none without a server."""
    host = context.params.get("host") or os.environ.get("POE_HOST") or DEFAULT_HOST
    port = context.params.get("port") or os.environ.get("POE_PORT") or DEFAULT_PORT
    try:
        with protocol.socket(str(host), int(port), timeout_s=_COMPLETE_TIMEOUT_S) as connection:
            names = [topic_text(topic) for topic in connection.topics()]
    except (PoeError, ValueError):
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


def partitions_of(host: str, port: int, topic: bytes) -> Partitions:
    """Ask the server which topics hold the partitions of a topic; itself, where it cannot tell.

    Raises:
        PropertyMismatch: it would be a partition that its topic has not got.
        PoeError: nobody answers.
    """
    with connect(host, port) as connection:
        try:
            found = connection.find_topic(topic)
        except OriginalServer:
            found = None
    if found is None or not found.is_told:
        return Partitions((topic,), is_known=found is not None)
    names = tuple(each.topic for each in found.partitions)
    return Partitions(names, has_envelope=found.properties.envelope, is_known=True)


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


@contextmanager
def looking(host: str, port: int) -> Iterator[protocol.Socket]:
    """Connect for a look, which changes nothing and has a short time limit.

    Raises:
        ConnectFailed: nobody listens there, or it does not answer as a server of Poe does.
    """
    with connect(host, port, LOOK_TIMEOUT_S) as connection:
        try:
            yield connection
        except CallTimeout as error:
            reason = f"what listens there gave no answer within {LOOK_TIMEOUT_S:g} s"
            raise ConnectFailed(host, port, reason) from error
        except RemoteProtocolError as error:
            if connection.is_usable:  # a refusal that a server of Poe has sent
                raise
            reason = f"what answers there is no server of Poe, or one of another version: {error}"
            raise ConnectFailed(host, port, reason) from error
