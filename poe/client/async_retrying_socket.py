"""A connection to servers that may be away for a while: killed, restarted, or overloaded."""

import asyncio
import logging
import math
import random
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from poe.client.async_socket import AsyncSocket, connect_to
from poe.client.local_server import AnyServer, LocalServer
from poe.errors import CallTimeout, ConnectFailed, ConnectionClosed, PoeError
from poe.errors.delivery import OUTCOME_UNKNOWN

_log = logging.getLogger(__name__)

_WAIT_S = 0.1
_WAIT_MAX_S = 5.0
_JITTER = 0.2
"""Share of each wait that is random: clients that were cut off together do not come together."""

T = TypeVar("T")


class AsyncRetryingSocket:
    """Calls the first server that answers, until it does; for calls that may be done again.

    A call whose reply was lost is made again, on a new connection; one task at a time may call. It
    connects with the first call.
    """

    def __init__(
        self,
        servers: Sequence[AnyServer],
        *,
        timeout_s: float | None,
        request_timeout_s: float,
        on_lost: Callable[[], object],
    ) -> None:
        """Begin without a connection.

        Args:
            servers: which have the same topics, in order of preference.
            timeout_s: how long each call goes on after its first failure; None: for ever.
            request_timeout_s: how long one attempt may take, connecting included.
            on_lost: is called each time that a connection is lost, or cannot be made.
        """
        self._servers = list(servers)
        self._timeout_s = timeout_s
        self._request_timeout_s = request_timeout_s
        self._on_lost = on_lost
        self._socket: AsyncSocket | None = None

    async def call(self, request: Callable[[AsyncSocket], Awaitable[T]], extra_s: float = 0.0) -> T:
        """Return what a request returns; `extra_s` is how long it lets the server wait.

        Raises:
            PoeError: the server's refusal, or what has kept failing.
        """
        clock_s = asyncio.get_running_loop().time
        task = asyncio.current_task()
        assert task is not None
        cancels = task.cancelling()
        wait_s = _WAIT_S
        give_up_s: float | None = None
        while True:
            try:
                return await self._attempt(request, extra_s)
            except PoeError as error:
                # `gather` forgets that it was cancelled when one of its own has just failed.
                if task.cancelling() > cancels:
                    raise asyncio.CancelledError from error
                may_pass = isinstance(error, OUTCOME_UNKNOWN)
                if not (may_pass or error.retriable) or self._timeout_s == 0:
                    raise
                if give_up_s is None:
                    give_up_s = clock_s() + (self._timeout_s or math.inf)
                    _log.warning("%s; trying again", error)
                elif clock_s() >= give_up_s:
                    raise
            jittered_s = wait_s * random.uniform(1 - _JITTER, 1 + _JITTER)  # noqa: S311 - no secret
            # Waits grow, and the last one would last for much longer than it was allowed.
            await asyncio.sleep(min(jittered_s, max(0.0, give_up_s - clock_s())))
            wait_s = min(2 * wait_s, _WAIT_MAX_S)

    async def close(self) -> None:
        """Close the connection, if there is one; the next call makes another."""
        lost, self._socket = self._socket, None
        if lost is not None:
            await lost.close()

    async def _attempt(self, request: Callable[[AsyncSocket], Awaitable[T]], extra_s: float) -> T:
        server = self._servers[0]
        limit_s = self._request_timeout_s + extra_s
        try:
            async with asyncio.timeout(limit_s):
                if self._socket is None:
                    self._socket = await _connect(server)
                return await request(self._socket)
        except (TimeoutError, ConnectionClosed, ConnectFailed) as error:
            await self.close()
            self._on_lost()
            self._servers.append(self._servers.pop(0))
            if isinstance(error, TimeoutError):
                raise CallTimeout(str(server), limit_s) from error
            raise


async def _connect(server: AnyServer) -> AsyncSocket:
    return await (server.connect() if isinstance(server, LocalServer) else connect_to(server))
