"""How sessions of one identity reach the node: connections that are kept, and used one at a time.

A request has a connection for itself, so that one that waits holds up no other. What has failed in
the middle of an answer is closed; else a later request would get what an earlier one has asked.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Final

from poe.client.async_socket import AsyncSocket
from poe.client.url import parse_url
from poe.errors import AuthenticationFailed, ConnectFailed, PoeError
from poe.gateway.console.history import History, Told
from poe.gateway.console.lags import BROKEN, Lags
from poe.gateway.console.together import Together
from poe.gateway.http.brokers import Brokers
from poe.gateway.http.options import GatewayOptions
from poe.security.entry import Entry

_IDLE_MAX: Final = 4
PATIENT_S: Final = 24 * 3600.0
_CONNECTING_MAX: Final = 2
"""Connections that are being made. A node that lets an identity in no more says so late, and as
long takes one of the few places that it has for the gateway's address."""
SILENCE_S: Final = 30.0
"""So late it says that at most: as long no user is tried again whose login was not answered."""


class Look:
    """The console as one identity sees it; belongs to one event loop.

    Attributes:
        url: of the node.
        entry: how this identity gets in.
        timeout_s: how long an answer may take.
        history: what the node has done lately.
        lags: how far groups are behind.
        together: what several tabs ask at the same time.
    """

    def __init__(
        self,
        options: GatewayOptions,
        entry: Entry,
        history: History,
        on_refused: Callable[[Entry], object],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Connect to nothing yet; `on_refused` is told when the node lets a user in no more."""
        self.url = options.broker
        self.entry = entry
        self.timeout_s = options.read_timeout_s
        self._clock = clock
        self._url = parse_url(self.url, entry)
        self._brokers = Brokers(self._url, {}, options.connect_timeout_s)
        self._is_own = entry == options.entry
        self._idle: list[AsyncSocket] = []
        self._connecting = asyncio.Semaphore(_CONNECTING_MAX)
        self._on_refused = on_refused
        self._is_refused = False
        self._silent_until_s = 0.0
        self._is_closed = False
        self.history = history
        self.lags = Lags()
        self.together = Together()

    @asynccontextmanager
    async def node(self) -> AsyncIterator[AsyncSocket]:
        """Lend a connection to the node.

        Raises:
            PoeError: it cannot be reached, or does not let this identity in.
        """
        connection = await self._take()
        is_sound = False
        try:
            yield connection
            is_sound = True
        except PoeError as error:
            is_sound = not isinstance(error, BROKEN)
            raise
        finally:
            if is_sound and not self._is_closed and len(self._idle) < _IDLE_MAX:
                self._idle.append(connection)
            else:
                await connection.close()

    @asynccontextmanager
    async def patient(self) -> AsyncIterator[AsyncSocket]:
        """Lend a connection for what may take long, as reading all that there is.

        Raises:
            PoeError: as `node`.
        """
        async with self._connecting:
            connection = await self._connect(PATIENT_S)
        async with connection:
            yield connection

    async def counters(self) -> Told:
        """Return what the node has counted; where the history has it of this identity, that.

        Raises:
            PoeError: it does not tell.
        """
        if self._is_own and self.history.told is not None:
            return self.history.told
        async with self.node() as connection:
            return await connection.counters()

    async def close(self) -> None:
        """Close what is idle; what is in use is closed when it was given back."""
        self._is_closed = True
        while self._idle:
            await self._idle.pop().close()

    async def _take(self) -> AsyncSocket:
        while self._idle:
            connection = self._idle.pop()
            if connection.is_open:
                return connection
            await connection.close()
        async with self._connecting:
            return await self._connect(self.timeout_s)

    async def _connect(self, timeout_s: float) -> AsyncSocket:
        if self._is_own:  # its files may be renewed
            return await self._brokers.connect(timeout_s)
        if self._is_refused:
            raise AuthenticationFailed
        if self._clock() < self._silent_until_s:
            reason = "it has not answered a login lately"
            raise self._url.servers[0].unreachable(reason)
        try:
            return await self._brokers.connect(timeout_s)
        except AuthenticationFailed:
            self._is_refused = True
            self._on_refused(self.entry)
            raise
        except ConnectFailed as error:
            if isinstance(error.__cause__, TimeoutError):
                self._silent_until_s = self._clock() + SILENCE_S
            raise
