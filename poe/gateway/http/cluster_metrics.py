"""What the node that a gateway asks tells of its cluster, for Prometheus: `poe_cluster_…`.

All of it is of that one node, whose name is a label. What it counts begins anew when it does.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from prometheus_client import Metric
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from poe.gateway.http.node_families import NodeFamilies, by_name

_GAUGES: Final = {
    "nodes": ("members", "Nodes that belong to the cluster."),
    "nodes_live": ("live", "Those of them that live."),
    "queues": ("queues", "Queues that the node knows."),
    "groups": ("groups", "Groups of queues that it knows."),
}
_QUEUE_GAUGES: Final = {
    "queue_messages": ("messages", "Messages of a queue that the node holds."),
    "queue_bytes": ("bytes", "Their bytes."),
    "queue_puts_under_way": ("puts_under_way", "Puts onto it that are not answered yet."),
    "queue_lacks_copies": (
        "has_missing_copies",
        "1 while something of it is on too few nodes; of several queues, how many.",
    ),
}
_COUNTERS: Final[dict[str, tuple[str, str, dict[str, str]]]] = {
    "puts": (
        "Puts at the node, by what they were answered.",
        "result",
        {f"put {result}": result for result in ("ok", "under", "busy", "none")},
    ),
    "messages_copied_again": (
        "Messages of which copies were lost and made anew, by how well that went.",
        "result",
        {f"copied again {result}": result for result in ("ok", "under", "busy", "none")},
    ),
    "messages_put": ("Messages of puts at the node.", "", {"put": ""}),
    "messages_dropped": ("Messages dropped by a full queue.", "", {"dropped": ""}),
    "copies_refused": ("Times that there was no room to hold messages.", "", {"full": ""}),
    "writes_failed": ("Writes to the log of a queue that failed.", "", {"writes failed": ""}),
    "queue_restarts": ("Queues that were started anew.", "", {"queues restarted": ""}),
    "frames_refused": (
        "Frames of other nodes that were not taken, and why.",
        "why",
        {
            "frames refused": "malformed",
            "frames of strangers": "stranger",
            "frames of unknown queues": "unknown queue",
        },
    ),
    "claims_void": ("Times that a node did not hold what it said.", "", {"void claims": ""}),
}
_FABRIC: Final = {
    "envelopes": "Envelopes that came from other nodes.",
    "envelopes_malformed": "Those that could not be read.",
    "envelopes_dropped": "Those that came faster than they were read.",
    "frames_unsent": "Frames for nodes that were not there, or too large.",
    "reopened": "Times that the session with other nodes was opened anew.",
}
_CERTAINTIES: Final = ("certain", "again", "may")


class ClusterMetrics(Collector):
    """Metrics of a cluster, as told at one moment."""

    def __init__(self, told: Mapping[str, Any], queues: Iterable[Mapping[str, Any]]) -> None:
        """Take what the ops `cluster` and `queues` have answered."""
        self._told = told
        self._queues = list(queues)
        self._families = NodeFamilies("poe_cluster_", told["name"])

    def collect(self) -> Iterator[Metric]:
        """Yield all of them."""
        told = self._told
        node = GaugeMetricFamily(
            "poe_cluster_info", "1: what the node is.", labels=["node", "cluster", "zone", "state"]
        )
        node.add_metric([told["name"], told["cluster"], told["zone"], told["state"]], 1)
        yield node
        gauge, counter = self._families.gauge, self._families.counter
        for name, (key, text) in _GAUGES.items():
            yield gauge(name, text, "", {"": told[key]})
        for name, (key, text) in _QUEUE_GAUGES.items():
            yield gauge(name, text, "queue", self._by_queue(key))
        text = "Ranges of messages in the report of duplicates."
        yield gauge("repeats", text, "certainty", self._repeats())
        for name, (text, label, keys) in _COUNTERS.items():
            counts = {value: told["counts"].get(key, 0) for key, value in keys.items()}
            yield counter(name, text, label, counts)
        for name, text in _FABRIC.items():
            yield counter(f"fabric_{name}", text, "", {"": told["fabric"].get(name, 0)})

    def _by_queue(self, key: str) -> dict[str, int]:
        return by_name({row["name"]: int(row[key]) for row in self._queues})

    def _repeats(self) -> dict[str, int]:
        counts = Counter(dict.fromkeys(_CERTAINTIES, 0))
        for row in self._queues:
            for group in row["groups"].values():
                counts.update(group["repeats"])
        return counts
