"""Filters of Spark become bounds and tests of topics; what is left is Spark's to apply."""

from datetime import UTC, datetime

import pytest
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    IsNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringContains,
    StringEndsWith,
    StringStartsWith,
)

from poe.spark.pushdown import Pushdown

pytestmark = pytest.mark.spark

POINTER, TIMESTAMP, TOPIC, MESSAGE = ("pointer",), ("timestamp",), ("topic",), ("message",)


def pushed(*filters, after=10, last=100):
    pushdown = Pushdown(after, last)
    return pushdown, pushdown.push(filters)


@pytest.mark.parametrize(
    ("filter_", "bounds"),
    [
        (EqualTo(POINTER, 50), (49, 50)),
        (EqualNullSafe(POINTER, 50), (49, 50)),
        (GreaterThan(POINTER, 50), (50, 100)),
        (GreaterThanOrEqual(POINTER, 50), (49, 100)),
        (LessThan(POINTER, 50), (10, 49)),
        (LessThanOrEqual(POINTER, 50), (10, 50)),
        (GreaterThan(POINTER, 5), (10, 100)),
        (LessThan(POINTER, 500), (10, 100)),
        (GreaterThan(TIMESTAMP, datetime(1970, 1, 1, 0, 0, 0, 50, tzinfo=UTC)), (50, 100)),
    ],
)
def test_a_comparison_moves_the_bounds_and_is_done_with(filter_, bounds):
    pushdown, left = pushed(filter_)
    assert (pushdown.after, pushdown.last) == bounds
    assert left == []


def test_several_comparisons_are_taken_together():
    pushdown, _ = pushed(GreaterThan(POINTER, 20), LessThan(POINTER, 30), LessThan(POINTER, 40))
    assert (pushdown.after, pushdown.last) == (20, 29)


def test_a_list_of_pointers_narrows_and_is_applied_by_spark_too():
    filter_ = In(POINTER, (70, 20, 30))
    pushdown, left = pushed(filter_)
    assert (pushdown.after, pushdown.last) == (19, 70)
    assert left == [filter_]


@pytest.mark.parametrize(
    "filter_",
    [
        Not(EqualTo(POINTER, 50)),
        EqualTo(POINTER, 1.5),
        EqualTo(POINTER, True),
        In(POINTER, (1, "x")),
        GreaterThan(TIMESTAMP, datetime(2026, 1, 1)),  # noqa: DTZ001 - a time without a zone
        EqualTo(MESSAGE, b"x"),
        IsNull(POINTER),
        Not(IsNotNull(TOPIC)),
        GreaterThan(TOPIC, "a"),
        StringContains(("segment",), "x"),
    ],
)
def test_what_is_not_understood_changes_nothing(filter_):
    pushdown, left = pushed(filter_)
    assert left == [filter_]
    assert pushdown == Pushdown(10, 100)


@pytest.mark.parametrize(
    ("filter_", "expected"),
    [
        (EqualTo(TOPIC, "ab"), ["ab"]),
        (EqualNullSafe(TOPIC, "ab"), ["ab"]),
        (In(TOPIC, ("ab", "b")), ["ab", "b"]),
        (StringStartsWith(TOPIC, "a"), ["a", "ab"]),
        (StringEndsWith(TOPIC, "b"), ["ab", "b"]),
        (StringContains(TOPIC, "a"), ["a", "ab"]),
        (Not(EqualTo(TOPIC, "ab")), ["a", "b"]),
        (Not(In(TOPIC, ("ab", "b"))), ["a"]),
    ],
)
def test_tests_of_the_topic_choose_topics(filter_, expected):
    pushdown, left = pushed(filter_)
    assert left == []
    assert [topic for topic in ("a", "ab", "b") if pushdown.selects(topic)] == expected


def test_a_message_may_be_null_and_no_pointer_time_or_topic():
    _, left = pushed(*(IsNotNull(column) for column in (POINTER, TIMESTAMP, TOPIC, MESSAGE)))
    assert left == [IsNotNull(MESSAGE)]
