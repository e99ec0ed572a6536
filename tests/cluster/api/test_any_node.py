"""A client of several nodes: it asks any of them, and goes on at another one when that is gone."""

import contextlib
import time
from typing import Any

import pytest

from poe import client
from poe.client import GroupWorker
from poe.errors import NodeForgotten, QueueMismatch, TooFewNodes, UnderCopies
from tests.cluster.linked_nodes import LinkedNode
from tests.waiting import wait_until

Queue: Any = client.Queue
GROUP = {"session_s": 2, "lease_s": 3, "retry_s": 0}


@pytest.fixture
def nodes(tmp_path, links):
    """Three nodes of a cluster, which know each other."""
    nodes = [LinkedNode(links, tmp_path / name, name, port=0) for name in "abc"]
    with contextlib.ExitStack() as stack:
        for node in nodes:
            stack.enter_context(node)
        for node in nodes:
            wait_until(lambda: node.control("cluster")["live"] == 3, 5)  # noqa: B023 - at once
        yield nodes


def url(*nodes):
    return "poe://" + ",".join(f"{host}:{port}" for host, port in (each.address for each in nodes))


def crash(node):
    """End a node without a word to anybody."""
    node.system.shutdown()
    node.links.close(node.me.ref)


def end(node):
    with contextlib.suppress(Exception):
        node.stop()


def test_what_is_put_at_one_node_is_taken_at_another(nodes):
    a, b, _ = nodes
    with Queue(url(a), "jobs") as producer, Queue(url(b), "jobs") as consumer:
        producer.put([b"a", b"b"], copies=3)
        found = [consumer.get(timeout_s=5) for _ in range(2)]
        assert [job.value for job in found] == [b"a", b"b"]
        for job in found:
            job.ack()


def test_a_put_goes_on_at_the_next_node(nodes):
    a, b, c = nodes
    with Queue(url(a, b, c), "jobs") as queue:
        queue.put(b"a")
        a.stop()
        begin_s = time.monotonic()
        queue.put(b"b", copies=2)
        assert time.monotonic() - begin_s < 5
        with Queue(url(b), "jobs", group_options=GROUP) as consumer:
            got: set[bytes] = set()
            while got != {b"a", b"b"}:
                job = consumer.get(timeout_s=10)
                got.add(job.value)
                job.ack()


def test_a_pool_goes_on_at_the_next_node_and_loses_nothing(nodes):
    """Its connections go there together: a member of one node is none of another."""
    a, b, c = nodes
    done: list[bytes] = []
    messages = [b"%d" % number for number in range(40)]
    pool = GroupWorker(
        url(a, b, c), "jobs", lambda job: done.append(job.value), group_options=GROUP
    )
    with pool, Queue(url(c), "jobs") as producer:
        producer.put(messages[:20])
        wait_until(lambda: set(done) >= set(messages[:20]), 10)
        a.stop()
        producer.put(messages[20:])
        wait_until(lambda: set(done) == set(messages), 15)
        assert pool.statistics()["reconnect"] > 0
    # What was done and not yet told when the node ended may come again, once.
    assert len(done) <= len(messages) + 20


def test_a_crash_of_the_node_that_took_them_loses_no_messages(nodes):
    a, b, c = nodes
    with Queue(url(a), "jobs") as producer:
        producer.put([b"%d" % number for number in range(20)], copies=2)
    crash(a)
    with Queue(url(b, c), "jobs", group_options=GROUP) as consumer:
        got: set[bytes] = set()
        while len(got) < 20:
            job = consumer.get(timeout_s=10)
            got.add(job.value)
            job.ack()
    end(a)


def test_a_put_on_fewer_nodes_is_told_and_not_made_again(nodes, links):
    a, b, c = nodes
    with Queue(url(a, b, c), "jobs") as queue:
        queue.put(b"a")
        links.lose(a.me.ref, b.me.ref)
        links.lose(a.me.ref, c.me.ref)
        with pytest.raises(UnderCopies, match="1 of 3"):
            queue.put(b"b", copies=3, deadline_s=0.5)
        with pytest.raises(TooFewNodes, match="4 copies"):
            queue.put(b"c", copies=4)


def test_a_delayed_put_onto_a_queue_is_made_by_the_node_that_took_it(nodes):
    a, b, _ = nodes
    with Queue(url(a), "jobs") as producer, Queue(url(b), "jobs") as consumer:
        assert producer.put(b"a", delay_s=0.2) is None
        job = consumer.get(timeout_s=10)
        assert job.value == b"a"
        job.ack()


def test_a_delayed_put_has_the_copies_of_its_queue_and_no_others(nodes):
    a, _, _ = nodes
    with Queue(url(a), "jobs") as queue:
        assert queue.put(b"a", delay_s=0.1, copies=3) is None  # which makes the queue
        assert queue.put(b"b", delay_s=0.1, copies=3) is None
        with pytest.raises(QueueMismatch, match="copies"):
            queue.put(b"c", delay_s=0.1, copies=1)
        got = [queue.get(timeout_s=10) for _ in range(2)]
        assert {job.value for job in got} == {b"a", b"b"}
        for job in got:
            job.ack()
    with pytest.raises(QueueMismatch, match="copies"):
        a.control("queue_put", topic="jobs", messages=[b"d"], due_us=1, copies=2)


def test_a_node_that_is_in_the_cluster_no_more_is_left(nodes):
    a, b, c = nodes
    crash(b)
    wait_until(lambda: a.control("cluster")["live"] == 2, 5)
    a.control("cluster_forget", node="b")
    end(b)
    b.start()
    wait_until(lambda: b.control("cluster")["state"] == "fenced", 5)
    with Queue(url(b, c), "jobs") as queue:
        queue.put(b"a")
        job = queue.get(timeout_s=10)
        assert job.value == b"a"
        job.ack()
    with Queue(url(b), "jobs") as queue, pytest.raises(NodeForgotten):
        queue.put(b"a")
