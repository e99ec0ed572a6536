"""What the metrics of a gateway tell of the cluster of its node."""

import contextlib

import pytest
from prometheus_client.parser import text_string_to_metric_families

from poe.gateway.http.cluster_metrics import ClusterMetrics
from poe.gateway.http.node_families import OTHERS, SHOWN_MAX
from tests.cluster.linked_nodes import LinkedNode
from tests.gateway.http.front import Front
from tests.waiting import wait_until

REPEATS = [{"certain": 2, "may": 1}, {"certain": 1}]
TOLD = {
    "cluster": "shop",
    "name": "a",
    "zone": "",
    "state": "joined",
    "members": 3,
    "live": 2,
    "queues": 1,
    "groups": 2,
    "counts": {},
    "fabric": {},
}


def samples(families):
    """What is told, by name and labels but for the node."""
    return {
        (each.name, *(value for label, value in each.labels.items() if label != "node")): each.value
        for family in families
        for each in family.samples
    }


def row(name, messages=1):
    """What a node tells of a queue."""
    return {
        "name": name,
        "messages": messages,
        "bytes": 10 * messages,
        "puts_under_way": 0,
        "has_missing_copies": messages > 1,
        "groups": {f"g{number}": {"repeats": each} for number, each in enumerate(REPEATS)},
    }


def test_queues_beyond_the_first_ones_are_told_together():
    rows = [row(b"q%03d" % number, number + 1) for number in range(SHOWN_MAX + 2)]
    found = samples(ClusterMetrics(TOLD, reversed(rows)).collect())
    queues = [key[1] for key in found if key[0] == "poe_cluster_queue_messages"]
    assert len(queues) == SHOWN_MAX + 1
    assert found["poe_cluster_queue_bytes", "q003"] == 40
    assert found["poe_cluster_queue_messages", OTHERS] == 101 + 102
    assert found["poe_cluster_queue_lacks_copies", OTHERS] == 2


def test_ranges_that_came_twice_are_told_by_how_certain_that_is():
    found = samples(ClusterMetrics(TOLD, [row(b"jobs"), row(b"mails")]).collect())
    told = {key[1]: value for key, value in found.items() if key[0] == "poe_cluster_repeats"}
    assert told == {"certain": 6, "again": 0, "may": 2}


@pytest.fixture
def nodes(tmp_path, links):
    nodes = [LinkedNode(links, tmp_path / name, name, port=0) for name in "ab"]
    with contextlib.ExitStack() as stack:
        for node in nodes:
            stack.enter_context(node)
        for node in nodes:
            wait_until(lambda: node.control("cluster")["live"] == 2, 5)  # noqa: B023 - at once
        yield nodes


def metrics(front):
    """All metrics of clusters."""
    found = samples(text_string_to_metric_families(front.http.get("/metrics").text))
    return {key: value for key, value in found.items() if key[0].startswith("poe_cluster_")}


@pytest.mark.slow
def test_a_gateway_tells_of_the_cluster_of_its_node(nodes, links):
    a, b = nodes
    with Front(a) as front:
        for _ in range(2):
            front.http.post("/queues/jobs", content=b"work", params={"copies": 2})
        links.lose(a.me.ref, b.me.ref)
        front.http.post("/queues/jobs", content=b"w", params={"copies": 2, "deadline_s": 0.3})
        found = metrics(front)
        assert found["poe_cluster_nodes",] == found["poe_cluster_nodes_live",] == 2
        assert found["poe_cluster_queue_messages", "jobs"] == 3
        assert found["poe_cluster_queue_bytes", "jobs"] > len(b"work" * 2 + b"w")
        assert found["poe_cluster_puts_total", "ok"] == 2
        assert found["poe_cluster_puts_total", "under"] == 1
        assert found["poe_cluster_puts_total", "busy"] == 0
        assert found["poe_cluster_messages_put_total",] == 3
        assert found["poe_cluster_info", "test", "joined", a.me.zone] == 1


@pytest.mark.slow
def test_what_was_counted_of_a_queue_outlives_it(nodes):
    a, _ = nodes
    with Front(a) as front:
        front.http.post("/queues/jobs", content=b"work")
        before = metrics(front)
        a.control("queue_delete", topic=b"jobs")
        found = metrics(front)
        assert ("poe_cluster_queue_messages", "jobs") in before.keys() - found.keys()
        assert found["poe_cluster_puts_total", "ok"] == 1


@pytest.mark.slow
def test_metrics_tell_of_no_cluster_where_there_is_none_or_nobody_answers(shared_node, nodes):
    with Front(shared_node) as front:
        assert metrics(front) == {}
    with Front(nodes[0]) as front:
        nodes[0].stop()
        reply = front.http.get("/metrics")
        assert reply.status_code == 200
        assert "poe_cluster_" not in reply.text
