"""Batches of messages are decided about by rules, and grouped by where they go."""

import json

from poe.mapping.action import Drop, Ok
from poe.mapping.message import Columns
from poe.mapping.rule import Route, Rule, Source
from poe.mapping.rule_set import RuleSet


def rule_set(*rules: Rule, **settings) -> RuleSet:
    settings = {"name": "m", "source": Source(topics=("orders",)), "otherwise": Drop(), **settings}
    return RuleSet(rules=rules, **settings)


def batch(*bodies, topic=b"orders", **columns) -> Columns:
    values = [each if isinstance(each, bytes) else json.dumps(each).encode() for each in bodies]
    return Columns(topic, range(1, len(bodies) + 1), values, **columns)


def test_messages_go_where_the_first_rule_that_they_meet_says():
    compiled = rule_set(
        Rule(id="vip", body={"type": "order"}, fate=Route(to=("vip", "audit"))),
        Rule(id="rest", body={}, fate=Ok()),
    ).compile()
    decided = compiled.decide(batch({"type": "order"}, {"type": "bill"}, [1], {"type": "order"}))
    assert list(decided.puts) == [b"vip", b"audit"]
    assert list(decided.puts[b"vip"].places) == [0, 3]
    assert decided.counts == {("vip", "to"): 2, ("rest", "ok"): 1, ("otherwise", "drop"): 1}


def test_what_cannot_be_decoded_has_failed():
    compiled = rule_set(Rule(id="a", body={}, fate=Ok())).compile()
    decided = compiled.decide(batch({}, b"{", {}))
    [failed] = decided.failed
    assert (failed.place, failed.rule) == (1, "decode")
    assert decided.counts["a", "ok"] == 2
