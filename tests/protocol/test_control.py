import msgpack  # type: ignore[import-untyped]  # it ships no type hints
import pytest
from hypothesis import given
from hypothesis import strategies as st

from poe.errors import LocalProtocolError, PoeError, RemoteProtocolError
from poe.protocol import ControlReply, ControlRequest, ErrorReply, LeaseRequest
from poe.protocol.control import CONTROL_COUNT_MAX, CONTROL_NESTED_MAX, CONTROL_SIZE_MAX
from tests.protocol.streams import body_of

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(1 << 63), (1 << 64) - 1) | st.text() | st.binary(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=10,
)


def request(**fields: object) -> memoryview:
    return memoryview(msgpack.packb(fields))


@pytest.mark.slow
@given(
    st.text(min_size=1),
    st.integers(0, (1 << 64) - 1),
    st.dictionaries(st.text().filter(lambda key: key not in {"op", "id"}), VALUES, max_size=5),
)
def test_control_request_round_trip(op, request_id, arguments):
    message = ControlRequest(op, request_id, arguments)
    assert ControlRequest.decode(body_of(message.encode())) == message


@given(st.integers(0, (1 << 64) - 1), VALUES)
def test_control_reply_round_trip(request_id, result):
    message = ControlReply(request_id, result)
    assert ControlReply.decode(body_of(message.encode())) == message


def test_text_and_binary_stay_apart():
    arguments = {"topic": b"t\xff", "text": "t"}
    decoded = ControlRequest.decode(body_of(ControlRequest("x", 1, arguments).encode()))
    assert decoded.arguments == arguments


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(b"", id="nothing"),
        pytest.param(b"\xc1", id="no msgpack"),
        pytest.param(msgpack.packb([1, 2]), id="a list"),
        pytest.param(msgpack.packb("topics"), id="text"),
        pytest.param(msgpack.packb({"id": 1}), id="no op"),
        pytest.param(msgpack.packb({"op": "topics"}), id="no id"),
        pytest.param(msgpack.packb({"op": b"topics", "id": 1}), id="op is binary"),
        pytest.param(msgpack.packb({"op": "topics", "id": -1}), id="negative id"),
        pytest.param(msgpack.packb({"op": "topics", "id": True}), id="boolean id"),
        pytest.param(msgpack.packb({"op": "topics", "id": 1.0}), id="fractional id"),
        pytest.param(msgpack.packb({"op": "topics", "id": 1, b"x": 1}), id="binary key"),
        pytest.param(msgpack.packb({"op": "topics", "id": 1, 2: 1}), id="number as key"),
        pytest.param(msgpack.packb({"op": "topics", "id": 1}) + b"\0", id="trailing byte"),
        pytest.param(msgpack.packb({"op": "topics", "id": 1})[:-1], id="cut short"),
        pytest.param(b"\x83\xa2op\xa1x\xa2id\x01\xa1a\xa1\xff", id="invalid UTF-8"),
        pytest.param(b"\x83\xa2op\xa1x\xa2id\x01\xa1a\xdd\xff\xff\xff\xff", id="array bomb"),
        pytest.param(b"\xdf\xff\xff\xff\xff", id="map bomb"),
        pytest.param(b"\x83\xa2op\xa1x\xa2id\x01\xa1a\xc6\xff\xff\xff\xff", id="binary bomb"),
        pytest.param(b"\x83\xa2op\xa1x\xa2id\x01\xa1a" + b"\x91" * 60_000 + b"\0", id="nesting"),
        pytest.param(b"\x81\xa1a" * 20_000 + b"\0", id="nested maps"),
        pytest.param(msgpack.packb({"op": "x", "id": 1, "a": b"x" * CONTROL_SIZE_MAX}), id="size"),
        pytest.param(
            msgpack.packb({"op": "x", "id": 1, "a": [0] * (CONTROL_COUNT_MAX + 1)}), id="count"
        ),
        pytest.param(
            msgpack.packb({"op": "x", "id": 1, "a": [[[]] * (CONTROL_NESTED_MAX // 2)] * 2}),
            id="lists in lists",
        ),
        pytest.param(
            msgpack.packb({"op": "x", "id": 1, "a": [[{}] * (CONTROL_NESTED_MAX // 2)] * 2}),
            id="maps in lists",
        ),
    ],
)
def test_malformed_control_request_is_refused(body):
    with pytest.raises(RemoteProtocolError, match="control request"):
        ControlRequest.decode(memoryview(body))


@pytest.mark.parametrize("request_class", [ControlRequest, LeaseRequest])
@pytest.mark.parametrize("body", [b"\xc1", b"\x91" * 600, b"\x81\xc1"])
def test_bytes_that_are_no_msgpack_are_said_to_be_that(request_class, body):
    """msgpack has no words for it: the sentence ended behind the colon."""
    with pytest.raises(RemoteProtocolError, match=r": \w+"):
        request_class.decode(memoryview(body))


@pytest.mark.parametrize("kind", [list, dict.fromkeys])
def test_too_many_items_are_told_with_how_many_there_may_be(kind):
    """As of messages that are put for later: they were said to be no valid msgpack."""
    many = kind(map(str, range(CONTROL_COUNT_MAX + 1)))
    body = msgpack.packb({"op": "x", "id": 1, "a": many})
    with pytest.raises(RemoteProtocolError, match=r"more than 16384 items; send fewer at a time"):
        ControlRequest.decode(memoryview(body))


@pytest.mark.parametrize("name", ["op", "id"])
def test_argument_names_that_are_taken_are_not_sent(name):
    with pytest.raises(LocalProtocolError, match="names are taken"):
        ControlRequest("x", 1, {name: 5}).encode()


@pytest.mark.parametrize("value", [object(), 1 << 64, {1, 2}, -(1 << 64), "\ud800"])
def test_argument_that_msgpack_cannot_hold_is_not_sent(value):
    with pytest.raises(LocalProtocolError, match="cannot be sent"):
        ControlRequest("x", 1, {"a": value}).encode()


def test_argument_too_large_is_not_sent():
    with pytest.raises(LocalProtocolError, match="is refused; use at most 262144"):
        ControlRequest("x", 1, {"a": b"x" * CONTROL_SIZE_MAX}).encode()


def test_reply_may_be_longer_than_a_request():
    names = [b"topic-%d" % number for number in range(20_000)]
    assert ControlReply.decode(body_of(ControlReply(1, names).encode())).result == names


@pytest.mark.parametrize("body", [request(id=1), request(result=1), request(id="1", result=1)])
def test_malformed_control_reply_is_refused(body):
    with pytest.raises(RemoteProtocolError, match="control reply"):
        ControlReply.decode(body)


@pytest.mark.parametrize(
    "body",
    [
        request(name="E", message="m"),
        request(code="1", name="E", message="m"),
        request(code=1, message="m"),
        request(code=1, name="E"),
        request(code=1, name="E", message=b"m"),
        request(code=1, name="E", message="m", id=-1),
        request(code=1, name="E", message="m", values=[]),
    ],
)
def test_malformed_error_reply_is_refused(body):
    with pytest.raises(RemoteProtocolError, match="error reply"):
        ErrorReply.decode(body)


def test_error_reply_without_values_is_understood():
    reply = ErrorReply.decode(request(code=1, name="PoeError", message="sorry"))
    assert (reply.id, reply.values) == (None, {})
    assert type(reply.to_error()) is PoeError


def test_error_reply_with_an_empty_message_can_be_read():
    reply = ErrorReply.from_error(PoeError())
    assert ErrorReply.decode(body_of(reply.encode())).message == ""
