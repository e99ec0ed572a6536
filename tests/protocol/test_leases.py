"""Lease requests and replies: bytes and back, and what is refused."""

import msgpack  # type: ignore[import-untyped]  # it ships no type hints
import numpy as np
import pytest

from poe.errors import LocalProtocolError, RemoteProtocolError
from poe.protocol import (
    Done,
    Failed,
    Lease,
    LeaseReply,
    LeaseRequest,
)
from poe.protocol.leases import LEASE_COUNT_MAX, LEASE_NESTED_MAX, LEASE_SIZE_MAX
from poe.protocol.messages import REQUESTS
from poe.protocol.records import join_records
from poe.record import POINTER_MAX
from tests.protocol.streams import feed, new_reader

MEMBER = bytes(range(16))
REQUEST = LeaseRequest(
    "billing",
    MEMBER,
    100,
    1 << 20,
    2.5,
    (Done(1), Done(7, ((10, 20), (30, 31)))),
    (Failed(8, 40, 41, "dead", None, "no JSON"), Failed(9, 50, 60, "retry", 1.5)),
)


def body_of(request: LeaseRequest) -> memoryview:
    return memoryview(request.encode())[6:]


def test_a_request_comes_back_as_it_was():
    assert LeaseRequest.decode(body_of(REQUEST)) == REQUEST


def test_a_request_comes_back_byte_by_byte():
    reader, scratch = new_reader()
    frames = list(feed(reader, REQUEST.encode(), 1, scratch))
    assert [REQUESTS[kind].decode(memoryview(body)) for kind, body in frames] == [REQUEST]


def test_trailing_bytes_are_refused():
    with pytest.raises(RemoteProtocolError, match="malformed"):
        LeaseRequest.decode(memoryview(bytes(body_of(REQUEST)) + b"\0"))


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("group", ""),
        ("group", b"billing"),
        ("member", b"short"),
        ("member", "x" * 16),
        ("limit", -1),
        ("limit", 1 << 32),
        ("limit", True),
        ("bytes_max", 1.5),
        ("wait_s", -1),
        ("wait_s", float("nan")),
        ("wait_s", float("inf")),
        ("done", (Done(-1),)),
        ("done", (Done(1 << 64),)),
        ("done", (Done(1, ((5, 5),)),)),
        ("done", (Done(1, ((5, POINTER_MAX + 1),)),)),
        ("failed", (Failed._make((1, 2, 3, "later", None, "")),)),
        ("failed", (Failed(1, 2, 3, "retry", -1.0),)),
        ("failed", (Failed._make((1, 2, 3, "retry", None, b"bytes")),)),
        ("done", tuple(Done(each) for each in range(LEASE_COUNT_MAX + 1))),
    ],
)
def test_what_is_out_of_range_is_refused_on_both_sides(field, value):
    fields = ("group", "member", "limit", "bytes_max", "wait_s", "done", "failed")
    values = {name: getattr(REQUEST, name) for name in fields} | {field: value}
    with pytest.raises(LocalProtocolError):
        LeaseRequest(**values).encode()
    try:
        body = msgpack.packb(tuple(values[name] for name in fields))
    except OverflowError:
        return  # nobody can send it
    with pytest.raises(RemoteProtocolError, match="malformed"):
        LeaseRequest.decode(memoryview(body))


@pytest.mark.parametrize(
    "body",
    [b"", b"\xc0", b"\x90", b"\x97" + b"\xc0" * 7, b"\xdd\xff\xff\xff\xff", b"\x97\xa1g"],
)
def test_what_is_no_request_is_refused(body):
    with pytest.raises(RemoteProtocolError, match="malformed"):
        LeaseRequest.decode(memoryview(body))


def test_a_huge_request_is_refused_before_it_is_read():
    with pytest.raises(RemoteProtocolError, match="at most"):
        LeaseRequest.decode(memoryview(bytes(LEASE_SIZE_MAX + 1)))


def test_a_request_of_more_arrays_than_an_honest_one_has_is_refused_as_they_are_read():
    def body(ranges_count):
        short = tuple((each, each + 1) for each in range(ranges_count))
        done = [(lease, short) for lease in range(LEASE_NESTED_MAX // 100)]
        return memoryview(msgpack.packb(("g", bytes(16), 0, 0, 0, done, ())))

    with pytest.raises(RemoteProtocolError, match=f"more than {LEASE_NESTED_MAX} lists"):
        LeaseRequest.decode(body(100))
    assert len(LeaseRequest.decode(body(90)).done) == LEASE_NESTED_MAX // 100


def test_a_request_of_as_many_ranges_as_it_has_room_for_is_taken():
    begin = 1_700_000_000_000_000
    ranges = tuple((begin + 2 * each, begin + 2 * each + 1) for each in range(LEASE_COUNT_MAX))
    request = REQUEST._replace(done=(Done(1, ranges), Done(2, ranges), Done(3, ranges)), failed=())
    decoded = LeaseRequest.decode(body_of(request))
    assert decoded.done == request.done


def test_a_reply_has_its_lease_and_its_records():
    records = [(7, b"one"), (9, b"three")]
    data = join_records(records)
    entries = np.array([(7 << 40), (9 << 40) + 14], ">u8")
    packed = b"".join(
        pointer.to_bytes(7) + offset.to_bytes(5)
        for pointer, offset in [(int(each) >> 40, int(each) & (1 << 40) - 1) for each in entries]
    )
    lease = Lease(5, b"jobs", 3, 9, 1, 29.5, (1, 2), "")
    frame = LeaseReply.head(lease, packed, len(data), 7) + data
    assert int.from_bytes(frame[:4]) == len(frame) - 4
    reply = LeaseReply.decode(memoryview(frame)[6:])
    assert reply.lease == lease
    assert reply.records.ordinal == 7
    assert reply.records.pointers.tolist() == [7, 9]
    assert bytes(reply.records.data) == data


def test_a_reply_without_a_lease_has_no_records():
    reply = LeaseReply.decode(memoryview(LeaseReply.head(Lease(lost=(4,)), b"", 0))[6:])
    assert reply.lease == Lease(lost=(4,))
    assert len(reply.records) == 0


@pytest.mark.parametrize("body", [b"", b"\0\0", b"\xff\xff\xff\xff", b"\0\0\0\1\xc0\0\0\0\0"])
def test_a_malformed_reply_is_refused(body):
    with pytest.raises(RemoteProtocolError):
        LeaseReply.decode(memoryview(body))


@pytest.mark.parametrize(
    ("field", "value"),
    [("id", "1"), ("id", -1), ("topic", "jobs"), ("after", None), ("last", 1.5), ("attempts", ""),
     ("left_s", "30"), ("left_s", float("nan")), ("lost", 4), ("lost", ("4",)), ("why", None)],
)  # fmt: skip
def test_a_reply_with_a_lease_that_is_none_is_refused(field, value):
    lease = Lease(5, b"jobs", 3, 9, 1, 29.5)._replace(**{field: value})
    with pytest.raises(RemoteProtocolError, match="malformed"):
        LeaseReply.decode(memoryview(LeaseReply.head(lease, b"", 0))[6:])
