"""Metrics for Prometheus: `poe_producer_…`, in the registry that `prometheus_client` exposes.

All producers of a process share the metrics; their `client_id` tells them apart. Needs the extra
`metrics`; loaded only when it is asked for.
"""

from collections.abc import Mapping
from functools import cache

from prometheus_client import REGISTRY, CollectorRegistry, Counter, Gauge, Histogram

from poe.client.metrics.metrics import BUCKETS_S, COUNTERS, GAUGES, HISTOGRAMS, Labels

_PREFIX = "poe_producer_"


class PrometheusSink:
    """Adds to the metrics of a registry; one for each registry, see `sink_of`."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._counters = {
            name: Counter(_PREFIX + name, text, Labels._fields, registry=registry)
            for name, text in COUNTERS.items()
        }
        self._gauges = {
            name: Gauge(_PREFIX + name, text, Labels._fields, registry=registry)
            for name, text in GAUGES.items()
        }
        self._histograms = {
            name: Histogram(
                _PREFIX + name, text, Labels._fields, registry=registry, buckets=BUCKETS_S
            )
            for name, text in HISTOGRAMS.items()
        }

    def add(self, labels: Labels, counts: Mapping[str, int]) -> None:
        """Add to counters."""
        for name, count in counts.items():
            self._counters[name].labels(*labels).inc(count)

    def set(self, labels: Labels, gauge: str, value: int) -> None:
        """Set a gauge."""
        self._gauges[gauge].labels(*labels).set(value)

    def observe(self, labels: Labels, histogram: str, value: float) -> None:
        """Put a value into its bucket."""
        self._histograms[histogram].labels(*labels).observe(value)

    def close(self) -> None:
        """Leave everything as it is: the registry may be read later, and has other producers."""


@cache
def sink_of(registry: CollectorRegistry) -> PrometheusSink:
    """Return the sink of a registry, which refuses to hold the same metrics twice."""
    return PrometheusSink(registry)


def sink(name: str) -> PrometheusSink:
    """Return the sink of the registry of the process."""
    del name
    return sink_of(REGISTRY)
