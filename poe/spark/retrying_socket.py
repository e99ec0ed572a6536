"""A connection to a server that may be away for a while: killed, restarted, or overloaded."""

import logging
import time
from collections.abc import Callable, Iterator
from typing import Self, TypeVar

from poe.errors import PoeError
from poe.errors.delivery import OUTCOME_UNKNOWN
from poe.protocol import Socket, socket

_log = logging.getLogger(__name__)

_CALL_TIMEOUT_S = 60.0
"""A server that runs answers long before; a connection to one that was unplugged never ends."""
_PAUSE_S = 0.05
_PAUSE_MAX_S = 1.0

T = TypeVar("T")


class RetryingSocket:
    """Calls a server until it answers; for calls that may be done more than once.

    A call whose reply was lost is made again, on a new connection. One thread at a time may call
    it. It connects with the first call.
    """

    def __init__(self, host: str, port: int, patience_s: float, *, is_known: bool = True) -> None:
        """Begin without a connection.

        Args:
            host: name or address of the server.
            port: its TCP port.
            patience_s: how long each call goes on after the first failure.
            is_known: whether it was there before; until one that was not has answered, a failure
                is an error at once.
        """
        self._host = host
        self._port = port
        self._patience_s = patience_s
        self._is_known = is_known
        self._socket: Socket | None = None
        self._give_up_s = 0.0
        self._pause_s = 0.0

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
                self._pause_or_raise(error)
            else:
                self._note_success()
                return result

    def each(self, begin: Callable[[Socket], Iterator[T]]) -> Iterator[T]:
        """Yield what an iterator over calls yields; where it breaks off, `begin` makes the rest.

        Raises:
            PoeError: as `call`.
        """
        while True:
            try:
                for found in begin(self._connected()):
                    self._note_success()
                    yield found
            except PoeError as error:
                self._pause_or_raise(error)
            else:
                return

    def _connected(self) -> Socket:
        if self._socket is None or not self._socket.is_usable:
            self._socket = socket(self._host, self._port, timeout_s=_CALL_TIMEOUT_S)
        return self._socket

    def _note_success(self) -> None:
        self._is_known = True
        self._pause_s = 0.0

    def _pause_or_raise(self, error: PoeError) -> None:
        """Wait before the next try, longer each time.

        Raises:
            PoeError: the error, where it does not pass, or has not passed for too long.
        """
        may_pass = isinstance(error, OUTCOME_UNKNOWN)
        if not self._is_known or not (may_pass or error.retriable):
            raise error
        now_s = time.monotonic()
        is_first = self._pause_s == 0
        if is_first:
            self._give_up_s = now_s + self._patience_s
        if now_s >= self._give_up_s:
            self._pause_s = 0.0
            raise error
        if is_first:
            _log.warning("%s; asking again for %.0f s", error, self._patience_s)
        self._pause_s = min(max(2 * self._pause_s, _PAUSE_S), _PAUSE_MAX_S)
        time.sleep(self._pause_s)
