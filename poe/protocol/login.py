"""One login as data: what to ask the server, step by step."""

import ssl
from collections.abc import Generator
from threading import current_thread, main_thread
from typing import Any, Final, NamedTuple

from poe.errors import PoeError
from poe.protocol import exchange
from poe.protocol.exchange import Exchange
from poe.protocol.server import Server
from poe.security.entry import login
from poe.security.loopback import is_loopback
from poe.security.tls import binding_of

_NOWHERE: Final = "0.0.0.0"  # noqa: S104 - nothing listens there


class Channel(NamedTuple):
    """What a connection is to who logs in over it."""

    binding: bytes | None
    """What binds a login to the server's certificate; None without TLS."""

    is_loopback: bool
    """Whether it does not leave this machine."""


def channel_of(
    server: Server, address: object, tls: ssl.SSLSocket | ssl.SSLObject | None
) -> Channel:
    """Return what a connection is to who logs in over it.

    Args:
        server: whom the client has called.
        address: what it is connected to, as sockets have it; None: it is lost.
        tls: what encrypts the connection; None: nothing.

    Raises:
        TlsFailed: the server is no Poe.
    """
    binding = None if tls is None else binding_of(server.host, server.port, tls)
    host = address[0] if isinstance(address, tuple) else _NOWHERE
    return Channel(binding, is_loopback(host))


class Login:
    """One login on a connection, the first or a later one.

    A step may take long: it may call a function of the user's, read a file, or hash a password.
    """

    def __init__(self, server: Server, channel: Channel) -> None:
        self._server = server
        self._steps: Generator[Any, Any, float | None] = login(
            server.entry, channel.binding, is_loopback=channel.is_loopback
        )
        self.expires_s: float | None = None
        """How many seconds it is good for, once it is done; None: for ever."""

    def step(self, reply: dict[str, Any] | None = None) -> Exchange[dict[str, Any]] | None:
        """Take the reply to what was asked last; return what to ask next, None at the end.

        Raises:
            ConnectFailed: the function that gives the token has failed, and may do better.
            PoeError: the credentials cannot be used, or the server has not proved who it is.
        """
        try:
            mechanism, data = self._steps.send(reply)
        except StopIteration as end:
            self.expires_s = end.value
            return None
        except PoeError:
            raise
        except BaseException as error:
            # `sys.exit`, too, which ends no program from a thread of the library.
            if not isinstance(error, Exception) and current_thread() is main_thread():
                raise
            # Its words might be of the secret.
            reason = f"the function that gives the token has raised {type(error).__name__}"
            raise self._server.unreachable(reason) from error
        return exchange.auth(mechanism, data)
