"""A client of three nodes in one process that are connected by zenoh, on loopback."""

import contextlib
from typing import Any

import pytest

from poe import Node, client
from tests.cluster.api.test_any_node import GROUP, url
from tests.ports import quiet_ports
from tests.waiting import wait_until

pytest.importorskip("zenoh", reason="needs eclipse-zenoh")

pytestmark = pytest.mark.slow
Queue: Any = client.Queue


@pytest.fixture
def nodes(tmp_path):
    ports = quiet_ports(3)
    with contextlib.ExitStack() as stack:
        nodes = []
        for name, port in zip("abc", ports, strict=True):
            seeds = tuple(f"127.0.0.1:{each}" for each in ports if each != port)
            options: dict[str, Any] = {
                "cluster": "api",
                "cluster_port": port,
                "seeds": seeds,
                "node_name": name,
            }
            nodes.append(stack.enter_context(Node(dir=tmp_path / name, port=0, **options)))
        for node in nodes:
            wait_until(lambda: node.control("cluster")["live"] == 3, 20)  # noqa: B023 - at once
        yield nodes


def test_a_client_puts_and_takes_at_any_node_and_goes_on_at_the_next_one(nodes):
    a, b, c = nodes
    first = [b"%d" % number for number in range(200)]
    second = [b"late %d" % number for number in range(200)]
    with (
        Queue(url(a, b, c), "jobs", group_options=GROUP) as queue,
        Queue(url(b), "jobs", group_options=GROUP) as other,
    ):
        queue.put(first, copies=2)
        done: set[bytes] = set()
        for each in (queue, other):
            with each.get(timeout_s=10) as job:
                done.add(job.value)
        a.stop()
        queue.put(second, copies=2)
        while len(done) < len(first) + len(second):
            with queue.get(timeout_s=20) as job:
                done.add(job.value)
            if (job := other.get(timeout_s=0.01)) is not None:
                job.ack()
                done.add(job.value)
    assert done == {*first, *second}


def test_nodes_find_each_other_again_though_the_seed_of_both_is_gone(tmp_path):
    ports = quiet_ports(3)

    def start(name, port):
        options = {"cluster": "api", "cluster_port": port, "seeds": (f"127.0.0.1:{ports[0]}",)}
        return Node(dir=tmp_path / name, port=0, **options).start()

    def live(node):
        return node.control("cluster")["live"]

    a, b, c = (start(*each) for each in zip("abc", ports, strict=True))
    with contextlib.ExitStack() as stack:
        for node in (a, b, c):
            stack.callback(node.stop)
        wait_until(lambda: [live(each) for each in (a, b, c)] == [3, 3, 3], 20)
        a.stop()
        b.stop()
        c.stop()
        b, c = start("b", ports[1]), start("c", ports[2])
        stack.callback(b.stop)
        stack.callback(c.stop)
        wait_until(lambda: live(b) == live(c) == 2, 20)
