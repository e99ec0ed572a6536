"""Expressions: an error is never "false", and a bomb ends soon."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from poe.errors import InvalidMapping, MappingExtraMissing, RuleError
from poe.mapping.expression import Cel
from poe.mapping.message import Message
from poe.mapping.shortcut import fields_of, refuter_of
from tests.mapping.strategies import DOCUMENTS, NAMES, SCALARS

pytest.importorskip("cel_expr_python", exc_type=ImportError)


@pytest.fixture(scope="module")
def cel():
    return Cel()


ORDER = Message("orders", 5, b'{"type": "order", "n": 3}', b"ann", {"h": b"x", "b": b"\xff"})


@pytest.mark.parametrize(
    ("text", "is_true"),
    [
        ("body.type == 'order' && body.n > 2", True),
        ("has(body.coupon)", False),
        ("key == 'ann' && header.h == 'x' && header.b == b'\\xff'", True),
        ("topic.startsWith('ord') && pointer == 5", True),
        ("'body' == 'topic'", False),
        ("// the customer's order\nbody.type == 'order'", True),
        ("""'''don't''' != topic && body.type == 'order'""", True),
        ("body.type == 'order' && 'http://x' != topic // it's enough", True),
    ],
)
def test_expressions_see_a_message(cel, text, is_true):
    assert cel.compile(text, "a")(ORDER) is is_true


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("body.coupon == 1", "Key not found in map"),
        ("body.type > 1", "No matching overload"),
        ("body.n", "it is 3, and neither true nor false"),
        ("body.type.matches('(')", "invalid regular expression"),
    ],
)
def test_what_cannot_be_told_is_an_error_of_the_rule(cel, text, told):
    with pytest.raises(RuleError, match=told):
        cel.compile(text, "a")(ORDER)


def test_a_body_that_cannot_be_decoded_is_an_error_of_the_rule(cel):
    with pytest.raises(RuleError, match="the message is no json"):
        cel.compile("body.x == 1", "a")(Message("t", 1, b"{"))


@pytest.mark.parametrize(
    "text",
    [
        "body.all(a, body.all(b, body.all(c, a + b + c >= 0)))",
        "body.map(a, body.map(b, body.map(c, body))).size() > 0",
    ],
)
def test_a_bomb_ends_within_its_budget(cel, text):
    message = Message("t", 1, str(list(range(300))).encode())
    begin = time.process_time()
    with pytest.raises(RuleError, match="Iteration budget"):
        cel.compile(text, "a")(message)
    assert time.process_time() - begin < 2


def test_a_bomb_in_a_regular_expression_takes_linear_time(cel):
    message = Message("t", 1, b'"' + b"a" * 100_000 + b'!"')
    begin = time.process_time()
    assert not cel.compile("body.matches('^(a+)+$')", "a")(message)
    assert time.process_time() - begin < 2


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("(" * 100 + "true" + ")" * 100, "recursion limit"),
        ("1 +", "at character 4: Syntax error"),
        ("x" * 20_000, "has 20000 characters; use up to 10000"),
        ("", "Syntax error"),
        ("\ud800", ""),
    ],
    ids=["deep", "syntax", "long", "empty", "surrogate"],
)
def test_what_is_no_expression_is_refused_before_it_runs(cel, text, told):
    with pytest.raises(InvalidMapping, match="rule 'a': when") as error:
        cel.compile(text, "a")
    assert told in str(error.value)


TOLD = ["body == 'a'", "body.type == 'a'", "size(body) > 1", "body.exists(x, x == 1)", "body > 1.5"]


@given(st.sampled_from(TOLD), DOCUMENTS | st.text() | st.integers() | st.floats())
def test_any_document_is_true_false_or_an_error_of_the_rule(text, body):
    message = Message("t", 1)
    vars(message)["body"] = body
    try:
        assert COMPILED[text](message) in {True, False}
    except RuleError as error:
        assert error.rule == "a"  # noqa: PT017 - it need not be raised


CHAINS = [
    "body.type == 'order' && body.amount > 1",
    'body.amount <= 100 && body.type != "DE" && body.user.x == 1',
    "body.type == 'order' || body.amount > 1 && body.tags == 'a'",
    "body.type == 'a' && (body.amount == 1 || body.tags == 'a')",
    "body.type == 'a' ? body.amount == 1 : body.tags == 'a'",
    "has(body.user) && body.type == 'order'",
    "body.amount == 1 && body.amount < 9007199254740994",
    "!(body.type == 'a' && body.amount > 1)",
    "body.tags.exists(x, x == 'a') && body.type == 'a'",
    "body.type == 'a && b' && size(body) > 0",
    "[1].exists(body, body == 1) && body.type == 'a'",
    "body.user.type == 'a' && body['type'] == 'a'",
]
WHOLE = {
    text: (Cel().compile(text, "a"), Cel().compile(f"{text} // nothing is told of comments", "a"))
    for text in CHAINS
}
BODIES = st.dictionaries(NAMES, SCALARS | DOCUMENTS, max_size=5) | DOCUMENTS


@given(st.sampled_from(CHAINS), BODIES)
def test_what_is_told_without_cel_is_what_cel_says(text, body):
    message = Message("t", 1)
    vars(message)["body"] = body
    quick, slow = (_verdict(each, message) for each in WHOLE[text])
    assert quick == slow


def _verdict(holds, message):
    try:
        return holds(message)
    except RuleError:
        return "error"


@pytest.mark.parametrize(
    ("text", "fields"),
    [
        ("body.type == 'a' && has(body.user)", {"type", "user"}),
        ("body.user.body.x == 'body'", {"user"}),
        ("size(body) > 1", None),
        ("body['type'] == 'a'", None),
        ("body.exists(x, x == 1)", None),
        ("body . type == 'a'", {"type"}),
        ("body.type == 'a' // body", None),
        ("[1].exists(body, body > 0)", None),
    ],
)
def test_the_fields_that_an_expression_sees_are_known(text, fields):
    assert fields_of(text) == fields


@pytest.mark.parametrize(
    ("text", "body", "is_false"),
    [
        ("body.type == 'a' && body.x.y", {"type": "b"}, True),
        ("body.type == 'a' && body.x.y", {"type": "a"}, False),
        ("body.type == 'a' && body.x.y", {}, False),
        ("body.n > 5 && body.x", {"n": 5}, True),
        ("body.n > 5 && body.x", {"n": 5.0}, False),
        ("body.n > 5 && body.x", {"n": True}, False),
    ],
)
def test_parts_that_are_false_make_all_of_it_false(text, body, is_false):
    refutes = refuter_of(text)
    assert refutes is not None
    assert refutes(body) is is_false


@pytest.mark.parametrize(
    "text", ["body.a == 1 || body.b == 2", "body.a == b'x' && body.b", "(body.a == 1)", "a ? b : c"]
)
def test_of_other_forms_nothing_is_told(text):
    assert refuter_of(text) is None


COMPILED = {text: Cel().compile(text, "a") for text in TOLD}


def test_without_the_extra_it_is_told_how_to_get_it(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "cel_expr_python", None)
    with pytest.raises(MappingExtraMissing, match=r"pip install '\.\[mapping\]'"):
        Cel()
