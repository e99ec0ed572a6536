"""A connection to servers that may be away for a while: killed, restarted, or overloaded."""

import time
from collections.abc import Callable, Iterator, Sequence
from typing import Self, TypeVar

from poe.client.patience import Patience, may_pass
from poe.client.server_order import ServerOrder
from poe.errors import PoeError
from poe.protocol import Socket
from poe.protocol.client import open_socket
from poe.protocol.server import Server

_CALL_TIMEOUT_S = 60.0
"""A server that runs answers long before; a connection to one that was unplugged never ends."""
_NEXT_AFTER_S = 20.0
"""The same where another one can be asked: longer than an election takes."""
_LOOK_TIMEOUT_S = 5.0
"""The same where all are asked, and those that answer will do."""

T = TypeVar("T")
Check = Callable[[Socket], None]
"""Makes sure, before a call, that the server that is about to be asked is up to it; else raises."""


class RetryingSocket:
    """Calls a server until it answers; for calls that may be done more than once.

    A call whose reply was lost is made again, on a new connection; where there are several servers,
    to the next one. One thread at a time may call it. It connects with the first call.
    """

    def __init__(
        self, servers: Sequence[Server], patience_s: float, *, is_known: bool = True
    ) -> None:
        """Begin without a connection.

        Args:
            servers: where they listen, and how to get in; they have the same topics.
            patience_s: how long each call goes on after the first failure.
            is_known: whether they were there before; until one that was not has answered, a failure
                of all of them is an error at once.
        """
        self._order = ServerOrder(servers)
        self._patience_s = patience_s
        self._patience = Patience(patience_s if is_known else 0.0)
        self._untried_count = 0 if is_known else self._order.others_count
        self._socket: Socket | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def are_several(self) -> bool:
        """Return whether there is more than one server."""
        return self._order.others_count > 0

    def close(self) -> None:
        """Close the connection, if there is one; the next call makes another."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def call(
        self,
        method: Callable[..., T],
        *args: object,
        check: Check | None = None,
        **kwargs: object,
    ) -> T:
        """Call a method of `Socket`, as in `call(Socket.read, topic, pointer, limit)`.

        `check` is called before it, on the same connection.

        Raises:
            PoeError: the server's refusal, or what has kept failing.
        """
        while True:
            try:
                socket = self._connected()
                if check is not None:
                    check(socket)
                result = method(socket, *args, **kwargs)
            except PoeError as error:
                self._pause(error)
            else:
                self._note_answer()
                return result

    def each(self, begin: Callable[[Socket], Iterator[T]]) -> Iterator[T]:
        """Yield what an iterator over calls yields; where it breaks off, `begin` makes the rest.

        Raises:
            PoeError: as `call`.
        """
        while True:
            try:
                for found in begin(self._connected()):
                    self._note_answer()
                    yield found
            except PoeError as error:
                self._pause(error)
            else:
                return

    def everywhere(self, method: Callable[..., T], *args: object) -> list[T]:
        """Call a method at all servers, and return what those answer that are there.

        Raises:
            PoeError: as `call`, where none is.
        """
        found = []
        for server in self._order.all:
            try:
                with open_socket(server, _LOOK_TIMEOUT_S) as socket:
                    found.append(method(socket, *args))
            except PoeError as error:
                if not may_pass(error):
                    raise
        if not found:
            return [self.call(method, *args)]
        self._note_answer()
        return found

    def _note_answer(self) -> None:
        self._patience = Patience(self._patience_s)
        self._untried_count = 0

    def _pause(self, error: PoeError) -> None:
        """Wait until the next try, which is the next server's where there are several.

        Raises:
            PoeError: the error, as `Patience` says.
        """
        wait_s = 0.0
        if self._untried_count and may_pass(error):
            self._untried_count -= 1
        else:
            wait_s = self._patience.wait_s(error, time.monotonic())
        if self.are_several:
            self.close()
            self._order.failed(self._order.current)
        time.sleep(wait_s)

    def _connected(self) -> Socket:
        if self._socket is None or not self._socket.is_usable:
            timeout_s = _NEXT_AFTER_S if self.are_several else _CALL_TIMEOUT_S
            self._socket = open_socket(self._order.current, timeout_s)
        return self._socket
