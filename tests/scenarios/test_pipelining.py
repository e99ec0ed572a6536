"""Requests may follow each other without waiting; replies come in their order."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from poe.protocol import (
    ControlReply,
    ControlRequest,
    DataReply,
    PointerRequest,
    PutReply,
    PutRequest,
)
from tests.broker.nodes import read_by_next
from tests.scenarios.clients import RawClient
from tests.scenarios.conftest import TOPIC


def test_a_thousand_puts_in_one_write_are_answered_in_order(raw):
    raw.send(b"".join(PutRequest(b"p", [b"%d" % n]).encode() for n in range(1000)))
    pointers = []
    for _ in range(1000):
        frame_type, body = raw.frame()
        assert frame_type == PutReply.MESSAGE_TYPE
        pointers.append(PutReply.decode(memoryview(body)).pointer)
    assert pointers == sorted(set(pointers))
    records = raw.read(b"p", 0, 2000)
    assert records == [(pointer, b"%d" % n) for n, pointer in enumerate(pointers)]


def test_a_thousand_requests_of_all_kinds_are_answered_in_order(raw):
    kinds = [
        PutRequest(b"p", [b"x", b"yy"]).encode(),
        PointerRequest(TOPIC, 0, 2).encode(),
        ControlRequest("topics", 5, {}).encode(),
        PointerRequest(b"unknown", 0, 2).encode(),
    ]
    expected = [
        PutReply.MESSAGE_TYPE,
        DataReply.MESSAGE_TYPE,
        ControlReply.MESSAGE_TYPE,
        DataReply.MESSAGE_TYPE,
    ]
    raw.send(b"".join(kinds) * 250)
    assert [raw.frame()[0] for _ in range(1000)] == expected * 250


def test_each_read_sees_the_put_before_it(raw):
    count = 300
    raw.send(
        b"".join(
            PutRequest(b"p", [b"%d" % n]).encode() + PointerRequest(b"p", 0, 1000).encode()
            for n in range(count)
        )
    )
    for n in range(count):
        assert raw.frame()[0] == PutReply.MESSAGE_TYPE
        frame_type, body = raw.frame()
        assert frame_type == DataReply.MESSAGE_TYPE
        assert len(DataReply.decode(memoryview(body)).records) == n + 1


@pytest.mark.slow
def test_writers_that_pipeline_do_not_hold_up_each_other(node, raw, crowd):
    others = crowd(node.address, 20)
    burst = b"".join(PutRequest(b"p", [b"x" * 100] * 10).encode() for _ in range(200))
    for other in others:
        other.send(burst)
    assert raw.read(TOPIC, 0, 10)
    for other in others:
        for _ in range(200):
            assert other.frame()[0] == PutReply.MESSAGE_TYPE
    assert node.info()[0][1][0][1].count == 20 * 200 * 10


def test_requests_of_clients_that_all_pipeline_never_mix(node):
    """More of them than one turn serves, so that unread bytes leave the buffer they share."""
    counts = range(200)

    def put_all(name):
        with RawClient(node.address) as raw:
            raw.send(b"".join(PutRequest(name, [b"%s %d" % (name, n)]).encode() for n in counts))
            for _ in counts:
                assert raw.frame()[0] == PutReply.MESSAGE_TYPE

    names = [b"topic_%d" % number for number in range(6)]
    for name in names:
        node.put(name, b"first")  # who makes a topic waits, and would be served by itself
    with ThreadPoolExecutor(len(names)) as pool:
        for done in [pool.submit(put_all, name) for name in names]:
            done.result()
    for name in names:
        stored = [message for _, message in read_by_next(node, name)]
        assert stored == [b"first", *(b"%s %d" % (name, n) for n in counts)]
