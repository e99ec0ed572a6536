"""A connection to a server that may be away for a while: killed, restarted, or overloaded."""

import time
from collections.abc import Callable
from typing import Self, TypeVar

from poe.errors import ActorDead, CallTimeout, ConnectionClosed, PoeError
from poe.protocol import Socket, socket

_PAUSE_S = 0.05
_PAUSE_MAX_S = 1.0

T = TypeVar("T")


class PatientSocket:
    """Calls a server until it answers; for calls that may be done more than once.

    A call whose reply was lost is made again, on a new connection. One thread at a time may call
    it. It connects with the first call.
    """

    def __init__(self, host: str, port: int, patience_s: float) -> None:
        """Begin without a connection.

        Args:
            host: name or address of the server.
            port: its TCP port.
            patience_s: how long each call goes on after the first failure.
        """
        self._host = host
        self._port = port
        self._patience_s = patience_s
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
        give_up_s: float | None = None
        pause_s = _PAUSE_S
        while True:
            try:
                return method(self._connected(), *args, **kwargs)
            except PoeError as error:
                now_s = time.monotonic()
                give_up_s = now_s + self._patience_s if give_up_s is None else give_up_s
                may_pass = isinstance(error, ConnectionClosed | CallTimeout | ActorDead)
                if not (may_pass or error.retriable) or now_s >= give_up_s:
                    raise
            time.sleep(pause_s)
            pause_s = min(2 * pause_s, _PAUSE_MAX_S)

    def _connected(self) -> Socket:
        if self._socket is None or not self._socket.is_usable:
            timeout_s = max(self._patience_s, 1.0)
            self._socket = socket(self._host, self._port, timeout_s=timeout_s)
        return self._socket
