"""Measures mappings end to end: from one topic onto others, exactly once, in one process.

The node is another process. A round reads all messages of a topic, JSON documents of 104 bytes, and
puts those that meet a rule. What is timed begins before the group is joined, and ends when all that
is to be put is acknowledged. The bars are for a core: time of this process; by the clock the node's
work comes to that, as far as it is not done beside.
"""

import itertools
import time
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

from bench import rounds
from bench.processes import HOST, poe
from bench.row import Sample
from poe import protocol
from poe.errors import MappingExtraMissing
from poe.mapping import Drop, RuleSet
from poe.mapping.rule import Route, Rule, Source
from poe.mapping.runner import Runner

TOPIC = "documents"
TYPES = 100
BATCH = 10_000
LIMIT_S = 120.0
_numbers = itertools.count()

ONE = (
    Rule(
        id="vip",
        fate=Route(to=("out",)),
        body={"type": "t7", "amount": {"gt": 100}, "country": ["DE", "FR"]},
    ),
    Rule(id="rest", fate=Route(to=("out",))),
)
"""All messages to one target, each looked at by a pattern of three fields."""

HUNDRED = tuple(
    Rule(
        id=f"rule {number}",
        fate=Route(to=(f"out.{number % 10}",)),
        body={"type": f"t{number}", "amount": {"ge": 0}},
    )
    for number in range(TYPES)
)

EXPRESSION = (
    Rule(
        id="vip",
        fate=Route(to=("out",)),
        when="body.type == 't7' && body.amount > 100 && body.country in ['DE', 'FR']",
    ),
    Rule(id="rest", fate=Route(to=("out",))),
)

ASKED = (
    Rule(
        id="vip",
        fate=Route(to=("out",)),
        when="body.user.id.endsWith('7') || body.country in ['DE', 'FR'] && body.amount > 100",
    ),
    Rule(id="rest", fate=Route(to=("out",))),
)
"""An expression of which nothing can be told without asking CEL, for each message."""


def measure_rounds(count: int, *, quick: bool) -> Iterator[list[Sample]]:
    """Map the same messages by each set of rules, round by round."""
    messages = 100_000 if quick else 1_000_000
    with TemporaryDirectory(prefix="poe-bench-") as folder, poe(Path(folder) / "data") as node:
        url = f"poe://{HOST}:{node.port}"
        _fill(node.port, messages)
        for _ in range(count):
            yield [
                *_measured(url, "patterns to one target", ONE, messages, 800_000),
                *_measured(url, f"{TYPES} rules, 10 targets", HUNDRED, messages, 300_000),
                *_expressions(url, messages),
            ]


def _expressions(url: str, messages: int) -> list[Sample]:
    try:
        return [
            *_measured(url, "an expression in CEL", EXPRESSION, messages, 150_000),
            *_measured(url, "one that CEL is asked each time", ASKED, messages, 0),
        ]
    except MappingExtraMissing:
        return []


def _measured(
    url: str, name: str, rules: tuple[Rule, ...], messages: int, bar: float
) -> list[Sample]:
    rule_set = RuleSet(
        name=f"bench-{next(_numbers)}",
        source=Source(topics=(TOPIC,)),
        otherwise=Drop(""),
        rules=rules,
    )
    runner = Runner(rule_set, url)
    began_s, began_core_s = time.perf_counter(), time.process_time()
    with runner:
        while _done(runner) < messages:
            assert time.perf_counter() < began_s + LIMIT_S, runner.station.notes
            time.sleep(0.005)
        took_s = time.perf_counter() - began_s
        took_core_s = time.process_time() - began_core_s
    measure = f"mapping, {name}, 104 B of JSON, exactly once"
    return [
        Sample.at_least(measure, messages / took_core_s, "messages/s of a core", bar),
        Sample.at_least(f"{measure}, by the clock", messages / took_s, "messages/s", 0),
    ]


def _done(runner: Runner) -> int:
    return sum(run.status.messages for run in runner.station.runs())


def _fill(port: int, messages: int) -> None:
    with protocol.socket(HOST, port) as socket:
        for first in range(0, messages, BATCH):
            socket.write(TOPIC, [_document(first + each) for each in range(BATCH)])


def _document(number: int) -> bytes:
    country = ("DE", "FR", "IT", "ES")[number % 4]
    document = (
        f'{{"type":"t{number % TYPES}","amount":{number % 200},"country":"{country}",'
        f'"user":{{"id":"u{number}"}},"note":"'
    ).encode()
    return document + b"x" * (102 - len(document)) + b'"}'


if __name__ == "__main__":
    rounds.main(measure_rounds)
