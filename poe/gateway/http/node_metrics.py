"""What the node that a gateway asks has counted, for Prometheus: `poe_node_…` and `poe_topic_…`.

Topics are labels, of which there must not be any number. Strategy: the busiest get one when they
are seen first, and keep it; whoever came later is told with the others, together. A topic never
goes from the one to the other: a sum would fall, and Prometheus takes that for a restart.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from prometheus_client import Metric
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from poe.gateway.http.group_fields import name_text
from poe.gateway.http.node_families import OTHERS

TOPICS_SHOWN_MAX: Final = 100
"""Topics with a label of their own."""
_US: Final = 1_000_000

_TOPIC_COUNTERS: Final = {
    "messages_in": "Messages put onto a topic.",
    "bytes_in": "Bytes of them, with their headers.",
    "messages_out": "Messages read of a topic, each time that they were.",
    "bytes_out": "Bytes of them, with their headers.",
}
_GAUGES: Final = {
    "connections": ("connections", "Clients that are connected."),
    "in_flight_bytes": ("in_flight_bytes", "Bytes of unfinished requests and replies."),
    "topics": ("topics", "Topics, and partitions of them, that are served."),
    "read_only": ("read_only_topics", "Topics that take no messages since their disk has failed."),
    "disk_free_bytes": ("disk_free_bytes", "Room on the disk of the data; none where not asked."),
    "memory_bytes": ("resident_memory_bytes", "Physical memory of the process."),
}
_COUNTERS: Final = {
    "accepted": ("connections_accepted", "Clients that have connected."),
    "syncs": ("syncs", "Syncs of segments that went well."),
    "restarts": ("restarts", "Parts of the node that were started again by their supervisors."),
    "newest_event": ("events", "Events, as `poe events` shows them."),
    "gaps": ("gaps_skipped", "Times that a read has gone on behind damage."),
    "cpu_s": ("cpu_seconds", "Processor time of the process."),
}
_Row = Mapping[str, Any]


class TopicLabels:
    """Which topics have a label of their own; lives as long as the gateway.

    Always: `named` are TOPICS_SHOWN_MAX at most; no topic is in both.
    """

    def __init__(self) -> None:
        self._started_us: int | None = None
        self._named: set[bytes] = set()
        self._others: dict[bytes, _Row] = {}
        self._gone: Counter[str] = Counter()
        self._refused: dict[bytes, Mapping[str, int]] = {}
        self._refused_gone: Counter[str] = Counter()

    def rows(self, topics: Mapping[bytes, _Row], started_us: int | None) -> dict[str, _Row]:
        """Return what is told of which label; `started_us`: of the node, which counts from zero."""
        if started_us != self._started_us:
            self._started_us = started_us
            self._others, self._gone = {}, Counter()
            self._refused, self._refused_gone = {}, Counter()
        self._named &= topics.keys()
        new = topics.keys() - self._named - self._others.keys()
        for name in sorted(new, key=lambda each: _carried(topics[each]), reverse=True):
            if len(self._named) < TOPICS_SHOWN_MAX:
                self._named.add(name)
            else:
                self._others[name] = topics[name]
        for name, old in list(self._others.items()):
            if _has_begun_anew(_counted(old), topics.get(name, {})):
                self._gone.update(_counted(old))
            if name in topics:
                self._others[name] = topics[name]
            else:
                del self._others[name]
        told: dict[str, _Row] = {name_text(name): topics[name] for name in sorted(self._named)}
        others = Counter(self._gone)
        others.update(_sums(self._others.values()))
        return {**told, OTHERS: others} if others else told

    def refused(self, topics: Mapping[bytes, _Row]) -> Counter[str]:
        """Return what was refused of all topics by the name of the error; behind `rows`."""
        for name, old in self._refused.items():
            if _has_begun_anew(old, topics[name]["refused"] if name in topics else {}):
                self._refused_gone.update(old)
        self._refused = {name: row["refused"] for name, row in topics.items() if row["refused"]}
        total = Counter(self._refused_gone)
        for each in self._refused.values():
            total.update(each)
        return total


def _has_begun_anew(old: Mapping[str, int], new: Mapping[str, Any]) -> bool:
    """Return whether a topic of which something was told is there no more, or is another one."""
    return any(new.get(name, 0) < count for name, count in old.items())


class NodeMetrics(Collector):
    """Metrics of a node, as told at one moment."""

    def __init__(self, told: Mapping[str, Any] | None, labels: TopicLabels) -> None:
        """Take what the op `counters` has answered; None where the node has not."""
        self._told = told
        self._node: Mapping[str, Any] = {} if told is None else told["node"]
        self._rows: dict[str, _Row] = {}
        self._refused_count: Counter[str] = Counter(self._node.get("refused", {}))
        if told is not None:
            self._rows = labels.rows(told["topics"], self._node.get("started_us"))
            self._refused_count.update(labels.refused(told["topics"]))

    def collect(self) -> Iterable[Metric]:
        """Yield the metrics."""
        up = GaugeMetricFamily("poe_node_up", "1 where the node answers the gateway.")
        up.add_metric([], float(self._told is not None))
        yield up
        if self._told is None:
            return
        yield from self._of_node()
        for name, text in _TOPIC_COUNTERS.items():
            family = CounterMetricFamily(f"poe_topic_{name}", text, labels=["topic"])
            for topic, row in self._rows.items():
                family.add_metric([topic], row.get(name, 0))
            yield family
        yield self._refused()

    def _of_node(self) -> Iterator[Metric]:
        """Yield what only a node tells that the gateway administers."""
        node = self._node
        if not node:
            return
        for name, (shown, text) in _GAUGES.items():
            if node.get(name) is not None:
                yield GaugeMetricFamily(f"poe_node_{shown}", text, value=node[name])
        for name, (shown, text) in _COUNTERS.items():
            yield CounterMetricFamily(f"poe_node_{shown}", text, value=node[name])
        started = "When the node has started, in seconds since the epoch."
        start_s = node["started_us"] / _US
        yield GaugeMetricFamily("poe_node_start_time_seconds", started, value=start_s)
        text = "Time that was waited for syncs."
        yield CounterMetricFamily("poe_node_sync_seconds", text, value=node["sync_us"] / _US)

    def _refused(self) -> Metric:
        text = "Requests of clients that were refused, by the name of the error."
        family = CounterMetricFamily("poe_node_requests_refused", text, labels=["error"])
        for error, count in sorted(self._refused_count.items()):
            family.add_metric([error], count)
        return family


def _carried(row: _Row) -> int:
    return int(row["bytes_in"] + row["bytes_out"])


def _sums(rows: Iterable[_Row]) -> Counter[str]:
    total: Counter[str] = Counter()
    for row in rows:
        total.update(_counted(row))
    return total


def _counted(row: _Row) -> dict[str, int]:
    return {name: row[name] for name in _TOPIC_COUNTERS}
