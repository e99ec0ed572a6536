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
from typing import Any, Self

from prometheus_client import Counter, Histogram
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from poe.broker.log_limit import LogLimit
from poe.client.producer.async_producer import AsyncProducer
from poe.client.producer.producer_options import ProducerOptions
from poe.client.producer.topic_info import TopicInfo, Undelivered
from poe.errors import PoeError, RequestRefused
from poe.gateway.http.brokers import Brokers
from poe.gateway.http.groups import GroupRoutes
from poe.gateway.http.guard import Guard, preflight_headers
from poe.gateway.http.health import HealthRoutes
from poe.gateway.http.inflow import Inflow
from poe.gateway.http.openapi import document
from poe.gateway.http.options import GatewayOptions
from poe.gateway.http.page import PAGE_HEADERS, page_of
from poe.gateway.http.produce import ProduceRoutes
from poe.gateway.http.properties import PropertyRoutes
from poe.gateway.http.read import ReadRoutes
from poe.gateway.http.reply import error_reply, json_reply

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


class Gateway:
    """An ASGI application; `async with` it, or let a server do so by the lifespan protocol.

    Attributes:
        undelivered: what the producer had taken and not delivered when it was closed.
    """

    def __init__(self, options: GatewayOptions) -> None:
        """Prepare a gateway; it connects to nothing yet."""
        self._options = options
        self._producer: AsyncProducer | None = None
        self.undelivered: list[Undelivered] = []
        kafka = ProducerOptions.load(options.producer).kafka
        brokers = Brokers(options.broker, kafka, options.connect_timeout_s)
        self._guard = Guard(options.host, options.allowed_hosts, options.allowed_origins)
        self._read, self._health = ReadRoutes(options, brokers), HealthRoutes(options, brokers)
        inflow = Inflow(options)
        self._produce = ProduceRoutes(options, brokers, inflow, self._running_producer)
        self._groups = GroupRoutes(options, brokers, inflow)
        self._properties = PropertyRoutes(options, brokers, inflow)
        routes = self._routes(self._produce)
        self._paths: dict[Any, str] = {each.endpoint: each.path for each in routes}
        self._application = Starlette(
            routes=routes,
            exception_handlers={
                PoeError: self._on_error,
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
        given = self._options.producer
        # What is given up, after a 202 too, is in the producer's own log.
        callbacks = {"dropped": _log_drop, **given.get("callbacks", {})}
        self._producer = AsyncProducer(
            self._options.broker, **{**_PRODUCER_DEFAULTS, **given, "callbacks": callbacks}
        )
        return self._producer.loop()

    async def close(self) -> None:
        """Flush the producer within its `close_timeout_s`, and tell what was not delivered."""
        self._produce.close()
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
        status = HTTPStatus.INTERNAL_SERVER_ERROR
        origin: bytes | None = None
        application: ASGIApp = self._application
        began_s = time.perf_counter()

        async def counted(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [*message["headers"], *self._guard.reply_headers(origin)]
            await send(message)

        try:
            origin = self._guard.admit(scope)
            granted = None if origin is None else preflight_headers(scope)
            if granted is not None:
                application = Response(status_code=HTTPStatus.NO_CONTENT)
                application.raw_headers.extend(granted)
        except RequestRefused as error:
            application = error_reply(error, 0)
        try:
            await application(scope, receive, counted)
        finally:
            route = self._paths.get(scope.get("endpoint"), "other")
            _REQUESTS.labels(scope["method"], route, status).inc()
            _SECONDS.labels(route).observe(time.perf_counter() - began_s)

    @asynccontextmanager
    async def _lifespan(self, _application: Starlette) -> AsyncIterator[None]:
        async with self:
            yield

    async def stop(self) -> None:
        """Let those go who follow or wait, and have /readyz send new clients elsewhere."""
        self._health.is_stopping = True
        self._groups.stop()
        await self._read.stop()

    def _running_producer(self) -> AsyncProducer:
        assert self._producer is not None, "async with the gateway first"
        return self._producer

    async def _on_error(self, _request: Request, error: Exception) -> Response:
        assert isinstance(error, PoeError)
        return error_reply(error, self._options.retry_after_s)

    async def _on_http_error(self, _request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        why = f"{error.detail}; see /openapi.json for what there is"
        reply = error_reply(RequestRefused(error.status_code, why), 0)
        reply.headers.update(error.headers or {})
        return reply

    async def _on_bug(self, _request: Request, _error: Exception) -> Response:
        why = "the gateway has failed at this; its log tells more"
        return error_reply(RequestRefused(HTTPStatus.INTERNAL_SERVER_ERROR, why), 0)

    def _routes(self, produce: ProduceRoutes) -> list[Route]:
        groups, member = self._groups, "/groups/{group}/members/{member}"
        posts = {
            "/async/{topic}": produce.post_async,
            "/batch/async/{topic}": produce.post_batch_async,
            "/sync/{topic}": produce.post_sync,
            "/batch/sync/{topic}": produce.post_batch_sync,
            "/groups/{group}/pause": groups.post_pause,
            "/groups/{group}/resume": groups.post_resume,
            "/groups/{group}/reset": groups.post_reset,
            "/groups/{group}/members": groups.post_members,
            f"{member}/heartbeat": groups.post_heartbeat,
            f"{member}/read": groups.post_read,
            f"{member}/commit": groups.post_commit,
            f"{member}/lease": groups.post_lease,
            f"{member}/acknowledge": groups.post_acknowledge,
            f"{member}/extend": groups.post_extend,
        }
        gets = {
            "/topics": self._read.get_topics,
            "/topics/{topic}": self._read.get_messages,
            "/groups": groups.get_groups,
            "/groups/{group}/lag": groups.get_lag,
            "/groups/{group}/positions": groups.get_positions,
            "/healthz": self._health.get_healthz,
            "/readyz": self._health.get_readyz,
            "/metrics": self._health.get_metrics,
            "/disco": self._health.get_disco,
            "/openapi.json": self._get_openapi,
            "/docs": self._get_docs,
        }
        path = "/topics/{topic}/properties"
        return [
            # One, so that who asks with another method is told all of these.
            Route(path, self._properties.serve, methods=["GET", "PATCH", "PUT"]),
            Route("/groups/{group}", groups.at_group, methods=["GET", "PUT", "DELETE"]),
            Route(member, groups.at_member, methods=["DELETE"]),
            *(Route(path, endpoint, methods=["POST"]) for path, endpoint in posts.items()),
            *(Route(path, endpoint, methods=["GET"]) for path, endpoint in gets.items()),
        ]

    async def _get_openapi(self, _request: Request) -> Response:
        return json_reply(document(self._options))

    async def _get_docs(self, _request: Request) -> Response:
        return HTMLResponse(page_of(document(self._options)), headers=PAGE_HEADERS)


def _log_drop(_event: str, _topic: Any, _state: str, info: TopicInfo, count: int) -> None:  # noqa: ANN401 - a callback's
    name = info.topic.decode("utf-8", "backslashreplace")
    _log.error("%d messages for topic %r fell out of the buffer of a downtime", count, name)
