"""Lets requests in: all of them, or with a bearer token those that its owner may make.

The token is taken out of a request on the way in: no handler, hook or log sees it.
"""

import asyncio
import math
import re
import time
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from http import HTTPStatus
from typing import TypeAlias

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from poe.broker.access.audit_trail import AuditTrail
from poe.broker.access.permission import Need
from poe.broker.requests.needs import AUDITED, TopicsOf, needs_of
from poe.errors import AuthenticationFailed, PoeError, RequestRefused
from poe.gateway.http.bearers import Bearer, Bearers, Held, ShownToken
from poe.gateway.http.body import query_of
from poe.gateway.http.need import Anybody, Needs, PathNeed
from poe.protocol import ControlRequest
from poe.protocol import Request as BrokerRequest
from poe.security.audit import audit
from poe.security.policy import NODE
from poe.security.token import split_token

Endpoint: TypeAlias = Callable[[Request], Awaitable[Response]]

_CHALLENGE = {"WWW-Authenticate": 'Bearer realm="poe"'}
_CREDENTIALS = re.compile(rb"bearer +([\x21-\x7e]{1,256})", re.IGNORECASE)
_IN_URL = frozenset({b"access_token", b"token", b"bearer", b"authorization"})
_SHOWN = "poe.shown"
_KNOWN = Need("describe", NODE)
"""What is asked to find out whose a token is, whatever they may."""
_PAUSE_MAX_S = 5.0
_RETRY_S = 1.0
_LEAST_S = 0.1


class Denied(Exception):
    """What a client is told that may not, or not yet.

    It is no `PoeError`: the broker may say the same of the gateway, and then it is the gateway's
    fault.
    """

    def __init__(self, error: PoeError, status: int, headers: dict[str, str]) -> None:
        super().__init__(str(error))
        self.error = error
        self.status = status
        self.headers = headers


class Admission:
    """Says who gets in; belongs to one event loop."""

    def __init__(self, bearers: Bearers | None, open_paths: frozenset[str]) -> None:
        """Let everybody in where there are no bearers.

        Args:
            bearers: who needs a token.
            open_paths: paths that need none.
        """
        self._bearers = bearers
        self._open_paths = open_paths
        self._trail = AuditTrail()

    @property
    def is_guarded(self) -> bool:
        """Whether anybody may be refused."""
        return self._bearers is not None

    def enter(self, scope: Scope) -> None:
        """Take the token out of the head of a request, before anything else is done for it.

        Raises:
            Denied: 401, there is none, or it is none.
            RequestRefused: 400, it is part of the URL.
        """
        if self._bearers is None:
            return
        names = {name.lower() for name, _ in query_of(scope["query_string"])}
        if names & _IN_URL:
            why = "a token in a URL is soon in a log; send it as Authorization: Bearer TOKEN"
            raise RequestRefused(HTTPStatus.BAD_REQUEST, why)
        given = [value for name, value in scope["headers"] if name == b"authorization"]
        scope["headers"] = [each for each in scope["headers"] if each[0] != b"authorization"]
        if scope["path"] in self._open_paths:
            return
        found = _CREDENTIALS.fullmatch(given[0]) if len(given) == 1 else None
        token = found[1].decode() if found is not None else ""
        split = split_token(token)
        if split is None:
            raise _nobody()
        scope[_SHOWN] = ShownToken(token, split[1])

    def guarded(self, endpoint: Endpoint, needs: Needs) -> Endpoint:
        """Return an endpoint that is reached by those alone who are allowed what it needs."""
        bearers = self._bearers
        if bearers is None or Anybody.AT_ALL in needs.values():
            return endpoint

        async def checked(request: Request) -> Response:
            match needs["GET" if request.method == "HEAD" else request.method]:
                case Anybody():
                    await self.identify(request)
                case PathNeed() as need:
                    await self.require(request, [need.of(request)])
                case need:
                    await self.require(request, [need])
            bearer = self._bearer(request.scope)
            if bearer is not None and (owed_s := bearers.owed_s(bearer)):
                wait_s = math.ceil(owed_s)
                why = f"the quota of {bearer.principal} is used up; retry in {wait_s} s"
                error = RequestRefused(HTTPStatus.TOO_MANY_REQUESTS, why)
                raise Denied(error, error.status, {"Retry-After": str(wait_s)})
            return await endpoint(request)

        return checked

    def metered(self, scope: Scope, receive: Receive, send: Send) -> tuple[Receive, Send]:
        """Return the two with what passes them counted for the bearer of a request."""
        bearers = self._bearers
        if bearers is None:
            return receive, send
        received_bytes = 0

        async def counting_receive() -> Message:
            nonlocal received_bytes
            message = await receive()
            received_bytes += len(message.get("body", b""))
            return message

        async def counting_send(message: Message) -> None:
            nonlocal received_bytes
            bearer = self._bearer(scope)
            if bearer is not None:
                bearer.usage.requests += message["type"] == "http.response.start"
                bearer.usage.read_bytes += len(message.get("body", b""))
                bearer.usage.write_bytes += received_bytes
                received_bytes = 0
                # Of an answer without end; others were refused before they began.
                if message.get("more_body") and (owed_s := bearers.owed_s(bearer)):
                    await asyncio.sleep(min(owed_s, _PAUSE_MAX_S))
            await send(message)

        return counting_receive, counting_send

    async def identify(self, request: Request) -> None:
        """Let those pass whose token is valid.

        Raises:
            Denied: it is not.
        """
        if _SHOWN in request.scope:  # else nobody is to be known here
            await self._rule(request, _KNOWN)

    async def require(self, request: Request, needs: Iterable[Need]) -> None:
        """Let those pass who meet all of these needs; one is not looked at before its turn.

        Raises:
            Denied: 403 they may not; 401 the token is not valid.
        """
        for need in needs:
            if not await self.meets(request, need):
                if (bearer := self._bearer(request.scope)) is not None:
                    self._trail.denied(bearer.principal, need, time.monotonic())
                raise _forbidden(need)

    async def require_for(
        self, request: Request, asked: BrokerRequest, topics_of: TopicsOf
    ) -> None:
        """Let those pass who may have the broker asked this, which knows the gateway alone.

        Raises:
            Denied: 403 they may not; 401 the token is not valid.
        """
        needs = list(needs_of(asked, topics_of))
        for need in needs:
            await self.require(request, [need])
        bearer = self._bearer(request.scope)
        if isinstance(asked, ControlRequest) and asked.op in AUDITED and bearer is not None:
            told = {"principal": bearer.principal, "op": asked.op}
            for need in needs:
                audit("admitted", **told, kind=need.kind, name=need.name)

    async def meets(self, request: Request, need: Need) -> bool:
        """Return whether the client meets a need.

        Raises:
            Denied: 401 the token is not valid.
        """
        return self._bearers is None or (await self._rule(request, need)).is_allowed

    async def permitted(
        self, request: Request, operation: str, kind: str, names: Sequence[bytes]
    ) -> Sequence[bytes]:
        """Return with which of these names the client may do something."""
        if self._bearers is None or not names:
            return names
        return await self._bearers.permitted(request.scope[_SHOWN], operation, kind, names)

    async def until_denied(self, request: Request, needs: Collection[Need]) -> Denied:
        """Wait for as long as nobody says that the client does not meet needs, then return why."""
        bearers = self._bearers
        while bearers is not None:
            wait_s = math.inf
            try:
                for need in needs:
                    held = await self._rule(request, need)
                    if not held.is_allowed:
                        return _forbidden(need)
                    wait_s = min(wait_s, max(_LEAST_S, bearers.left_s(held)))
            except RequestRefused:
                wait_s = _RETRY_S
            except Denied as denied:
                return denied
            await asyncio.sleep(wait_s)
        never: asyncio.Future[Denied] = asyncio.get_running_loop().create_future()
        return await never

    async def _rule(self, request: Request, need: Need) -> Held:
        assert self._bearers is not None, "nobody is ruled on who needs no token"
        held = await self._bearers.rule(request.scope[_SHOWN], need)
        if held is None:
            raise _nobody()
        return held

    def _bearer(self, scope: Scope) -> Bearer | None:
        if self._bearers is None or _SHOWN not in scope:
            return None
        return self._bearers.find(scope[_SHOWN])


def _nobody() -> Denied:
    """Return what all are told alike whose token is of no use, so that none is told apart."""
    return Denied(AuthenticationFailed(), HTTPStatus.UNAUTHORIZED, _CHALLENGE)


def _forbidden(need: Need) -> Denied:
    return Denied(need.refusal, HTTPStatus.FORBIDDEN, {})
