"""Patterns are total, say what they mean, and explain what they say."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from poe.errors import InvalidMapping
from poe.mapping.pattern import MISSING, compile_pattern
from tests.mapping.strategies import DOCUMENTS, PATTERNS

ORDER = {"type": "order", "amount": 120, "paid": True, "user": {"country": "DE"}, "tags": ["a"]}

MET = [
    {"type": "order"},
    {"type": ["bill", "order"]},
    {"amount": 120.0},
    {"amount": {"gt": 100, "le": 120}},
    {"type": {"ge": "order", "lt": "p"}},
    {"type": {"ne": "bill"}},
    {"paid": {"ne": 1}},
    {"user": {"country": {"in": ["DE", "FR"]}}},
    {"type": {"prefix": "or", "suffix": "er", "contains": "rd"}},
    {"type": {"regex": "^o.*r$"}},
    {"user": {"exists": True}, "coupon": {"exists": False}},
    {"tags": {"any": "a"}},
    {"tags": {"all": {"prefix": "a"}}},
    {"tags": {"eq": ["a"]}},
    {"coupon": {"not": {"gt": 1}}},
    {"amount": [{"lt": 10}, {"gt": 100}]},
    {},
]
NOT_MET = [
    {"paid": 1},
    {"amount": True},
    {"amount": "120"},
    {"amount": {"gt": "100"}},
    {"coupon": {"ne": 1}},
    {"coupon": {"all": 1}},
    {"type": {"any": "o"}},
    {"user": "DE"},
    {"type": {"user": "x"}},
    {"tags": {"eq": ["a", "b"]}},
    {"amount": {"regex": "1"}},
    {"type": {"not": {"prefix": "o"}}},
]


@pytest.mark.parametrize("pattern", MET, ids=str)
def test_what_meets_a_pattern(pattern):
    assert compile_pattern(pattern).test(ORDER)


@pytest.mark.parametrize("pattern", NOT_MET, ids=str)
def test_what_does_not(pattern):
    assert not compile_pattern(pattern).test(ORDER)


def test_a_field_that_is_called_as_an_operator_has_a_dot_in_front():
    pattern = compile_pattern({".in": {"gt": 1}, "..x": 1})
    assert pattern.test({"in": 2, ".x": 1})


def test_texts_stand_for_bytes_in_keys_and_headers():
    assert compile_pattern(["ä", {"prefix": "b"}], kind="bytes").test("ä".encode())
    assert compile_pattern({"regex": "ä"}, kind="bytes").test("aäb".encode())
    assert not compile_pattern({"regex": "ä"}, kind="bytes").test(b"\xff")


@pytest.mark.parametrize(
    ("wanted", "name", "is_met"),
    [
        ("web.*", "web.clicks", True),
        ("web.*", "web", False),
        ("*.eu.*", "a.eu.b", True),
        ("a*a", "a", False),
        (["x", "w*s"], "web.clicks", True),
        ("web", "web", True),
    ],
)
def test_a_star_in_the_name_of_a_topic_stands_for_anything(wanted, name, is_met):
    assert compile_pattern(wanted, kind="name").test(name) == is_met


@given(PATTERNS, DOCUMENTS | st.just(MISSING) | st.binary() | st.builds(object))
def test_patterns_are_total_and_explain_what_they_say(data, value):
    pattern = compile_pattern(data)
    verdict = pattern.test(value)
    assert verdict in {True, False}
    assert verdict == all(each.is_met for each in pattern.clauses("body", value))


@pytest.mark.parametrize(
    ("pattern", "told"),
    [
        ({"a": {"gt": 1, "size": 2}}, "body.a: 'gt' is an operator, and 'size' is none"),
        ({"a": {"gt": True}}, "body.a.gt: is True; use a number or a text"),
        ({"a": {"in": "DE"}}, "body.a.in: is 'DE'; use a list of values"),
        ({"a": []}, "body.a: has 0 choices"),
        ({"a": {"regex": "("}}, "body.a.regex: is no regular expression of RE2: missing )"),
        ({"a": {"regex": r"(a)\1"}}, "invalid escape sequence"),
        ({"a": {"exists": "yes"}}, "use true or false"),
        ({"a": {"prefix": 1}}, "use a text"),
        ({"a": float("nan")}, "nan"),
        ({"a": 1 << 1100}, "1024 bits"),
        ({"a": {1}}, "use a text, a number, true or false"),
    ],
    ids=str,
)
def test_what_is_no_pattern_is_told_with_its_place(pattern, told):
    with pytest.raises(InvalidMapping) as error:
        compile_pattern(pattern)
    assert told in str(error.value)


def test_what_is_nested_without_end_is_refused():
    pattern: dict[str, object] = {}
    for _ in range(100_000):
        pattern = {"a": pattern}
    with pytest.raises(InvalidMapping, match="nested more than"):
        compile_pattern(pattern)


@pytest.mark.parametrize("bomb", ["(a+)+$", "(a|a)*b", "(.*)*x", "a*a*a*a*a*a*a*b"])
def test_a_bomb_in_a_regular_expression_takes_linear_time(bomb):
    test = compile_pattern({"regex": bomb}).test
    begin = time.process_time()
    test("a" * 100_000 + "!")
    assert time.process_time() - begin < 2


def test_a_regular_expression_that_would_take_much_memory_is_refused():
    with pytest.raises(InvalidMapping, match="RE2"):
        compile_pattern({"regex": "((a{1000}){1000}){1000}"})
