"""Parsing of messages, with Spark; the part of msgpack that needs none, without."""

import msgpack  # type: ignore[import-untyped]  # it ships no type hints
import pyarrow as pa
import pytest

from poe.spark.pipeline.definitions import Parse, make
from poe.spark.pipeline.parsing import parse, unpacked

KIND = pa.struct([("name", pa.string()), ("n", pa.int32())])


def test_msgpack_maps_become_structs_and_what_is_none_becomes_null():
    messages = [
        msgpack.packb({"name": "a", "n": 1, "more": [2]}),
        b"\xc1",
        None,
        msgpack.packb([1]),
        msgpack.packb({"n": 2}),
    ]
    assert unpacked(pa.array(messages, pa.binary()), KIND).to_pylist() == [
        {"name": "a", "n": 1},
        None,
        None,
        None,
        {"name": None, "n": 2},
    ]


def test_one_value_of_a_wrong_type_costs_its_neighbours_nothing():
    maps = [{"name": "a", "n": 1}, {"name": "b", "n": "two"}, {"name": "c", "n": 1 << 40}]
    messages = pa.array([msgpack.packb(each) for each in maps], pa.binary())
    assert unpacked(messages, KIND).to_pylist() == [
        {"name": "a", "n": 1},
        {"name": "b", "n": None},
        {"name": "c", "n": None},
    ]


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (pa.timestamp("us", "UTC"), float("nan")),
        (pa.date32(), float("nan")),
        (pa.timestamp("us", "UTC"), msgpack.Timestamp(1 << 60)),
        (pa.map_(pa.string(), pa.int32()), [None]),
    ],
)
def test_a_value_that_no_time_or_map_can_be_is_null(kind, value):
    maps = [{"name": "a", "x": value}, {"name": "b"}]
    messages = pa.array([msgpack.packb(each) for each in maps], pa.binary())
    found = unpacked(messages, pa.struct([("name", pa.string()), ("x", kind)]))
    found.validate(full=True)
    assert found.to_pylist() == [{"name": "a", "x": None}, {"name": "b", "x": None}]


MESSAGES = {
    "json": [b'{"name": "a", "n": 1}', b"no json", b'{"name": "b"}'],
    "csv": [b"a;1", b"", b"b;"],
    "regex": [b"my name=a n=1.", b"nothing", b"name=b n="],
    "msgpack": [msgpack.packb({"name": "a", "n": 1}), b"\xc1", msgpack.packb({"name": "b"})],
}
HOW: dict[str, dict[str, object]] = {
    "json": {"schema": "name STRING, n INT"},
    "csv": {"schema": "name STRING, n INT", "options": {"sep": ";"}},
    "regex": {"pattern": r"name=(?P<name>\w+) n=(?P<n>\d*)", "schema": "n INT"},
    "msgpack": {"schema": "name STRING, n INT"},
}


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.parametrize("format_name", MESSAGES)
def test_a_column_becomes_columns(spark, format_name):
    rows = list(enumerate(MESSAGES[format_name]))
    table = spark.createDataFrame(rows, "pointer BIGINT, message BINARY")
    how = {"format": format_name, **HOW[format_name]}
    parsed = parse(table, make(Parse, "p", how)).orderBy("pointer")
    assert parsed.columns == ["pointer", "name", "n"]
    assert [tuple(row) for row in parsed.collect()] == [
        (0, "a", 1),
        (1, None, None),
        (2, "b", None),
    ]
    valid = parse(table, make(Parse, "p", {**how, "drop_invalid": True}))
    named = parse(table.selectExpr("*", "'old' AS Name"), make(Parse, "p", how))
    assert named.columns == ["pointer", "name", "n"]
    assert sorted(row.pointer for row in valid.collect()) == [0, 2]


@pytest.mark.spark
@pytest.mark.slow
def test_a_time_of_msgpack_is_a_timestamp(spark):
    message = msgpack.packb({"at": msgpack.Timestamp(1, 500_000_000)})
    table = spark.createDataFrame([(message,)], "message BINARY")
    parsed = parse(table, make(Parse, "p", {"format": "msgpack", "schema": "at TIMESTAMP"}))
    [row] = parsed.selectExpr("double(at) AS at").collect()
    assert row.at == 1.5
