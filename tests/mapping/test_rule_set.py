"""Batches of messages are decided about by rules, and grouped by where they go."""

import json
from collections import Counter
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from poe.errors import InvalidMapping, UndecodableMessage
from poe.mapping.action import Dead, Drop, Ok, Retry, Stop, To
from poe.mapping.decoding import DECODES, decoder
from poe.mapping.examples import outcome
from poe.mapping.message import Columns
from poe.mapping.pattern import compile_pattern
from poe.mapping.rule import Call, Fate, Route, Rule, Source
from poe.mapping.rule_set import HOPS, ORIGIN, OTHERWISE, RuleSet, onward
from tests.mapping.strategies import DOCUMENTS, FIELDS


def rule_set(*rules: Rule, **settings) -> RuleSet:
    settings = {"name": "m", "source": Source(topics=("orders",)), "otherwise": Drop(), **settings}
    return RuleSet(rules=rules, **settings)


def batch(*bodies, topic=b"orders", **columns) -> Columns:
    values = [each if isinstance(each, bytes) else json.dumps(each).encode() for each in bodies]
    return Columns(topic, range(1, len(bodies) + 1), values, **columns)


def calling(function, **settings) -> Rule:
    return Rule(id="call", fate=Call(function=function, name=function.__name__, **settings))


def test_messages_go_where_the_first_rule_that_they_meet_says():
    compiled = rule_set(
        Rule(id="vip", body={"type": "order"}, fate=Route(to=("vip", "audit"))),
        Rule(id="rest", body={}, fate=Ok()),
    ).compile()
    decided = compiled.decide(batch({"type": "order"}, {"type": "bill"}, [1], {"type": "order"}))
    assert list(decided.puts) == [b"vip", b"audit"]
    assert list(decided.puts[b"vip"].places) == [0, 3]
    assert decided.counts == {("vip", "to"): 2, ("rest", "ok"): 1, (OTHERWISE, "drop"): 1}


def test_with_match_all_a_message_goes_where_each_rule_says():
    compiled = rule_set(
        Rule(id="a", body={"x": 1}, fate=Route(to=("t",))),
        Rule(id="b", body={"y": {"exists": True}}, fate=Route(to=("t", "u"))),
        match="all",
    ).compile()
    decided = compiled.decide(batch({"x": 1}, {"y": 1}, {"x": 1, "y": 1}, {}))
    assert list(decided.puts[b"t"].places) == [0, 1, 2, 2]
    assert list(decided.puts[b"u"].places) == [1, 2]
    assert decided.counts[OTHERWISE, "drop"] == 1


def test_a_whole_batch_that_goes_one_way_is_not_copied():
    messages = batch(b"{", b"any", keys=[b"k", None], headers=[None, {"a": b"b"}])
    decided = rule_set(Rule(id="all", fate=Route(to=("t",)))).compile().decide(messages)
    assert decided.puts[b"t"].values is messages.values
    assert decided.puts[b"t"].headers is messages.headers


def test_what_cannot_be_decoded_has_failed():
    compiled = rule_set(Rule(id="a", body={}, fate=Ok())).compile()
    decided = compiled.decide(batch({}, b"{", {}))
    [failed] = decided.failed
    assert (failed.place, failed.rule) == (1, "decode")
    assert decided.counts["a", "ok"] == 2


def test_or_it_meets_no_rule_about_bodies_where_that_was_written():
    compiled = rule_set(
        Rule(id="a", body={"not": {"x": 1}}, fate=Ok()),
        Rule(id="b", key_is="k", fate=Ok()),
        undecodable="otherwise",
    ).compile()
    decided = compiled.decide(batch(b"{", b"{", {}, keys=[b"k", b"", None]))
    assert decided.counts == {("b", "ok"): 1, (OTHERWISE, "drop"): 1, ("a", "ok"): 1}


def test_each_fate_is_told():
    fates: dict[str, Fate] = {
        "ok": Ok(),
        "drop": Drop("no"),
        "dead": Dead("why"),
        "retry": Retry(2.0),
    }
    rules = [Rule(id=name, body={"x": name}, fate=fate) for name, fate in fates.items()]
    decided = rule_set(*rules).compile().decide(batch(*({"x": name} for name in fates)))
    assert decided.counts == {(name, name): 1 for name in fates}
    assert [(each.place, each.why) for each in decided.dead] == [(2, "why")]
    assert [(each.place, each.after_s) for each in decided.retries] == [(3, 2.0)]
    assert decided.reasons == {("drop", "no"): 1}


def test_a_stop_holds_all_that_comes_behind_it():
    compiled = rule_set(
        Rule(id="stop", body={"x": 1}, fate=Stop("away")), Rule(id="a", fate=Route(to=("t",)))
    ).compile()
    decided = compiled.decide(batch({}, {"x": 1}, {}, {"x": 1}))
    assert decided.stopped == (1, "stop", "away")
    assert list(decided.puts[b"t"].places) == [0]
    assert decided.counts == {("a", "to"): 1}


def test_templates_make_topics_and_keys():
    fate = Route(to=("orders.{body.country}", "{topic}.{header.h}"), key="{key}-{body.n}")
    compiled = rule_set(Rule(id="a", fate=fate)).compile()
    columns = {"keys": [b"k", b"k"], "headers": [{"h": b"x"}, {}]}
    decided = compiled.decide(
        batch({"country": "DE", "n": 5}, {"country": "DE", "n": 5}, **columns)
    )
    assert {topic: put.keys for topic, put in decided.puts.items()} == {
        b"orders.DE": [b"k-5"],
        b"orders.x": [b"k-5"],
    }
    [failed] = decided.failed
    assert failed == (1, "a", "{header.h} is missing; a text or a whole number can be put there")


@pytest.mark.parametrize(
    "name", ["../x", "", "a/b", "x" * 300, "a\nb", "poe.groups", None, 1.5, True, ["x"]]
)
def test_what_is_no_name_of_a_topic_has_failed(name):
    compiled = rule_set(Rule(id="a", fate=Route(to=("{body.x}",)))).compile()
    decided = compiled.decide(batch({"x": name}))
    assert len(decided.failed) == 1
    assert not decided.puts


def test_a_template_makes_only_what_is_allowed_and_not_too_many():
    fate = Route(to=("a.{body.x}",), topics=("a.b*",), topics_max=2)
    compiled = rule_set(Rule(id="a", fate=fate)).compile()
    names = ["b1", "c", "b2", "b1", "b3", "b1"]
    decided = compiled.decide(batch(*({"x": each} for each in names)))
    assert [each.place for each in decided.failed] == [1]
    assert decided.stopped is not None
    assert decided.stopped.place == 4
    assert decided.counts == {("a", "to"): 3, ("a", "error"): 1}


def test_what_has_gone_round_too_often_is_dead():
    calls = []

    def function(message):
        calls.append(message)
        return Ok()

    headers = [{HOPS: b"16"}, {HOPS: b"15"}, {HOPS: b"x"}, None]
    compiled = rule_set(calling(function)).compile()
    decided = compiled.decide(batch(*[{}] * 4, headers=headers))
    assert [each.place for each in decided.dead] == [0]
    assert len(calls) == 3


def test_what_goes_on_says_where_it_came_from():
    messages = batch({}, headers=[None])
    first = onward(messages, 0, {"a": b"b"})
    assert first == {"a": b"b", ORIGIN: b"orders/1", HOPS: b"1"}
    second = onward(batch({}, topic=b"next", headers=[first]), 0, first)
    assert second == {"a": b"b", ORIGIN: b"orders/1", HOPS: b"2"}


def test_a_function_says_what_becomes_of_a_message():
    def function(message):
        return {
            1: To("t", b"new", key=b"k"),
            2: [To("t"), To(("u", "v"), message.with_body({"x": 0}))],
            3: Drop("r"),
            4: message.with_key(b"m"),
            5: "nonsense",
            6: None,
        }[message.body["x"]]

    rule = calling(function, route=Route(to=("r",)))
    decided = rule_set(rule).compile().decide(batch(*({"x": n} for n in range(8))))
    assert decided.puts[b"t"] == ([1, 2], [b"new", b'{"x": 2}'], [b"k", None], [None, None])
    assert decided.puts[b"v"].values == [b'{"x":0}']
    assert decided.puts[b"r"].keys == [b"m"]
    assert [each.place for each in decided.failed] == [0, 5, 6, 7]
    assert "KeyError: 0, line" in decided.failed[0].why
    assert "returned str" in decided.failed[1].why


TO: Any = To
RETRY: Any = Retry
DEAD: Any = Dead
DROP: Any = Drop
STOP: Any = Stop


@pytest.mark.parametrize(
    "made",
    [
        lambda _: TO("t", key="text"),
        lambda _: TO("t", headers={"a": "text"}),
        lambda _: TO("t", headers={1: b"b"}),
        lambda _: TO("t", headers=["a"]),
        lambda _: TO("t", headers={"\ud800": b"b"}),
        lambda _: TO("t", "text"),
        lambda message: TO("t", message._replace(value="text")),
        lambda message: [TO("t"), TO("t", message.with_key("text"))],
        lambda message: message.with_key("text"),
        lambda _: TO(b"t"),
        lambda _: TO([]),
        lambda _: RETRY("5"),
        lambda _: RETRY(timedelta(1)),
        lambda _: RETRY(-1),
        lambda _: RETRY(float("inf")),
        lambda _: RETRY(float("nan")),
    ],
)
def test_what_a_function_says_that_cannot_be_done_is_an_error_of_its_message(made):
    """It was put onto a topic with envelopes, and was none there; or ended the worker each time."""

    def function(message):
        return made(message) if message.body else Ok()

    rule = calling(function, route=Route(to=("r",)))
    decided = rule_set(rule).compile().decide(batch({}, {"x": 1}, {}))
    [failed] = decided.failed
    assert (failed.place, failed.rule) == (1, "call")
    assert failed.why.startswith("function returned ")
    assert not decided.puts
    assert decided.counts == {("call", "ok"): 2, ("call", "error"): 1}


def test_whatever_a_function_gives_for_a_reason_is_told_as_text():
    answers = [DEAD(OSError("away")), DROP(None), STOP(OSError("away"))]
    rule = calling(lambda message: answers[message.body])
    decided = rule_set(rule).compile().decide(batch(0, 1, 2))
    assert [each.why for each in decided.dead] == ["away"]
    assert decided.reasons == {("call", "None"): 1}
    assert decided.stopped == (2, "call", "away")


def test_in_a_fan_out_one_failure_leaves_the_message_out_everywhere():
    compiled = rule_set(
        Rule(id="a", fate=Route(to=("t",))),
        Rule(id="b", fate=Route(to=("u.{body.x}",))),
        match="all",
    ).compile()
    decided = compiled.decide(batch({"x": 1}, {}, {"x": 2}))
    assert list(decided.puts[b"t"].places) == [0, 2]
    assert decided.counts == {("a", "to"): 2, ("b", "to"): 2, ("b", "error"): 1}


@pytest.mark.parametrize("first", [Route(to=("t",)), Drop("no"), Ok()], ids=repr)
def test_what_has_become_of_a_message_is_not_what_a_rule_said_that_another_one_has_failed_for(
    first,
):
    compiled = rule_set(
        Rule(id="a", fate=first), Rule(id="b", fate=Route(to=("u.{body.x}",))), match="all"
    ).compile()
    decided = compiled.decide(batch({}))
    assert dict(decided.counts) == {("b", "error"): 1}
    assert not decided.reasons
    told = outcome(decided)
    assert (told["rule"], told["action"], told["to"]) == ("b", "error", [])
    assert told["why"].startswith("{body.x} is missing")


@pytest.mark.parametrize("rules", [("a", "a"), ("otherwise",), ("decode",)], ids=str)
def test_names_of_rules_are_their_own(rules):
    with pytest.raises(InvalidMapping, match="use another name"):
        rule_set(*(Rule(id=each, fate=Ok()) for each in rules)).compile()


def test_the_hash_is_of_what_decides():
    one = rule_set(Rule(id="a", body={"x": 1, "y": 2}, fate=Ok(), place="here"))
    same = rule_set(Rule(id="a", body={"y": 2, "x": 1}, fate=Ok(), place="there"))
    other = rule_set(Rule(id="a", body={"x": 1, "y": 2.5}, fate=Ok()))
    assert one.compile().hash == same.compile().hash != other.compile().hash


# ---- any rules, any messages -----------------------------------------------------------------

RULES = st.lists(
    st.fixed_dictionaries(
        {},
        optional={
            "body": FIELDS | st.fixed_dictionaries({"type": st.sampled_from(["a", "order", "DE"])}),
            "key_is": st.sampled_from(["k", {"exists": False}]),
            "header": st.just({"h": {"prefix": "x"}}),
            "topic": st.sampled_from(["orders", "o*", "web"]),
        },
    ),
    max_size=8,
)
VALUES = st.one_of(
    DOCUMENTS.map(lambda each: json.dumps(each, ensure_ascii=False).encode()),
    DOCUMENTS.map(lambda each: json.dumps(each).encode()),
    st.binary(max_size=20),
    st.none(),
)
MESSAGES = st.lists(
    st.tuples(
        VALUES, st.sampled_from([None, b"k", b"\xff"]), st.sampled_from([None, {"h": b"xy"}])
    ),
    max_size=8,
)


def meets(rule, body, key, headers):
    if "key_is" in rule and (key != b"k" if rule["key_is"] == "k" else key is not None):
        return False
    subjects = {"body": body, "header": headers}
    tests = {"body": compile_pattern, "header": lambda each: compile_pattern(each, kind="bytes")}
    return all(
        tests[name](rule[name]).test(subject) for name, subject in subjects.items() if name in rule
    )


def slowly(rules, messages, decode, match, undecodable):
    """Decide message by message and rule by rule, as the documents say it."""
    counts: Counter[tuple[str, int]] = Counter()
    rules = [
        (number, rule)
        for number, rule in enumerate(rules)
        if "topic" not in rule or rule["topic"] in {"orders", "o*"}
    ]
    looks = any("body" in rule for _, rule in rules)
    # A rule that asks nothing, and comes first, takes all there is.
    looks = looks and not (match == "first" and set(rules[0][1]) <= {"topic"})
    for place, (value, key, headers) in enumerate(messages):
        body, is_broken = None, False
        if looks:
            try:
                body = decoder(decode)(value)
            except UndecodableMessage:
                is_broken = True
        if is_broken and undecodable == "error":
            counts["decode", place] += 1
            continue
        met = [
            number
            for number, rule in rules
            if not ("body" in rule and is_broken) and meets(rule, body, key, headers or {})
        ]
        for number in met[: 1 if match == "first" else None]:
            counts[f"r{number}", place] += 1
        if not met:
            counts[OTHERWISE, place] += 1
    return counts


@pytest.mark.slow
@given(
    RULES,
    MESSAGES,
    st.sampled_from(DECODES),
    st.sampled_from(["first", "all"]),
    st.sampled_from(["error", "otherwise"]),
)
def test_any_rules_decide_about_any_messages_as_one_by_one(
    rules, messages, decode, match, undecodable
):
    """With index and byte search, whole batches, tombstones and foreign bytes."""
    made = [Rule(id=f"r{n}", fate=Route(to=(f"t{n}",)), **each) for n, each in enumerate(rules)]
    settings = {"decode": decode, "match": match, "undecodable": undecodable}
    compiled = rule_set(*made, otherwise=Route(to=(OTHERWISE,)), **settings).compile()
    values, keys, headers = zip(*messages, strict=True) if messages else ((), (), ())
    decided = compiled.decide(
        Columns(b"orders", range(1, len(messages) + 1), values, keys, headers)
    )
    found = Counter(
        (topic.decode().replace("t", "r", 1) if topic != b"otherwise" else OTHERWISE, place)
        for topic, put in decided.puts.items()
        for place in put.places
    )
    found.update(("decode", each.place) for each in decided.failed)
    assert found == slowly(rules, messages, decode, match, undecodable)
    for put in decided.puts.values():
        assert list(put.values) == [values[place] for place in put.places]
        assert list(put.keys or ()) == [keys[place] for place in put.places]
