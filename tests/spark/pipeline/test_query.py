"""What a query tells of itself, as far as it needs no Spark."""

import json

import pytest

from poe.spark.pipeline.plan import reason_of
from poe.spark.pipeline.query import lag_s


def progress(*sources):
    return {
        "sources": [
            {"endOffset": json.dumps(read), "latestOffset": json.dumps(newest)}
            for read, newest in sources
        ]
    }


def test_lag_is_the_time_between_the_newest_message_and_the_last_one_read():
    assert lag_s(progress(({"t": 1_000_000}, {"t": 3_500_000}))) == 2.5
    assert lag_s(progress(({"t": 5, "u": 0}, {"t": 5, "u": 2_000_000}))) == 2.0
    assert lag_s(progress(({"t": 5}, {"t": 5}), ({"u": 1}, {"u": 1_000_001}))) == 1.0
    assert lag_s(progress(({"t": 7}, {"t": 5}))) == 0.0


@pytest.mark.parametrize(
    "told",
    [{}, {"sources": []}, progress((5, None)), progress(({"a": {"b": 1}}, {"a": {"b": 2}}))],
)
def test_a_source_that_has_no_pointers_has_no_lag(told):
    assert lag_s(told) is None


def test_what_an_error_says_is_told_without_stacks_and_plans():
    error = ValueError("first line\n  second line\n\tat java.lang.Thread.run\n\tat more")
    assert reason_of(error) == "ValueError: first line second line"
    error = ValueError("[CODE] what\n'Project [a]\n+- more\n\nJVM stacktrace:\nmuch")
    assert reason_of(error) == "ValueError: [CODE] what"
