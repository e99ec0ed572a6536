"""Rows in Arrow batches become put batches; needs neither Spark's Java nor a server."""

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.types import BinaryType, LongType, MapType, StringType, StructField, StructType

from poe.errors import RowsRefused
from poe.protocol import JoinedBatch
from poe.protocol.put import join_batch
from poe.spark import put_batches as module
from poe.spark.put_batches import Keyed, check_columns, put_batches

pytestmark = pytest.mark.spark

ROWS = st.lists(st.tuples(st.sampled_from(["a", "b", "ä"]), st.binary(min_size=1, max_size=9)))


def batches_of(rows, size, message_type=None):
    """Cut (topic, message) rows into Arrow batches, as slices of one: their buffers are shared."""
    topics, messages = zip(*rows, strict=True) if rows else ((), ())
    whole = pa.record_batch(
        {"topic": pa.array(topics, pa.string()), "message": pa.array(messages, message_type)}
    )
    return [whole.slice(start, size) for start in range(0, len(rows), size)]


def split(puts):
    return [(topic.decode(), bytes(message)) for topic, batch in puts for message in batch]


def schema(**kinds):
    return StructType([StructField(name, kind) for name, kind in kinds.items()])


@given(ROWS, st.integers(1, 7))
def test_all_rows_of_a_topic_come_in_their_order(rows, size):
    puts = list(put_batches(batches_of(rows, size, pa.binary()), None))
    for name in {topic for topic, _ in rows}:
        expected = [row for row in rows if row[0] == name]
        assert [row for row in split(puts) if row[0] == name] == expected
    assert len(split(puts)) == len(rows)


@given(ROWS, st.integers(1, 7))
def test_with_one_topic_its_column_means_nothing(rows, size):
    puts = put_batches(batches_of(rows, size, pa.binary()), "t")
    assert split(puts) == [("t", message) for _, message in rows]


@given(st.lists(st.binary(min_size=1, max_size=9), min_size=1))
def test_batch_is_the_one_that_the_client_makes(messages):
    batches = batches_of([("t", message) for message in messages], 3, pa.binary())
    ((_, batch),) = put_batches(batches, "t")
    assert isinstance(batch, JoinedBatch)
    assert len(batch) == len(messages)
    assert join_batch(batch, 1 << 20) == join_batch(messages, 1 << 20)


def test_text_becomes_utf_8():
    batches = batches_of([("t", "für"), ("t", "elise")], 9)
    assert split(put_batches(batches, "t")) == [("t", "für".encode()), ("t", b"elise")]


def test_large_types_of_arrow_are_taken(monkeypatch):
    rows = [("a", b"1"), ("b", b"2")]
    whole = pa.Table.from_batches(batches_of(rows, 9)).cast(
        pa.schema({"topic": pa.large_string(), "message": pa.large_binary()})
    )
    assert split(put_batches(whole.to_batches(), None)) == rows


def test_small_arrow_batches_are_gathered(monkeypatch):
    monkeypatch.setattr(module, "PUT_COUNT", 10)
    puts = list(put_batches(batches_of([("t", b"m")] * 25, 4), "t"))
    assert [len(batch) for _, batch in puts] == [12, 12, 1]


def test_a_large_arrow_batch_is_cut_by_count(monkeypatch):
    monkeypatch.setattr(module, "PUT_COUNT", 10)
    puts = list(put_batches(batches_of([("t", b"m")] * 50, 50), "t"))
    assert [len(batch) for _, batch in puts] == [20, 20, 10]


def test_large_messages_are_cut_by_bytes_but_never_in_the_middle(monkeypatch):
    monkeypatch.setattr(module, "PUT_BYTES", 10)
    rows = [("t", b"123456"), ("t", b"1234567890"), ("t", b"x" * 99), ("t", b"1")]
    puts = list(put_batches(batches_of(rows, 4), "t"))
    assert split(puts) == rows
    assert [len(batch) for _, batch in puts] == [1, 1, 1, 1]


def test_no_rows_are_no_put():
    assert list(put_batches([], "t")) == []
    assert list(put_batches([pa.record_batch({"message": pa.array([], pa.binary())})], "t")) == []


@pytest.mark.parametrize(
    ("bad", "words"), [((None, b"m"), "no topic"), (("", b"m"), "an empty topic")]
)
def test_row_without_a_topic_is_told_with_its_number(bad, words):
    rows = [("t", b"m"), ("t", b"m"), bad]
    with pytest.raises(RowsRefused, match=rf"row 2 .* {words}.*where\(length\(topic\) > 0\)"):
        list(put_batches(batches_of(rows, 2), None))


@pytest.mark.parametrize(
    ("bad", "words"), [(("t", None), "no message"), (("t", b""), "an empty message")]
)
def test_row_without_a_message_is_told_with_its_number(monkeypatch, bad, words):
    monkeypatch.setattr(module, "PUT_COUNT", 2)
    rows = [("t", b"m"), ("t", b"m"), ("t", b"m"), bad]
    with pytest.raises(RowsRefused, match=rf"row 3 .* {words}.*where\(length\(message\) > 0\)"):
        list(put_batches(batches_of(rows, 2), "t"))


def test_columns_of_a_read_can_be_written_again():
    kinds = {"topic": StringType(), "pointer": LongType(), "message": BinaryType()}
    check_columns(schema(**kinds), None)
    check_columns(schema(message=StringType()), "t")


@pytest.mark.parametrize(
    ("columns", "topic", "words"),
    [
        ({"value": StringType()}, "t", "no column 'message', only value; select one as it"),
        ({"message": LongType()}, "t", "'message' is of type bigint; cast it"),
        ({"message": BinaryType()}, None, r"no column 'topic', .*option\('topic'"),
        ({"message": BinaryType(), "topic": LongType()}, None, "'topic' is of type bigint"),
        ({"message": BinaryType(), "user": StringType()}, "t", "'user' would be lost.*to_json"),
        ({"message": BinaryType(), "key": LongType()}, "t", "'key' is of type bigint; cast it"),
        ({"message": BinaryType(), "headers": StringType()}, "t", r"'headers' is of type string"),
        (
            {"message": BinaryType(), "headers": MapType(StringType(), LongType())},
            "t",
            r"'headers' is of type map<string,bigint>; cast it to map<string,binary>",
        ),
    ],
)
def test_columns_that_no_topic_can_take_are_refused_with_the_way_out(columns, topic, words):
    with pytest.raises(RowsRefused, match=words):
        check_columns(schema(**columns), topic)


def keyed(key, headers, message=b"m"):
    types = [("message", pa.binary()), ("key", key.type), ("headers", headers.type)]
    return pa.record_batch([[message] * len(key), key, headers], pa.schema(types))


def texts(*rows):
    return pa.array(rows, pa.map_(pa.string(), pa.string()))


def test_keys_and_headers_that_are_text_become_utf_8():
    kinds = {"key": StringType(), "headers": MapType(StringType(), StringType())}
    check_columns(schema(message=StringType(), **kinds), "t")
    rows = keyed(pa.array(["ä", None]), texts([("h", "ö")], None))
    ((_, batch),) = put_batches([rows], "t")
    assert batch == Keyed([b"m", b"m"], ["ä".encode(), None], [{"h": "ö".encode()}, {}])


def test_row_with_a_header_without_a_value_is_told_with_its_number(monkeypatch):
    monkeypatch.setattr(module, "PUT_COUNT", 2)
    rows = keyed(pa.array(["k", "k", "k", "k"]), texts(None, None, None, [("h", None)]))
    with pytest.raises(RowsRefused, match=r"row 3 .*no value for header 'h'.*map_filter"):
        list(put_batches([rows.slice(0, 2), rows.slice(2)], "t"))


def test_large_headers_are_cut_by_bytes_too(monkeypatch):
    monkeypatch.setattr(module, "PUT_BYTES", 100)
    rows = keyed(pa.array(["k"] * 4), texts(*[[("h", "x" * 60)]] * 4))
    puts = [batch for _, batch in put_batches([rows], "t") if isinstance(batch, Keyed)]
    assert [len(batch.values) for batch in puts] == [2, 2]


def test_text_is_cut_by_its_bytes_too(monkeypatch):
    monkeypatch.setattr(module, "PUT_BYTES", 100)
    messages = pa.array(["€" * 30] * 4)
    rows = pa.record_batch({"message": messages, "key": pa.array(["k"] * 4)})
    puts = [batch for _, batch in put_batches([rows], "t") if isinstance(batch, Keyed)]
    assert [len(batch.values) for batch in puts] == [2, 2]


def to_topics(*rows):
    """Rows of topic, message, key and headers."""
    types = [("topic", pa.string()), ("message", pa.binary()), ("key", pa.binary())]
    columns = [list(column) for column in zip(*rows, strict=True)]
    return pa.record_batch(columns, pa.schema([*types, ("headers", texts(None).type)]))


def test_keys_and_headers_of_one_topic_are_no_matter_of_another_one():
    rows = to_topics(
        ("a", b"1", None, None),
        ("dead", b"2", None, [("why", "x")]),
        ("a", b"3", None, None),
        ("dead", None, b"k", None),
    )
    found = dict(put_batches([rows], None))
    assert isinstance(found[b"a"], JoinedBatch)
    assert list(map(bytes, found[b"a"])) == [b"1", b"3"]
    assert found[b"dead"] == Keyed([b"2", None], [None, b"k"], [{"why": b"x"}, {}])


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        (("a", None, None, None), "no message"),
        (("dead", b"m", None, [("why", None)]), "no value for header 'why'"),
    ],
)
def test_a_row_among_those_of_other_topics_is_told_with_its_number(monkeypatch, bad, words):
    monkeypatch.setattr(module, "PUT_COUNT", 2)
    fine = [("a", b"m", None, None), ("dead", b"m", b"k", None)]
    with pytest.raises(RowsRefused, match=rf"row 3 .*{words}"):
        list(put_batches([to_topics(*fine), to_topics(fine[1], bad)], None))
