"""The same rules on Spark: any rules, any documents, the same result."""

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from poe.client.group.dead_letter import DeadLetter
from poe.errors import InvalidMapping
from poe.mapping import Columns, Drop, RuleSet
from poe.mapping.rule import OnError, Route, Rule, Source
from poe.protocol import socket as connect
from poe.protocol.envelope import decode, encode
from tests.cli.processes import Background, Server
from tests.mapping.strategies import DOCUMENTS, FIELDS

pytestmark = [pytest.mark.spark, pytest.mark.slow]
COLUMNS = "topic string, pointer bigint, message binary, key binary, headers map<string,binary>"


def rule_set(patterns, match="first", **options):
    made = [
        Rule(id=f"r{n}", fate=Route(to=(f"t{n}", "all")), body=each)
        for n, each in enumerate(patterns)
    ]
    source = Source(topics=("in",))
    return RuleSet(
        name="m", source=source, otherwise=Drop(), rules=tuple(made), match=match, **options
    )


def key_of(row):
    headers = row.get("headers")
    row = {**row, "headers": sorted(dict(headers).items()) if headers else None}
    names = ("pointer", "action", "target", "message", "key", "headers", "rule", "reason")
    return repr([row.get(name) for name in names])


VALUES = DOCUMENTS.map(lambda each: json.dumps(each).encode()) | st.binary(max_size=9) | st.none()


@settings(max_examples=6, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    st.lists(FIELDS, max_size=5),
    st.lists(
        st.tuples(VALUES, st.sampled_from([None, b"k"]), st.sampled_from([None, {"h": b"x"}])),
        min_size=1,
        max_size=60,
    ),
    st.sampled_from(["first", "all"]),
)
def test_any_rules_decide_about_any_documents_as_without_spark(spark, patterns, messages, match):
    from poe.mapping.on_spark import judged, rows_of  # noqa: PLC0415 - needs Spark

    rules = rule_set(patterns, match)
    values, keys, headers = zip(*messages, strict=True)
    columns = Columns(b"in", range(len(messages)), values, keys, headers)
    expected = sorted(map(key_of, rows_of(columns, rules.compile().decide(columns))))
    rows = [("in", at, *each) for at, each in enumerate(messages)]
    frame = judged(spark.createDataFrame(rows, COLUMNS), rules)
    found = [
        {
            name: bytes(value) if isinstance(value, bytearray) else value
            for name, value in each.asDict().items()
        }
        for each in frame.collect()
    ]
    for each in found:
        found_headers: Any = each["headers"]
        each["headers"] = found_headers and {
            name: bytes(value) for name, value in found_headers.items()
        }
    assert sorted(map(key_of, found)) == expected


def test_what_waits_is_refused():
    from poe.mapping.on_spark import check  # noqa: PLC0415 - needs Spark

    with pytest.raises(InvalidMapping, match="on_error"):
        check(rule_set([], on_error=OnError(retry=1)))


def test_dead_letters_and_puts_are_rows_that_a_sink_takes(spark):
    from poe.mapping.on_spark import puts  # noqa: PLC0415 - needs Spark

    rules = rule_set([{"a": 1}])
    messages = [
        ("in", 5, b'{"a": 1}', b"k", {"h": b"x"}), ("in", 6, b"{", None, None),
        ("in", 7, b'{"a": 2}', None, None),
    ]  # fmt: skip
    rows = puts(spark.createDataFrame(messages, COLUMNS), rules).collect()
    found: dict[str, Any] = {each["topic"]: each for each in rows}
    assert sorted(found) == ["all", "m.dead", "t0"]
    assert (bytes(found["t0"]["message"]), bytes(found["t0"]["key"])) == (b'{"a": 1}', b"k")
    headers = {name: bytes(value) for name, value in found["t0"]["headers"].items()}
    assert headers == {"h": b"x", "poe-origin": b"in/5", "poe-hops": b"1"}
    dead = {name: bytes(value) for name, value in found["m.dead"]["headers"].items()}
    assert (dead["poe.topic"], dead["poe.pointer"], dead["poe.rule"]) == (b"in", b"6", b"decode")


def test_a_dead_letter_of_a_topic_without_envelopes_is_put_back_as_it_was(spark):
    from poe.mapping.on_spark import puts  # noqa: PLC0415 - needs Spark

    messages = [("plain", 5, b"{", None, None), ("keyed", 6, b"{", b"k", None)]
    rows = puts(spark.createDataFrame(messages, COLUMNS), rule_set([{"a": 1}])).collect()
    letters = [
        encode(
            row["key"], row["message"], {name: bytes(each) for name, each in row.headers.items()}
        )
        for row in rows
    ]
    found = {each.topic: each.message for each in map(DeadLetter.of, letters)}
    assert found == {b"plain": b"{", b"keyed": encode(b"k", b"{")}


def origins(spark, topics, *sources):
    """Return which messages a mapping of topics puts: (topic, partition), as its sources tell."""
    from poe.mapping.on_spark import pipeline_of  # noqa: PLC0415 - needs Spark

    rules = replace(rule_set([{}]), source=Source(topics=topics))
    step: Any = pipeline_of(rules, "checkpoint").tables["puts"]
    assert len(step.takes) == len(sources)
    frames = [
        spark.createDataFrame(
            [(topic, at, b"{}", b"k", None, part) for at, (topic, part) in enumerate(rows)],
            f"{COLUMNS}, partition int",
        )
        for rows in sources
    ]
    rows = step.function(*frames).where("topic = 't0'").collect()
    return sorted(bytes(row.headers["poe-origin"]).decode() for row in rows)


def test_a_topic_that_a_name_and_a_pattern_mean_is_read_once(spark):
    both = [("orders", 0), ("users-1", 1)]
    matched = [*both, ("orbit", 0)]
    found = origins(spark, ("orders", "users", "*"), both, matched)
    assert found == ["orbit/2", "orders/0", "users/1"]


def test_a_topic_that_looks_like_a_partition_is_none(spark):
    of_a_log = [("a.log", 0), ("a.log-1", 1)]
    another = [("a.log-2026", 0)]
    assert origins(spark, ("*.log",), of_a_log + another) == ["a.log/0", "a.log/1"]
    assert origins(spark, ("x-0", "y"), [("x-0", 0), ("y-0", 0)]) == ["x-0/0", "y/1"]
    assert origins(spark, ("log-*",), [("log-0", 0), ("log-1", 0)]) == ["log-0/0", "log-1/1"]


RULES = """
name = "sorted"
source = { topics = ["orders", "web.*"] }
otherwise = "dead"

[[rule]]
id = "vip"
body = { amount = { gt = 100 } }
to = "vip"
key = "{body.id}"
"""


@pytest.mark.timeout(300)
def test_a_mapping_runs_on_spark_by_one_command(tmp_path, java):
    (tmp_path / "sorted.toml").write_text(RULES)
    with Server(tmp_path / "data") as server, connect("127.0.0.1", server.port) as connection:
        connection.create_topic("orders", partitions=2)
        amounts = [b'{"id": "a", "amount": 500}', b'{"id": "b", "amount": 5}', b"{"]
        for partition, amount in zip((0, 1, 1), amounts, strict=True):
            connection.write(f"orders-{partition}", [amount])
        connection.write("web.clicks", [b'{"id": "w", "amount": 101}'])
        command = ("mapping", "run", tmp_path / "sorted.toml", "--on", "spark")
        with Background(*command, "--available-now", port=server.port) as running:
            told = running.process.communicate(timeout=240)
            assert running.process.returncode == 0, told
        vip = [decode(message) for _, message in connection.read("vip", 0, 10)]
        assert {key for key, _, _ in vip} == {b"a", b"w"}
        assert len(vip) == 2
        dead = [decode(message) for _, message in connection.read("sorted.dead", 0, 10)]
        held = [headers or {} for _, _, headers in dead]
        assert sorted(each["poe.rule"] for each in held) == [b"decode", b"otherwise"]
        assert {each["poe.topic"] for each in held} == {b"orders"}
