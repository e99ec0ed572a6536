"""Asks the brokers what topics there are, which also tells whether they can be reached."""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from functools import cached_property, partial
from http import HTTPStatus
from typing import Any, Final, TypeVar

from poe.client.async_socket import AsyncSocket, connect_to
from poe.client.url import BrokerUrl
from poe.errors import AuthenticationFailed, PoeError, RemoteProtocolError, RequestRefused
from poe.protocol import DescribedTopic
from poe.protocol.server import Server

T = TypeVar("T")

_KAFKA_THREADS = 4
_KAFKA_SHARE = 0.9
"""Of the time for an answer, what librdkafka has: it is to say itself why there is none."""

REFUSED_WAIT_S: Final = 10.0
"""How seldom a broker is tried that has refused the credentials: it tells of that late, and as long
each try takes one of the few places that it has for all clients at the gateway's address."""


class Brokers:
    """The brokers of one url; asks the first that answers, over a connection for each question."""

    def __init__(
        self,
        url: BrokerUrl,
        kafka: Mapping[str, Any],
        connect_timeout_s: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Remember where they are.

        Args:
            url: where, and how the gateway gets in there.
            kafka: settings of librdkafka.
            connect_timeout_s: how long connecting to one may take.
            clock: tells seconds.
        """
        if url.scheme == "kafka":
            logging.getLogger("poe.client.kafka").addFilter(_is_told)
        self._url = url
        self._kafka = kafka
        self._connect_timeout_s = connect_timeout_s
        self._clock = clock
        self._tried_s: dict[Server, float] = {}
        """When those were tried last that have refused the credentials, and not taken any since."""

    @property
    def is_kafka(self) -> bool:
        """Whether they are Kafka's."""
        return self._url.scheme == "kafka"

    @cached_property
    def _threads(self) -> ThreadPoolExecutor:
        # Of their own: while brokers are away they hang, and others have bodies to take apart.
        return ThreadPoolExecutor(_KAFKA_THREADS, "poe-kafka-topics")

    async def check(self) -> None:
        """Find out whether one can be reached; those of Kafka are not asked.

        Raises:
            PoeError: none can.
        """
        if not self.is_kafka:
            await self.ask(_nothing, self._connect_timeout_s)

    async def topics(self, timeout_s: float) -> list[bytes]:
        """Return the names of all topics.

        Raises:
            PoeError: no broker answers in time.
        """
        if not self.is_kafka:
            return await self.ask(_names, timeout_s)
        asked = partial(self._topics_of_kafka, timeout_s * _KAFKA_SHARE)
        try:
            async with asyncio.timeout(timeout_s):
                return await asyncio.get_running_loop().run_in_executor(self._threads, asked)
        except TimeoutError as error:
            reason = f"no answer within {timeout_s:g} s"
            raise self._url.servers[0].unreachable(reason) from error

    async def health(self, timeout_s: float) -> str:
        """Have one of them answer, and return how it is: `ok`, or `refusing`, since it has no room.

        Raises:
            PoeError: none does in time.
        """
        if self.is_kafka:
            await self.topics(timeout_s)
            return "ok"
        told = await self.ask(lambda socket: socket.control("health"), timeout_s)
        return str(told["status"])

    async def find(self, topic: bytes, timeout_s: float) -> DescribedTopic | None:
        """Return what a topic of Poe has; None where nobody knows.

        Raises:
            PoeError: no broker answers in time.
        """
        if self.is_kafka:
            return None
        return await self.ask(lambda socket: socket.find_topic(topic), timeout_s)

    async def ask(self, question: Callable[[AsyncSocket], Awaitable[T]], timeout_s: float) -> T:
        """Return what the first says that answers.

        Raises:
            PoeError: none does; it tells of the last one.
        """
        error: PoeError | None = None
        for server in self._url.servers:
            try:
                async with await self._connect(server, timeout_s) as connection:
                    return await question(connection)
            except PoeError as failure:
                error = failure
        assert error is not None, "a url has an address"
        raise error

    @asynccontextmanager
    async def connection(self, timeout_s: float) -> AsyncIterator[AsyncSocket]:
        """Connect to the first that can be reached: what it answers no other one is asked.

        Raises:
            RequestRefused: they are Kafka's.
            PoeError: none can be reached; it tells of the last one.
        """
        if self.is_kafka:
            why = "groups are those of a server of Poe; this gateway is in front of Kafka"
            raise RequestRefused(HTTPStatus.NOT_IMPLEMENTED, why)
        async with await self.connect(timeout_s) as connection:
            yield connection

    async def connect(self, timeout_s: float) -> AsyncSocket:
        """Return a connection to the first that can be reached; it is the caller's to close.

        Raises:
            PoeError: none can be reached; it tells of the last one.
        """
        error: PoeError | None = None
        for server in self._url.servers:
            try:
                return await self._connect(server, timeout_s)
            except PoeError as failure:
                error = failure
        assert error is not None, "a url has an address"
        raise error

    async def _connect(self, server: Server, timeout_s: float) -> AsyncSocket:
        if server in self._tried_s:
            if self._clock() < self._tried_s[server] + REFUSED_WAIT_S:
                raise AuthenticationFailed
            self._tried_s[server] = self._clock()
        limit_s = self._connect_timeout_s
        try:
            async with asyncio.timeout(limit_s):
                connection = await connect_to(server, timeout_s=timeout_s)
        except AuthenticationFailed:
            self._tried_s[server] = self._clock()
            raise
        except TimeoutError as error:
            reason = f"no answer within {limit_s:g} s"
            raise server.unreachable(reason) from error
        self._tried_s.pop(server, None)
        return connection

    def _topics_of_kafka(self, timeout_s: float) -> list[bytes]:
        # Here, and not above: it loads librdkafka.
        from confluent_kafka import KafkaException  # noqa: PLC0415
        from confluent_kafka.admin import AdminClient  # noqa: PLC0415

        from poe.client.kafka_library import open_client  # noqa: PLC0415

        servers = self._url.servers
        try:
            client = open_client(AdminClient, servers, {}, self._kafka)
            return [name.encode() for name in client.list_topics(timeout=timeout_s).topics]
        except KafkaException as error:
            raise servers[0].unreachable(error.args[0].str()) from error


def _is_told(line: logging.LogRecord) -> bool:
    """Return whether a line of librdkafka's says more than that a setting is for others.

    Producer and readers have the same settings, and a reader is made for each request.
    """
    return "will be ignored by this" not in line.getMessage()


async def _names(connection: AsyncSocket) -> list[bytes]:
    """Ask for all topics; a server that does not know of partitions tells these as topics."""
    try:
        return [each.name for each in await connection.list_topics()]
    except RemoteProtocolError:
        return await connection.topics()


async def _nothing(_connection: AsyncSocket) -> None:
    """Ask nothing of a server that could be reached."""
