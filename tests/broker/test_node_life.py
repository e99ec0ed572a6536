"""A node starts, stops, and leaves nothing behind; several live side by side."""

import gc
import threading
import time
from collections import Counter

import pytest

from poe import Node
from poe.errors import ActorDead, ConnectionClosed, NodeNotRunning, StoreLocked
from tests.broker.nodes import connect, descriptors, open_files, read_by_next, seconds
from tests.waiting import wait_until

TOPIC = b"t"


def test_nodes_in_one_process_know_nothing_of_each_other(serve):
    nodes = [serve() for _ in range(4)]
    for number, node in enumerate(nodes):
        node.put(TOPIC, b"%d" % number)
    nodes[0].stop()
    for number, node in enumerate(nodes[1:], 1):
        assert [message for _, message in read_by_next(node, TOPIC)] == [b"%d" % number]
        with connect(node) as client:
            assert [message for _, message in client.read(TOPIC, 0, 10)] == [b"%d" % number]


def test_a_folder_has_one_node_at_a_time(serve, tmp_path):
    node = serve(dir=tmp_path / "one")
    node.put(TOPIC, b"1")
    with pytest.raises(StoreLocked):
        Node(dir=tmp_path / "one", port=None).start()
    node.put(TOPIC, b"2")
    node.stop()
    with Node(dir=tmp_path / "one", port=None) as again:
        assert len(read_by_next(again, TOPIC)) == 2


@pytest.mark.slow
def test_fifty_starts_and_stops_leak_neither_threads_nor_descriptors(tmp_path):
    def live():
        with Node(dir=tmp_path / "data", port=0) as node:
            node.put(TOPIC, b"1")
            with connect(node) as client:
                client.write(TOPIC, [b"2"])
                assert client.read(TOPIC, 0, 1)

    live()  # the first event loop of a process opens pipes for signals, which stay
    gc.collect()
    before, threads = Counter(descriptors()), set(threading.enumerate())
    for _ in range(50):
        live()
        assert open_files(tmp_path / "data") == []
    gc.collect()
    # Fewer there may be: what tests before this one have left ends at some time.
    assert not Counter(descriptors()) - before
    new = [each.name for each in set(threading.enumerate()) - threads]
    # Those for the disk belong to the process, which needs one more where it is held up.
    assert [name for name in new if name != "poe-disk"] == []


def test_a_stopped_node_refuses_calls_and_starts_again(serve):
    node = serve()
    pointer = node.put(TOPIC, b"1")
    node.stop()
    node.stop()
    for call in (
        lambda: node.put(TOPIC, b"2"),
        lambda: node.next(TOPIC, 0),
        node.topics,
        node.status,
    ):
        with pytest.raises(NodeNotRunning):
            call()
    node.start()
    assert node.next(TOPIC, 0) == (pointer, b"1")


def test_a_node_stops_while_clients_wait_for_news(serve):
    node = serve()
    node.put(TOPIC, b"1")
    outcome: list[object] = []

    def wait():
        with connect(node, 30) as client:
            try:
                outcome.append(client.wait(TOPIC, 2**56 - 1, 30))
            except ConnectionClosed as error:
                outcome.append(error)

    threads = [threading.Thread(target=wait) for _ in range(5)]
    for thread in threads:
        thread.start()
    wait_until(lambda: waiting_count(node) == 5)
    assert seconds(node.stop) < 10  # of 30
    for thread in threads:
        thread.join(20)
        assert not thread.is_alive()
    assert len(outcome) == 5


def waiting_count(node):
    writer = dict(node.status())[TOPIC][-1][0]
    return len(node.system.get_state(writer)["_waiting"])


def test_a_thread_that_waits_does_not_hold_up_others(serve):
    node = serve()
    node.put(TOPIC, b"1")
    answers = []

    def wait():
        try:
            answers.append(node.control("wait", topic=TOPIC, pointer=2**56 - 1, timeout_s=30))
        except ActorDead as error:
            answers.append(error)

    waiting = threading.Thread(target=wait)
    waiting.start()
    wait_until(lambda: waiting_count(node) == 1)
    start_s = time.monotonic()
    node.put(b"new", b"1")
    assert node.topics() == [b"new", TOPIC]
    node.sync()
    assert time.monotonic() - start_s < 10  # of 30
    node.stop()
    waiting.join(20)
    assert answers


@pytest.mark.slow
def test_puts_that_were_acknowledged_while_the_node_stopped_are_there(serve):
    node = serve()
    acknowledged: list[list[tuple[int, bytes]]] = [[] for _ in range(4)]

    def put(writer):
        number = 0
        try:
            with connect(node) as client:
                while True:
                    message = b"%d %d" % (writer, number)
                    pointer = (
                        client.write(TOPIC, [message]) if writer % 2 else node.put(TOPIC, message)
                    )
                    acknowledged[writer].append((pointer, message))
                    number += 1
        except (ConnectionClosed, NodeNotRunning, ActorDead):
            pass

    threads = [threading.Thread(target=put, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    wait_until(lambda: all(len(records) > 200 for records in acknowledged), 60)
    node.stop()
    for thread in threads:
        thread.join(20)
        assert not thread.is_alive()
    assert not list(node.config.dir.glob("topics/*/*_lock"))
    node.start()
    stored = read_by_next(node, TOPIC)
    assert set(stored) >= {record for records in acknowledged for record in records}
    assert len({message for _, message in stored}) == len(stored)
