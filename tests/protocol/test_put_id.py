"""Sequenced puts on the wire: a number in front of what a plain put is."""

from typing import Any, cast

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
    SequencedPutRequest,
    decode_request,
)
from tests.protocol.scripted_server import ScriptedServer
from tests.protocol.streams import body_of, feed, whole_frame

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
