"""Metrics for OpenTelemetry, through the meter provider of the process.

Names and attributes are those of its conventions for messaging where there are such, as
`messaging.client.sent.messages` and `messaging.client.operation.duration`; else `poe.producer.…`.

Needs the extra `metrics`, which is the API alone; an application that exports brings the SDK and
sets the provider before it makes a producer. Loaded only when it is asked for.
"""

from collections.abc import Mapping
from typing import Final

from opentelemetry.metrics import MeterProvider, get_meter_provider

from poe.client.metrics.metrics import BUCKETS_S, COUNTERS, GAUGES, HISTOGRAMS, Labels
from poe.version import VERSION

_PREFIX = "poe.producer."
_NAMES: Final = {
    "messages_sent": "messaging.client.sent.messages",
    "delivery_seconds": "messaging.client.operation.duration",
}
"""Those that the conventions name; what they measure is the same."""
_ATTRIBUTES: Final = {
    "client_id": "messaging.client.id",
    "topic": "messaging.destination.name",
    "partition": "messaging.destination.partition.id",
    "broker": "server.address",
}
_ALWAYS: Final = {"messaging.system": "poe", "messaging.operation.name": "send"}


class OpenTelemetrySink:
    """Adds to the instruments of a meter; attributes are the labels that say something."""

    def __init__(self, provider: MeterProvider) -> None:
        meter = provider.get_meter("poe.client", VERSION)
        self._counters = {
            name: meter.create_counter(_name(name), _unit(name), text)
            for name, text in COUNTERS.items()
        }
        self._gauges = {
            name: meter.create_gauge(_name(name), _unit(name), text)
            for name, text in GAUGES.items()
        }
        self._histograms = {
            name: meter.create_histogram(
                _name(name),
                unit="s",
                description=text,
                explicit_bucket_boundaries_advisory=BUCKETS_S,
            )
            for name, text in HISTOGRAMS.items()
        }

    def add(self, labels: Labels, counts: Mapping[str, int]) -> None:
        """Add to counters."""
        attributes = _attributes(labels)
        for name, count in counts.items():
            self._counters[name].add(count, attributes)

    def set(self, labels: Labels, gauge: str, value: int) -> None:
        """Set a gauge."""
        self._gauges[gauge].set(value, _attributes(labels))

    def observe(self, labels: Labels, histogram: str, value: float) -> None:
        """Record a value."""
        self._histograms[histogram].record(value, _attributes(labels))

    def close(self) -> None:
        """Leave everything as it is: the provider belongs to the application."""


def _attributes(labels: Labels) -> dict[str, str]:
    told = labels._asdict().items()
    return _ALWAYS | {_ATTRIBUTES[name]: value for name, value in told if value}


def _name(name: str) -> str:
    return _NAMES.get(name, _PREFIX + name)


def _unit(name: str) -> str:
    """Return the unit as UCUM writes it: `{message}`, `By`."""
    noun = name.partition("_")[0]
    return (
        "By" if noun == "bytes" else f"{{{noun.removesuffix('es' if noun == 'batches' else 's')}}}"
    )


def sink(name: str) -> OpenTelemetrySink:
    """Return the sink of the meter provider of the process."""
    del name
    return OpenTelemetrySink(get_meter_provider())
