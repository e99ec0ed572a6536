"""A queue across nodes as clients meet it, at one node: what they ask, and what is refused."""

import socket
import subprocess
import sys
import time
from typing import Any

import pytest

from poe import client
from poe.client import Consumer, GroupWorker, Producer
from poe.errors import (
    GroupMismatch,
    LocalProtocolError,
    NotATopic,
    NotInCluster,
    OptionError,
    PropertyMismatch,
    PutTooLarge,
    QueueExists,
    QueueMismatch,
    RemoteProtocolError,
    ReservedTopic,
    TooFewNodes,
    TopicExists,
    UnknownGroup,
    UnknownNode,
    UnknownQueue,
    UnknownTopic,
)
from poe.protocol import LeaseRequest
from poe.testing import wait_until
from tests.broker.nodes import connect
from tests.cluster.linked_nodes import LinkedNode, Links

Queue: Any = client.Queue
AsyncQueue: Any = client.AsyncQueue
MEMBER = b"m" * 16
CLUSTER = ("cluster", "cluster_members", "cluster_forget", "cluster_report")


@pytest.fixture
def node(tmp_path):
    """A node of a cluster of one."""
    with LinkedNode(Links(), tmp_path / "data", "a", port=0, copies=1) as node:
        yield node


@pytest.fixture
def url(node):
    host, port = node.address
    return f"poe://{host}:{port}"


@pytest.fixture
def asker(node):
    with connect(node) as asker:
        yield asker


def taken(queue, count):
    """Take messages, and acknowledge them."""
    found = []
    for _ in range(count):
        with queue.get(timeout_s=5) as job:
            found.append(job.value)
    return found


# ---- what a client does --------------------------------------------------------------------------


def test_a_queue_is_made_by_its_first_put_and_is_no_topic(url, node, asker):
    with Queue(url, "jobs") as queue:
        assert queue.put(b"a") > 0
        assert taken(queue, 1) == [b"a"]
    assert node.topics() == []
    assert [row["name"] for row in asker.control("queues")] == [b"jobs"]


def test_a_queue_is_made_by_who_waits_for_it_first(url):
    with Queue(url, "jobs") as consumer, Queue(url, "jobs") as producer:
        assert consumer.get(timeout_s=0.01) is None
        producer.put([b"a", b"b"])
        assert taken(consumer, 2) == [b"a", b"b"]


def test_messages_of_any_size_come_from_memory(url):
    """Small ones by one call, large ones in several, and so for the client in the same process."""
    messages = [bytes([number]) * (1 << number) for number in range(1, 22)]
    with Queue(url, "jobs") as queue:
        queue.put(messages)
        assert taken(queue, len(messages)) == messages


def test_who_is_in_the_same_process_meets_the_same(node):
    with node.queue("jobs", group="local") as queue:
        pointer = queue.put(b"a" * 5000)
        job = queue.get(timeout_s=5)
        assert (job.pointer, job.value) == (pointer, b"a" * 5000)
        assert job.topic.startswith(b"jobs@")
        job.ack()


async def test_the_asyncio_queue_does_the_same(url):
    async with AsyncQueue(url, "jobs") as queue:
        await queue.put([b"a"], copies=1, deadline_s=2)
        async with await queue.get(timeout_s=5) as job:
            assert job.value == b"a"


def test_a_pool_works_on_a_queue(url):
    done = []
    with GroupWorker(url, "jobs", lambda job: done.append(job.value), concurrency=2):
        with Queue(url, "jobs") as queue:
            queue.put([b"a", b"b", b"c"])
        wait_until(lambda: sorted(done) == [b"a", b"b", b"c"], timeout_s=5)


def test_envelopes_are_the_clients_own(url):
    with Queue(url, "jobs", envelope=True) as queue:
        queue.put(b"a")
        job = queue.get(timeout_s=5)
        assert (job.value, job.key, job.headers) == (b"a", None, None)
        job.ack()


def test_what_failed_comes_again(url):
    with Queue(url, "jobs", group_options={"retry_s": 0}) as queue:
        queue.put(b"a")
        queue.get(timeout_s=5).nack(reason="not now")
        again = queue.get(timeout_s=5)
        assert (again.value, again.attempts) == (b"a", 1)
        again.ack()


def test_each_group_gets_all_messages(url):
    with Queue(url, "jobs", group="one") as one, Queue(url, "jobs", group="two") as two:
        one.put([b"a", b"b"])
        assert taken(one, 2) == taken(two, 2) == [b"a", b"b"]


def test_a_delayed_message_comes_later(url):
    with Queue(url, "jobs") as queue:
        begin_s = time.monotonic()
        assert queue.put(b"a", delay_s=0.2) is None
        assert taken(queue, 1) == [b"a"]
        assert time.monotonic() - begin_s >= 0.2


def test_a_put_of_who_knows_no_queues_goes_onto_the_queue(url, node, asker):
    """By a plain request, by a sequenced one, and by the embedded API."""
    with Queue(url, "jobs") as queue:
        queue.put(b"a")
        asker.write(b"jobs", [b"b"])
        with Producer(url) as producer:
            producer.produce_sync("jobs", [b"c"])
        node.put("jobs", b"d")
        node.put_many("jobs", [b"e", b"f"])
        assert taken(queue, 6) == [b"a", b"b", b"c", b"d", b"e", b"f"]


# ---- results -------------------------------------------------------------------------------------


def test_a_put_that_wants_more_nodes_than_there_are_is_refused_at_once(url):
    with Queue(url, "jobs") as queue:
        begin_s = time.monotonic()
        with pytest.raises(TooFewNodes, match="2 copies"):
            queue.put(b"a", copies=2)
        assert time.monotonic() - begin_s < 5
        assert queue.get(timeout_s=0.01) is None


@pytest.mark.parametrize(
    "terms",
    [{"copies": 0}, {"copies": 65}, {"copies": True}, {"deadline_s": -1}, {"deadline_s": 61}],
    ids=str,
)
def test_terms_that_cannot_be_are_refused_before_they_are_sent(url, terms):
    with Queue(url, "jobs") as queue, pytest.raises((OptionError, ValueError)):
        queue.put(b"a", **terms)


WRONG: list[dict[str, Any]] = [
    {"copies": 0},
    {"copies": 1.5},
    {"deadline_s": -1},
    {"messages": []},
    {"due_us": -1},
]


@pytest.mark.parametrize("wrong", WRONG, ids=str)
def test_a_server_checks_terms_too(asker, wrong):
    with pytest.raises(RemoteProtocolError):
        asker.control("queue_put", **({"topic": b"jobs", "messages": [b"a"]} | wrong))


def test_nobody_puts_onto_topics_of_the_node(asker):
    with pytest.raises(ReservedTopic):
        asker.control("queue_put", topic=b"poe.groups", messages=[b"a"])


def test_a_message_that_fits_no_envelope_between_nodes_is_refused(url):
    with Queue(url, "jobs") as queue, pytest.raises(PutTooLarge):
        queue.put(b"a" * (16 << 20))


# ---- what a queue is not -------------------------------------------------------------------------


READS = {
    "read": lambda asker: asker.read(b"jobs", 0, 1),
    "read_range": lambda asker: asker.read_range(b"jobs", 0, 100, 1, 100),
    "wait": lambda asker: asker.wait(b"jobs", 0, 1),
    "ordinal": lambda asker: asker.ordinal(b"jobs", 0),
    "pointer": lambda asker: asker.pointer_at(b"jobs", 0),
    "segments": lambda asker: asker.segments(b"jobs"),
    "span": lambda asker: asker.span(b"jobs", 0, 100, 1, 100),
    "sync": lambda asker: asker.control("sync", topic=b"jobs"),
    "trim": lambda asker: asker.trim(b"jobs", 1),
    "delete": lambda asker: asker.delete(b"jobs"),
    "create": lambda asker: asker.control("create", topic=b"jobs"),
    "topic_create": lambda asker: asker.create_topic(b"jobs", partitions=2),
    "topic_alter": lambda asker: asker.alter_topic(b"jobs", max_age=60.0),
}


@pytest.mark.parametrize("op", READS)
def test_what_topics_are_for_is_refused_and_says_what_to_use(url, asker, op):
    asker.control("queue_put", topic=b"jobs", messages=[b"a"])
    with pytest.raises(NotATopic, match=r"poe\.queue"):
        READS[op](asker)


def test_the_embedded_api_and_consumers_are_told_so(url, node, asker):
    asker.control("queue_put", topic=b"jobs", messages=[b"a"])
    with pytest.raises(NotATopic):
        node.next("jobs", 0)
    with Consumer(url, "jobs") as consumer, pytest.raises(NotATopic):
        next(iter(consumer))


def test_a_topic_of_the_node_keeps_its_name(url, node, asker):
    """A node's own topic is a queue of one node, as without a cluster."""
    node.put("jobs", b"a")
    with Queue(url, "jobs") as queue:
        queue.put(b"b")
        assert taken(queue, 2) == [b"a", b"b"]
        with pytest.raises(QueueMismatch):
            queue.put(b"c", copies=2)
    with pytest.raises(TopicExists):
        asker.control("queue_create", topic=b"jobs")
    assert asker.control("queues") == []
    assert asker.control("queue_put", topic=b"jobs", messages=[b"d"], copies=1)["copies"] == 1


def test_a_topic_of_several_partitions_keeps_its_name_too(url, node, asker):
    """Though nothing can be put onto its name itself, which has no route."""
    node.create_topic("jobs", partitions=2)
    with Queue(url, "jobs") as queue:
        queue.put([b"a"])
        assert taken(queue, 1) == [b"a"]
    with pytest.raises(TopicExists):
        asker.control("queue_create", topic=b"jobs")
    with pytest.raises(PropertyMismatch):
        asker.control("queue_put", topic=b"jobs", messages=[b"d"], copies=1)
    assert asker.control("queues") == []
    assert asker.describe("jobs").queue is None


def test_other_groups_are_as_without_a_cluster(node, url):
    node.put("orders", b"a")
    with Queue(url, "orders", group="local") as queue:
        assert taken(queue, 1) == [b"a"]
    with Queue(url, ["orders", "more"], group="several") as queue:
        assert taken(queue, 1) == [b"a"]


# ---- groups --------------------------------------------------------------------------------------


def test_groups_of_queues_are_listed_and_deleted_with_the_others(url, node, asker):
    node.put("orders", b"a")
    with Queue(url, "jobs", group="b") as first, Queue(url, "orders", group="a") as second:
        first.put(b"x")
        taken(first, 1)
        taken(second, 1)
    rows = [(row["group"], row["topics"]) for row in asker.control("groups")]
    assert rows == [("a", [b"orders"]), ("b", [b"jobs"])]
    assert asker.control("group", group="b")["name"] == "b"
    asker.control("group_delete", group="b")
    with pytest.raises(UnknownGroup):
        asker.control("group", group="b")
    with pytest.raises(UnknownGroup):
        asker.control("group_heartbeat", group="b", member=MEMBER, generation=1)


def test_a_group_of_a_queue_is_one_of_that_queue(url):
    with Queue(url, "jobs") as jobs, Queue(url, "mails") as mails:
        jobs.put(b"a")
        taken(jobs, 1)
        with pytest.raises(GroupMismatch, match="jobs"):
            mails.get(timeout_s=1)
    with pytest.raises(GroupMismatch), Consumer(url, "jobs", group="workers") as consumer:
        next(iter(consumer))


def test_a_lease_that_nobody_was_told_of_goes_to_somebody_else(node, url, asker):
    """Its member has gone while it waited; what came then it has never read."""
    with Queue(url, "jobs", group_options={"lease_s": 3600}) as queue:
        assert queue.get(timeout_s=0.01) is None
        wait_until(lambda: asker.control("groups"))
        member = {"member": MEMBER, "mode": "shared", "topics": [b"jobs"]}
        asker.control("group_join", group="workers", **member)
        gone = socket.create_connection(node.address)
        gone.sendall(LeaseRequest("workers", MEMBER, 10, 1000, 60.0).encode())
        gone.close()
        queue.close()
    asker.write(b"jobs", [b"a"])
    with Queue(url, "jobs") as queue:
        assert taken(queue, 1) == [b"a"]


# ---- to look at ----------------------------------------------------------------------------------


def test_what_a_queue_holds_can_be_looked_at_and_stays(url, asker):
    messages = [b"message %d" % number for number in range(5)]
    with Queue(url, "jobs") as queue:
        queue.put(messages)
        found = asker.control("queue_browse", topic=b"jobs", limit=2)
        assert [message for _, message in found["messages"]] == messages[:2]
        unit, last = found["unit"], found["last"]
        found = asker.control("queue_browse", topic=b"jobs", unit=unit, pointer=last)
        assert [message for _, message in found["messages"]] == messages[2:]
        told = asker.control("queue_dump", topic=b"jobs")
        assert all(message in told["records"] for message in messages)
        end = {"topic": b"jobs", "unit": unit, "pointer": told["last"]}
        assert asker.control("queue_dump", **end) == {"unit": b"", "last": 0, "records": b""}
        assert taken(queue, 5) == messages


def test_a_queue_can_be_described_made_and_deleted(asker):
    told = asker.control("queue_create", topic=b"jobs", copies=1, on_full="busy")
    assert (told["name"], told["copies"]) == (b"jobs", 1)
    assert asker.control("describe", topic=b"jobs")["queue"]["on_full"] == "busy"
    with pytest.raises(QueueExists):
        asker.control("queue_create", topic=b"jobs", copies=1)
    asker.control("queue_delete", topic=b"jobs")
    assert asker.control("queues") == []
    for op in ("queue_delete", "queue_browse", "queue_dump"):
        with pytest.raises(UnknownQueue):
            asker.control(op, topic=b"jobs")


def test_one_that_there_is_not_is_described_to_who_asks_for_a_queue(asker):
    assert asker.control("describe", topic=b"jobs", queue=True)["queue"] == {}
    with pytest.raises(UnknownTopic):
        asker.control("describe", topic=b"jobs")


def test_the_cluster_can_be_looked_at_from_any_node(asker):
    assert asker.control("cluster")["cluster"] == "test"
    assert [each["name"] for each in asker.control("cluster_members")] == ["a"]
    assert [each["name"] for each in asker.control("cluster_members", node="a")] == ["a"]
    [node] = asker.control("cluster_members")
    assert asker.control("cluster_members", node=node["id"][:4]) == [node]
    assert asker.control("cluster_members", node=node["id"][:3]) == []
    assert asker.control("cluster_members", node="b") == []
    assert asker.control("cluster_report") == []
    with pytest.raises(UnknownNode):
        asker.control("cluster_forget", node="b")


# ---- without a cluster ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    "op", [*CLUSTER, "queues", "queue_create", "queue_delete", "queue_browse", "queue_dump"]
)
def test_a_node_without_a_cluster_says_so(shared_node, op):
    with connect(shared_node) as asker, pytest.raises(NotInCluster, match="--cluster"):
        asker.control(op, topic=b"jobs")


def test_copies_need_a_cluster(shared_node):
    host, port = shared_node.address
    with Queue(f"poe://{host}:{port}", "copies") as queue:
        with pytest.raises(QueueMismatch, match="copies"):
            queue.put(b"a", copies=2)
        assert queue.put(b"a", copies=1) > 0
        with pytest.raises(LocalProtocolError):
            queue.put(b"")


@pytest.mark.slow
def test_nothing_of_clusters_is_asked_or_loaded_without_one(tmp_path):
    """Nor does a server that knows no queues refuse the clients of one that does."""
    program = f"""
import sys, poe
with poe.Node(dir={str(tmp_path)!r}, port=0) as node, node.queue("jobs") as queue:
    queue.put(b"a")
    queue.get(5).ack()
print([name for name in sys.modules if name.startswith(("zenoh", "poe.cluster."))])
"""
    run = subprocess.run(
        [sys.executable, "-c", program], check=True, capture_output=True, text=True
    )
    loaded = [name for name in run.stdout.strip("[]\n").split(", ") if name]
    assert set(loaded) <= {"'poe.cluster.options'"}
