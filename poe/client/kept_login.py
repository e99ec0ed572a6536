"""The login of a connection that an event loop has: begun once, and renewed as long as it lives."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from poe.client.in_thread import in_thread
from poe.errors import ConnectionClosed, PoeError
from poe.protocol.exchange import Exchange
from poe.protocol.login import Channel, Login
from poe.protocol.renewal import Renewal
from poe.protocol.server import Server

_log = logging.getLogger(__name__)

_RENEWAL_TIMEOUT_S = 30.0

Ask = Callable[[Exchange[Any]], Awaitable[Any]]
"""Sends a request behind those that are under way, and returns what its reply comes to."""


class KeptLogin:
    """What a client has to do so that the server goes on knowing it; belongs to the event loop.

    Files, passwords and functions of the user's take their time in a thread.
    """

    def __init__(self, server: Server, channel: Channel, ask: Ask) -> None:
        self._server = server
        self._channel = channel
        self._ask = ask
        self._keeping: asyncio.Task[None] | None = None

    async def begin(self) -> None:
        """Log in, and renew that when it is time.

        Raises:
            AuthenticationFailed: the credentials are wrong.
            PoeError: they cannot be used, or another refusal.
        """
        self.keep(await self._log_in())

    def keep(self, renewal: Renewal | None) -> None:
        """Renew a login that has been made; None: it has no end."""
        if renewal is not None:
            self._keeping = asyncio.create_task(self._renew_often(renewal))

    def end(self) -> None:
        """Renew nothing any more."""
        if self._keeping is not None:
            self._keeping.cancel()

    async def _log_in(self) -> Renewal | None:
        login = Login(self._server, self._channel)
        reply = None
        while True:
            asked = await in_thread(partial(login.step, reply), "poe-login")
            if asked is None:
                break
            reply = await self._ask(asked)
        return None if login.expires_s is None else Renewal(login.expires_s, time.monotonic())

    async def _renew_often(self, renewal: Renewal) -> None:
        while True:
            await asyncio.sleep(renewal.due_s - time.monotonic())
            try:
                async with asyncio.timeout(_RENEWAL_TIMEOUT_S):
                    renewed = await self._log_in()
            except ConnectionClosed:
                return
            except (PoeError, TimeoutError) as error:
                # Where nothing is left of it the server hangs up, and who reconnects is told.
                if renewal.is_over(time.monotonic()):
                    return
                why = str(error) or "it takes too long"
                _log.warning("%s: the login is not renewed; trying again: %s", self._server, why)
                renewal.put_off(time.monotonic())
            else:
                if renewed is None:
                    return
                renewal = renewed
