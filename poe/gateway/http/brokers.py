"""Asks the brokers what topics there are, which also tells whether they can be reached."""

import asyncio
from collections.abc import Mapping
from typing import Any

from poe.client import connect
from poe.client.url import parse_url
from poe.errors import ConnectFailed, PoeError


class Brokers:
    """The brokers of one url; asks the first that answers, over a connection for each question."""

    def __init__(self, url: str, kafka: Mapping[str, Any]) -> None:
        """Remember where they are.

        Args:
            url: poe://… or kafka://…
            kafka: settings of librdkafka.

        Raises:
            OptionError: it is no such url.
        """
        self._url = parse_url(url)
        self._kafka = kafka

    async def topics(self, timeout_s: float) -> list[bytes]:
        """Return the names of all topics.

        Raises:
            PoeError: no broker answers in time.
        """
        if self._url.scheme == "kafka":
            return await asyncio.to_thread(self._topics_of_kafka, timeout_s)
        error: PoeError | None = None
        for host, port in self._url.addresses:
            try:
                async with await connect(host, port, timeout_s=timeout_s) as connection:
                    return await connection.topics()
            except PoeError as failure:
                error = failure
        assert error is not None, "a url has an address"
        raise error

    def _topics_of_kafka(self, timeout_s: float) -> list[bytes]:
        # Here, and not above: it loads librdkafka.
        from confluent_kafka import KafkaException  # noqa: PLC0415
        from confluent_kafka.admin import AdminClient  # noqa: PLC0415

        from poe.client.kafka_library import open_client  # noqa: PLC0415

        addresses = self._url.addresses
        try:
            client = open_client(AdminClient, addresses, {}, self._kafka)
            return [name.encode() for name in client.list_topics(timeout=timeout_s).topics]
        except KafkaException as error:
            raise ConnectFailed(*addresses[0], error.args[0].str()) from error
