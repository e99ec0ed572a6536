"""Values become bodies, the same with and without orjson, whatever the bytes are."""

import json

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from poe.errors import UndecodableMessage
from poe.mapping import decoding
from poe.mapping.decoding import DECODES, REFUSALS, decoder, encode_body, load_all, loader
from tests.mapping.strategies import DOCUMENTS

ORJSON = pytest.importorskip("orjson")
TEXTS = st.text(st.sampled_from('[]{}",:\\ud8aD0123456789.eE+-ntrufalse \n\té'), max_size=30)


def or_refused(load, value):
    try:
        return repr(load(value))
    except ValueError:
        return "refused"


@given(TEXTS.map(str.encode) | st.binary(max_size=30) | DOCUMENTS.map(json.dumps).map(str.encode))
@example(b'"\\ud800"')
@example(b'{"\\ud83d\\ude00": "\\\\ud800", "a": "\\udc00"}')
@example(b"[18446744073709551616, -9223372036854775809, 1e308]")
@example(b"1e999")
@example(b"NaN")
@example(b"\xef\xbb\xbf1")
@example(b"1" * 400)
@example(b"-0")
def test_json_is_read_the_same_with_and_without_orjson(value):
    assert or_refused(decoding.json_without_orjson, value) == or_refused(ORJSON.loads, value)


@pytest.mark.parametrize("load", [decoding.json_without_orjson, ORJSON.loads])
def test_what_is_nested_without_end_is_refused(load):
    with pytest.raises(ValueError, match=r"deep|depth"):
        load(b"[" * 100_000 + b"]" * 100_000)


@given(st.sampled_from(DECODES), st.none() | st.binary(max_size=20))
def test_what_loads_values_refuses_what_the_decoder_does(decode, value):
    try:
        found = repr(loader(decode)(value))
    except REFUSALS:
        if value is None:
            assert decoder(decode)(value) is None
            return
        with pytest.raises(UndecodableMessage):
            decoder(decode)(value)
    else:
        assert found == repr(decoder(decode)(value))


@given(DOCUMENTS, st.sampled_from(["json", "msgpack"]))
def test_a_body_that_was_encoded_is_decoded_to_the_same(body, decode):
    assert decoder(decode)(encode_body(decode, body)) == body


@pytest.mark.parametrize(
    ("decode", "body"), [("json", object()), ("json", "\ud800"), ("text", 1), ("bytes", "x")]
)
def test_a_body_that_cannot_be_encoded_is_refused(decode, body):
    with pytest.raises(UndecodableMessage, match=f"the message is no {decode}"):
        encode_body(decode, body)


PIECES = st.sampled_from(
    [
        b"{}",
        b'{"a":1}',
        b"{}]}",
        b'{"c":[{}',
        b"1,2",
        b"[3",
        b"4]",
        b'"',
        b'"a',
        b"",
        b" ",
        b"]",
        b"[",
    ]
)
VALUES = st.lists(
    PIECES | DOCUMENTS.map(lambda each: json.dumps(each).encode()) | st.none(), max_size=6
)


@given(VALUES)
def test_values_that_are_decoded_together_are_as_one_by_one(values):
    try:
        expected = [loader("json")(each) for each in values]
    except REFUSALS:
        with pytest.raises(REFUSALS):
            load_all("json", values)
        return
    assert repr(load_all("json", values)) == repr(expected)
