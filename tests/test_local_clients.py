"""Consumers and queues in the process of their node: as through a socket, without one."""

import asyncio
import threading

import pytest

import poe
from poe import Node
from poe.client import AsyncConsumer, AsyncQueue, GroupWorker, Received
from poe.errors import (
    ConsumerClosed,
    GroupMismatch,
    NodeNotRunning,
    OptionError,
    PoeError,
    ReservedTopic,
)
from tests.waiting import wait_until

DEADLINE_S = 20


@pytest.fixture
def node(tmp_path):
    with Node(dir=tmp_path, port=None) as node:
        yield node


def fill(node, count, topic="jobs"):
    return [node.put(topic, b"%d" % number) for number in range(count)]


def texts(count):
    return [b"%d" % number for number in range(count)]


def test_a_consumer_reads_a_topic(node):
    pointers = fill(node, 3)
    with node.consumer("jobs", follow=False) as consumer:
        received = list(consumer)
    assert [each.pointer for each in received] == pointers
    assert [each.value for each in received] == texts(3)


def test_a_reply_may_be_larger_than_what_a_socket_takes_at_a_time(node):
    messages = [bytes([number]) * 3_000_000 for number in range(5)]
    node.put_many("jobs", messages)
    with node.consumer("jobs", follow=False) as consumer:
        assert [each.value for each in consumer] == messages


def test_a_member_of_a_group_goes_on_where_the_group_was(node):
    fill(node, 4)
    with node.consumer("jobs", group="billing", follow=False, batch=2) as consumer:
        assert [each.value for each in consumer.receive()] == texts(2)
    fill(node, 1)
    with node.consumer("jobs", group="billing", follow=False) as consumer:
        assert [each.value for each in consumer] == [b"2", b"3", b"0"]


def test_a_member_reads_all_partitions_of_a_topic(node):
    topic = node.create_topic("orders", partitions=2)
    for each in topic.partitions:
        fill(node, 3, each.topic)
    with node.consumer("orders", group="billing") as consumer:
        found = [consumer.receive(DEADLINE_S) for _ in topic.partitions]
    assert [[each.value for each in messages] for messages in found] == [texts(3)] * 2


def test_what_comes_while_a_consumer_waits_is_told(node):
    fill(node, 1)
    with node.consumer("jobs", follow=True) as consumer:
        assert consumer.receive(DEADLINE_S)
        timer = threading.Timer(0.05, fill, (node, 1))
        timer.start()
        assert consumer.receive(DEADLINE_S)
        timer.join()


def test_a_queue_hands_out_jobs_and_takes_some(node):
    with node.queue("jobs") as queue:
        queue.put([b"0", b"1"])
        queue.put(b"later", delay_s=0.2)
        done = []
        for _ in range(3):
            with queue.get() as job:
                done.append(job.value)
        assert done == [b"0", b"1", b"later"]
        assert queue.get(0.05) is None


def test_workers_and_asyncio_take_the_node_for_a_url(node):
    fill(node, 20)
    done = []
    with GroupWorker(node.local_server, "jobs", lambda job: done.append(job.value)) as worker:
        wait_until(lambda: len(done) == 20, DEADLINE_S)
        worker.stop()
    assert sorted(done) == sorted(texts(20))

    async def read():
        consumer = AsyncConsumer(node.local_server, "jobs", follow=False)
        async with consumer, AsyncQueue(node.local_server, "jobs", group="other") as queue:
            job = await queue.get()
            async with job:
                return [each.value async for each in consumer], job.value

    assert asyncio.run(read()) == (texts(20), b"0")


def test_errors_are_those_of_a_socket(node):
    with node.queue("poe.groups") as queue, pytest.raises(ReservedTopic):
        queue.put(b"x")
    with node.queue("jobs", group="g") as queue:
        assert queue.get(0.01) is None
        wait_until(lambda: node.control("groups"))
        with pytest.raises(GroupMismatch), node.consumer("jobs", group="g"):
            pass
    with pytest.raises(OptionError, match="batch"):
        node.consumer("jobs", batch=0)


def test_a_connection_that_ended_is_made_anew(node):
    fill(node, 2)
    with node.consumer("jobs", batch=1, follow=True) as consumer:
        assert consumer.receive(DEADLINE_S)
        for cell in list(node.system.actors.alive):
            if "LocalClient" in repr(cell.address):
                node.system.exit(cell.address, "kill")
        fill(node, 3)
        found: list[Received] = []
        while len(found) < 4:
            found += consumer.receive(DEADLINE_S)
        assert consumer.statistics().reconnect_count >= 1


def test_a_node_stops_though_a_consumer_waits(tmp_path):
    node = Node(dir=tmp_path, port=None).start()
    fill(node, 1)
    consumer = node.consumer("jobs", timeout_s=0.2, follow=True)
    found: list[object] = []

    def read():
        try:
            while True:
                found.append(consumer.receive())
        except PoeError as error:
            found.append(error)

    with consumer:
        thread = threading.Thread(target=read)
        thread.start()
        wait_until(lambda: bool(found), DEADLINE_S)
        node.stop()
        wait_until(lambda: isinstance(found[-1], PoeError), DEADLINE_S)
        thread.join()
    assert isinstance(found[-1], NodeNotRunning | ConsumerClosed)


def test_without_a_node_there_is_nothing_to_read(tmp_path):
    node = Node(dir=tmp_path, port=None)
    with pytest.raises(NodeNotRunning), node.consumer("jobs"):
        pass


def test_the_node_of_the_process_has_them_too(tmp_path):
    poe.start(dir=tmp_path, port=None)
    try:
        poe.put("jobs", b"0")
        with poe.consumer("jobs", follow=False) as consumer:
            assert [each.value for each in consumer] == [b"0"]
        with poe.queue("jobs") as queue, queue.get() as job:
            assert job.value == b"0"
    finally:
        poe.stop()
