"""Rules that nothing reaches are warned of."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from poe.mapping import Mapping, checks
from poe.mapping.checks import may_meet, warnings


def mapping(*rules, match="first"):
    made = Mapping("m", source={"topics": ["orders", "web.*"]}, otherwise="drop", match=match)
    for number, rule in enumerate(rules):
        made.rule(f"r{number}", ok=True, **rule)
    return made.rule_set()


@pytest.mark.parametrize(
    "rules",
    [
        [{}, {"body": {"x": 1}}],
        [{"topic": "web.*"}, {"topic": "web.*", "body": {"x": 1}}],
        [{"body": {"x": 1}}, {"body": {"x": 1, "y": 2}}],
        [{"body": {"x": [1, 2]}}, {"body": {"x": 2}}],
        [{"when": "body.x == 1"}, {"when": "body.x == 1", "key_is": "k"}],
    ],
    ids=str,
)
def test_a_rule_behind_one_that_takes_all_of_it_is_never_reached(rules):
    [told] = warnings(mapping(*rules))
    assert told == (
        "rule 'r1' is never reached: whatever meets it meets rule 'r0', which comes before"
    )
    assert warnings(mapping(*rules, match="all")) == []


@pytest.mark.parametrize(
    "rules",
    [
        [{"body": {"x": 1}}, {"body": {"x": True}}],
        [{"body": {"x": 1}}, {"body": {"x": {"gt": 0}}}],
        [{"body": {"x": {"not": 1}}}, {"body": {"x": {"not": 1, "exists": True}}}],
        [{"topic": "orders"}, {"body": {"x": 1}}],
        [{"body": {"x": [True]}}, {"body": {"x": 1}}],
        [{"body": {"x": {"eq": {"y": 1}}}}, {"body": {"x": {"eq": {"y": 1, "z": 2}}}}],
        [{"body": {"x": {"ne": {"y": 1}}}}, {"body": {"x": {"ne": {"y": 1, "z": 2}}}}],
        [{"body": {"x": {"eq": [1]}}}, {"body": {"x": {"eq": [True]}}}],
        [{"body": {"x": {"eq": [1, 2]}}}, {"body": {"x": {"eq": 1}}}],
        [{"body": {"x": {}}}, {"body": {"x": {"gt": 1}}}],
    ],
    ids=str,
)
def test_others_are(rules):
    assert warnings(mapping(*rules)) == []


VALUES = st.recursive(
    st.sampled_from([1, True, "a", {"gt": 1}, {"eq": {"x": 1}}, {"exists": True}]),
    lambda each: (
        st.lists(each, min_size=1, max_size=2)
        | st.dictionaries(st.sampled_from(["x", "y"]), each, max_size=2)
        | st.fixed_dictionaries({"any": each})
        | st.fixed_dictionaries({"not": each})
    ),
    max_leaves=4,
)
CONDITIONS = st.fixed_dictionaries(
    {},
    optional={
        "topic": st.sampled_from(["orders", "web.*", ["orders", "web.a"]]),
        "key_is": st.sampled_from(["k", ["k", "l"]]),
        "body": VALUES,
    },
)


@given(st.lists(CONDITIONS, max_size=6))
def test_each_rule_is_told_that_one_before_it_covers_whatever_it_is_known_by(conditions):
    rules = mapping(*conditions)
    told = set()
    for at, rule in enumerate(rules.rules):
        before = [each.id for each in rules.rules[:at] if checks._covers(each, rule)]  # noqa: SLF001
        if before:
            told.add(
                f"rule {rule.id!r} is never reached: whatever meets it meets rule "
                f"{before[0]!r}, which comes before"
            )
    assert set(warnings(rules)) == told


@pytest.mark.parametrize(
    "condition",
    [
        lambda n: {"body": {"type": f"t{n}", "amount": {"gt": 5}}},
        lambda n: {"body": {"type": "order", "amount": {"gt": n}}},
        lambda n: {"topic": "orders", "when": f"body.x == {n}"},
        lambda n: {"body": {"type": [f"a{n}", f"b{n}"]}},
    ],
)
def test_of_many_rules_few_are_compared_with_each(condition, monkeypatch):
    compared = []
    covers = checks._covers  # noqa: SLF001 - what is counted

    def counted(wide, narrow):
        compared.append(wide.id)
        return covers(wide, narrow)

    monkeypatch.setattr(checks, "_covers", counted)
    assert warnings(mapping(*map(condition, range(300)))) == []
    assert len(compared) <= 300


@pytest.mark.parametrize(
    ("pattern", "operator"),
    [
        ({"gtt": 100}, "gt"),
        ({"gte": 100}, "ge"),
        ({"startsWith": "x"}, "prefix"),
        ({"prefex": "x"}, "prefix"),
        ({"exist": True}, "exists"),
    ],
    ids=str,
)
def test_a_field_that_is_called_nearly_as_an_operator_is_told(pattern, operator):
    [name] = pattern
    [told] = warnings(mapping({"body": {"order": {"amount": pattern}}}))
    assert told == (
        f"rule 'r0': body.order.amount.{name} is a field; "
        f"if an operator is meant, write {operator!r}"
    )
    assert warnings(mapping({"body": pattern})) == []  # fields of the body itself


@pytest.mark.parametrize(
    "pattern",
    [
        {"note": "x"},
        {"eq": {"gtt": 1}},
        {"ne": {1: 1}},
        {"min": 1},
        {"anyone": "x"},
        {"gt": 1},
        {".gt": 1},
        {"a": 1, "gtt": 2},
    ],
)
def test_fields_are_not(pattern):
    assert warnings(mapping({"body": {"amount": pattern}})) == []


def test_a_rule_of_a_topic_that_is_not_read_is_never_reached():
    assert warnings(mapping({"topic": "bills"})) == [
        "rule 'r0' is never reached: the mapping does not read bills"
    ]


@pytest.mark.parametrize(
    ("one", "other", "may"),
    [
        ("a*", "*b", True),
        ("a*", "b*", False),
        ("*x*", "a*b", True),
        ("a*b", "ab", True),
        ("ab", "ab", True),
        ("ab", "a", False),
        ("*", "", True),
        ("a*c*", "ab*d", True),
        ("a*cx", "*dx", False),
    ],
)
def test_namesmay_meet(one, other, may):
    assert may_meet(one, other) == may_meet(other, one) == may


def test_a_function_that_nobody_says_to_be_pure_is_told():
    made = Mapping("m", source={"topics": ["t"]}, otherwise="drop", match="all")
    made.rule("a", call=lambda _: None)
    made.rule("b", call=lambda _: None, pure=True)
    [told] = warnings(made.rule_set())
    assert told.startswith(
        "rule 'a' calls test_checks.py:<lambda>, which may lose or repeat messages of a batch"
    )
