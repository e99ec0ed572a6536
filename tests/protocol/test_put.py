"""A put on the wire: its messages, and the number that may stand before them."""

from itertools import pairwise
from struct import pack
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import poe
from poe.errors import LocalProtocolError, RemoteProtocolError, SequenceGap
from poe.protocol import (
    FrameReader,
    LastPut,
    PutId,
    PutRequest,
    QueuePutRequest,
    SequencedPutRequest,
    decode_request,
)
from poe.protocol import put as module
from poe.protocol.frames import QUEUE_PUT_REQUEST
from poe.protocol.put import BATCH_COUNT_MAX, JoinedBatch, join_batch, split_batch
from tests.protocol.scripted_server import ScriptedServer
from tests.protocol.streams import body_of, feed, whole_frame

SIZE_MAX = 1 << 20
MESSAGES = st.lists(st.binary(min_size=1, max_size=20), min_size=1, max_size=60)
EQUAL_MESSAGES = st.integers(1, 20).flatmap(
    lambda size: st.lists(st.binary(min_size=size, max_size=size), min_size=1, max_size=60)
)


def split(data: bytes | memoryview) -> list[bytes]:
    return [bytes(message) for message in split_batch(memoryview(data))]


def entry(message: bytes, length: int | None = None) -> bytes:
    return pack(">I", len(message) if length is None else length) + message


def test_batch_is_length_and_message_of_each():
    assert join_batch([b"a", b"bcd"], SIZE_MAX) == b"\0\0\0\x01a\0\0\0\x03bcd"
    assert join_batch([b"ab", b"cd"], SIZE_MAX) == b"\0\0\0\x02ab\0\0\0\x02cd"


@given(st.one_of(MESSAGES, EQUAL_MESSAGES))
def test_split_undoes_join(messages):
    assert split(join_batch(messages, SIZE_MAX)) == messages


@given(MESSAGES)
def test_batch_that_is_joined_already_is_taken_as_it_is(messages):
    data = join_batch(messages, SIZE_MAX)
    batch = JoinedBatch(data, len(messages))
    assert join_batch(batch, SIZE_MAX) is data
    assert [bytes(message) for message in batch] == messages
    assert bytes(batch[0]) == messages[0]


def test_batch_that_is_joined_already_keeps_the_limits():
    with pytest.raises(LocalProtocolError, match="at most 4 fit"):
        join_batch(JoinedBatch(entry(b"m"), 1), 4)
    with pytest.raises(LocalProtocolError, match="use at most"):
        join_batch(JoinedBatch(entry(b"m"), BATCH_COUNT_MAX + 1), SIZE_MAX)


@given(EQUAL_MESSAGES)
def test_equal_sizes_become_rows_of_one_view(messages):
    data = join_batch(messages, SIZE_MAX)
    rows = split_batch(memoryview(data))
    assert isinstance(rows, np.ndarray)
    assert rows.shape == (len(messages), len(messages[0]))
    assert not rows.flags.owndata


@given(st.one_of(MESSAGES, EQUAL_MESSAGES))
def test_both_ways_to_split_agree(messages):
    view = memoryview(join_batch(messages, SIZE_MAX))
    assert [bytes(each) for each in module.walk_batch(view)] == split(view)


@given(st.binary(max_size=80))
def test_any_bytes_are_split_exactly_or_refused(data):
    try:
        messages = split(data)
    except RemoteProtocolError:
        return
    assert messages
    assert all(messages)
    assert b"".join(map(entry, messages)) == data


@given(MESSAGES, st.data())
def test_a_batch_cut_anywhere_but_between_messages_is_refused(messages, data):
    whole = join_batch(messages, SIZE_MAX)
    ends = [len(join_batch(messages[:count], SIZE_MAX)) for count in range(1, len(messages) + 1)]
    cut = data.draw(st.integers(0, len(whole) - 1))
    if cut in ends:
        assert split(whole[:cut]) == messages[: ends.index(cut) + 1]
    else:
        with pytest.raises(RemoteProtocolError):
            split(whole[:cut])


def test_first_length_that_divides_the_batch_is_not_believed_alone():
    # Two messages of 3 and 5 bytes: the size is twice that of a first message of 4.
    data = entry(b"abc") + entry(b"defgh")
    assert split(data) == [b"abc", b"defgh"]
    other = entry(b"abcd") + entry(b"e", 1) + b"xyz"
    with pytest.raises(RemoteProtocolError):
        split(other)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "no message"),
        (b"\0\0\0", "no message"),
        (entry(b""), "message 0 .* is empty"),
        (entry(b"") * 3, "message 0 .* is empty"),
        (entry(b"a") + entry(b""), "message 1 .* is empty"),
        (entry(b"a") + entry(b"") + entry(b"bc"), "message 1 .* is empty"),
        (entry(b"abc", 4), "add up to 8 bytes, but 7"),
        (entry(b"abc", 2), "ends with 1 bytes"),
        (entry(b"abc") + entry(b"abc", 4), "add up to 15 bytes, but 14"),
        (entry(b"abc") + entry(b"abc", 2), "ends with 1 bytes"),
        (entry(b"abc", 0xFFFFFFFF), "add up to 4294967299 bytes"),
        (entry(b"abc") + entry(b"abc", 0xFFFFFFFF), "but 14 were sent"),
        (entry(b"abc") + b"\0\0\0", "ends with 3 bytes"),
    ],
)
def test_lengths_that_lie_are_refused(data, reason):
    with pytest.raises(RemoteProtocolError, match=reason):
        split(data)


@pytest.mark.parametrize("last", [b"a", b"bb"])
def test_more_messages_than_the_limit_are_refused(monkeypatch, last):
    monkeypatch.setattr(module, "BATCH_COUNT_MAX", 4)
    three, four = [b"a"] * 3 + [last], [b"a"] * 4 + [last]
    data = b"".join(map(entry, three))
    assert split(data) == three == split(join_batch(three, SIZE_MAX))
    with pytest.raises(RemoteProtocolError, match="put request of 5 messages is refused"):
        split(b"".join(map(entry, four)))
    with pytest.raises(LocalProtocolError, match="put request of 5 messages is refused"):
        join_batch(four, SIZE_MAX)


def test_a_batch_of_the_largest_count_is_taken():
    rows = split_batch(memoryview(entry(b"a") * BATCH_COUNT_MAX))
    assert len(rows) == BATCH_COUNT_MAX


@pytest.mark.parametrize(
    ("messages", "reason"),
    [
        ([], "messages is empty"),
        (b"lone", "messages is one bytes; put it into a list"),
        ("lone", "messages is one str"),
        (bytearray(b"lone"), "messages is one bytearray"),
        ([b"a", b"", b"b"], r"messages\[1\] is empty"),
        ([b""], r"messages\[0\] is empty"),
        (["text"], r"messages\[0\] is of type str; use bytes"),
        ([b"a", "bc"], r"messages\[1\] is of type str"),
        ([1, 2], r"messages\[0\] is of type int"),
        (iter([b"a", 2]), r"messages\[1\] is of type int"),
        (7, "messages is of type int; use a list of bytes"),
        (memoryview(b""), "messages is one memoryview"),
        ([memoryview(b"abcd").cast("H")], "one-byte items"),
    ],
)
def test_what_cannot_be_joined_is_said_clearly(messages, reason):
    with pytest.raises(LocalProtocolError, match=reason):
        join_batch(messages, SIZE_MAX)


def test_batch_beyond_the_frame_says_to_split():
    assert len(join_batch([b"12345", b"1234"], 17)) == 17
    with pytest.raises(LocalProtocolError, match=r"batch of 17 bytes, at most 16 .* split"):
        join_batch([b"12345", b"1234"], 16)


def test_any_bytes_likes_and_rows_are_joined():
    rows = np.frombuffer(b"abcdef", np.uint8).reshape(3, 2)
    assert split(join_batch(rows, SIZE_MAX)) == [b"ab", b"cd", b"ef"]
    mixed = (memoryview(bytearray(b"a")), memoryview(b"bc"), b"d")
    assert split(join_batch(mixed, SIZE_MAX)) == [b"a", b"bc", b"d"]
    assert split(join_batch(iter([b"a", b"b"]), SIZE_MAX)) == [b"a", b"b"]


def test_bytes_with_gaps_between_them_are_joined():
    columns = np.frombuffer(b"abcdef", np.uint8).reshape(2, 3).T
    assert split(join_batch(columns, SIZE_MAX)) == [b"ad", b"be", b"cf"]
    mixed: list[Any] = [b"a", memoryview(b"b-c-")[::2]]
    assert split(join_batch(mixed, SIZE_MAX)) == [b"a", b"bc"]


@given(EQUAL_MESSAGES)
def test_rows_keep_the_messages_apart(messages):
    rows = split_batch(memoryview(join_batch(messages, SIZE_MAX)))
    assert all(bytes(row) == message for row, message in zip(rows, messages, strict=True))
    assert all(first.base is second.base for first, second in pairwise(rows))


# ---- sequenced puts ----

PRODUCER = bytes(range(16))
PUT_ID = PutId(PRODUCER, 1, 0x01020304)
# Written by hand from the table of formats.
FRAME = (
    b"\0\0\0\x2a\0\x04"
    + PRODUCER
    + b"\0\0\0\x01\x01\x02\x03\x04"
    + b"\0\0\0\x01t\0\0\0\x01a\0\0\0\x02bc"
)
NUMBERS = st.integers(0, 2**32 - 1)


def texts(request):
    return [bytes(message) for message in request.messages]


def test_a_sequenced_put_is_byte_exact():
    assert SequencedPutRequest(b"t", [b"a", b"bc"], PUT_ID).encode() == FRAME


def test_a_sequenced_put_is_decoded_as_a_put_with_a_number():
    request = decode_request(*reframed(FRAME))
    assert isinstance(request, SequencedPutRequest)
    assert isinstance(request, PutRequest)
    assert (request.topic, texts(request), request.put_id) == (b"t", [b"a", b"bc"], PUT_ID)


def test_sequenced_puts_received_one_byte_at_a_time_are_the_same():
    frames = list(feed(FrameReader(), FRAME * 2, 1))
    assert frames == [(4, FRAME[6:])] * 2


def test_wherever_a_sequenced_put_is_cut_or_goes_on_it_is_refused():
    body = bytes(body_of(FRAME))
    for cut in set(range(len(body))) - {24 + 4 + 1 + 5}:  # between the two messages
        with pytest.raises(RemoteProtocolError):
            SequencedPutRequest.decode(memoryview(body[:cut]))
    with pytest.raises(RemoteProtocolError):
        SequencedPutRequest.decode(memoryview(body + b"\0"))


@pytest.mark.parametrize("size", range(24))
def test_a_body_without_a_whole_number_is_refused(size):
    with pytest.raises(RemoteProtocolError, match="has no put id"):
        SequencedPutRequest.decode(memoryview(bytes(size)))


def test_a_put_without_a_number_has_none():
    assert PutRequest(b"t", [b"a"]).put_id is None
    frame = PutRequest(b"t", [b"a"]).encode()
    assert cast("PutRequest", decode_request(*reframed(frame))).put_id is None


def test_a_copy_of_a_sequenced_put_keeps_its_number():
    request = SequencedPutRequest.decode(body_of(FRAME))
    copy = request.copied()
    assert type(copy) is SequencedPutRequest
    assert (copy.put_id, texts(copy)) == (PUT_ID, texts(request))


def test_the_number_counts_for_frame_max():
    request = SequencedPutRequest(b"t", [b"a", b"bc"], PUT_ID)
    assert request.encode(len(FRAME) - 4) == FRAME
    with pytest.raises(LocalProtocolError, match="split them"):
        request.encode(len(FRAME) - 5)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("producer", b"x" * 15),
        ("producer", b"x" * 17),
        ("producer", "x" * 16),
        ("producer", None),
        ("epoch", -1),
        ("epoch", 2**32),
        ("epoch", True),
        ("sequence", -1),
        ("sequence", 2**32),
        ("sequence", 1.0),
    ],
)
def test_a_number_that_is_none_is_not_sent(field, value):
    put_id = PUT_ID._replace(**cast("Any", {field: value}))
    with pytest.raises(LocalProtocolError, match=field):
        SequencedPutRequest(b"t", [b"a"], put_id).encode()


@given(
    st.builds(PutId, st.binary(min_size=16, max_size=16), NUMBERS, NUMBERS),
    st.binary(min_size=1, max_size=30),
    st.lists(st.binary(min_size=1, max_size=30), min_size=1, max_size=30),
)
def test_sequenced_put_round_trip(put_id, topic, messages):
    frame = SequencedPutRequest(topic, messages, put_id).encode()
    request = decode_request(*reframed(frame))
    assert isinstance(request, SequencedPutRequest)
    assert (request.topic, texts(request), request.put_id) == (topic, messages, put_id)


def reframed(frame):
    message_type, body = whole_frame(frame)
    return message_type, memoryview(body)


# ---- clients ------------------------------------------------------------------------------------


def test_a_write_with_a_number_sends_one_and_returns_the_pointer():
    def script(peer):
        assert peer.receive() == (4, FRAME[6:])
        peer.send(3, b"\0\0\0\0\0\0\x07")

    with ScriptedServer(script) as server, poe.protocol.socket(port=server.port) as socket:
        assert socket.write("t", [b"a", b"bc"], put_id=PUT_ID) == 7


def test_a_gap_is_an_error_that_tells_what_was_expected():
    def script(peer):
        peer.receive()
        values = {"producer": PRODUCER, "epoch": 1, "sequence": 9, "expected": 5}
        peer.send_error(226, "SequenceGap", "no", **values)

    with (
        ScriptedServer(script) as server,
        poe.protocol.socket(port=server.port) as socket,
        pytest.raises(SequenceGap) as caught,
    ):
        socket.write("t", [b"a"], PutId(PRODUCER, 1, 9))
    assert (caught.value.sequence, caught.value.expected) == (9, 5)


@pytest.mark.parametrize(("result", "found"), [(None, None), ([1, 2, 3], LastPut(1, 2, 3))])
def test_the_last_put_is_asked_for_by_a_control_request(result, found):
    def script(peer):
        request = peer.receive_control()
        assert (request["op"], request["topic"]) == ("last_put", b"t")
        assert request["producer"] == PRODUCER
        peer.send_control(request["id"], result)

    with ScriptedServer(script) as server, poe.protocol.socket(port=server.port) as socket:
        assert socket.last_put("t", PRODUCER) == found
        with pytest.raises(LocalProtocolError, match="producer"):
            socket.last_put("t", b"short")


# ---- onto queues --------------------------------------------------------------------------------

QUEUE_PUT = QueuePutRequest(b"t", [b"a", b"bc"], 3, 2.5)
QUEUE_FRAME = (
    bytes.fromhex("000000170009 03 000009c4 00000001") + b"t"
    + bytes.fromhex("00000001") + b"a" + bytes.fromhex("00000002") + b"bc"
)  # fmt: skip


def test_a_put_onto_a_queue_says_how_many_copies_and_until_when():
    assert QUEUE_PUT.encode() == QUEUE_FRAME
    request = decode_request(QUEUE_PUT_REQUEST, memoryview(QUEUE_FRAME)[6:])
    assert isinstance(request, QueuePutRequest)
    assert (request.topic, request.copies, request.deadline_s) == (b"t", 3, 2.5)
    assert list(map(bytes, request.messages)) == [b"a", b"bc"]
    assert list(map(bytes, request.copied().messages)) == [b"a", b"bc"]
    assert request.memory_bytes > 0


@pytest.mark.parametrize("size", sorted({*range(len(QUEUE_FRAME) - 6)} - {15}))
def test_a_put_onto_a_queue_that_is_cut_is_malformed(size):
    with pytest.raises(RemoteProtocolError):
        QueuePutRequest.decode(memoryview(QUEUE_FRAME)[6 : 6 + size])


@pytest.mark.parametrize("terms", [(-1, 0.0), (256, 0.0), (1, -1.0), (1, 5e6)], ids=str)
def test_what_no_queue_can_be_asked_for_is_not_sent(terms):
    with pytest.raises(LocalProtocolError):
        QueuePutRequest(b"t", [b"a"], *terms).encode()
