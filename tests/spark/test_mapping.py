"""The same rules on Spark: any rules, any documents, the same result."""

import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from poe.errors import InvalidMapping
from poe.mapping import Columns, Drop, RuleSet
from poe.mapping.rule import OnError, Route, Rule, Source
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
