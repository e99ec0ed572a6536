"""Store and archive together hold each message once, whatever is moved meanwhile."""

import random
import shutil
from functools import partial

import numpy as np
import pyarrow.parquet as pq
import pytest
from pyspark.sql.types import StructType

from poe import Node
from poe.errors import DataLost, ReadFailed, UnknownTopic
from poe.protocol import Span
from poe.protocol.server import Server
from poe.spark.archive import archive_topics
from poe.spark.archived_segments import ArchivedSegments, cut, not_archived, span_of
from poe.spark.arrow_batches import ArrowBatches
from poe.spark.broker_segments import BrokerSegments
from poe.spark.data_source import SCHEMA
from poe.spark.folder_segments import FolderSegments
from poe.spark.planning import NO_LIMIT, SegmentRange, partitions, within
from poe.storage import POINTER_MAX, Archive, ArchivedFile, Manifest, RowGroup
from tests.spark.archives import TOPIC, ArchivedNode, assert_whole, in_a_loop, numbers
from tests.spark.sources import batch_table, messages, table
from tests.waiting import wait_until

pytestmark = pytest.mark.spark


# ---- ranges -------------------------------------------------------------------------------------


def manifest_of(*groups):
    return Manifest.of((ArchivedFile("date=2023-11-14/1.parquet", groups),))


def test_what_no_manifest_covers_is_left_as_it_is():
    stored = [SegmentRange("t", 100, 100, 109, 10, 1000), SegmentRange("t", 200, 200, 209, 10, 9)]
    assert list(not_archived(stored, {})) == stored
    covered = manifest_of(RowGroup(100, 109, 10, 800))
    assert list(not_archived(stored, {100: covered})) == stored[1:]


def test_of_a_segment_that_went_on_after_it_was_archived_the_rest_is_left():
    stored = SegmentRange("t", 100, 100, 150, 14, 1400)
    covered = manifest_of(RowGroup(100, 109, 10, 890))
    assert list(not_archived([stored], {100: covered})) == [
        SegmentRange("t", 100, 110, 150, 4, 400)
    ]


def test_a_span_is_of_whole_row_groups_and_of_one_at_least():
    groups = [RowGroup(1, 5, 5, 50), RowGroup(6, 9, 4, 40), RowGroup(10, 10, 1, 10)]
    assert span_of([], NO_LIMIT, NO_LIMIT) is None
    assert span_of(groups, NO_LIMIT, NO_LIMIT) == Span(10, 10, 100 + 10 * 11)
    assert span_of(groups, 9, NO_LIMIT) == Span(9, 9, 90 + 9 * 11)
    assert span_of(groups, NO_LIMIT, 200) == Span(9, 9, 90 + 9 * 11)
    assert span_of(groups, 1, 1) == Span(5, 5, 50 + 5 * 11)


@pytest.mark.parametrize(
    ("bounds", "expected"),
    [
        ((0, 100), [RowGroup(10, 40, 4, 40)]),
        ((11, 39), [RowGroup(20, 30, 2, 20)]),
        ((20, 20), [RowGroup(20, 20, 1, 10)]),
        ((21, 29), []),
        ((41, 50), []),
    ],
)
def test_a_row_group_is_cut_at_its_messages(bounds, expected):
    group = RowGroup(10, 40, 4, 40)
    assert list(cut(group, np.array([10, 20, 30, 40]), *bounds)) == expected


# ---- reads --------------------------------------------------------------------------------------


def test_each_message_is_read_once_wherever_it_is(archived):
    for _ in range(4):
        archived.put(10)
    assert archived.read() == list(range(40))
    archived.archive()
    archived.put(5)
    assert archived.read() == list(range(45))
    archived.expire()
    archived.put(7)
    assert archived.read() == list(range(52))
    assert archived.read(path=None) == list(range(40))
    assert archived.read(archive=None) == list(range(40, 52))


def test_what_is_archived_is_not_read_from_the_store(archived):
    archived.put(10)
    archived.archive()
    [data] = sorted(archived.folder.glob("topics/t/*_data"))[:1]
    data.write_bytes(bytes(data.stat().st_size))
    assert archived.read() == list(range(10))


@pytest.mark.parametrize("topic", ["a/b c", "bücher", "100%", "."])
def test_a_topic_with_any_name_is_read(tmp_path, java, topic):
    archived = ArchivedNode(tmp_path, names="escape")
    archived.sim.node.put_many(topic, [b"%d" % number for number in range(10)])
    archived.sim.advance(1)
    archived.archive(topics=[topic])
    archived.sim.node.put_many(topic, [b"10"])
    archived.sim.advance(2)
    assert archived.read(topic=topic, path=None) == list(range(10))
    assert archived.read(topic=topic) == list(range(11))
    archived.sim.stop()


def test_an_archive_that_is_not_there_is_an_error(archived):
    with pytest.raises(ReadFailed, match="No such file"):
        archived.read(archive=archived.folder / "other")


def test_a_topic_that_is_in_neither_place_is_unknown(archived):
    for options in ({}, {"path": None}):
        with pytest.raises(UnknownTopic):
            archived.read(topic="other", **options)


def test_a_pattern_finds_topics_of_both_places(archived):
    archived.put(10)
    archived.archive()
    assert archived.read(topic=None, topicPattern=".*", path=None) == list(range(10))
    assert archived.read(topic=None, topicPattern=".*") == list(range(10))


@pytest.mark.parametrize("path", [{}, {"path": None}])
def test_any_range_of_pointers_is_read_exactly(archived, path):
    for _ in range(3):
        archived.put(10)
    archived.archive()
    pointers = [pointer for pointer, _ in read_all(archived)]
    bounds = sorted({0, *pointers, *(p - 1 for p in pointers), *(p + 1 for p in pointers)})
    rng = random.Random(7)
    for _ in range(60):
        after, last = sorted(rng.sample(bounds, 2))
        found = archived.read(startingPointer=after, endingPointer=last, **path)
        assert found == [n for n, pointer in enumerate(pointers) if after < pointer <= last]


def read_all(archived):
    records, pointer = [], 0
    while (record := archived.sim.node.next(TOPIC, pointer)) is not None:
        records.append(record)
        pointer = record[0]
    return records


def test_an_archived_segment_is_split_at_row_groups(archived, monkeypatch):
    monkeypatch.setattr("poe.storage.store.shared_folder._CHUNK_COUNT", 3)
    monkeypatch.setattr("poe.spark.archive_writer._GROUP_BYTES", 500_000)
    archived.sim.node.put_many(TOPIC, [b"x" * 200_000] * 12)
    archived.sim.advance(1)
    archived.archive()
    reader = archived.reader(targetPartitionBytes=500_000, path=None)
    planned = reader.partitions()
    rows = [sum(batch.num_rows for batch in reader.read(each)) for each in planned]
    assert rows == [3, 3, 3, 3]


def test_columns_can_be_left_out(archived):
    archived.put(10)
    archived.archive()
    source = ArchivedSegments(str(archived.archive_dir))
    pointers = StructType([field for field in SCHEMA if field.name in {"pointer", "topic"}])
    [segment] = source.segments(TOPIC)
    [(last, batch)] = source.batches(segment, ArrowBatches(pointers))
    assert last == segment.last
    assert batch.schema.names == ["topic", "pointer"]
    assert batch.num_rows == 10


def has_segments(node, count):
    return len(dict(node.info())[TOPIC.encode()]) == count


@pytest.mark.slow
def test_a_server_is_archived_and_read_together_with_its_archive(tmp_path):
    archive_dir = tmp_path / "archive"
    with Node(dir=tmp_path / "node", port=0, count_limit=10, check_interval=0.01) as node:
        assert node.address is not None
        host, port = node.address
        for start in (0, 10, 20):
            node.put_many(TOPIC, [b"%d" % n for n in range(start, start + 10)])
            wait_until(partial(has_segments, node, start // 10 + 2), 20)
        server = Server(host, port)
        open_segments = partial(BrokerSegments, [server], retry_timeout_s=1.0, is_known=False)
        outcomes = archive_topics(open_segments, [TOPIC], archive_dir, in_a_loop)
        assert [(each.count, each.failure) for each in outcomes] == [(10, "")] * 3
        node.put_many(TOPIC, [b"30", b"31"])
        last = Archive.existing(archive_dir).manifests(b"t")
        node.control("trim", topic=b"t", pointer=max(manifest.last for _, manifest in last))
        places = {"host": host, "port": port, "archive": archive_dir}
        found = batch_table(topic=TOPIC, **places)
        assert list(map(int, messages(found))) == list(range(32))
        assert found["ordinal"].to_pylist() == list(range(32))


@pytest.mark.slow
@pytest.mark.parametrize(("before", "then"), [(1, 2), (2, 1), (3, 2)])
def test_a_topic_that_its_server_has_anew_with_other_partitions_is_read_from_both(
    tmp_path, before, then
):
    archive_dir = tmp_path / "archive"
    with Node(dir=tmp_path / "node", port=0, count_limit=3, check_interval=0.01) as node:
        assert node.address is not None
        host, port = node.address

        def make(partitions, message):
            topics = [
                each.topic for each in node.create_topic("p", partitions=partitions).partitions
            ]
            for topic in topics:
                node.put_many(topic, [message] * 3)
                wait_until(lambda: len(dict(node.info())[topic]) == 2, 20)  # noqa: B023 - at once
            return [topic.decode() for topic in topics]

        server = Server(host, port)
        open_segments = partial(BrokerSegments, [server], retry_timeout_s=1.0, is_known=False)
        outcomes = archive_topics(open_segments, make(before, b"old"), archive_dir, in_a_loop)
        assert [each.failure for each in outcomes] == [""] * before
        node.control("delete", topic=b"p")
        make(then, b"new")
        found = batch_table(topic="p", host=host, port=port, archive=archive_dir)
        assert sorted(messages(found)) == [b"new"] * 3 * then + [b"old"] * 3 * before


# ---- what is moved meanwhile --------------------------------------------------------------------


class Moving(FolderSegments):
    """A store whose segments are archived and deleted right after they were listed."""

    def __init__(self, archived):
        super().__init__(str(archived.folder))
        self.archived = archived

    def segments(self, topic, after=0):
        found = super().segments(topic, after)
        self.archived.archive()
        self.archived.expire()
        return found


def test_what_is_archived_and_deleted_right_after_the_listing_is_read_once(archived):
    for _ in range(3):
        archived.put(10)
    source = ArchivedSegments(str(archived.archive_dir), Moving(archived))
    ranges = within(source.segments(TOPIC), 0, POINTER_MAX, source.span)
    assert archived.segments_count() == 1
    assert read_ranges(source, ranges) == list(range(30))


def read_ranges(source, ranges):
    return [
        int(message)
        for each in ranges
        for _, batch in source.batches(each, ArrowBatches(SCHEMA))
        for message in batch.column(3).to_pylist()
    ]


@pytest.mark.parametrize("bytes_max", [100, 10_000_000])
def test_a_segment_that_is_moved_between_listing_and_looking_into_it_is_found(archived, bytes_max):
    for _ in range(3):
        archived.put(10)
    source = ArchivedSegments(str(archived.archive_dir), FolderSegments(str(archived.folder)))
    listed = source.segments(TOPIC)
    archived.archive()
    archived.expire()
    ranges = within(listed, listed[0].first + 3, listed[2].first + 3, source.span)
    planned = partitions(ranges, source.span, bytes_max)
    assert read_ranges(source, [each for part in planned for each in part]) == list(range(4, 24))


def test_what_is_moved_between_plan_and_read_is_read_once(archived):
    for _ in range(3):
        archived.put(10)
    reader = archived.reader()
    planned = reader.partitions()
    archived.archive()
    archived.expire()
    assert archived.segments_count() == 1
    assert numbers(reader, planned) == list(range(30))


def test_a_segment_that_is_moved_while_it_is_read_is_read_to_its_end(archived, monkeypatch):
    monkeypatch.setattr("poe.storage.store.shared_folder._CHUNK_COUNT", 3)
    for _ in range(2):
        archived.put(10)
    reader = archived.reader()
    [partition] = reader.partitions()
    batches = reader.read(partition)
    first = next(batches)
    archived.archive()
    archived.expire()
    found = [first, *batches]
    assert [int(m) for batch in found for m in batch.column(3).to_pylist()] == list(range(20))


def test_what_is_gone_from_both_places_is_told(archived):
    archived.put(10)
    reader = archived.reader()
    planned = reader.partitions()
    for path in sorted(archived.folder.glob("topics/t/*"))[:3]:
        path.unlink()
    with pytest.raises(DataLost):
        numbers(reader, planned)


@pytest.mark.parametrize("seed", range(12))
def test_whatever_happens_in_whatever_order_each_message_is_read_once(tmp_path, java, seed):
    rng = random.Random(seed)
    archived = ArchivedNode(tmp_path)
    archived.put(1)
    planned = []
    for _ in range(25):
        match rng.choice(["put", "put", "archive", "expire", "restart", "plan", "read"]):
            case "put":
                archived.put(rng.randint(1, 15))
            case "archive":
                archived.archive()
            case "expire":
                archived.sim.advance(rng.uniform(0, 60))
            case "restart":
                archived.sim.stop()
                archived.sim.start()
            case "plan":
                reader = archived.reader(targetPartitionBytes=rng.choice([200, 10_000]))
                planned.append((archived.count, reader, reader.partitions()))
            case "read":
                assert archived.read() == list(range(archived.count))
    for count, reader, parts in planned:
        assert numbers(reader, parts) == list(range(count))
    assert archived.read() == list(range(archived.count))
    archived.sim.stop()


def test_a_segment_that_went_on_after_it_was_archived_is_read_once_and_archived_anew(archived):
    archived.put(10)
    archived.archive()
    [(timestamp, manifest)] = Archive.existing(archived.archive_dir).manifests(b"t")
    archived.sim.stop()
    # As after a power cut that took the new segment: the one before it is the newest again.
    for path in archived.folder.glob("topics/t/*"):
        if not path.name.startswith(str(timestamp)):
            path.unlink()
    archived.sim.start()
    archived.put(4)
    assert archived.segments_count() >= 1
    assert archived.read() == list(range(14))
    archived.put(10)
    archived.archive()
    found = Archive.existing(archived.archive_dir).manifest(b"t", timestamp)
    assert found is not None
    assert found.count >= 14 > manifest.count
    assert archived.read() == list(range(24))


def test_what_was_archived_stays_when_a_store_goes_on_from_an_older_copy(archived, tmp_path):
    copy = tmp_path / "copy"
    archived.put(5)
    archived.sim.stop()
    shutil.copytree(archived.folder, copy)
    archived.sim.start()
    archived.put(10)
    archived.put(1)
    archived.archive()
    archived.sim.stop()
    shutil.rmtree(archived.folder)
    shutil.copytree(copy, archived.folder)
    archived.sim.start()
    archived.put(10)  # behind the first five, in the same segment
    archived.put(1)
    assert [each.count for each in archived.archive()] == [10]
    assert not archived.archive()
    assert_whole(archived.archive_dir, 1)
    archived.expire()
    reader = archived.reader()
    # Nobody had archived the one that is missing.
    kept = [*range(15), *range(16, 27)]
    assert list(map(int, messages(table(reader, reader.partitions())))) == kept


def test_an_archive_of_an_older_version_tells_no_ordinals(archived):
    archived.put(10)
    archived.put(1)
    archived.archive()
    archived.expire()
    [path] = archived.archive_dir.glob("topic=t/date=*/*")
    pq.write_table(pq.read_table(path).drop(["ordinal"]), path)
    reader = archived.reader()
    found = table(reader, reader.partitions())
    assert list(map(int, messages(found))) == list(range(11))
    assert found["ordinal"].to_pylist() == [*[None] * 10, 10]
