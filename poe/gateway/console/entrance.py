"""Logging in and out: with the one-time token, or as one of the broker's users."""

import logging
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final

from starlette.requests import Request
from starlette.responses import Response

from poe.client.url import parse_url
from poe.errors import AuthenticationFailed, OptionError, Overloaded, PoeError, RequestRefused
from poe.gateway.console.sessions import Sessions
from poe.gateway.console.visit import Visit
from poe.gateway.http.brokers import Brokers
from poe.gateway.http.options import GatewayOptions
from poe.gateway.http.refusal import refuse
from poe.gateway.http.reply import json_reply
from poe.security.credentials import Scram
from poe.security.entry import Entry

if TYPE_CHECKING:
    from collections.abc import Callable

_log = logging.getLogger("poe.gateway.console")

_COOKIE_S: Final = 400 * 24 * 3600
"""As long as browsers keep one. When its session has ended is known here alone: not how long ago
somebody has logged in counts, but how long ago the session was used."""
_ANSWER_S: Final = 35.0
"""The broker tells of a wrong password late, and later each time: up to 30 s."""


class Entrance:
    """Opens and ends sessions.

    Where the gateway asks clients for tokens, users of the broker log in with their passwords, and
    the broker judges each thing that they do. Else whoever was shown the one-time token looks with
    the gateway's own identity.
    """

    def __init__(self, options: GatewayOptions, sessions: Sessions) -> None:
        self._options = options
        self._sessions = sessions
        self.on_redeemed: Callable[[], object] = lambda: None
        """Called when the token is used up."""

    @property
    def kind(self) -> str:
        """How one logs in: `user` or `token`."""
        return "token" if self._options.authentication == "none" else "user"

    async def post_login(self, visit: Visit) -> Response:
        """Open a session."""
        given = await visit.body()
        names = {"token"} if self.kind == "token" else {"user", "password"}
        if given.keys() != names or not all(
            isinstance(each, str) and each for each in given.values()
        ):
            refuse(f"give {' and '.join(sorted(names))}, as text: so does one log in here")
        user, entry = None, self._options.entry
        if self.kind == "user":
            user = given["user"]
            entry = Entry(entry.tls, Scram(user, given["password"]))
        with self._sessions.trying(visit.address):
            try:
                await self._check(given, entry)
            except RequestRefused:
                # It is no deed: strangers must not drive out what others have done.
                name = "" if user is None else f" as {user!r:.100}"
                _log.warning("somebody at %s has failed to log in%s", visit.address, name)
                raise
        secret, visit.session = self._sessions.open(user, entry)
        visit.record("logs in", "")
        reply = json_reply({"user": user})
        reply.set_cookie(
            cookie_of(visit.request),
            secret,
            max_age=_COOKIE_S,
            path="/console",
            secure=visit.request.url.scheme == "https",
            httponly=True,
            samesite="strict",
        )
        if self.kind == "token":
            self.on_redeemed()
        return reply

    async def post_logout(self, visit: Visit) -> Response:
        """End the session."""
        visit.record("logs out", "")
        name = cookie_of(visit.request)
        self._sessions.end(visit.request.cookies.get(name, ""))
        reply = json_reply({})
        reply.delete_cookie(name, path="/console", httponly=True, samesite="strict")
        return reply

    async def _check(self, given: dict[str, Any], entry: Entry) -> None:
        if self.kind == "token":
            if not self._sessions.redeem(given["token"]):
                why = "this token is of no use: it was used, or is another's; take the last URL "
                raise RequestRefused(HTTPStatus.UNAUTHORIZED, f"{why}that the console has printed")
            return
        try:
            url = parse_url(self._options.broker, entry)
            brokers = Brokers(url, {}, _ANSWER_S)
            async with await brokers.connect(_ANSWER_S):
                pass
        except (AuthenticationFailed, OptionError) as error:  # OptionError: no user can have these
            why = str(AuthenticationFailed())
            raise RequestRefused(HTTPStatus.UNAUTHORIZED, why) from error
        except Overloaded as error:
            raise RequestRefused(HTTPStatus.SERVICE_UNAVAILABLE, str(error)) from error
        except PoeError as error:
            # A stranger is not told where it is.
            _log.error("a user cannot log in: %s", error)
            why = "the broker cannot be asked who you are; the gateway's log tells why"
            raise RequestRefused(HTTPStatus.SERVICE_UNAVAILABLE, why) from error


def cookie_of(request: Request) -> str:
    """Return the cookie's name: browsers know no ports, and a machine may have two consoles."""
    server = request.scope.get("server")
    return f"poe-console-{server[1] if server else 0}"
