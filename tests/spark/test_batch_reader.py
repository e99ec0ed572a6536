"""A table is planned from the files of a folder, and read as executors read it; no JVM."""

import contextlib
import tracemalloc
from datetime import UTC, datetime, timedelta

import numpy as np
import pytest
from pyspark.sql.datasource import EqualTo, GreaterThan, LessThanOrEqual, StringStartsWith

from poe.errors import CorruptRecord, DataLost, OptionError, UnknownTopic
from poe.record import RECORD_HEADER_BYTES
from poe.spark.data_source import SCHEMA
from poe.spark.read_options import EPOCH
from poe.storage.formats.record import encode_entries, encode_record
from tests.broker.nodes import seconds
from tests.spark.sources import (
    batch_reader,
    batch_table,
    data_source,
    messages,
    stream_reader,
)

pytestmark = pytest.mark.spark


def fill(topics, topic="t", count=10):
    """Put messages, one by one over some segments, and return their pointers."""
    return [topics.put(topic, f"{topic}{number}") for number in range(count)]


def test_a_topic_is_read_whole_while_its_server_runs_and_when_it_is_stopped(topics):
    pointers = fill(topics)
    for _ in ("runs", "is stopped"):
        read = batch_table(path=topics.folder, topic="t")
        assert messages(read) == [f"t{n}".encode() for n in range(10)]
        assert read["pointer"].to_pylist() == pointers
        assert read["timestamp"].to_pylist() == [
            EPOCH + timedelta(microseconds=pointer) for pointer in pointers
        ]
        with contextlib.suppress(Exception):
            topics.stop()
    topics.start()


def test_bounds_are_behind_the_first_pointer_and_up_to_the_last(topics):
    pointers = fill(topics)
    read = batch_table(
        path=topics.folder, topic="t", startingPointer=pointers[2], endingPointer=pointers[5]
    )
    assert read["pointer"].to_pylist() == pointers[3:6]
    assert messages(batch_table(path=topics.folder, topic="t", startingPointer="latest")) == []


def test_counts_are_a_row_for_each_segment_and_no_message_is_read(topics):
    pointers = fill(topics)
    other = fill(topics, "u", 2)
    named = {"path": topics.folder, "topics": "t,u", "counts": "true"}
    read = batch_table(**named)
    assert read.schema.names == ["topic", "segment", "first", "last", "count", "bytes"]
    rows = read.to_pylist()
    assert [(row["topic"], row["count"]) for row in rows] == [
        ("t", 3), ("t", 3), ("t", 3), ("t", 1), ("u", 2)
    ]  # fmt: skip
    assert [row["first"] for row in rows] == [*pointers[:10:3], other[0]]
    assert [row["last"] for row in rows] == [*pointers[2:9:3], pointers[9], other[1]]
    assert {row["bytes"] // row["count"] for row in rows} == {RECORD_HEADER_BYTES + len("t1")}
    segments = dict.fromkeys(batch_table(**named | {"counts": "false", "includeSegment": "true"})
        ["segment"].to_pylist())  # fmt: skip
    assert [row["segment"] for row in rows] == list(segments)

    cut = batch_table(
        ["count", "topic"], **named, startingPointer=pointers[1], endingPointer=pointers[6]
    )
    assert cut.to_pylist() == [{"count": n, "topic": "t"} for n in (1, 3, 1)]
    assert batch_table(**named, startingPointer="latest").num_rows == 0


def test_the_columns_of_counts_and_those_of_messages_do_not_mix(topics):
    fill(topics)
    counts = batch_reader(path=topics.folder, topic="t", counts="true")
    assert len(counts.partitions()) == 1
    with pytest.raises(OptionError, match=r"'schema'.*topic string, segment string, first bigint"):
        data_source(path=topics.folder, topic="t", counts="true").reader(SCHEMA)
    with pytest.raises(OptionError, match=r"'counts'.*either counts or filterPushdown"):
        batch_reader(path=topics.folder, topic="t", counts="true", filterPushdown="true")
    with pytest.raises(OptionError, match="'counts' is not known"):
        stream_reader(path=topics.folder, topic="t", counts="true").initialOffset()


def test_times_are_bounds_too(topics):
    pointers = fill(topics)
    begin, end = (datetime.fromtimestamp(pointers[n] / 1e6, UTC).isoformat() for n in (2, 5))
    read = batch_table(path=topics.folder, topic="t", startingTimestamp=begin, endingTimestamp=end)
    assert read["pointer"].to_pylist() == pointers[2:5]


def test_filters_prune_segments_and_leave_nothing_to_spark(topics):
    pointers = fill(topics)
    reader = batch_reader(path=topics.folder, topic="t", filterPushdown="true")
    filters = [
        GreaterThan(("pointer",), pointers[6]),
        LessThanOrEqual(("pointer",), pointers[7]),
        EqualTo(("topic",), "t"),
    ]
    assert reader.pushFilters(filters) == []
    ranges = [each for part in reader.partitions() for each in part.value]
    assert [(each.first, each.last, each.count) for each in ranges] == [
        (pointers[6] + 1, pointers[7], 1)
    ]


def test_a_pattern_a_list_and_a_filter_choose_topics(topics):
    for topic in ("a1", "a2", "b1"):
        fill(topics, topic, 2)
    assert messages(batch_table(path=topics.folder, topicPattern="a.")) == [
        b"a10", b"a11", b"a20", b"a21",
    ]  # fmt: skip
    read = batch_table(
        filters=[StringStartsWith(("topic",), "b")], path=topics.folder, topics="a1,b1"
    )
    assert messages(read) == [b"b10", b"b11"]
    assert set(read["topic"].to_pylist()) == {"b1"}


def test_only_the_columns_that_are_asked_for_are_made(topics):
    pointers = fill(topics)
    read = batch_table(["pointer", "segment"], path=topics.folder, topic="t", includeSegment="true")
    assert read.column_names == ["pointer", "segment"]
    assert read["pointer"].to_pylist() == pointers
    assert len(set(read["segment"].to_pylist())) == 4


def test_small_partitions_hold_all_messages(topics):
    fill(topics)
    reader = batch_reader(path=topics.folder, topic="t", targetPartitionBytes=1)
    assert len(reader.partitions()) == 2, "opening a segment costs as much as a few bytes"
    read = batch_table(path=topics.folder, topic="t", targetPartitionBytes=1)
    assert messages(read) == [f"t{n}".encode() for n in range(10)]


def test_an_unknown_topic_is_an_error_and_a_pattern_without_topics_is_not(topics):
    with pytest.raises(UnknownTopic):
        batch_reader(path=topics.folder, topic="t").partitions()
    assert batch_reader(path=topics.folder, topicPattern="t").partitions() == []
    (topics.folder / "topics/t").mkdir()
    assert batch_reader(path=topics.folder, topicPattern="t").partitions() == []


def test_a_folder_that_is_none_is_an_error(tmp_path):
    with pytest.raises(OptionError, match="a server's folder"):
        batch_reader(path=tmp_path, topic="t").partitions()


def test_segments_deleted_after_planning_are_an_error_or_a_warning(topics, caplog):
    pointers = fill(topics)
    table_options = {"path": topics.folder, "topic": "t"}
    strict = batch_reader(**table_options)
    lenient = batch_reader(**table_options, failOnDataLoss="false")
    parts, lenient_parts = strict.partitions(), lenient.partitions()
    oldest = min((topics.folder / "topics/t").iterdir(), key=lambda path: path.name)
    for kind in ("index", "data", "sum"):
        oldest.with_name(f"{oldest.name.partition('_')[0]}_{kind}").unlink()
    with pytest.raises(DataLost, match=f"from {pointers[0]} to {pointers[2]}.*failOnDataLoss"):
        list(strict.read(parts[0]))
    batches = list(lenient.read(lenient_parts[0]))
    assert sum(map(len, batches)) == 7
    assert "were deleted before they were read" in caplog.text


def test_a_damaged_segment_is_an_error_that_names_it(topics):
    fill(topics)
    topics.stop()
    damaged = sorted((topics.folder / "topics/t").glob("*_data"))[1]
    damaged.write_bytes(damaged.read_bytes()[:-1] + b"!")
    with pytest.raises(CorruptRecord, match=f"{damaged.name}.*poe check"):
        batch_table(path=topics.folder, topic="t")
    topics.start()


@pytest.mark.slow
def test_planning_ten_thousand_segments_takes_little_time_and_memory(tmp_path):
    folder = tmp_path / "topics/t"
    folder.mkdir(parents=True)
    for number in range(10_000):
        pointer = 1_700_000_000_000_000 + number
        record, place = encode_record(b"m", pointer, 1), np.zeros(1, np.uint64)
        (folder / f"{pointer}_data").write_bytes(record)
        entries = encode_entries(np.array([pointer], np.uint64), place)
        (folder / f"{pointer}_index").write_bytes(entries)
    reader = batch_reader(path=tmp_path, topic="t")
    parts = []
    # The bar is 2 s; other work on the machine may take as long again.
    assert seconds(lambda: parts.extend(reader.partitions())) < 6
    tracemalloc.start()
    kept = reader.partitions()
    _, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak_bytes < 50_000_000
    assert sum(each.count for part in kept for each in part.value) == 10_000
