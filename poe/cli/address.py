"""Where the server is: the options that all client commands share."""

from typing import Annotated

import typer

from poe import protocol
from poe.cli.argument import number

CALL_TIMEOUT_S = 30.0
"""A server that does not answer for so long is given up, rather than waited for without end."""

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


def connect(host: str, port: int) -> protocol.Socket:
    """Connect to the server.

    Raises:
        ConnectFailed: nobody listens there.
    """
    return protocol.socket(host, port, timeout_s=CALL_TIMEOUT_S)
