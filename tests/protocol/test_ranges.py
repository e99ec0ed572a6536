"""Range requests, and replies whose entries are compared with the records that they name."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from poe.errors import (
    CorruptRecord,
    LocalProtocolError,
    PointerOutOfRange,
    RemoteProtocolError,
)
from poe.protocol import (
    FrameReader,
    IndexedReply,
    RangeRequest,
    decode_reply,
    decode_request,
)
from poe.protocol.arguments import LIMIT_MAX
from poe.protocol.frame_memory import SCRATCH_BYTES
from poe.protocol.records import join_records
from poe.record import POINTER_MAX
from tests.protocol.streams import body_of, feed, new_reader, records_of, scramble, whole_frame

# Written by hand from the table of formats.
POINTER = 0x04D5D1F6A1B2C3
REQUEST = b"\0\0\0\x1d\0\x05\x04\xd5\xd1\xf6\xa1\xb2\xc3\0\0\0\0\0\0\x07\0\0\0\x64\0\0\x01\0topic"
ENTRIES = b"\0\0\0\0\0\0\x01\x01\0\0\0\x05\0\0\0\0\0\0\x03\x01\0\0\0\x11"
RECORDS = b"\0\0\0\x08\0\0\0\0\0\0\x01a\0\0\0\x09\0\0\0\0\0\0\x03bc"
ORDINAL = b"\0\0\0\1\0\0\0\7"
REPLY = b"\0\0\0\x3f\0\x06\0\0\0\x02" + ORDINAL + ENTRIES + RECORDS
NOTHING = b"\0\0\0\x0e\0\x06\0\0\0\0" + bytes(8)

RECORD_LISTS = st.lists(
    st.tuples(st.integers(1, 3), st.binary(min_size=1, max_size=30)), max_size=20
).map(lambda steps: [(sum(s for s, _ in steps[: n + 1]), m) for n, (_, m) in enumerate(steps)])


def entries_of(records, offset=0):
    """The entries of records that begin at an offset of their data file."""
    entries = b""
    for pointer, message in records:
        entries += pointer.to_bytes(7, "big") + offset.to_bytes(5, "big")
        offset += 11 + len(message)
    return entries


def body(entries, data):
    return memoryview((len(entries) // 12).to_bytes(4, "big") + bytes(8) + entries + data)


def decoded(entries, data):
    return records_of(IndexedReply.decode(body(entries, data)).records)


def test_a_request_is_byte_exact():
    request = RangeRequest(b"topic", POINTER, 7, 100, 256)
    assert request.encode() == REQUEST
    assert decode_request(5, body_of(REQUEST)) == request


@pytest.mark.parametrize("size", range(23))
def test_a_request_without_a_topic_is_refused(size):
    with pytest.raises(RemoteProtocolError, match="has no topic"):
        decode_request(5, memoryview(bytes(22)[:size]))


@pytest.mark.parametrize("pointer", [-1, 1 << 56])
def test_pointers_out_of_range_are_not_sent(pointer):
    for first, last in ((pointer, 1), (1, pointer)):
        with pytest.raises(PointerOutOfRange):
            RangeRequest(b"t", first, last, 1, 1).encode()


@pytest.mark.parametrize("limit", [-1, 1 << 32, "1"])
def test_limits_out_of_range_are_not_sent(limit):
    with pytest.raises(LocalProtocolError, match="limit is"):
        RangeRequest(b"t", 0, 1, limit, 1).encode()
    with pytest.raises(LocalProtocolError, match="bytes_max is"):
        RangeRequest(b"t", 0, 1, 1, limit).encode()


@given(
    st.binary(min_size=1, max_size=30),
    *[st.integers(0, POINTER_MAX)] * 2,
    *[st.integers(0, LIMIT_MAX)] * 2,
)
def test_a_request_makes_the_round_trip(topic, pointer, last, limit, bytes_max):
    request = RangeRequest(topic, pointer, last, limit, bytes_max)
    message_type, sent = whole_frame(request.encode())
    assert decode_request(message_type, memoryview(sent)) == request


def test_a_reply_is_byte_exact():
    assert IndexedReply.head(ENTRIES, len(RECORDS), (1 << 32) + 7) + RECORDS == REPLY
    assert IndexedReply.head(b"", 0) == NOTHING
    found = IndexedReply.decode(body_of(REPLY)).records
    assert found.pointers.dtype == found.starts.dtype == np.uint64
    assert records_of(found) == [(1, b"a"), (3, b"bc")]
    assert found.ordinal == (1 << 32) + 7
    assert records_of(IndexedReply.decode(body_of(NOTHING)).records) == []


def test_a_reply_received_one_byte_at_a_time_is_the_same():
    frames = feed(FrameReader(), REPLY * 2, 1)
    for _, each in frames:
        assert records_of(IndexedReply.decode(memoryview(each)).records) == [(1, b"a"), (3, b"bc")]


@pytest.mark.parametrize("size", [1, SCRATCH_BYTES - 50, SCRATCH_BYTES, SCRATCH_BYTES * 3])
def test_records_outlive_the_memory_that_their_frame_was_received_into(size):
    records = [(1, b"x" * size), (2, b"y")]
    frame = IndexedReply.head(entries_of(records), size + 23) + join_records(records)
    reader, scratch = new_reader(SCRATCH_BYTES)
    rest, found = memoryview(frame), None
    while found is None:
        room = reader.buffer()
        part = min(len(room), len(rest))
        room[:part], rest = rest[:part], rest[part:]
        reader.received(part)
        whole = reader.next_frame()
        found = None if whole is None else IndexedReply.decode(whole[1]).records
    assert reader.next_frame() is None
    scramble(scratch)
    assert records_of(found) == records


@given(RECORD_LISTS, st.integers(0, 2**40 - 1000))
def test_a_reply_makes_the_round_trip_from_any_offset(records, offset):
    assert decoded(entries_of(records, offset), join_records(records)) == records


@pytest.mark.parametrize(
    "wrong",
    [
        b"",
        b"\0\0\0",
        b"\0\0\0\0x",
        b"\0\0\0\x01",
        b"\0\0\0\x02" + ENTRIES,
        b"\0\0\0\x02" + ENTRIES[:-1],
        b"\xff\xff\xff\xff" + ENTRIES + RECORDS,
    ],
)
def test_a_reply_whose_count_does_not_fit_its_body_is_refused(wrong):
    with pytest.raises(RemoteProtocolError, match="indexed reply"):
        decode_reply(IndexedReply, 6, memoryview(wrong))


LIES = [
    ("a pointer that is not the record's", entries_of([(2, b"a"), (3, b"bc")]), RECORDS),
    ("a size that is not the record's", entries_of([(1, b"ab"), (3, b"c")]), RECORDS),
    ("an offset behind the data", entries_of([(1, b"a" * 90), (3, b"b")]), RECORDS),
    ("an offset before the first", ENTRIES[:7] + b"\0\0\0\0\x63" + ENTRIES[12:], RECORDS),
    ("a record that is no record", entries_of([(1, b"a")]), b"\0\0\0\x08\0\0\0\0\0\0\x01"),
    ("data that is shorter", ENTRIES, RECORDS[:5]),
    (
        "data that ends inside of the first",
        entries_of([(1, b"a" * 9), (3, b"b")]),
        join_records([(1, b"a" * 9)])[:-1],
    ),
    ("pages of zeros", bytes(24), bytes(25)),
]


@pytest.mark.parametrize(("entries", "data"), [lie[1:] for lie in LIES], ids=[x[0] for x in LIES])
def test_a_first_record_that_is_not_what_its_entry_says_is_told_as_damaged(entries, data):
    error = decode_reply(IndexedReply, 6, body(entries, data))
    assert isinstance(error, CorruptRecord)
    assert error.pointer is None


def test_records_before_one_that_is_not_what_its_entry_says_are_given():
    records = [(1, b"a"), (3, b"bc"), (4, b"d"), (9, b"efg")]
    data = join_records(records)
    for damaged, start in ((1, 12), (2, 25), (3, 37)):
        for byte in range(start, start + 11):
            changed = data[:byte] + bytes([data[byte] ^ 1]) + data[byte + 1 :]
            assert decoded(entries_of(records), changed) == records[:damaged]
    assert decoded(entries_of(records), data[:-1]) == records[:3]
    repeated = [*records[:2], (3, b"d")]
    assert decoded(entries_of(repeated), join_records(repeated)) == records[:2]


@given(RECORD_LISTS.filter(bool), st.data())
def test_one_changed_bit_never_changes_what_is_given_but_for_a_message(records, data):
    """A message has no hash of its own: the sums on disk tell of it."""
    sent = bytearray(body(entries_of(records), join_records(records)))
    place = data.draw(st.integers(4, len(sent) - 1))
    sent[place] ^= 1 << data.draw(st.integers(0, 7))
    reply = decode_reply(IndexedReply, 6, memoryview(sent))
    if isinstance(reply, CorruptRecord):
        return
    assert isinstance(reply, IndexedReply)
    found = records_of(reply.records)
    assert [(pointer, len(message)) for pointer, message in found] == [
        (pointer, len(message)) for pointer, message in records[: len(found)]
    ]
