"""What the node that a gateway asks tells of its replicated topics, for Prometheus: `poe_log_…`.

All of it is of that one node, whose name is a label, as in `cluster_metrics.py`.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any, Final

from prometheus_client import Metric
from prometheus_client.registry import Collector

from poe.gateway.http.node_families import NodeFamilies, by_name

_STATES: Final = ("following", "stalled", "fetching", "cut off", "busy", "refused")


class LogMetrics(Collector):
    """Metrics of replicated topics, as told at one moment."""

    def __init__(self, node: str, told: Mapping[str, Any]) -> None:
        """Take the name of the node, and what the op `cluster_logs` has answered."""
        self._families = NodeFamilies("poe_log_", node)
        self._told = told

    def collect(self) -> Iterator[Metric]:
        """Yield all of them."""
        engine, copies = self._told["engine"], self._told["topics"]
        nodes, gauge = engine["nodes"].values(), self._families.gauge
        for name, text, number in (
            ("engine_up", "1 while the node reaches its engine.", engine["version"] != ""),
            ("engine_has_leader", "1 while a majority of engines agrees.", engine["leader"] != ""),
            ("engine_nodes", "Nodes whose engines belong together.", len(nodes)),
            ("engine_nodes_reached", "Those of them that are reached.", sum(nodes)),
            ("engine_bytes", "What the engine has on the disk of the node.", engine["bytes"]),
        ):
            yield gauge(name, text, "", {"": int(number)})
        states = Counter(dict.fromkeys(_STATES, 0))
        states.update(each["state"] for each in copies.values())
        states["refused"] += len(self._told["refused"])
        text = "Partitions of replicated topics, by how the copy of the node is."
        yield gauge("copies", text, "state", states)
        text = "Puts that wait until a majority has them."
        yield gauge("puts_waiting", text, "topic", self._by_partition("waiting"))
        text = "Entries that were stored in the copy of the node."
        yield self._families.counter("entries_stored", text, "topic", self._by_partition("applied"))

    def _by_partition(self, key: str) -> dict[str, int]:
        return by_name({topic: int(each[key]) for topic, each in self._told["topics"].items()})
