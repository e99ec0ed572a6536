"""A connection to a server that may be away for a while: killed, restarted, or overloaded."""

import time
from collections.abc import Callable, Iterator
from typing import Self, TypeVar

from poe.client.patience import Patience
from poe.errors import PoeError
from poe.protocol import Socket
from poe.protocol.client import open_socket
from poe.protocol.server import Server

_CALL_TIMEOUT_S = 60.0
"""A server that runs answers long before; a connection to one that was unplugged never ends."""

T = TypeVar("T")


class RetryingSocket:
    """Calls a server until it answers; for calls that may be done more than once.

    A call whose reply was lost is made again, on a new connection. One thread at a time may call
    it. It connects with the first call.
    """

    def __init__(self, server: Server, patience_s: float, *, is_known: bool = True) -> None:
        """Begin without a connection.

        Args:
            server: where it listens, and how to get in.
            patience_s: how long each call goes on after the first failure.
            is_known: whether it was there before; until one that was not has answered, a failure
                is an error at once.
        """
        self._server = server
        self._patience_s = patience_s
        self._patience = Patience(patience_s if is_known else 0.0)
        self._socket: Socket | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection, if there is one; the next call makes another."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def call(self, method: Callable[..., T], *args: object, **kwargs: object) -> T:
        """Call a method of `Socket`, as in `call(Socket.read, topic, pointer, limit)`.

        Raises:
            PoeError: the server's refusal, or what has kept failing.
        """
        while True:
            try:
                result = method(self._connected(), *args, **kwargs)
            except PoeError as error:
                time.sleep(self._patience.wait_s(error, time.monotonic()))
            else:
                self._patience = Patience(self._patience_s)
                return result

    def each(self, begin: Callable[[Socket], Iterator[T]]) -> Iterator[T]:
        """Yield what an iterator over calls yields; where it breaks off, `begin` makes the rest.

        Raises:
            PoeError: as `call`.
        """
        while True:
            try:
                for found in begin(self._connected()):
                    self._patience = Patience(self._patience_s)
                    yield found
            except PoeError as error:
                time.sleep(self._patience.wait_s(error, time.monotonic()))
            else:
                return

    def _connected(self) -> Socket:
        if self._socket is None or not self._socket.is_usable:
            self._socket = open_socket(self._server, _CALL_TIMEOUT_S)
        return self._socket
