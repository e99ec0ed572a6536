"""Receives the bodies of requests within bounds: of one body, of all together, and of time.

A body that is too large is received for a while longer, and dropped, before it is refused: most
clients send all of it before they look for an answer, and would see nothing but a lost connection.
"""

import asyncio
import zlib
from collections.abc import Iterator
from http import HTTPStatus
from typing import NoReturn

from starlette.datastructures import Headers
from starlette.requests import Request

from poe.errors import RequestRefused
from poe.gateway.http.gzip_body import GzipBody, wire_max
from poe.gateway.http.options import GatewayOptions
from poe.gateway.http.refusal import refuse

_DISCARDED_BYTES = 4 << 20
_GZIP_NAMES = frozenset({"gzip", "x-gzip"})


class Inflow:
    """The bodies that are under way; belongs to one event loop.

    Invariant: bytes of all bodies that were received and not released <= in_flight_max
    """

    def __init__(self, options: GatewayOptions) -> None:
        self._options = options
        self._in_flight_bytes = 0

    async def receive(self, request: Request, limit: int | None = None) -> bytes:
        """Return the whole body; its bytes count until they are released.

        `limit` is how large it may be, where that is less than `body_max`.

        Raises:
            RequestRefused: it is too large, too late, coded in a way that is not served or wrongly,
                or breaks off; or there are too many others.
        """
        limit = self._options.body_max if limit is None else limit
        body = self._check_head(request.headers, limit)
        parts: list[bytes] = []
        try:
            async with asyncio.timeout(self._options.body_timeout_s):
                await self._collect(request, parts, body, limit)
        except BaseException as error:
            self.release(sum(map(len, parts)))
            if isinstance(error, TimeoutError):
                why = f"the body took more than {self._options.body_timeout_s:g} s"
                raise RequestRefused(HTTPStatus.REQUEST_TIMEOUT, why) from error
            raise
        return b"".join(parts)

    def release(self, size: int) -> None:
        """Count bytes no longer: their messages are the producer's now, or nobody's."""
        self._in_flight_bytes -= size

    async def _collect(
        self, request: Request, parts: list[bytes], body: GzipBody | None, limit: int
    ) -> None:
        wire_limit = limit if body is None else wire_max(limit)
        size, wire_size, is_more = 0, 0, True
        while is_more:
            event = await request.receive()
            if event["type"] == "http.disconnect":
                refuse("the body breaks off")
            part, is_more = event["body"], event.get("more_body", False)
            wire_size += len(part)
            if size <= limit and wire_size <= wire_limit:
                for piece in (part,) if body is None else _inflated(body, part):
                    size += len(piece)
                    if size > limit:
                        break  # nobody needs to know how much more it would become
                    parts.append(piece)
                    self._take(len(piece))
            if (size > limit or wire_size > wire_limit) and not (
                is_more and wire_size <= limit + _DISCARDED_BYTES
            ):
                self._refuse_size(max(size, wire_size), limit)
        if body is not None and not body.is_whole:
            refuse("the body breaks off in the middle of its gzip")

    def _take(self, size: int) -> None:
        self._in_flight_bytes += size
        limit = self._options.in_flight_max
        if self._in_flight_bytes > limit:
            why = f"bodies of {limit} bytes are under way (option in_flight_max); retry later"
            raise RequestRefused(HTTPStatus.SERVICE_UNAVAILABLE, why)

    def _check_head(self, headers: Headers, limit: int) -> GzipBody | None:
        """Refuse what can be refused before a byte of the body has come; return what inflates it.

        Raises:
            RequestRefused: the body is coded in a way that is not served, or announced as too
                large.
        """
        encoding = ", ".join(headers.getlist("content-encoding"))
        names = {each.strip().lower() for each in encoding.split(",")} - {"", "identity"}
        is_gzip = encoding.strip().lower() in _GZIP_NAMES
        if names and not is_gzip:
            why = f"content encoding {encoding:.100} is not served; send gzip, or the body as it is"
            raise RequestRefused(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, why)
        coding = ", ".join(headers.getlist("transfer-encoding"))
        if coding.strip().lower() not in {"", "chunked"}:
            why = (
                f"transfer encoding {coding:.100} is not served; send the body in chunks, or whole"
            )
            raise RequestRefused(HTTPStatus.NOT_IMPLEMENTED, why)
        # Who waits for "100 Continue" has sent nothing yet, and need not.
        size = int(headers.get("content-length", "0"))
        if "expect" in headers and size > (wire_max(limit) if is_gzip else limit):
            self._refuse_size(size, limit)
        return GzipBody() if is_gzip else None

    def _refuse_size(self, size: int, limit: int) -> NoReturn:
        why = f"a body of {size} bytes or more is refused; send at most {limit}"
        if limit == self._options.body_max:
            why += " (option body_max)"
        raise RequestRefused(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, why)


def _inflated(body: GzipBody, part: bytes) -> Iterator[bytes]:
    """Yield what a part becomes.

    Raises:
        RequestRefused: it is no gzip that is served.
    """
    try:
        yield from body.inflate(part)
    except zlib.error as error:
        raise RequestRefused(
            HTTPStatus.BAD_REQUEST, f"the body is no gzip that is served: {error}"
        ) from error
