"""What a producer counts and measures, and where that goes.

It is told of batches, never of messages, so that it costs the same however small messages are. The
modules that speak to StatsD, Prometheus and OpenTelemetry are loaded when they are asked for.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Any, NamedTuple, Protocol, cast

from poe.client.producer.contained import Contained
from poe.errors import OptionError

COUNTERS: Mapping[str, str] = {
    "messages_sent": "Messages handed to a connection, those sent again among them.",
    "bytes_sent": "Bytes of them.",
    "batches_sent": "Batches of them.",
    "messages_delivered": "Messages that the broker has acknowledged.",
    "messages_failed": "Messages that were given up.",
    "messages_dropped": "Messages that fell out of the buffer of a downtime.",
    "messages_retried": "Messages that were sent again.",
}
GAUGES: Mapping[str, str] = {
    "messages_buffered": "Messages that wait in memory, or for an answer.",
    "messages_spooled": "Messages that wait on disk.",
    "workers": "Workers, each with a connection.",
}
HISTOGRAMS: Mapping[str, str] = {
    "delivery_seconds": "Time from the first send of a batch to its acknowledgement.",
}
BUCKETS_S: Sequence[float] = (
    *(0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05),
    *(0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0),
)  # fmt: skip

_ALLOWED = "statsd://host:port, prometheus, opentelemetry, or an object with the methods of Sink"


class Labels(NamedTuple):
    """What a measurement is about; an empty text where it is about all of them."""

    client_id: str
    topic: str = ""
    partition: str = ""
    broker: str = ""


class Sink(Protocol):
    """Where measurements go. Called by one thread at a time, any, with a lock held: do not wait."""

    def add(self, labels: Labels, counts: Mapping[str, int]) -> None:
        """Add to some of `COUNTERS`."""

    def set(self, labels: Labels, gauge: str, value: int) -> None:
        """Set one of `GAUGES`."""

    def observe(self, labels: Labels, histogram: str, value: float) -> None:
        """Take a value of one of `HISTOGRAMS`."""

    def close(self) -> None:
        """Let go of what it holds; the producer is closed."""


class Metrics:
    """The sinks of a producer; one thread at a time calls it. Errors of sinks are logged."""

    def __init__(
        self, client_id: str, sinks: Sequence[Sink], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._client_id = client_id
        self._sinks = sinks
        self._contained = Contained(clock)

    def add(self, topic: bytes, partition: int, broker: str, counts: Mapping[str, int]) -> None:
        """Add to some of `COUNTERS`; `broker` is empty where none is concerned."""
        labels = self._labels(topic, partition, broker)
        for sink in self._sinks:
            self._contained.call("metrics", sink.add, labels, counts)

    def delivered(self, topic: bytes, partition: int, broker: str, time_s: float) -> None:
        """Tell that a batch was acknowledged `time_s` after it was sent first."""
        labels = self._labels(topic, partition, broker)
        for sink in self._sinks:
            self._contained.call("metrics", sink.observe, labels, "delivery_seconds", time_s)

    def set(self, gauge: str, value: int, topic: bytes = b"") -> None:
        """Set one of `GAUGES`, of a topic or of the whole producer."""
        labels = Labels(self._client_id, _text(topic))
        for sink in self._sinks:
            self._contained.call("metrics", sink.set, labels, gauge, value)

    def close(self) -> None:
        """Close the sinks."""
        for sink in self._sinks:
            self._contained.call("metrics", sink.close)

    def _labels(self, topic: bytes, partition: int, broker: str) -> Labels:
        return Labels(self._client_id, _text(topic), str(partition), broker)


def sinks_of(asked: Sequence[Any]) -> list[Sink]:
    """Return the sinks that option `metrics` asks for, by name or as objects.

    Raises:
        OptionError: there is none of this name, or its package is not installed.
    """
    return [_sink(each) for each in asked]


def _sink(asked: Any) -> Sink:  # noqa: ANN401 - whatever the user has passed
    if not isinstance(asked, str):
        if all(callable(getattr(asked, name, None)) for name in ("add", "set", "observe", "close")):
            return cast(Sink, asked)
        raise OptionError("metrics", asked, _ALLOWED)
    name = asked.partition("://")[0]
    if name not in {"statsd", "prometheus", "opentelemetry"}:
        raise OptionError("metrics", asked, _ALLOWED)
    try:
        module = import_module(f"poe.client.metrics.{name}")
    except ModuleNotFoundError as error:
        allowed = f"it after `pip install '.[metrics]'` in a checkout ({error})"
        raise OptionError("metrics", asked, allowed) from error
    return cast(Sink, module.sink(asked))


def _text(topic: bytes) -> str:
    # No topic has a longer name; one that is no topic's stays a label all the same.
    return topic[:255].decode(errors="backslashreplace")
