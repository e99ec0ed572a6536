"""Expressions: an error is never "false", and a bomb ends soon."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from poe.errors import InvalidMapping, MappingExtraMissing, RuleError
from poe.mapping.expression import Cel
from poe.mapping.message import Message
from tests.mapping.strategies import DOCUMENTS

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


COMPILED = {text: Cel().compile(text, "a") for text in TOLD}


def test_without_the_extra_it_is_told_how_to_get_it(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "cel_expr_python", None)
    with pytest.raises(MappingExtraMissing, match=r"pip install '\.\[mapping\]'"):
        Cel()
