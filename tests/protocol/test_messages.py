from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from poe.errors import (
    CorruptRecord,
    LocalProtocolError,
    PointerOutOfRange,
    RemoteProtocolError,
    UnknownTopic,
)
from poe.protocol import (
    ControlReply,
    ControlRequest,
    DataReply,
    ErrorReply,
    FrameReader,
    IndexedReply,
    PointerRequest,
    PutReply,
    PutRequest,
    decode_reply,
    decode_request,
    topic_bytes,
)
from poe.protocol.arguments import LIMIT_MAX
from poe.protocol.messages import REQUESTS
from poe.record import POINTER_MAX
from tests.protocol.streams import body_of, feed, whole_frame

# Written by hand from the table of formats.
POINTER_REQUEST = b"\0\0\0\x12\0\0\x04\xd5\xd1\xf6\xa1\xb2\xc3\0\0\0\x64topic"
DATA_REPLY = b"\0\0\0\x1b\0\x01\0\0\0\x08\0\0\0\0\0\0\x01a\0\0\0\x09\0\0\0\0\0\0\x02bc"
PUT_REQUEST = b"\0\0\0\x12\0\x02\0\0\0\x01t\0\0\0\x01a\0\0\0\x02bc"
PUT_REPLY = b"\0\0\0\x09\0\x03\x04\xd5\xd1\xf6\xa1\xb2\xc3"
POINTER = 0x04D5D1F6A1B2C3

FRAMES = [
    (PointerRequest(b"topic", POINTER, 100), POINTER_REQUEST),
    (DataReply([(1, b"a"), (2, b"bc")]), DATA_REPLY),
    (DataReply([]), b"\0\0\0\x02\0\x01"),
    (PutReply(POINTER), PUT_REPLY),
    (
        ControlRequest("topics", 7, {}),
        b"\0\0\0\x11\0\x10\x82\xa2op\xa6topics\xa2id\x07",
    ),
    (
        ControlRequest("wait", 300, {"topic": b"t", "pointer": 5}),
        b"\0\0\0\x23\0\x10\x84\xa2op\xa4wait\xa2id\xcd\x01\x2c\xa5topic\xc4\x01t\xa7pointer\x05",
    ),
    (
        ControlReply(7, [b"t"]),
        b"\0\0\0\x12\0\x11\x82\xa2id\x07\xa6result\x91\xc4\x01t",
    ),
    (
        ErrorReply(300, "ProtocolError", "no", None, {}),
        (
            b"\0\0\0\x31\0\x12"
            b"\x84\xa4code\xcd\x01\x2c\xa4name\xadProtocolError\xa7message\xa2no\xa6values\x80"
        ),
    ),
    (
        ErrorReply(1, "E", "no", 9, {}),
        b"\0\0\0\x27\0\x12\x85\xa4code\x01\xa4name\xa1E\xa7message\xa2no\xa6values\x80\xa2id\x09",
    ),
]
IDS = [f"{type(message).__name__}-{number}" for number, (message, _) in enumerate(FRAMES)]


def put_body(topic_length: int, rest: bytes) -> memoryview:
    return memoryview(topic_length.to_bytes(4, "big") + rest)


@pytest.mark.parametrize(("message", "data"), FRAMES, ids=IDS)
def test_frame_is_byte_exact(message, data):
    assert message.encode() == data


@pytest.mark.parametrize(("message", "data"), FRAMES, ids=IDS)
def test_frame_received_whole_is_the_message(message, data):
    kinds = REQUESTS | {
        each.MESSAGE_TYPE: each for each in (DataReply, PutReply, ControlReply, ErrorReply)
    }
    assert kinds[whole_frame(data)[0]] is type(message)
    assert type(message).decode(body_of(data)) == message


@pytest.mark.parametrize(("message", "data"), FRAMES, ids=IDS)
def test_frames_received_one_byte_at_a_time_are_the_messages(message, data):
    frames = feed(FrameReader(), data * 2, 1)
    decoded = [type(message).decode(memoryview(body)) for _, body in frames]
    assert decoded == [message, message]


@pytest.mark.parametrize(
    ("message", "data"),
    [each for each in FRAMES if not isinstance(each[0], PointerRequest | DataReply)],
    ids=[each for each in IDS if not each.startswith(("PointerRequest", "DataReply"))],
)
def test_trailing_bytes_inside_a_frame_are_refused(message, data):
    with pytest.raises(RemoteProtocolError):
        type(message).decode(memoryview(bytes(body_of(data)) + b"\0"))


def test_topic_of_a_pointer_request_is_the_rest_of_the_frame():
    body = memoryview(bytes(body_of(POINTER_REQUEST)) + b"\0")
    assert PointerRequest.decode(body).topic == b"topic\0"


def test_put_request_is_byte_exact():
    assert PutRequest(b"t", [b"a", b"bc"]).encode() == PUT_REQUEST
    decoded = PutRequest.decode(body_of(PUT_REQUEST))
    assert decoded.topic == b"t"
    assert [bytes(each) for each in decoded.messages] == [b"a", b"bc"]


def test_decoded_put_request_encodes_to_the_same_frame():
    for messages in ([b"a", b"bc"], [b"ab", b"cd"]):
        frame = PutRequest(b"t", messages).encode()
        assert PutRequest.decode(body_of(frame)).encode() == frame


def test_every_length_of_a_put_request_is_checked_one_byte_at_a_time():
    frame = PutRequest(b"topic", [b"abc", b"de"]).encode()
    body = bytes(body_of(frame))
    # Between the two messages and at the end alone is what was cut still a put request.
    for cut in set(range(len(body))) - {4 + 5 + 4 + 3}:
        with pytest.raises(RemoteProtocolError):
            PutRequest.decode(memoryview(body[:cut]))
    with pytest.raises(RemoteProtocolError):
        PutRequest.decode(memoryview(body + b"\0"))


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (memoryview(b""), "no topic"),
        (memoryview(b"\0\0\0"), "no topic"),
        (put_body(0, b"\0\0\0\x01a"), "topic of 0 bytes"),
        (put_body(6, b"topic"), "topic of 6 bytes"),
        (put_body(0xFFFFFFFF, b"topic"), "topic of 4294967295 bytes"),
        (put_body(5, b"topic"), "no message"),
        (put_body(5, b"topic\0\0\0\0"), "empty"),
    ],
)
def test_put_request_that_lies_is_refused(body, reason):
    with pytest.raises(RemoteProtocolError, match=reason):
        PutRequest.decode(body)


def test_put_request_respects_frame_max():
    frame = PutRequest(b"topic", [b"x" * 100] * 10).encode()
    assert PutRequest(b"topic", [b"x" * 100] * 10).encode(len(frame) - 4) == frame
    with pytest.raises(LocalProtocolError, match="split them"):
        PutRequest(b"topic", [b"x" * 100] * 10).encode(len(frame) - 5)


@pytest.mark.parametrize("size", range(12))
def test_pointer_request_without_a_topic_is_refused(size):
    with pytest.raises(RemoteProtocolError, match="has no topic"):
        PointerRequest.decode(memoryview(bytes(11)[:size]))


@pytest.mark.parametrize("pointer", [-1, 1 << 56, 1 << 80])
def test_pointer_out_of_range_is_not_sent(pointer):
    with pytest.raises(PointerOutOfRange):
        PointerRequest(b"t", pointer, 1).encode()


@pytest.mark.parametrize("limit", [-1, 1 << 32])
def test_limit_out_of_range_is_not_sent(limit):
    with pytest.raises(LocalProtocolError, match="limit is"):
        PointerRequest(b"t", 0, limit).encode()


def test_empty_topic_is_not_sent():
    for request in (PointerRequest(b"", 0, 1), PutRequest(b"", [b"a"])):
        with pytest.raises(LocalProtocolError, match="topic is b''"):
            request.encode()


def test_topic_is_bytes_or_text():
    assert topic_bytes("thé") == b"th\xc3\xa9"
    assert topic_bytes(b"\xff") == b"\xff"
    for wrong in ("", b"", cast("bytes", 5), cast("bytes", None), "\ud800"):
        with pytest.raises(LocalProtocolError, match="use bytes or text"):
            topic_bytes(wrong)


@given(st.binary(min_size=1), st.integers(0, POINTER_MAX), st.integers(0, LIMIT_MAX))
def test_pointer_request_round_trip(topic, pointer, limit):
    request = PointerRequest(topic, pointer, limit)
    assert decode_request(*reframed(request.encode())) == request


@given(
    st.binary(min_size=1, max_size=30),
    st.lists(st.binary(min_size=1, max_size=30), min_size=1, max_size=30),
)
def test_put_request_round_trip(topic, messages):
    request = decode_request(*reframed(PutRequest(topic, messages).encode()))
    assert isinstance(request, PutRequest)
    assert request.topic == topic
    assert [bytes(each) for each in request.messages] == messages


@given(st.integers(0, POINTER_MAX))
def test_put_reply_round_trip(pointer):
    assert PutReply.decode(body_of(PutReply(pointer).encode())) == PutReply(pointer)


@given(st.sampled_from([0, 2, 4, 5, 16]), st.binary(max_size=100))
def test_any_body_is_a_request_or_refused(message_type, body):
    try:
        request = decode_request(message_type, memoryview(body))
    except RemoteProtocolError:
        return
    again = decode_request(*reframed(request.encode()))
    assert type(again) is type(request)


@given(
    st.sampled_from([DataReply, IndexedReply, PutReply, ControlReply, ErrorReply]),
    st.binary(max_size=100),
)
def test_any_body_is_a_reply_or_refused(reply_class, body):
    try:
        reply = reply_class.decode(memoryview(body))
    except (RemoteProtocolError, CorruptRecord):
        return
    assert isinstance(reply, reply_class)


@pytest.mark.parametrize("message_type", [1, 3, 6, 15, 17, 18, 19, 0xFFFF])
def test_server_refuses_what_is_no_request(message_type):
    told = f"type {message_type} is no request.*4, 5, 7, 9, 16"
    with pytest.raises(RemoteProtocolError, match=told):
        decode_request(message_type, memoryview(b"x" * 40))


@pytest.mark.parametrize("message_type", [0, 1, 2, 4, 16, 17, 0xFFFF])
def test_client_refuses_what_is_not_the_reply_it_expects(message_type):
    with pytest.raises(RemoteProtocolError, match=f"type {message_type} came as the answer, not 3"):
        decode_reply(PutReply, message_type, body_of(PUT_REPLY))


def test_client_is_given_the_server_s_error_as_a_value():
    data = ErrorReply.from_error(UnknownTopic(b"t")).encode()
    reply = decode_reply(PutReply, 18, body_of(data))
    assert isinstance(reply, UnknownTopic)


def test_data_header_announces_bytes_that_follow_by_themselves():
    assert DataReply.header(25) == DATA_REPLY[:6]


def reframed(data: bytes) -> tuple[int, memoryview]:
    message_type, body = whole_frame(data)
    return message_type, memoryview(body)
