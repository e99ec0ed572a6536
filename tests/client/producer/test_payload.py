"""What a caller may give a producer, and what is said of the rest."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from poe.client.producer.payload import Message, is_keyed, parse
from poe.errors import InvalidPayload

VALUES = st.binary(min_size=1)
PAIRS = st.tuples(st.none() | st.binary(), VALUES)
MESSAGES = st.builds(
    Message,
    VALUES,
    st.none() | st.binary(),
    st.none() | st.dictionaries(st.text(), st.binary(), max_size=2),
)
VIEWS: st.SearchStrategy[memoryview] = st.builds(memoryview, VALUES)
FORMS = st.one_of(VALUES, VALUES.map(bytearray), VIEWS, PAIRS, MESSAGES)


def model_of(form):
    """One message, as slowly as can be."""
    if type(form) is Message:
        return form
    return Message(form[1], form[0]) if type(form) is tuple else Message(bytes(form))


def as_messages(parsed):
    return [each if type(each) is Message else Message(each) for each in parsed]


@given(data=st.lists(FORMS, min_size=1))
@example(data=[b"bare", (b"k", b"v")])
@example(data=[(b"k", b"v"), b"bare"])
def test_a_list_may_mix_all_forms(data):
    assert as_messages(parse(data)) == [model_of(each) for each in data]


@given(data=FORMS)
def test_a_form_alone_is_a_list_of_one(data):
    assert as_messages(parse(data)) == [model_of(data)]


@given(data=st.lists(VALUES, min_size=1))
def test_a_list_of_bytes_stays_one(data):
    parsed = parse(data)
    assert parsed == data
    assert parsed is not data, "its owner may go on to fill it"


@given(data=st.lists(PAIRS | MESSAGES, min_size=1))
def test_a_tuple_of_tuples_is_a_list(data):
    assert parse(tuple(data)) == [model_of(each) for each in data]


def test_what_may_change_is_copied():
    value, headers = bytearray(b"before"), {"trace": b"1"}
    parsed = parse([value, Message(b"v", headers=headers)])
    value[:] = b"later!"
    headers["trace"] = b"2"
    assert parsed == [Message(b"before"), Message(b"v", headers={"trace": b"1"})]


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"v", False),
        ([b"v", b"w"], False),
        ((None, b"v"), False),
        (Message(b"v", headers={"h": b"1"}), False),
        ((b"k", b"v"), True),
        ((b"", b"v"), True),
        ([b"v", (b"k", b"v")], True),
    ],
)
def test_one_key_makes_a_payload_keyed(data, expected):
    assert is_keyed(parse(data)) is expected


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"", [b""]),
        (bytearray(), [b""]),
        ([b"m", b""], [b"m", b""]),
        ((b"k", b""), [Message(b"", b"k")]),
        ((b"k", None), [Message(None, b"k")]),
        ([b"m", Message(None)], [Message(b"m"), Message(None)]),
    ],
    ids=repr,
)
def test_a_value_may_be_empty_where_the_broker_can_tell_that_from_nothing(data, expected):
    with pytest.raises(InvalidPayload, match="has no value"):
        parse(data)
    assert parse(data, empty=True) == expected


@pytest.mark.parametrize(
    ("data", "words"),
    [
        ([], "empty list"),
        (None, "payload is None"),
        ([b"m", None], r"messages\[1\] is None"),
        ("text", "encode"),
        (["text"], r"messages\[0\] is text"),
        ((b"k", "text"), "value of payload is text"),
        (("text", b"v"), "key of payload is text"),
        ([b"m", 7], r"messages\[1\] is of type int"),
        ((7, b"v"), "key of payload is of type int"),
        ((), "payload is"),
        ((b"a", b"b", b"c"), "payload is"),
        ([(b"a", b"b"), (b"c",)], r"messages\[1\] is"),
        ([[b"m"]], r"messages\[0\] is"),
        ({b"k": b"v"}, "of type dict"),
        (iter([b"m"]), "of type list_iterator"),
        (Message(b"v", headers=[("h", b"1")]), "headers of payload"),  # type: ignore[arg-type]
        (Message(b"v", headers={b"h": b"1"}), "headers of payload"),  # type: ignore[dict-item]
        (Message(b"v", headers={"\udcff": b"1"}), "headers of payload"),
        (Message(b"v", headers={"h": "1"}), "header 'h' of payload is text"),  # type: ignore[dict-item]
    ],
)
def test_what_is_no_payload_is_told_with_its_place(data, words):
    with pytest.raises(InvalidPayload, match=words) as caught:
        parse(data)
    assert "; " in str(caught.value), "it says what to do"
