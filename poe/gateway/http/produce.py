"""The four ways to produce: what kafboy's routes mean, with answers that say what has happened.

    POST /async/{topic}         sent at once                       202
    POST /batch/async/{topic}   sent when its batch is full or old 202
    POST /sync/{topic}          sent at once, and answered         200 with pointers, 207 for a part
    POST /batch/sync/{topic}    as /batch/async, and tells how much waits there 202

Each request is taken whole or not at all. With parameter `delay_s` or `at` all of them have the
broker keep the messages until they are due, and answer 202 when it has written them down.

Source: kafboy, `kafboy_http_handler.erl`, which answers `{"ok":1}` before it produces.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from http import HTTPStatus
from typing import Any, NamedTuple
from urllib.parse import unquote_to_bytes

from starlette.requests import Request
from starlette.responses import Response

from poe.broker.access.permission import Need
from poe.client.producer.async_producer import AsyncProducer
from poe.client.producer.delivery import Buffered, Delivery, Failed, Result, Sent
from poe.client.producer.payload import Messages
from poe.client.producer.topic_info import TopicState
from poe.errors import BrokerDown, RequestRefused
from poe.gateway.http.body import messages_in, once, shown
from poe.gateway.http.edit import Answer, EditHook, Post
from poe.gateway.http.inquiry import TTL_MAX_S
from poe.gateway.http.later import AT, DELAY, LaterPuts, due_of
from poe.gateway.http.options import DOWN_WAIT_S, GatewayOptions
from poe.gateway.http.parts import GatewayParts
from poe.gateway.http.refusal import refuse
from poe.gateway.http.reply import json_reply, told

_KEY, _HEADER = b"poe-key", b"poe-header-"
_PROOF_S = 0.5
_SHARED_BYTES_PER_BODY = 8
"""Bytes of the key and headers of a request in all of its messages, for each byte that its body may
have: each message gets its own, so that some KiB of them make gigabytes of many small messages."""

Produce = Callable[[bytes, Messages], Awaitable[Response]]


class ProduceRoutes:
    """Turns posts into calls of one producer; belongs to one event loop."""

    def __init__(self, parts: GatewayParts, producer: Callable[[], AsyncProducer]) -> None:
        """Produce with what `producer` returns, which exists once the gateway has started."""
        self._options, self._brokers, self._inflow, self._admission = parts
        self._later = LaterPuts(self._options, self._brokers)
        self._producer = producer
        edit = self._options.edit
        self._hook = None if edit is None else EditHook(edit, self._options.edit_timeout_s)
        self._is_proven: dict[bytes, bool] = {}
        """Of each topic that was posted to, whether something was delivered to it."""
        self._known_until_s: dict[bytes, float] = {}
        """Topics that there were lately."""

    def close(self) -> None:
        """Leave behind what the edit hook is still at."""
        if self._hook is not None:
            self._hook.close()

    async def post_async(self, request: Request) -> Response:
        """Send at once, and tell that it was taken."""
        return await self._post(request, self._async)

    async def post_batch_async(self, request: Request) -> Response:
        """Put into a batch, and tell that it was taken."""
        return await self._post(request, self._batch_async)

    async def post_sync(self, request: Request) -> Response:
        """Send at once, wait for the broker, and tell what it said."""
        return await self._post(request, self._sync)

    async def post_batch_sync(self, request: Request) -> Response:
        """Put into a batch, and tell how much waits there."""
        return await self._post(request, self._batch_sync)

    async def _post(self, request: Request, produce: Produce) -> Response:
        topic = topic_of(request)
        await self._check_may_make(request, topic)
        body = await self._inflow.receive(request)
        try:
            asked = _asked(request)
            content_type = request.headers.get("content-type", "")
            count_max = asked.count_max(self._options)
            messages = await messages_in(content_type, body, asked.key, asked.headers, count_max)
            if self._hook is not None:
                path = request.scope["path"]
                post = Post(topic, messages, path, dict(request.headers))
                result = await self._hook.edited(post)
                if isinstance(result, Answer):
                    return Response(result.body, result.status, media_type=result.content_type)
                if result.topic != topic:
                    topic = result.topic
                    await self._admission.require(request, [Need.of_topic("write", topic)])
                    await self._check_may_make(request, topic)
                messages = result.messages
            if asked.due_us is not None:  # not by the producer, which need not know the topic
                return await self._later.put(topic, messages, asked.due_us)
            self._check_topic(topic)
            return await produce(topic, messages)
        finally:
            self._inflow.release(len(body))

    async def _check_may_make(self, request: Request, topic: bytes) -> None:
        """Let those pass who may make the topic, and where there is one, everybody.

        The gateway's own puts would make it, whoever they are for.
        """
        create, now_s = Need.of_topic("create", topic), time.monotonic()
        if (
            await self._admission.meets(request, create)
            or self._known_until_s.get(topic, 0.0) > now_s
        ):
            return
        if await self._brokers.find(topic, self._options.read_timeout_s) is None:
            await self._admission.require(request, [create])
        if len(self._known_until_s) >= self._options.topics_max:
            self._known_until_s.clear()
        self._known_until_s[topic] = now_s + TTL_MAX_S

    def _check_topic(self, topic: bytes) -> None:
        """Have no client make the producer grow without end, topic by topic."""
        limit = self._options.topics_max
        if topic not in self._is_proven and len(self._is_proven) >= limit:
            why = f"{limit} topics are in use (option topics_max); use one of those"
            raise RequestRefused(HTTPStatus.SERVICE_UNAVAILABLE, why)
        self._is_proven.setdefault(topic, False)

    async def _async(self, topic: bytes, messages: Messages) -> Response:
        delivery = await self._producer().produce_async(topic, messages)
        return await self._accepted(topic, delivery, len(messages))

    async def _batch_async(self, topic: bytes, messages: Messages) -> Response:
        delivery = await self._producer().produce_async_batched(topic, messages)
        return await self._accepted(topic, delivery, len(messages))

    async def _accepted(self, topic: bytes, delivery: Delivery, count: int) -> Response:
        """Tell that messages were taken; an error that is known by now is told instead.

        Until something was delivered to a topic, its name may be one that the broker refuses. So
        its first messages are waited for, though not for long.

        Raises:
            PoeError: they were not delivered, and will not be.
        """
        if not self._is_proven[topic]:
            with suppress(TimeoutError):
                async with asyncio.timeout(_PROOF_S):
                    await delivery
                    self._is_proven[topic] = True
        if delivery.done() and _failures(result := delivery.result()):
            return _delivered(result)
        return json_reply({"accepted": count}, HTTPStatus.ACCEPTED)

    async def _sync(self, topic: bytes, messages: Messages) -> Response:
        await self._reach_broker(topic)
        result = await self._producer().produce_sync(
            topic, messages, timeout_s=self._options.sync_timeout_s
        )
        self._is_proven[topic] = True
        return _delivered(result)

    async def _reach_broker(self, topic: bytes) -> None:
        """Find out, before anything is taken, whether there is a broker to wait for.

        Raises:
            PoeError: there is none.
        """
        producer = self._producer()
        left_s = min(self._options.connect_timeout_s, self._options.sync_timeout_s)
        # In steps: as soon as it is known that nobody is there, it need not wait any longer.
        while (await producer.info(topic)).state is not TopicState.READY:
            try:
                await producer.prepare(topic, timeout_s=min(left_s, DOWN_WAIT_S))
            except BrokerDown:
                left_s -= DOWN_WAIT_S
                is_down = (await producer.info(topic)).state is TopicState.DOWNTIME
                if is_down or left_s <= 0:
                    raise

    async def _batch_sync(self, topic: bytes, messages: Messages) -> Response:
        if not self._is_proven[topic]:
            return await self._batch_async(topic, messages)
        result = await self._producer().produce_sync_batched(topic, messages)
        each_result = result if isinstance(result, list) else [result]
        buffered = [each._asdict() for each in each_result if isinstance(each, Buffered)]
        failed = [_delivery(each) for each in each_result if isinstance(each, Failed)]
        content: dict[str, Any] = {"accepted": len(messages) - len(failed), "buffered": buffered}
        if failed:
            content["failed"] = failed
        return json_reply(content, HTTPStatus.MULTI_STATUS if failed else HTTPStatus.ACCEPTED)


def topic_of(request: Request) -> bytes:
    """Return the topic of a path, which may hold any bytes, percent-encoded."""
    return unquote_to_bytes(request.path_params["topic"])


def _delivered(result: Result) -> Response:
    """Return what was delivered, and what was not."""
    each_result = result if isinstance(result, list) else [result]
    content = {
        "delivered": sum(each.count for each in each_result if isinstance(each, Sent)),
        "deliveries": [_delivery(each) for each in each_result],
    }
    return json_reply(content, HTTPStatus.MULTI_STATUS if _failures(result) else 200)


def _failures(result: Result) -> list[Failed]:
    return [each for each in result if isinstance(each, Failed)] if isinstance(result, list) else []


def _delivery(result: Sent | Failed) -> dict[str, Any]:
    if isinstance(result, Failed):
        return {"partition": result.partition, "error": told(result.error)}
    return {"partition": result.partition, "pointer": result.pointer, "count": result.count}


class _Asked(NamedTuple):
    """What a request says of all its messages."""

    key: bytes | None
    headers: dict[str, bytes] | None
    due_us: int | None
    """When they are to come; None: at once."""

    size_bytes: int
    """Of key and headers as they were sent."""

    def count_max(self, options: GatewayOptions) -> int:
        """Return how many messages may have all that."""
        bytes_max = _SHARED_BYTES_PER_BODY * options.body_max
        return min(options.messages_max, max(1, bytes_max // max(1, self.size_bytes)))


def _asked(request: Request) -> _Asked:
    """Return what a request says beside its body.

    Raises:
        RequestRefused: a parameter that there is not, a second key, or what is no time.
    """
    keys: list[bytes] = []
    headers: dict[str, bytes] = {}
    size_bytes = 0
    for name, value in request.scope["headers"]:
        if name == _KEY:
            keys.append(value)
        elif name.startswith(_HEADER):
            headers[name.removeprefix(_HEADER).decode("latin-1")] = value
            size_bytes += len(name) + len(value)
    parameters = dict(once(request.scope["query_string"]))
    for name in parameters.keys() - {b"key", DELAY, AT}:
        refuse(f"parameter {shown(name)} is not known; there are key, delay_s and at")
    if b"key" in parameters:
        keys.append(parameters[b"key"])
    if len(keys) > 1:
        refuse("there are two keys, by parameter key or header Poe-Key; give one")
    key = keys[0] if keys else None
    due_us = due_of(parameters, time.time_ns() // 1000)
    return _Asked(key, headers or None, due_us, size_bytes + len(key or b""))
