"""What the node that a gateway asks tells of its cluster, for Prometheus: `poe_cluster_…`.

All of it is of that one node, whose name is a label. What it counts begins anew when it does.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, TypeAlias

from prometheus_client import Metric
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from poe.gateway.http.group_fields import name_text

SHOWN_MAX: Final = 100
"""The first ones by name; the others are told together."""
OTHERS: Final = "(others)"
"""No name of a queue or a topic: parentheses are escaped in those."""

Family: TypeAlias = GaugeMetricFamily | CounterMetricFamily

_PREFIX: Final = "poe_cluster_"
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
        self._node = told["name"]

    def collect(self) -> Iterator[Metric]:
        """Yield all of them."""
        told = self._told
        info = GaugeMetricFamily(
            f"{_PREFIX}info", "1: what the node is.", labels=["node", "cluster", "zone", "state"]
        )
        info.add_metric([self._node, told["cluster"], told["zone"], told["state"]], 1)
        yield info
        for name, (key, text) in _GAUGES.items():
            yield self._family(GaugeMetricFamily, name, text, "", {"": told[key]})
        for name, (key, text) in _QUEUE_GAUGES.items():
            yield self._family(GaugeMetricFamily, name, text, "queue", self._by_queue(key))
        yield self._family(
            GaugeMetricFamily,
            "repeats",
            "Ranges of messages in the report of duplicates.",
            "certainty",
            self._repeats(),
        )
        for name, (text, label, keys) in _COUNTERS.items():
            counts = {value: told["counts"].get(key, 0) for key, value in keys.items()}
            yield self._family(CounterMetricFamily, name, text, label, counts)
        for name, text in _FABRIC.items():
            yield self._family(
                CounterMetricFamily, f"fabric_{name}", text, "", {"": told["fabric"].get(name, 0)}
            )

    def _by_queue(self, key: str) -> dict[str, int]:
        return by_name({row["name"]: int(row[key]) for row in self._queues})

    def _repeats(self) -> dict[str, int]:
        counts = Counter(dict.fromkeys(_CERTAINTIES, 0))
        for row in self._queues:
            for group in row["groups"].values():
                counts.update(group["repeats"])
        return counts

    def _family(
        self,
        kind: type[Family],
        name: str,
        text: str,
        label: str,
        values: Mapping[str, int],
    ) -> Metric:
        return family_of(kind, _PREFIX + name, text, self._node, label, values)


def family_of(  # noqa: PLR0913, PLR0917 - what a family is made of
    kind: type[Family], name: str, text: str, node: str, label: str, values: Mapping[str, int]
) -> Metric:
    """Return a family of a node, with the values of another label, or of none."""
    family = kind(name, text, labels=["node", label] if label else ["node"])
    for value, number in values.items():
        family.add_metric([node, value] if label else [node], number)
    return family


def by_name(values: Mapping[bytes, int]) -> dict[str, int]:
    """Return values by name, as labels: of the first ones, and of the others together."""
    rows = sorted(values.items())
    shown, others = rows[:SHOWN_MAX], rows[SHOWN_MAX:]
    found = {name_text(name): number for name, number in shown}
    return found | ({OTHERS: sum(number for _, number in others)} if others else {})
