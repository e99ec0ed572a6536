"""A connection to servers that may be away for a while: killed, restarted, or overloaded."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from poe.client.async_socket import AsyncSocket, connect_to
from poe.client.local_server import AnyServer, LocalServer
from poe.client.patience import NOT_LET_IN, Gate, Patience
from poe.client.server_order import ServerOrder
from poe.errors import (
    AuthenticationExpired,
    CallTimeout,
    ConnectFailed,
    ConnectionClosed,
    IdentityConflict,
    NodeForgotten,
    NoQuorum,
    PoeError,
    PutUnconfirmed,
    RemoteProtocolError,
)

T = TypeVar("T")

LEFT = (IdentityConflict, NodeForgotten)
"""Said of itself by a node that is in the cluster no more; others of it are."""
_MAY_BE_IDLE = (ConnectionClosed, AuthenticationExpired)


class AsyncRetryingSocket:
    """Calls the first server that answers, until it does; for calls that may be done again.

    A call whose reply was lost is made again, on a new connection; one task at a time may call. It
    connects with the first call.
    """

    def __init__(
        self,
        servers: Sequence[AnyServer] | ServerOrder[AnyServer],
        *,
        timeout_s: float | None,
        request_timeout_s: float,
        on_lost: Callable[[], object],
    ) -> None:
        """Begin without a connection.

        Args:
            servers: which have the same topics, in order of preference; what several
                connections share keeps them together.
            timeout_s: how long each call goes on after its first failure; None: for ever.
            request_timeout_s: how long one attempt may take, connecting included.
            on_lost: is called each time that a connection is lost, or cannot be made.
        """
        self._order = servers if isinstance(servers, ServerOrder) else ServerOrder(servers)
        self._timeout_s = timeout_s
        self._request_timeout_s = request_timeout_s
        self._on_lost = on_lost
        self._socket: AsyncSocket | None = None
        self._server = self._order.current
        """To which it is, or was, connected."""
        self._has_answered = False
        self._was_answered = False
        """Whether any server ever has."""
        self._gate = Gate()

    async def call(self, request: Callable[[AsyncSocket], Awaitable[T]], extra_s: float = 0.0) -> T:
        """Return what a request returns; `extra_s` is how long it lets the server wait.

        Raises:
            PoeError: the server's refusal, or what has kept failing.
        """
        clock_s = asyncio.get_running_loop().time
        task = asyncio.current_task()
        assert task is not None
        cancels = task.cancelling()
        patience = Patience(self._timeout_s)
        others_count = self._order.others_count
        while True:
            try:
                return await self._attempt(request, extra_s)
            except LEFT:
                if not others_count:
                    raise
                others_count -= 1
                continue
            except PoeError as error:
                # `gather` forgets that it was cancelled when one of its own has just failed.
                if task.cancelling() > cancels:
                    raise asyncio.CancelledError from error
                pause_s = patience.wait_s(error, clock_s())
            await asyncio.sleep(pause_s)

    async def close(self) -> None:
        """Close the connection, if there is one; the next call makes another."""
        lost, self._socket = self._socket, None
        if lost is not None:
            await lost.close()

    async def _attempt(self, request: Callable[[AsyncSocket], Awaitable[T]], extra_s: float) -> T:
        if self._socket is not None and self._server is not self._order.current:
            await self.close()
        limit_s = self._request_timeout_s + extra_s
        try:
            async with asyncio.timeout(limit_s):
                if self._socket is None:
                    self._gate.check(time.monotonic())
                    self._server, self._has_answered = self._order.current, False
                    self._socket = await _connect(self._server)
                found = await request(self._socket)
            self._has_answered = self._was_answered = True
            self._gate.open()
        except NOT_LET_IN as error:
            await self.close()
            self._gate.shut(error, time.monotonic())
            raise
        except (*LEFT, NoQuorum, CallTimeout, PutUnconfirmed):
            # Said by a node that can be reached itself, but is cut off from others or stands still.
            self._order.failed(self._server)
            raise
        except (TimeoutError, ConnectionClosed, ConnectFailed, AuthenticationExpired) as error:
            foreign = self._socket.foreign if self._socket is not None else ""
            await self.close()
            self._on_lost()
            # One that has answered may have closed an idle connection only, and is asked again.
            if not (self._has_answered and isinstance(error, _MAY_BE_IDLE)):
                self._order.failed(self._server)
            if isinstance(error, TimeoutError):
                raise CallTimeout(str(self._server), limit_s) from error
            # Waiting is for servers that have been there, or others; this is the wrong address.
            if foreign and not self._was_answered and not self._order.others_count:
                raise RemoteProtocolError(foreign) from error
            raise
        return found


async def _connect(server: AnyServer) -> AsyncSocket:
    return await (server.connect() if isinstance(server, LocalServer) else connect_to(server))
