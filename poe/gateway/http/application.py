"""The gateway as an ASGI application: Starlette's router over the routes, one producer, counts.

A topic may be any bytes, and percent-encoded in a path it may hold a slash. So paths are matched as
they were sent, and decoded afterwards.
"""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Self

from prometheus_client import Counter, Histogram
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from poe.broker.log_limit import ONCE_A_MINUTE, LogLimit
from poe.client.producer.async_producer import AsyncProducer
from poe.client.producer.producer_options import ProducerOptions
from poe.client.producer.topic_info import TopicInfo, Undelivered
from poe.errors import PoeError, RequestRefused, SecurityError
from poe.gateway.http.admission import Admission, Denied
from poe.gateway.http.bearers import Bearers
from poe.gateway.http.brokers import Brokers
from poe.gateway.http.groups import GroupRoutes
from poe.gateway.http.guard import Guard, preflight_headers
from poe.gateway.http.health import HealthRoutes
from poe.gateway.http.inflow import Inflow
from poe.gateway.http.inquiry import Inquiry
from poe.gateway.http.openapi import document
from poe.gateway.http.options import GatewayOptions
from poe.gateway.http.page import PAGE_HEADERS, page_of
from poe.gateway.http.parts import GatewayParts
from poe.gateway.http.produce import ProduceRoutes
from poe.gateway.http.properties import PropertyRoutes
from poe.gateway.http.queues import QueueRoutes
from poe.gateway.http.read import ReadRoutes
from poe.gateway.http.reply import denied_reply, error_reply, json_reply
from poe.gateway.http.routes import OPEN_PATHS, ROUTES, Handlers, Row

if TYPE_CHECKING:
    from poe.gateway.console.application import Console

_log = logging.getLogger("poe.gateway")
_log.addFilter(LogLimit())  # clients can make hooks fail as often as they like

_REQUESTS = Counter(
    "poe_gateway_requests", "Requests by what became of them.", ["method", "route", "status"]
)
_SECONDS = Histogram("poe_gateway_request_seconds", "Time to the end of an answer.", ["route"])
_PRODUCER_DEFAULTS: Mapping[str, Any] = {
    "on_full": "raise",
    "downtime_drop": "newest",
    # What arrives while a request is under way leaves together in the next, and not in many small
    # ones, which cost gateway and node more of the processor's time.
    "in_flight": 1,
    "metrics": ("prometheus",),
}


_ENDED = RequestRefused(
    HTTPStatus.GATEWAY_TIMEOUT,
    "the gateway stops, and there is no answer yet; it may have been done, and may yet be",
)


class Gateway:
    """An ASGI application; `async with` it, or let a server do so by the lifespan protocol.

    Attributes:
        undelivered: what the producer had taken and not delivered when it was closed.
        console: pages that show the node; None without them.
    """

    def __init__(self, options: GatewayOptions) -> None:
        """Prepare a gateway; it connects to nothing yet."""
        self._options = options
        self._producer: AsyncProducer | None = None
        self.undelivered: list[Undelivered] = []
        kafka = ProducerOptions.load(options.producer).kafka
        brokers = Brokers(options.broker_url, kafka, options.connect_timeout_s)
        self._guard = Guard(options.host, options.allowed_hosts, options.allowed_origins)
        self._inquiry = Inquiry(brokers, options.read_timeout_s)
        has_bearers = options.authentication == "bearer"
        self._admission = Admission(Bearers(self._inquiry) if has_bearers else None, OPEN_PATHS)
        inflow = Inflow(options)
        parts = GatewayParts(options, brokers, inflow, self._admission)
        self._to = Handlers(
            ProduceRoutes(parts, self._running_producer),
            ReadRoutes(options, brokers, self._admission),
            PropertyRoutes(parts),
            GroupRoutes(parts),
            QueueRoutes(parts),
            HealthRoutes(options, brokers),
            self._get_openapi,
            self._get_docs,
        )
        self.console = _console(options, self._guard, inflow) if options.console else None
        routes = [self._route(each) for each in ROUTES]
        self._paths: dict[Any, str] = {each.endpoint: each.path for each in routes}
        self._application = Starlette(
            routes=routes,
            exception_handlers={
                PoeError: self._on_error,
                Denied: self._on_denied,
                HTTPException: self._on_http_error,
                Exception: self._on_bug,
            },
            lifespan=self._lifespan,
        )
        self._application.router.redirect_slashes = False

    async def __aenter__(self) -> Self:
        """Start the producer."""
        self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        """Let followers go, and close the producer."""
        await self.stop()
        await self.close()

    def start(self) -> asyncio.AbstractEventLoop:
        """Start the producer, and return its event loop, where requests are served fastest.

        Raises:
            PoeError: it cannot start, or one of its options is wrong.
        """
        given, entry = self._options.producer, self._options.entry
        own = {"tls": entry.tls, "credentials": entry.credentials}
        # What is given up, after a 202 too, is in the producer's own log.
        callbacks = {"dropped": _log_drop, **given.get("callbacks", {})}
        self._producer = AsyncProducer(
            self._options.broker,
            **{**_PRODUCER_DEFAULTS, **own, **given, "callbacks": callbacks},
        )
        return self._producer.loop()

    async def close(self) -> None:
        """Flush the producer within its `close_timeout_s`, and tell what was not delivered."""
        self._to.produce.close()
        self.undelivered = await self._running_producer().close()
        for each in self.undelivered:
            _log.error(
                "%d messages for topic %r were accepted and not delivered: %s",
                len(each.messages),
                each.topic.decode("utf-8", "backslashreplace"),
                each.error,
            )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request that the guard lets through, and count it."""
        if scope["type"] != "http":
            await self._application(scope, receive, send)
            return
        path = scope["raw_path"].decode("latin-1")
        scope["path"] = path.removesuffix("/")
        status: int | None = None
        began_s = time.perf_counter()
        console = self.console if self.console and self.console.owns(scope["path"]) else None
        application, origin = self._enter(scope) if console is None else (console, None)

        async def counted(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [*message["headers"], *self._guard.reply_headers(origin)]
            await send(message)

        try:
            await application(scope, *self._admission.metered(scope, receive, counted))
        except asyncio.CancelledError:
            # By the server, once those under way have had their time.
            if not self._to.health.is_stopping:
                raise
            if status is None:
                await error_reply(_ENDED, 0)(scope, receive, counted)
        finally:
            route = self._paths.get(scope.get("endpoint"), "other")
            route = route if console is None else "/console"
            told = HTTPStatus.INTERNAL_SERVER_ERROR if status is None else status
            _REQUESTS.labels(scope["method"], route, told).inc()
            _SECONDS.labels(route).observe(time.perf_counter() - began_s)

    def _enter(self, scope: Scope) -> tuple[ASGIApp, bytes | None]:
        """Return what answers a request, and the origin of the page that asks, if one may."""
        origin: bytes | None = None
        try:
            origin = self._guard.admit(scope)
            granted = None if origin is None else preflight_headers(scope)
            if granted is not None:
                preflight = Response(status_code=HTTPStatus.NO_CONTENT)
                preflight.raw_headers.extend(granted)
                return preflight, origin
            self._admission.enter(scope)
        except RequestRefused as error:
            return error_reply(error, 0), origin
        except Denied as denied:
            return denied_reply(denied), origin
        return self._application, origin

    @asynccontextmanager
    async def _lifespan(self, _application: Starlette) -> AsyncIterator[None]:
        async with self:
            yield

    async def stop(self) -> None:
        """Let those go who follow or wait, and have /readyz send new clients elsewhere."""
        self._to.health.is_stopping = True
        if self.console is not None:
            await self.console.stop()
        self._to.groups.stop()
        await self._to.read.stop()
        await self._inquiry.close()

    def _running_producer(self) -> AsyncProducer:
        assert self._producer is not None, "async with the gateway first"
        return self._producer

    async def _on_error(self, _request: Request, error: Exception) -> Response:
        assert isinstance(error, PoeError)
        if isinstance(error, SecurityError):  # the client's own are `Denied`
            _log.error("the broker refuses this gateway: %s", error, extra=ONCE_A_MINUTE)
            why = "the broker does not let this gateway do that; its log tells more"
            error = RequestRefused(HTTPStatus.BAD_GATEWAY, why)
        return error_reply(error, self._options.retry_after_s)

    async def _on_denied(self, _request: Request, error: Exception) -> Response:
        assert isinstance(error, Denied)
        return denied_reply(error)

    async def _on_http_error(self, request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        try:
            await self._admission.identify(request)
        except Denied as denied:
            return denied_reply(denied)
        except RequestRefused as refused:
            return error_reply(refused, self._options.retry_after_s)
        why = f"{error.detail}; see /openapi.json for what there is"
        reply = error_reply(RequestRefused(error.status_code, why), 0)
        reply.headers.update(error.headers or {})
        return reply

    async def _on_bug(self, _request: Request, _error: Exception) -> Response:
        why = "the gateway has failed at this; its log tells more"
        return error_reply(RequestRefused(HTTPStatus.INTERNAL_SERVER_ERROR, why), 0)

    def _route(self, row: Row) -> Route:
        endpoint = self._admission.guarded(row.endpoint(self._to), row.needs)
        return Route(row.path, endpoint, methods=list(row.needs))

    async def _get_openapi(self, _request: Request) -> Response:
        return json_reply(document(self._options))

    async def _get_docs(self, _request: Request) -> Response:
        return HTMLResponse(page_of(document(self._options)), headers=PAGE_HEADERS)


def _console(options: GatewayOptions, guard: Guard, inflow: Inflow) -> "Console":
    from poe.gateway.console.application import Console  # noqa: PLC0415 - most have none

    return Console(options, guard, inflow)


def _log_drop(_event: str, _topic: Any, _state: str, info: TopicInfo, count: int) -> None:  # noqa: ANN401 - a callback's
    name = info.topic.decode("utf-8", "backslashreplace")
    _log.error("%d messages for topic %r fell out of the buffer of a downtime", count, name)
