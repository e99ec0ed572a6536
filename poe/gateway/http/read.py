"""Reads topics: a page of messages in JSON, one message as it is, or events for those who follow.

    GET /topics                            the topics that there are
    GET /topics/{topic}?pointer=&limit=    what follows a pointer; the header Accept says how

        application/json            {"messages": [...], "next": pointer}
        application/octet-stream    the bytes of the one message behind the pointer
        text/event-stream           server-sent events, with pointers as their ids, without end

Each request reads with a consumer, and a connection, of its own.
"""

import asyncio
import re
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from http import HTTPStatus
from typing import Any
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from poe.broker.access.permission import Need
from poe.client.consumer.async_consumer import AsyncConsumer
from poe.client.consumer.source import Received, Start
from poe.client.partition_topic import partition_topics
from poe.client.producer.producer_options import ProducerOptions
from poe.errors import (
    ConsumerClosed,
    MessagesLost,
    OptionError,
    PoeError,
    RequestRefused,
    UnknownTopic,
)
from poe.gateway.http.admission import Admission
from poe.gateway.http.body import RAW
from poe.gateway.http.brokers import Brokers
from poe.gateway.http.options import DOWN_WAIT_S, GatewayOptions
from poe.gateway.http.parameters import parameters_of
from poe.gateway.http.position import position_text, start_of
from poe.gateway.http.produce import topic_of
from poe.gateway.http.record import record_of, text_member
from poe.gateway.http.reply import JSON, as_json, json_reply, told
from poe.security.policy import TOPIC

EVENTS = "text/event-stream"

_EVENTS_COUNT = 100
"""Messages that a follower is sent at a time."""
_DIGITS = re.compile(r"[0-9]{1,9}")
_FOLLOWERS_WAIT_S = 60.0
"""How long a follower waits for a broker that cannot be reached."""
_NO_STORE = {"Cache-Control": "no-store"}
_BEAT_S = 15.0
"""A follower is sent a comment so often, which proxies take for life."""


class ReadRoutes:
    """Turns gets into reads of consumers; belongs to one event loop."""

    def __init__(self, options: GatewayOptions, brokers: Brokers, admission: Admission) -> None:
        self._options = options
        self._brokers = brokers
        self._admission = admission
        self._producer_options = ProducerOptions.load(options.producer)
        self._followers: set[AsyncConsumer] = set()
        # librdkafka takes longer to say that it has found nobody, and tries by itself.
        is_kafka = options.broker_url.scheme == "kafka"
        self._retry_s = options.read_timeout_s / 2 if is_kafka else DOWN_WAIT_S

    async def stop(self) -> None:
        """Let followers go."""
        await asyncio.gather(*(consumer.close() for consumer in self._followers))

    async def get_topics(self, request: Request) -> Response:
        """List the topics that there are."""
        parameters_of(request, set())
        topics = await self._brokers.topics(self._options.read_timeout_s)
        known = await self._admission.permitted(request, "describe", TOPIC, topics)
        return json_reply({"topics": [_topic(each) for each in known]})

    async def get_messages(self, request: Request) -> Response:
        """Return what follows a pointer, as the client accepts it."""
        accept = request.headers.get("accept", "*/*")
        kinds = {each.partition(";")[0].strip().lower() for each in accept.split(",")}
        if EVENTS in kinds and request.method == "GET":  # HEAD has no body to go on without end
            return await self._get_events(request)
        if RAW in kinds:
            return await self._get_raw(request)
        if kinds & {JSON, "application/*", "*/*"}:
            return await self._get_page(request)
        why = f"nothing of {accept!r:.200} is served; accept {JSON}, {RAW} or {EVENTS}"
        raise RequestRefused(HTTPStatus.NOT_ACCEPTABLE, why)

    async def _get_page(self, request: Request) -> Response:
        parameters = parameters_of(request, {"pointer", "limit"})
        options = self._options
        limit = _limit(parameters.get("limit", str(options.read_count)), options.read_count_max)
        messages, position = await self._read(request, parameters, limit)
        content = {"messages": [_message(each) for each in messages], "next": position}
        return json_reply(content)

    async def _get_raw(self, request: Request) -> Response:
        messages, position = await self._read(request, parameters_of(request, {"pointer"}), 1)
        headers = {"Poe-Next": position}
        if not messages:
            return Response(b"", HTTPStatus.NO_CONTENT, headers)
        message = messages[0]
        headers |= {"Poe-Pointer": str(message.pointer), "Poe-Partition": str(message.partition)}
        return Response(message.value or b"", 200, headers, RAW)

    async def _get_events(self, request: Request) -> Response:
        parameters = parameters_of(request, {"pointer"})
        text = request.headers.get("last-event-id") or parameters.get("pointer", "newest")
        limit = self._options.followers_max
        if len(self._followers) >= limit:
            why = f"{limit} clients follow topics (option followers_max); retry later"
            raise RequestRefused(HTTPStatus.SERVICE_UNAVAILABLE, why)
        consumer = self._consumer(topic_of(request), start_of(text), _EVENTS_COUNT, follow=True)
        # Before anything is waited for, or many that come at once would all find room.
        self._followers.add(consumer)
        try:
            await self._brokers.check()
            events = self._events(request, consumer)
            async with self._reading():
                # Before the status is sent: where it begins is known then, or that it cannot.
                first = await anext(events)
        except BaseException:
            self._followers.discard(consumer)
            raise
        return StreamingResponse(_chained(first, events), media_type=EVENTS, headers=_NO_STORE)

    async def _read(
        self, request: Request, parameters: Mapping[str, str], limit: int
    ) -> tuple[list[Received], str]:
        """Return messages, and the position behind them.

        Raises:
            UnknownTopic: there are none, since there is no such topic.
        """
        topic = topic_of(request)
        start = start_of(parameters.get("pointer", "oldest"))
        async with self._reading(), self._consumer(topic, start, limit) as consumer:
            try:
                messages = await consumer.receive()
            except MessagesLost:
                await self._check_known(topic)
                raise
            if not messages:
                await self._check_known(topic)
            return messages, position_text(await consumer.position())

    async def _check_known(self, topic: bytes) -> None:
        timeout_s = self._options.read_timeout_s
        if await self._brokers.find(topic, timeout_s) is not None:
            return
        partitions = partition_topics(topic, self._producer_options.of(topic).partitions or 1)
        if set(partitions).isdisjoint(await self._brokers.topics(timeout_s)):
            raise UnknownTopic(topic)

    async def _events(self, request: Request, consumer: AsyncConsumer) -> AsyncIterator[bytes]:
        """Yield events until the gateway stops, the consumer fails, or the client may not read.

        An error is the last event.

        Raises:
            PoeError: with the first one, when reading cannot begin.
        """
        denied = list[PoeError]()
        watch = asyncio.ensure_future(self._end_when_denied(request, consumer, denied))
        try:
            async with consumer:
                # Without data it is no event, but a client that reconnects begins here.
                yield b"id: %b\n\n" % position_text(await consumer.position()).encode()
                try:
                    while True:
                        messages = await consumer.receive(_BEAT_S)
                        yield _events_of(messages, await consumer.position()) or b": beat\n\n"
                except ConsumerClosed:
                    for error in denied:
                        yield _error_event(error)
                except PoeError as error:
                    yield _error_event(error)
        finally:
            watch.cancel()
            self._followers.discard(consumer)

    async def _end_when_denied(
        self, request: Request, consumer: AsyncConsumer, why: list[PoeError]
    ) -> None:
        """Close a consumer when its client may not read any more, and leave why."""
        read = Need.of_topic("read", topic_of(request))
        why.append((await self._admission.until_denied(request, [read])).error)
        await consumer.close()

    def _consumer(
        self, topic: bytes, start: Start, batch: int, *, follow: bool = False
    ) -> AsyncConsumer:
        options = self._producer_options.of(topic)
        return AsyncConsumer(
            self._options.broker,
            topic,
            partitions=options.partitions,
            envelope=options.envelope,
            start=start,
            batch=batch,
            follow=follow,
            timeout_s=_FOLLOWERS_WAIT_S if follow else self._retry_s,
            kafka=self._producer_options.kafka,
            tls=self._options.entry.tls,
            credentials=self._options.entry.credentials,
        )

    @asynccontextmanager
    async def _reading(self) -> AsyncIterator[None]:
        """Give up where the broker takes too long, or has no such partition.

        Raises:
            RequestRefused: it does, or has none.
        """
        timeout_s = self._options.read_timeout_s
        try:
            async with asyncio.timeout(timeout_s):
                yield
        except OptionError as error:
            why = f"the pointer names a partition that there is not; use {error.allowed}"
            raise RequestRefused(HTTPStatus.NOT_FOUND, why) from error
        except TimeoutError as error:
            why = f"the broker has not answered within {timeout_s:g} s; retry later"
            raise RequestRefused(HTTPStatus.GATEWAY_TIMEOUT, why) from error


def _error_event(error: PoeError) -> bytes:
    return b"event: error\ndata: " + as_json(told(error)) + b"\n\n"


async def _chained(first: bytes, rest: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    yield first
    async for each in rest:
        yield each


def _limit(text: str, most: int) -> int:
    if _DIGITS.fullmatch(text) and 1 <= int(text) <= most:
        return int(text)
    raise RequestRefused(HTTPStatus.BAD_REQUEST, f"limit {text!r:.100} is none; use 1 to {most}")


def _topic(topic: bytes) -> dict[str, str]:
    escaped = quote(topic, safe="")
    if topic in {b".", b".."}:  # clients would take them for steps in the path
        escaped = escaped.replace(".", "%2E")
    return {"url": "/topics/" + escaped} | text_member("name", topic)


def _message(message: Received) -> dict[str, Any]:
    """Return a message as a record that can be posted, but for its partition and pointer."""
    place = {"partition": message.partition, "pointer": message.pointer}
    return place | record_of(message.key, message.value, message.headers)


def _events_of(messages: list[Received], position: dict[int, int]) -> bytes:
    """Return messages as events; the messages of a batch are of one partition."""
    return b"".join(
        b"id: %b\ndata: %b\n\n"
        % (
            position_text(position | {each.partition: each.pointer}).encode(),
            as_json(_message(each)),
        )
        for each in messages
    )
