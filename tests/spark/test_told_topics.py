"""A topic that was made with partitions is read and written by its name, no option is needed."""

from contextlib import closing

import pyarrow as pa
import pytest
from pyspark.sql.types import BinaryType, StructField, StructType

from poe.client.producer.murmur2 import murmur2
from poe.errors import InvalidEnvelope, RowsRefused, UnknownTopic
from poe.protocol import JoinedBatch
from poe.protocol.envelope import decode, encode
from poe.protocol.server import Server
from poe.spark.arrow_batches import Place
from poe.spark.broker_segments import BrokerSegments
from poe.spark.put_batches import put_batches
from poe.spark.retrying_socket import RetryingSocket
from poe.spark.targets import Targets
from tests.spark.sources import (
    batch_reader,
    batch_table,
    data_source,
    messages,
    stream_reader,
    table,
)

pytestmark = pytest.mark.spark


def test_a_folder_s_topic_is_read_with_all_of_its_partitions(topics):
    topics.node.create_topic("t", partitions=3)
    for number in range(6):
        topics.put(f"t-{number % 2}", f"{number}")
    read = batch_table(path=topics.folder, topic="t")
    assert sorted(messages(read)) == [b"%d" % number for number in range(6)]
    assert set(read["topic"].to_pylist()) == {"t-0", "t-1"}
    with pytest.raises(UnknownTopic):
        batch_table(path=topics.folder, topic="u")


def test_rows_tell_partition_and_what_is_in_their_envelopes(topics):
    topics.node.create_topic("t", partitions=2, envelope=True)
    topics.node.put("t-1", encode(b"k", b"value", {"a": b"1"}))
    topics.node.put("t-1", encode(None, None, None))
    topics.put("plain", "raw")
    read = batch_table(path=topics.folder, topics="t,plain").to_pylist()
    columns = "topic", "ordinal", "partition", "message", "key", "headers"
    assert sorted([row[name] for name in columns] for row in read) == [
        ["plain", 0, 0, b"raw", None, None],
        ["t-1", 0, 1, b"value", b"k", [("a", b"1")]],
        ["t-1", 1, 1, None, None, None],
    ]


def test_what_is_no_envelope_is_told_where_there_should_be_one(topics):
    topics.node.create_topic("t", envelope=True)
    topics.node.put("t", encode(b"k", b"value"))
    pointer = topics.put("t", "raw")
    with pytest.raises(InvalidEnvelope, match=f"message with pointer {pointer} is no envelope"):
        batch_table(path=topics.folder, topic="t")


def test_a_server_tells_partition_and_envelope_too(node):
    node.create_topic("t", partitions=2, envelope=True)
    host, port = node.address
    with closing(
        BrokerSegments([Server(host, port)], retry_timeout_s=5, is_known=True)
    ) as segments:
        assert segments.place("t-1") == Place(1, has_envelopes=True, topic="t")
        assert segments.place("t-2") == Place()
        assert segments.place("other") == Place()


KEYED = pa.schema(
    [("message", pa.binary()), ("key", pa.binary()), ("headers", pa.map_(pa.string(), pa.binary()))]
)


def test_a_read_of_a_topic_without_keys_has_the_columns_and_is_put_as_it_is():
    nothing = pa.record_batch([[b"a"], [None], [None]], KEYED)
    (put,) = put_batches([nothing], "t")
    assert isinstance(put[1], JoinedBatch)


def keyed_rows():
    rows = [[b"a", None, b"c"], [b"k", b"k", None], [[("h", b"x")], None, None]]
    return put_batches([pa.record_batch(rows, KEYED)], "keyed")


def test_rows_with_keys_go_to_the_partition_of_their_key(node):
    node.create_topic("keyed", partitions=3, envelope=True)
    with RetryingSocket([Server(*node.address)], 5) as server:
        puts = list(Targets(server).of(keyed_rows()))
    of_key = f"keyed-{(murmur2(b'k') & 0x7FFFFFFF) % 3}".encode()
    told = {topic: [decode(each) for each in batch] for topic, batch in puts}
    assert told[of_key][:2] == [(b"k", b"a", {"h": b"x"}), (b"k", None, None)]
    assert sum(map(len, told.values())) == 3


def test_a_topic_for_rows_with_keys_is_made_with_envelopes(node):
    with RetryingSocket([Server(*node.address)], 5) as server:
        list(Targets(server).of((b"made", batch) for _, batch in keyed_rows()))
    assert node.describe("made").properties.envelope


def written(node, *tasks):
    """Write rows with keys as Spark does: each of the tasks has some of them."""
    host, port = node.address
    source = data_source(host=host, port=port, topic="t")
    schema = StructType([StructField("message", BinaryType()), StructField("key", BinaryType())])
    writer = source.writer(schema, overwrite=False)
    reports = [
        writer.write(iter([pa.record_batch(rows, pa.schema(list(KEYED)[:2]))])) for rows in tasks
    ]
    try:
        writer.commit(reports)
    except RowsRefused:
        writer.abort(reports)
        raise


def test_rows_without_keys_get_no_topic_that_others_have_made_with_envelopes(node):
    without, with_key = [[b"a"], [None]], [[b"b"], [b"k"]]
    with pytest.raises(RowsRefused, match=r"'t' was made with envelopes.*nothing is stored"):
        written(node, without, with_key)
    written(node, without, with_key)
    host, port = node.address
    read = batch_table(host=host, port=port, topic="t").to_pylist()
    assert [(row["message"], row["key"]) for row in read] == [(b"a", None), (b"b", b"k")]


def test_keys_and_headers_are_not_lost_silently(node):
    node.create_topic("keyed")
    with (
        RetryingSocket([Server(*node.address)], 5) as server,
        pytest.raises(RowsRefused, match="'keyed' have a key or headers, which would be lost"),
    ):
        list(Targets(server).of(keyed_rows()))


def test_a_topic_without_envelopes_is_written_beside_one_that_has_them(node):
    node.create_topic("plain")
    schema = pa.schema([("topic", pa.string()), *KEYED])
    rows = [["plain", "dead"], [b"a", b"b"], [None, None], [None, [("why", b"x")]]]
    puts = put_batches([pa.record_batch(rows, schema)], None)
    with RetryingSocket([Server(*node.address)], 5) as server:
        told = {topic: list(map(bytes, batch)) for topic, batch in Targets(server).of(puts)}
    assert told[b"plain"] == [b"a"]
    assert decode(told[b"dead"][0]) == (None, b"b", {"why": b"x"})


def test_a_stream_reads_partitions_and_those_that_are_added(topics):
    topics.node.create_topic("t")
    topics.put("t", "0")
    reader = stream_reader(path=topics.folder, topic="t")
    start = reader.initialOffset()
    limit = reader.getDefaultReadLimit()
    first = reader.latestOffset({}, limit)
    assert list(first) == ["t"]
    topics.node.alter_topic("t", partitions=3)
    topics.put("t-2", "1")
    second = reader.latestOffset(first, limit)
    assert list(second) == ["t", "t-2"]
    assert messages(table(reader, reader.partitions(first, second))) == [b"1"]
    assert list(start) == ["t"]


def test_a_stream_of_a_server_reads_partitions_by_the_name_of_their_topic(node):
    node.create_topic("t", partitions=2)
    node.put("t-1", b"1")
    host, port = node.address
    reader = stream_reader(url=f"poe://{host}:{port}", topic="t", missingTopics="error")
    start, limit = reader.initialOffset(), reader.getDefaultReadLimit()
    end = reader.latestOffset(start, limit)
    assert messages(table(reader, reader.partitions(start, end))) == [b"1"]
    reader.stop()


@pytest.mark.parametrize("partitions", [1, 2])
def test_a_topic_that_was_made_and_is_empty_has_no_rows_and_is_not_missing(topics, partitions):
    topics.node.create_topic("t", partitions=partitions)
    assert batch_reader(path=topics.folder, topic="t").partitions() == []
    reader = stream_reader(path=topics.folder, topic="t", missingTopics="error")
    assert reader.latestOffset(reader.initialOffset(), reader.getDefaultReadLimit()) == {}


def test_an_empty_topic_of_a_server_has_no_rows_and_is_not_missing(node):
    node.create_topic("t")
    host, port = node.address
    assert batch_reader(host=host, port=port, topic="t").partitions() == []
    reader = stream_reader(host=host, port=port, topic="t", missingTopics="error")
    assert reader.latestOffset(reader.initialOffset(), reader.getDefaultReadLimit()) == {}
    reader.stop()


def test_rows_go_to_all_partitions_and_into_envelopes(node):
    node.create_topic("t", partitions=2, envelope=True)
    node.create_topic("one")
    host, port = node.address
    with RetryingSocket([Server(host, port)], 5.0) as server:
        batch = JoinedBatch(b"\0\0\0\1a\0\0\0\2bc", 2)
        puts = list(Targets(server).of([(b"t", batch)] * 4 + [(b"one", batch), (b"new", batch)]))
    assert {topic for topic, _ in puts[:4]} == {b"t-0", b"t-1"}
    for _, wrapped in puts[:4]:
        assert [decode(each).value for each in wrapped] == [b"a", b"bc"]
    assert puts[4:] == [(b"one", batch), (b"new", batch)]
