"""Asks the broker what a client may do, by the client's token: the broker is the only judge.

The questions leave over one connection, on which the gateway is known as itself and needs a grant
of `authorize`. With each goes what the client has used since the last one, which the broker debits
to the client's principal.
"""

import asyncio
import logging
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from http import HTTPStatus
from typing import Any, NamedTuple, Protocol

from poe.broker.log_limit import ONCE_A_MINUTE, LogLimit
from poe.errors import (
    AuthenticationExpired,
    AuthenticationFailed,
    CallTimeout,
    ConnectionClosed,
    PoeError,
    RequestRefused,
)

_log = logging.getLogger("poe.gateway.access")
_log.addFilter(LogLimit())

TTL_MAX_S = 5.0
"""How long an answer holds at most: so soon a revoked token is of no use."""


class Question(NamedTuple):
    """What a client wants to do."""

    operation: str
    kind: str
    """topic, group or node."""
    names: Sequence[bytes]
    """Of topics or groups; of the node one empty name."""


class Ruling(NamedTuple):
    """What the broker says to a question."""

    principal: str
    allowed: Sequence[bool]
    """For each of the names."""
    ttl_s: float
    """How long that holds."""
    delay_s: float
    """How long the client has to wait until its quota is paid; 0: it owes nothing."""


@dataclass(slots=True)
class Usage:
    """What a client has used, and the broker was not told."""

    requests: int = 0
    read_bytes: int = 0
    write_bytes: int = 0

    def add(self, other: "Usage") -> None:
        """Count that as well."""
        self.requests += other.requests
        self.read_bytes += other.read_bytes
        self.write_bytes += other.write_bytes


class Line(Protocol):
    """A connection to the broker, as `AsyncSocket` is one."""

    async def control(self, op: str, **arguments: object) -> Any:  # noqa: ANN401 - any msgpack value
        """Return the result of a control request."""

    async def close(self) -> None:
        """Close it."""


class Lines(Protocol):
    """Whoever makes connections, as `Brokers` does."""

    async def connect(self, timeout_s: float) -> Line:
        """Return a new one."""


class Inquiry:
    """Puts questions to the broker; belongs to one event loop."""

    def __init__(self, brokers: Lines, timeout_s: float) -> None:
        """Ask over a connection that is made by the first question."""
        self._brokers = brokers
        self._timeout_s = timeout_s
        self._opened: asyncio.Task[Line] | None = None

    async def close(self) -> None:
        """Close the connection; the next question makes another one."""
        if self._opened is not None:
            with suppress(PoeError):  # none was made, which those are told who wait for it
                await self._drop(self._opened)

    async def ask(self, token: str, question: Question, usage: Usage) -> Ruling | None:
        """Return what the broker says; None: the token is nobody's.

        Raises:
            RequestRefused: 503, for the broker does not say anything.
        """
        arguments = {"token": token.encode(), **question._asdict(), **asdict(usage)}
        try:
            told = await self._control(arguments)
        except PoeError as error:
            _log.error("cannot find out who may do what: %s", error, extra=ONCE_A_MINUTE)
            why = "whether this is allowed cannot be found out now; retry later"
            raise RequestRefused(HTTPStatus.SERVICE_UNAVAILABLE, why) from error
        if told is None:
            return None
        ttl_s = min(told["ttl_s"], TTL_MAX_S)
        return Ruling(told["principal"], told["allowed"], ttl_s, told["delay_s"])

    async def _control(self, arguments: dict[str, Any]) -> Any:  # noqa: ANN401 - as the op answers
        """Ask; once more where the connection was lost, or its credentials were over.

        Return None where the token is nobody's. That the gateway itself is not known is an error.
        """
        opened = self._open()
        try:
            return await _answer(await asyncio.shield(opened), arguments)
        except (ConnectionClosed, AuthenticationExpired):
            await self._drop(opened)
        except CallTimeout:
            await self._drop(opened)
            raise
        return await _answer(await asyncio.shield(self._open()), arguments)

    def _open(self) -> asyncio.Task[Line]:
        """Return the connection, or the attempt to make one, which all wait for together."""
        if self._opened is None:
            self._opened = asyncio.ensure_future(self._brokers.connect(self._timeout_s))
            self._opened.add_done_callback(self._forget_failure)
        return self._opened

    def _forget_failure(self, opened: asyncio.Task[Line]) -> None:
        has_failed = opened.cancelled() or opened.exception() is not None
        if has_failed and self._opened is opened:
            self._opened = None

    async def _drop(self, opened: asyncio.Task[Line]) -> None:
        if self._opened is opened:
            self._opened = None
            await (await opened).close()


async def _answer(connection: Line, arguments: dict[str, Any]) -> Any:  # noqa: ANN401 - as above
    try:
        return await connection.control("authorize", **arguments)
    except AuthenticationFailed:
        return None
