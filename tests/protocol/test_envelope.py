"""Key and headers come back from an envelope; what is none is told, never guessed at."""

import msgpack  # type: ignore[import-untyped]  # it ships no type hints
import pytest
from hypothesis import given
from hypothesis import strategies as st

from poe.client.producer.payload import Message
from poe.errors import InvalidEnvelope
from poe.protocol.envelope import decode, encode, encode_all

KEYS = st.none() | st.binary()
HEADERS = st.none() | st.dictionaries(st.text(), st.binary(), min_size=1, max_size=3)
MESSAGES = st.builds(Message, KEYS, KEYS, HEADERS)


@given(message=MESSAGES)
def test_what_goes_in_comes_out(message):
    value, key, headers = message
    assert decode(encode(key, value, headers)) == (key, value, headers)


@given(messages=st.lists(MESSAGES, min_size=1) | st.lists(st.binary(), min_size=1))
def test_a_batch_is_encoded_as_its_messages_are(messages):
    slowly = [
        encode(None, each) if type(each) is bytes else encode(each.key, each.value, each.headers)
        for each in messages
    ]
    assert encode_all(messages) == slowly


def test_the_layout_is_fixed():
    assert encode(b"k", b"v", {"h": b"1"}).hex() == "93c4016bc4017681a168c40131"
    assert encode(None, None, {}).hex() == "93c0c0c0"


@given(message=MESSAGES, data=st.data())
def test_an_envelope_that_is_cut_is_none(message, data):
    whole = encode(message.key, message.value, message.headers)
    size = data.draw(st.integers(0, len(whole) - 1))
    with pytest.raises(InvalidEnvelope):
        decode(whole[:size])
    with pytest.raises(InvalidEnvelope):
        decode(whole + b"\0")


@given(data=st.binary())
def test_any_bytes_are_an_envelope_or_told_to_be_none(data):
    try:
        key, value, headers = decode(data)
    except InvalidEnvelope as error:
        assert "envelope=False" in str(error)  # noqa: PT017 - most bytes are none, some are
    else:
        assert {type(key), type(value)} <= {bytes, type(None)}
        assert headers is None or decode(encode(key, value, headers)).headers == (headers or None)


@pytest.mark.parametrize(
    "content",
    [
        "text",
        [b"k", b"v"],
        [b"k", b"v", None, None],
        ["k", b"v", None],
        [b"k", 7, None],
        [b"k", b"v", [b"h"]],
        [b"k", b"v", {"h": "1"}],
        [b"k", b"v", {b"h": b"1"}],
        [b"k", b"v", {"h": None}],
        {},
    ],
    ids=repr,
)
def test_msgpack_that_is_something_else_is_no_envelope(content):
    with pytest.raises(InvalidEnvelope):
        decode(msgpack.packb(content))


def test_deep_nesting_is_no_envelope():
    with pytest.raises(InvalidEnvelope):
        decode(b"\x91" * 5000)
