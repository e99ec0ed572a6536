"""Records become columns: each message its own bytes, pointers also as times."""

from datetime import UTC, datetime

import numpy as np
import pytest
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import BinaryType, LongType, StructType

from poe.errors import OptionError
from poe.spark.arrow_batches import ArrowBatches, check_schema
from poe.spark.data_source import FULL_SCHEMA, SCHEMA
from poe.storage import POINTER_MAX

pytestmark = pytest.mark.spark


def as_stored(messages):
    records = [bytes(11) + message for message in messages]
    starts = np.cumsum([0, *map(len, records)]).astype(np.uint64)
    return starts, memoryview(b"".join(records))


@pytest.mark.parametrize(
    "messages",
    [[b"a"], [b"abc"] * 9, [b"x" * n for n in range(1, 300)], [b"\0", b"y" * 100_000, b"z"]],
    ids=["one", "equal", "mixed", "one large"],
)
def test_messages_are_cut_out_of_their_records(messages):
    starts, data = as_stored(messages)
    pointers = np.arange(5, 5 + len(messages), dtype=np.uint64)
    batch = ArrowBatches(FULL_SCHEMA).batch("t", 77, pointers, starts, data, 5)
    batch.validate(full=True)
    assert batch["message"].to_pylist() == messages
    assert batch["pointer"].to_pylist() == pointers.tolist()
    assert batch["ordinal"].to_pylist() == pointers.tolist()
    assert set(batch["topic"].to_pylist()) == {"t"}
    assert set(batch["segment"].to_pylist()) == {"t/77"}
    assert batch.schema.equals(to_arrow_schema(FULL_SCHEMA, timezone="UTC"))


def test_a_pointer_is_a_time_in_microseconds():
    starts, data = as_stored([b"a", b"b"])
    pointers = np.array([1_700_000_000_000_001, POINTER_MAX], np.uint64)
    batch = ArrowBatches(SCHEMA).batch("t", 1, pointers, starts, data, 0)
    assert batch["timestamp"][0].as_py() == datetime(2023, 11, 14, 22, 13, 20, 1, tzinfo=UTC)
    assert batch["timestamp"][1].value == POINTER_MAX


def test_fewer_columns_in_another_order_are_made_alone():
    schema = StructType([SCHEMA["pointer"], SCHEMA["topic"]])
    batches = ArrowBatches(schema)
    assert not batches.has_messages
    nothing = np.zeros(2, np.uint64), memoryview(b"")
    batch = batches.batch("t", 1, np.array([3], np.uint64), *nothing, 0)
    assert batch.to_pylist() == [{"pointer": 3, "topic": "t"}]


def test_a_column_that_there_is_not_is_refused():
    check_schema(StructType().add("message", BinaryType()).add("pointer", LongType()), FULL_SCHEMA)
    for schema in (
        StructType().add("value", BinaryType()),
        StructType().add("pointer", BinaryType()),
        StructType().add("pointer", LongType()).add("pointer", LongType()),
        StructType(),
    ):
        with pytest.raises(OptionError, match="topic string, pointer bigint, timestamp timestamp"):
            check_schema(schema, FULL_SCHEMA)
