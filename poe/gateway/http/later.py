"""Messages that are to come later: kept by a server of Poe, which puts them when they are due.

They are what `AsyncProducer` would send, in envelopes and on partitions as the topic has them; only
nobody knows their pointers yet.
"""

import math
from collections.abc import Mapping, Sequence
from datetime import datetime
from http import HTTPStatus

from starlette.responses import Response

from poe.client.group.queue_core import DELAY_MAX_S
from poe.client.producer import payload
from poe.client.producer.partitioner import Partitioner, partitioner
from poe.client.producer.payload import Messages
from poe.client.producer.poe_transport import shape_of
from poe.client.producer.producer_options import ProducerOptions
from poe.errors import RequestRefused
from poe.gateway.http.body import shown
from poe.gateway.http.brokers import Brokers
from poe.gateway.http.options import GatewayOptions
from poe.gateway.http.refusal import refuse
from poe.gateway.http.reply import json_reply
from poe.protocol import DescribedTopic
from poe.protocol.control import CONTROL_COUNT_MAX, CONTROL_SIZE_MAX
from poe.protocol.envelope import encode_all
from poe.record import POINTER_MAX

DELAY, AT = b"delay_s", b"at"

_PART_BYTES = CONTROL_SIZE_MAX - 1024
"""Of the messages of one request; the rest is for the name of the topic."""
_HEAD_BYTES = 5
"""What a message takes in a request, besides itself."""
_TOPICS_MAX = 10_000
"""Of so many topics it is known which partition is next; then all begin anew."""


def due_of(parameters: Mapping[bytes, bytes], now_us: int) -> int | None:
    """Return when messages are due, in microseconds since the epoch; None: now.

    Raises:
        RequestRefused: that is told in other than one way, or is no time.
    """
    if DELAY in parameters and AT in parameters:
        refuse("there are both of delay_s and at; give one")
    if DELAY in parameters:
        return now_us + round(_delay_s(parameters[DELAY]) * 1e6)
    return _at_us(parameters[AT]) if AT in parameters else None


def parts_for_later(messages: Sequence[bytes]) -> list[list[bytes]]:
    """Return messages in parts, in each as many as a broker takes at once for later.

    Raises:
        RequestRefused: 413, one alone is more than that.
    """
    parts: list[list[bytes]] = []
    left_bytes = 0
    for message in messages:
        size_bytes = len(message) + _HEAD_BYTES
        if size_bytes > _PART_BYTES:
            most = _PART_BYTES - _HEAD_BYTES
            why = f"a message of {len(message)} bytes cannot be kept for later; send at most {most}"
            raise RequestRefused(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, why)
        if size_bytes > left_bytes or len(parts[-1]) == CONTROL_COUNT_MAX:
            parts.append([])
            left_bytes = _PART_BYTES
        parts[-1].append(message)
        left_bytes -= size_bytes
    return parts


class LaterPuts:
    """Hands messages over to a broker that keeps them until they are due."""

    def __init__(self, options: GatewayOptions, brokers: Brokers) -> None:
        self._timeout_s = options.sync_timeout_s
        self._options = ProducerOptions.load(options.producer)
        self._brokers = brokers
        self._partitioners: dict[bytes, Partitioner] = {}

    async def put(self, topic: bytes, messages: Messages, due_us: int) -> Response:
        """Tell that messages are kept; those of different keys may be on different partitions.

        Raises:
            RequestRefused: the broker is Kafka, which puts nothing later, or a message is too large
                for that.
            InvalidPayload: the topic takes no such message.
            PoeError: a refusal, or no broker answers. Some may be kept where there are several
                partitions, or the answer was lost.
        """
        if self._brokers.is_kafka:
            why = "messages for later are kept by a server of Poe; this gateway's broker is Kafka"
            raise RequestRefused(HTTPStatus.NOT_IMPLEMENTED, why)
        async with self._brokers.connection(self._timeout_s) as connection:
            found = await connection.find_topic(topic)
            shared_out = self._shared_out(topic, messages, found)
            parts = {name: parts_for_later(some) for name, some in shared_out.items()}
            for name, each_part in parts.items():
                for some in each_part:
                    await connection.control("queue_put", topic=name, due_us=due_us, messages=some)
        return json_reply({"accepted": len(messages), "due_us": due_us}, HTTPStatus.ACCEPTED)

    def _shared_out(
        self, topic: bytes, messages: Messages, found: DescribedTopic | None
    ) -> dict[bytes, Sequence[bytes]]:
        """Return the messages as they are stored, by the topics that hold the partitions."""
        own = self._options.of(topic)
        if found is not None:
            found.check({"partitions": own.partitions, "envelope": own.envelope})
        is_told = found is not None and found.is_told
        names, has_envelope = shape_of(topic, found if is_told else None, self._options)
        messages = payload.parse(messages, empty=has_envelope)
        stored = encode_all(messages) if has_envelope else [_value(each) for each in messages]
        if topic not in self._partitioners:
            if len(self._partitioners) >= _TOPICS_MAX:
                self._partitioners.clear()
            self._partitioners[topic] = partitioner(topic, own)
        chosen, numbers = self._partitioners[topic], range(len(names))
        if not payload.is_keyed(messages):
            return {names[chosen.pick(None, numbers, len(messages))]: stored}
        split = chosen.split(messages, numbers)
        for error in split.failed.values():
            raise error
        return {
            names[number]: [stored[place] for place in places]
            for number, places in split.places.items()
        }


def _value(message: bytes | payload.Message) -> bytes:
    return message if isinstance(message, bytes) else message.value or b""


def _delay_s(text: bytes) -> float:
    try:
        delay_s = float(text)
    except ValueError:
        delay_s = math.nan
    if not 0 <= delay_s <= DELAY_MAX_S:
        refuse(f"delay_s is {shown(text)}; give 0 to {DELAY_MAX_S} (seconds)")
    return delay_s


def _at_us(text: bytes) -> int:
    try:
        moment = datetime.fromisoformat(text.decode())
    except ValueError:
        moment = None
    if moment is None or moment.tzinfo is None:
        example = "2026-07-01T12:00:00Z, or 2026-07-01T12:00:00%2B02:00"
        refuse(f"at is {shown(text)}; give a time with its zone, as in {example}")
    due_us = round(moment.timestamp() * 1e6)
    if not 0 <= due_us <= POINTER_MAX:
        refuse(f"at is {shown(text)}; give a time from 1970 to 4253")
    return due_us
