"""Metrics for OpenTelemetry: `poe.producer.…`, through the meter provider of the process.

Needs the extra `metrics`, which is the API alone; an application that exports brings the SDK and
sets the provider before it makes a producer. Loaded only when it is asked for.
"""

from collections.abc import Mapping

from opentelemetry.metrics import MeterProvider, get_meter_provider

from poe.client.metrics.metrics import BUCKETS_S, COUNTERS, GAUGES, HISTOGRAMS, Labels
from poe.version import VERSION

_PREFIX = "poe.producer."


class OpenTelemetrySink:
    """Adds to the instruments of a meter; attributes are the labels that say something."""

    def __init__(self, provider: MeterProvider) -> None:
        meter = provider.get_meter("poe.client", VERSION)
        self._counters = {
            name: meter.create_counter(_PREFIX + name, description=text)
            for name, text in COUNTERS.items()
        }
        self._gauges = {
            name: meter.create_gauge(_PREFIX + name, description=text)
            for name, text in GAUGES.items()
        }
        self._histograms = {
            name: meter.create_histogram(
                _PREFIX + name,
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
    return {name: value for name, value in labels._asdict().items() if value}


def sink(name: str) -> OpenTelemetrySink:
    """Return the sink of the meter provider of the process."""
    del name
    return OpenTelemetrySink(get_meter_provider())
