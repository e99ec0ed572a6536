"""What those ask who watch the gateway: is it alive, is it of use, how much does it do.

GET /healthz    200 as long as it runs
GET /readyz     200 if the broker answers and takes puts, else 503
GET /metrics    counts and times, as Prometheus reads them
GET /disco      the name of this process, as of kafboy's Erlang node
"""

import asyncio
import socket
from collections.abc import Mapping
from contextlib import suppress
from http import HTTPStatus
from typing import Any

from prometheus_client import REGISTRY, CollectorRegistry
from prometheus_client.exposition import choose_encoder
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from poe.errors import PoeError, RequestRefused
from poe.gateway.http.brokers import Brokers
from poe.gateway.http.cluster_metrics import ClusterMetrics
from poe.gateway.http.log_metrics import LogMetrics
from poe.gateway.http.node_metrics import NodeMetrics, TopicLabels
from poe.gateway.http.options import GatewayOptions
from poe.gateway.http.reply import json_reply

_NODE_S = 2.0
"""How long a node may take to tell of itself; who reads metrics waits for a few seconds."""


class HealthRoutes:
    """Answers questions about the gateway.

    Attributes:
        is_stopping: set it to have /readyz say so.
    """

    def __init__(self, options: GatewayOptions, brokers: Brokers) -> None:
        self._options = options
        self._brokers = brokers
        self._topic_labels = TopicLabels()
        self._asked: asyncio.Task[Mapping[str, Any] | None] | None = None
        self.is_stopping = False
        self._name = f"poe@{socket.gethostname()}"

    async def get_healthz(self, request: Request) -> Response:
        """Tell that the gateway runs."""
        del request
        return json_reply({"status": "ok"})

    async def get_readyz(self, request: Request) -> Response:
        """Return whether posts would be delivered now.

        Raises:
            RequestRefused: the gateway stops, no broker answers, or the node takes no puts.
        """
        del request
        if self.is_stopping:
            raise RequestRefused(
                HTTPStatus.SERVICE_UNAVAILABLE, "the gateway is stopping; use another one"
            )
        try:
            status = await self._brokers.health(self._options.read_timeout_s)
        except PoeError as error:
            raise RequestRefused(
                HTTPStatus.SERVICE_UNAVAILABLE, f"no broker answers: {error}"
            ) from error
        if status != "ok":
            why = f"the node is {status}; `poe status` there tells why"
            raise RequestRefused(HTTPStatus.SERVICE_UNAVAILABLE, why)
        return json_reply({"status": "ready"})

    async def get_metrics(self, request: Request) -> Response:
        """Return what was counted, by the gateway, its producer, the node, and its cluster."""
        registry = CollectorRegistry(support_collectors_without_names=True)
        registry.register(REGISTRY)
        told = None
        if not self._brokers.is_kafka:
            # Who asks meanwhile gets the same: an answer that is older than the last one would pass
            # for one of topics that were made anew.
            if self._asked is None or self._asked.done():
                self._asked = asyncio.ensure_future(self._counters())
            told = await asyncio.shield(self._asked)
            registry.register(NodeMetrics(told, self._topic_labels))
        if told is None or told["node"].get("is_in_cluster", True):
            # It is in none, does not answer in time, or does not tell the gateway.
            with suppress(PoeError, TimeoutError):
                async with asyncio.timeout(_NODE_S):
                    await self._register_cluster(registry)
        try:
            encode, content_type = choose_encoder(request.headers.get("accept", ""))
        except TypeError:  # a version there is not of numbers, which it is compared with
            encode, content_type = choose_encoder("")
        return Response(encode(registry), headers={"content-type": content_type})

    async def _counters(self) -> Mapping[str, Any] | None:
        """Return what the node has counted; None where it does not answer in time, or is older."""
        try:
            async with asyncio.timeout(_NODE_S), self._brokers.connection(_NODE_S) as connection:
                return await connection.counters()
        except (PoeError, TimeoutError):
            return None

    async def _register_cluster(self, registry: CollectorRegistry) -> None:
        async with self._brokers.connection(_NODE_S) as connection:
            told = await connection.control("cluster")
            registry.register(ClusterMetrics(told, await connection.control("queues")))
            logs = await connection.control("cluster_logs", brief=True)
            registry.register(LogMetrics(told["name"], logs))

    async def get_disco(self, request: Request) -> Response:
        """Return the name of this process."""
        del request
        return PlainTextResponse(self._name)
