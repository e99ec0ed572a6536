"""Measures what mappings decide, from bytes on, by processor time; `mapping_runs` is the rest.

Decisions are for batches of
JSON documents of 104 bytes; the predicate is `type == "order" and amount > 100 and country in
(DE, FR)`.
"""

import json
import time
from collections.abc import Iterator

from bench import rounds
from bench.row import Sample
from poe.mapping import Columns, Drop, Ok, RuleSet
from poe.mapping.decoding import loader
from poe.mapping.rule import Call, Route, Rule, Source

BATCH = 20_000
PREDICATE = {"type": "order", "amount": {"gt": 100}, "country": ["DE", "FR"]}
CEL = "body.type == 'order' && body.amount > 100 && body.country in ['DE', 'FR']"
ONTO = Route(to=("orders.vip",))


def measure_rounds(count: int, *, quick: bool) -> Iterator[list[Sample]]:
    """Decide about the same batch by several rules, and run one mapping."""
    del quick
    values = [document(number) for number in range(BATCH)]
    batch = Columns(b"orders", range(1, BATCH + 1), values)
    hundred = [
        Rule(id=f"r{n}", body=PREDICATE | {"type": "order" if n == 77 else f"t{n}"}, fate=ONTO)
        for n in range(100)
    ]
    called = Call(function=lambda _: Ok(), name="function", pure=True)
    for _ in range(count):
        yield [
            Sample.at_least("mapping: decode alone", decoding_rate(values), "M/s", 0),
            decided("one rule, patterns", batch, 0.8, Rule(id="r", body=PREDICATE, fate=ONTO)),
            decided("100 rules, patterns", batch, 0.3, *hundred),
            decided("one rule, CEL", batch, 0.15, Rule(id="r", when=CEL, fate=ONTO)),
            decided("one rule, a function", batch, 0, Rule(id="r", fate=called)),
            decided("a template", batch, 0, Rule(id="r", fate=Route(to=("o.{body.country}",)))),
        ]


def document(number: int) -> bytes:
    """Return an order, or something else: every second one; a third of the orders are met."""
    body = {
        "type": ("order", "bill")[number % 2],
        "amount": number % 200,
        "country": ("DE", "FR", "UK")[number % 3],
        "user": {"id": number % 10_000, "name": "someone"},
        "items": [1, 2, 3],
    }
    return json.dumps(body, separators=(",", ":")).encode()


def rules_of(*rules: Rule) -> RuleSet:
    """Return a mapping of some rules."""
    return RuleSet(name="bench", source=Source(topics=("orders",)), otherwise=Drop(), rules=rules)


def decoding_rate(values: list[bytes]) -> float:
    """Return millions of values per second that are decoded, and thrown away."""
    load = loader("json")
    begin = time.process_time()
    for value in values:
        load(value)
    return len(values) / (time.process_time() - begin) / 1e6


def decided(name: str, batch: Columns, bar: float, *rules: Rule) -> Sample:
    """Return millions of messages per second that are decided about."""
    compiled = rules_of(*rules).compile()
    compiled.decide(batch)
    begin = time.process_time()
    compiled.decide(batch)
    rate = len(batch.pointers) / (time.process_time() - begin) / 1e6
    return Sample.at_least(f"mapping: decisions, {name}", rate, "M/s", bar)


if __name__ == "__main__":
    rounds.main(measure_rounds)
