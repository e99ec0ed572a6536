"""What all that speaks to Kafka by librdkafka shares: its settings, and its errors as ours."""

import ctypes
import logging
import math
import os
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, TypeVar
from weakref import WeakSet

from confluent_kafka import KafkaError, KafkaException

from poe.errors import (
    ConfigError,
    KafkaNotReady,
    KafkaRefused,
    LocalProtocolError,
    OptionError,
    PoeError,
    UnknownTopic,
)
from poe.errors.root import shown
from poe.protocol.server import Server

Client = TypeVar("Client")

_log = logging.getLogger(__name__)

_TOPIC = re.compile(rb"[A-Za-z0-9._-]{1,249}")
_SOCKET_MIN_MS, _SOCKET_MAX_MS = 10, 300_000
_RECONNECT_MAX_MS = 3_600_000
_MESSAGE_MAX_MS = 2**31 - 1
"""librdkafka's limits; of a greater number it takes what 32 bits hold."""

_OURS = {
    "bootstrap.servers": "the url",
    "metadata.broker.list": "the url",
    "error_cb": "the callbacks of the producer",
    "on_delivery": "the deliveries that calls return",
    "delivery.report.only.error": "the deliveries that calls return",
    "transactional.id": "nothing: there are no transactions here",
    "auto.offset.reset": "option start of consumers, and on_lost",
    "enable.partition.eof": "option follow of consumers",
    "default.topic.config": "its settings beside the others",
}
"""Settings that would break what is built on them, and what to use instead."""

_NOT_READY = {
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.BROKER_NOT_AVAILABLE,
    KafkaError.NOT_ENOUGH_REPLICAS,
    KafkaError.KAFKA_STORAGE_ERROR,
    KafkaError.THROTTLING_QUOTA_EXCEEDED,
    KafkaError._QUEUE_FULL,  # noqa: SLF001 - librdkafka's own codes begin so
    KafkaError._INTR,  # noqa: SLF001 - a signal came before anything was given
}
"""Errors that pass, and after which nothing is stored."""


def tell_raised() -> None:
    """Log what a function of the user's has raised, which librdkafka has called."""
    _log.exception("a callback in option 'kafka' raised")


def open_client(
    kind: Callable[[dict[str, Any]], Client],
    servers: Sequence[Server],
    own: Mapping[str, Any],
    given: Mapping[str, Any],
) -> Client:
    """Make a producer or a consumer of librdkafka.

    Args:
        kind: its class.
        servers: brokers, or some of them.
        own: settings that `given` may replace.
        given: option `kafka`: settings by librdkafka's names.

    Raises:
        OptionError: one of `given` is not the user's to set.
        ConfigError: librdkafka refuses one; the error says which.
    """
    for name in given.keys() & _OURS.keys():
        key = f"kafka[{name!r}]"
        raise OptionError(key, given[name], _OURS[name])
    settings = {
        "bootstrap.servers": ",".join(f"{_bracketed(each.host)}:{each.port}" for each in servers),
        "logger": logging.getLogger("poe.client.kafka"),
        **own,
        **given,
    }
    try:
        return kind(settings)
    except (KafkaException, TypeError, ValueError) as error:
        reason = error.args[0].str() if isinstance(error, KafkaException) else error
        msg = f"librdkafka refuses option 'kafka': {reason}; its CONFIGURATION.md lists them all"
        raise ConfigError(msg) from error


class HoldsClient(Protocol):
    """Has a producer or consumer of librdkafka."""

    def held(self) -> object | None:
        """Return it, if there is one now."""


_holders: "WeakSet[HoldsClient]" = WeakSet()


def keep_in_forks(holder: HoldsClient) -> None:
    """Have a process that is forked from this one never let go of its copy of what is held.

    Its end would wait there for threads that only this process has, or abort the process.
    """
    _holders.add(holder)


def _keep_copies() -> None:
    for holder in _holders:
        client = holder.held()
        if client is not None:
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(client))


os.register_at_fork(after_in_child=_keep_copies)


def socket_timeout_ms(request_timeout_s: float) -> int:
    """Return option `request_timeout_s` as librdkafka takes it: rounded up, 10 ms to 5 min."""
    return max(_SOCKET_MIN_MS, _milliseconds(request_timeout_s, _SOCKET_MAX_MS))


def reconnect_ms(wait_s: float) -> int:
    """Return `reconnect_min_s` or `reconnect_max_s` as librdkafka takes it: an hour at most."""
    return _milliseconds(wait_s, _RECONNECT_MAX_MS)


def message_timeout_ms(delivery_timeout_s: float | None) -> int:
    """Return how long librdkafka tries; 0, for ever, also for more than the 24 days it counts."""
    if delivery_timeout_s is None or 1000 * delivery_timeout_s > _MESSAGE_MAX_MS:
        return 0
    return _milliseconds(delivery_timeout_s, _MESSAGE_MAX_MS)


def _milliseconds(seconds: float, most_ms: int) -> int:
    return math.ceil(min(1000 * seconds, most_ms))


def kafka_name(topic: bytes) -> str:
    """Return the name of a topic as librdkafka takes it.

    Raises:
        LocalProtocolError: Kafka has no topics of such a name.
    """
    if not _TOPIC.fullmatch(topic) or topic in {b".", b".."}:
        msg = f"topic {shown(topic)} is no name for Kafka; use 1 to 249 of A-Z a-z 0-9 . _ -"
        raise LocalProtocolError(msg)
    return topic.decode()


def error_of(topic: bytes, error: KafkaError) -> PoeError:
    """Return what an error means for a topic."""
    if error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
        return UnknownTopic(topic)
    kind = KafkaNotReady if error.code() in _NOT_READY else KafkaRefused
    reason = error.str()
    if error.code() == KafkaError.MSG_SIZE_TOO_LARGE:
        # librdkafka's own limit, 1 000 000 unless set, and the broker's are told alike.
        reason += "; a message may have message.max.bytes, of the producer's `kafka` and the topic"
    return kind(topic, error.code(), reason)


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host
