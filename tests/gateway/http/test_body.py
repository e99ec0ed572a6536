"""What the bodies of posts mean, and what is wrong with those that mean nothing."""

import json
from base64 import b64encode
from contextlib import suppress

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from poe.client.producer.payload import Message
from poe.errors import RequestRefused
from poe.gateway.http.body import CONTENT_TYPES, FORM, JSON, NDJSON, RAW, messages_of, query_of

COUNT_MAX = 5


def messages(content_type, body, key=None, headers=None):
    return messages_of(content_type, body, key, headers, COUNT_MAX)


def refusal(content_type, body, key=None):
    with pytest.raises(RequestRefused) as caught:
        messages(content_type, body, key)
    return caught.value.status, str(caught.value)


def records(*each):
    return json.dumps({"records": each}).encode()


@pytest.mark.parametrize(
    "body",
    [b'{"a": 1}', b" [1,2]\n", b"1", b'"text"', b"null", '"é"'.encode(), b'{"recordz": []}'],
)
def test_any_json_is_one_message_with_its_bytes_unchanged(body):
    assert messages(JSON, body) == [body]


@pytest.mark.parametrize(
    "kind",
    ["application/json; charset=utf-8", "APPLICATION/JSON", "application/cloudevents+json"],
)
def test_json_is_known_by_many_names(kind):
    assert messages(kind, b"{}") == [b"{}"]
    assert refusal(kind, b"{")[0] == 400


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"{'a': 1}",
        b"NaN",
        b"[Infinity]",
        b'"\xff"',
        b"\xef\xbb\xbf{}",
        b"{}{}",
        b"[" * 100_000,
        b"1" * 10_000,
        '{"a": 1}'.encode("utf-16"),
    ],
)
def test_what_is_no_json_is_refused(body):
    status, why = refusal(JSON, body)
    assert status == 400
    assert "the body" in why


@given(st.binary())
@example(b'{"records": [{"value": 1}]}')
def test_no_body_does_anything_but_be_taken_or_refused(body):
    refused = set()
    for kind in CONTENT_TYPES:
        try:
            found = messages(kind, body)
        except RequestRefused as error:
            found = []
            refused.add(error.status)
        assert all(isinstance(each, bytes | Message) for each in found)
    assert refused <= {400, 413}


def test_records_are_messages_with_keys_and_headers():
    body = records(
        {"value": "text"},
        {"value": {"a": [1, "é"]}, "key": "k"},
        {"value": None, "key_base64": b64encode(b"\xff").decode()},
        {
            "value_base64": b64encode(b"\x00\xff").decode(),
            "headers": {"trace": "1"},
            "headers_base64": {"raw": b64encode(b"\xfe").decode()},
        },
        {"value": 7, "key": 8, "headers": {}},
    )
    assert messages(JSON, body) == [
        Message(b"text"),
        Message('{"a":[1,"é"]}'.encode(), b"k"),
        Message(None, b"\xff"),
        Message(b"\x00\xff", None, {"trace": b"1", "raw": b"\xfe"}),
        Message(b"7", b"8"),
    ]


@pytest.mark.parametrize(
    ("record", "told"),
    [
        ("text", "records[0] is 'text'"),
        ({"value": 1, "kye": 2}, "use an object of headers"),
        ({"key": "k"}, "has no value"),
        ({"value": 1, "value_base64": "AA=="}, "both of value and value_base64"),
        ({"value": 1, "key": 1, "key_base64": "AA=="}, "both of key and key_base64"),
        ({"value_base64": "?"}, "use text in base64"),
        ({"value_base64": 5}, "use text in base64"),
        ({"value_base64": "é"}, "use text in base64"),
        ({"value": 1, "headers": []}, "headers of records[0]"),
        ({"value": 1, "headers": {"a": 1}}, "use an object of text to text"),
        ({"value": 1, "headers_base64": {"a": "?"}}, "headers_base64 of records[0]"),
        ({"value": "\ud800"}, "half of a surrogate pair, which is no text; use value_base64"),
    ],
)
def test_a_wrong_record_is_told(record, told):
    status, why = refusal(JSON, records(record))
    assert status == 400
    assert told in why


@pytest.mark.parametrize("number", [b"1e400", b"-1e400", b'{"n": [1e400]}'])
def test_a_number_that_no_json_holds_when_it_is_written_anew_is_refused(number):
    status, why = refusal(JSON, b'{"records": [{"value": %b}]}' % number)
    assert status == 400
    assert "value of records[0] has a number that is too large" in why
    assert messages(JSON, b"1e400") == [b"1e400"], "as it is nobody writes it anew"


def test_a_record_that_can_just_be_read_is_taken_or_refused():
    for depth in range(900, 1000):
        body = b'{"records": [{"value": %b}]}' % (b"[" * depth + b"]" * depth)
        with suppress(RequestRefused):
            messages(JSON, body)


@pytest.mark.parametrize("body", [b'{"records": 1}', b'{"records": [], "value_schema_id": 1}'])
def test_records_beside_something_else_are_no_message_by_mistake(body):
    status, why = refusal(JSON, body)
    assert status == 400
    assert RAW in why, "the way out is told"


def test_lines_are_messages_and_blank_ones_are_none():
    assert messages(NDJSON, b'{"a": 1}\r\n\n  \n[2]\n') == [b'{"a": 1}', b"[2]"]
    assert refusal(NDJSON, b"1\n2\n{") == (400, refusal(NDJSON, b"1\n2\n{")[1])
    assert "message 3" in refusal(NDJSON, b"1\n2\n{")[1]


def test_fields_of_a_form_are_messages_with_their_names_as_keys():
    assert messages(FORM, b"hello=a+b&x=%FF%26&hello=c&&e") == [
        Message(b"a b", b"hello"),
        Message(b"\xff&", b"x"),
        Message(b"c", b"hello"),
        Message(b"", b"e"),
    ]


def test_json_that_is_sent_as_a_form_is_refused_with_the_way_out():
    status, why = refusal(FORM, b'{"a": "b=c"}')
    assert status == 400
    assert JSON in why


@pytest.mark.parametrize("kind", [RAW, "", "text/plain; charset=latin-1", "text/csv"])
def test_other_bytes_are_one_message(kind):
    assert messages(kind, b"\x00\xff") == [b"\x00\xff"]


def test_the_key_and_the_headers_of_a_request_are_those_of_all_its_messages():
    assert messages(NDJSON, b"1\n2", b"k", {"a": b"b"}) == [
        Message(b"1", b"k", {"a": b"b"}),
        Message(b"2", b"k", {"a": b"b"}),
    ]


def test_a_key_or_a_header_of_a_message_goes_before_that_of_the_request():
    own = {"value": 1, "key": "own", "headers": {"a": "own"}}
    assert messages(JSON, records(own, {"value": 2}), b"k", {"a": b"b", "c": b"d"}) == [
        Message(b"1", b"own", {"a": b"own", "c": b"d"}),
        Message(b"2", b"k", {"a": b"b", "c": b"d"}),
    ]
    assert messages(JSON, b'{"records": []}', b"k") == []
    assert messages(FORM, b"name=x", b"k") == [Message(b"x", b"name")]


@pytest.mark.parametrize(
    "kind", ["image/png", "multipart/form-data; boundary=x", "application/xml"]
)
def test_another_type_is_refused(kind):
    status, why = refusal(kind, b"x")
    assert status == 415
    assert JSON in why


@pytest.mark.parametrize(
    "body",
    [(NDJSON, b"1\n" * 6), (FORM, b"a=b&" * 5 + b"a=b"), (JSON, records(*[{"value": 1}] * 6))],
)
def test_too_many_messages_are_refused(body):
    assert refusal(*body)[0] == 413


@given(st.lists(st.tuples(st.binary(min_size=1), st.binary())))
def test_a_query_holds_any_bytes(pairs):
    def escaped(content):
        return b"".join(b"%%%02x" % each for each in content)

    query = b"&".join(escaped(name) + b"=" + escaped(value) for name, value in pairs)
    assert query_of(query) == pairs


def test_a_number_that_is_too_long_is_told_in_words_of_the_client():
    status, why = refusal("application/json", b"1" * 10_000)
    assert status == 400
    assert why == "the body has a number of more than 4300 digits; send it as text"
