"""Families of metrics that are all of one node, as Prometheus reads them."""

from collections.abc import Mapping
from typing import Final

from prometheus_client import Metric
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

from poe.gateway.http.group_fields import name_text

SHOWN_MAX: Final = 100
"""The first ones by name; the others are told together."""
OTHERS: Final = "(others)"
"""No name of a queue or a topic: parentheses are escaped in those."""


class NodeFamilies:
    """Makes the families of one node, whose name is a label of all of them."""

    def __init__(self, prefix: str, node: str) -> None:
        self._prefix = prefix
        self._node = node

    def gauge(self, name: str, text: str, label: str, values: Mapping[str, int]) -> Metric:
        """Return a gauge with the values of another label; of an empty one there is one value."""
        return self._filled(GaugeMetricFamily, name, text, label, values)

    def counter(self, name: str, text: str, label: str, values: Mapping[str, int]) -> Metric:
        """Return a counter, otherwise as `gauge`."""
        return self._filled(CounterMetricFamily, name, text, label, values)

    def _filled(
        self,
        kind: type[GaugeMetricFamily | CounterMetricFamily],
        name: str,
        text: str,
        label: str,
        values: Mapping[str, int],
    ) -> Metric:
        family = kind(self._prefix + name, text, labels=["node", label] if label else ["node"])
        for value, number in values.items():
            family.add_metric([self._node, value] if label else [self._node], number)
        return family


def by_name(values: Mapping[bytes, int]) -> dict[str, int]:
    """Return values by name, as labels: of the first ones, and of the others together."""
    rows = sorted(values.items())
    shown, others = rows[:SHOWN_MAX], rows[SHOWN_MAX:]
    found = {name_text(name): number for name, number in shown}
    return found | ({OTHERS: sum(number for _, number in others)} if others else {})
