"""What is archived, and when: each segment once, whatever becomes of the archiver."""

import json
import multiprocessing
import os
import random
from functools import partial
from typing import Any

import pytest

from poe import Node
from poe.errors import OptionError, UnknownTopic
from poe.protocol.envelope import encode
from poe.protocol.server import Server
from poe.spark.archive import archive_topics, due
from poe.spark.broker_segments import BrokerSegments
from poe.spark.folder_segments import FolderSegments
from poe.spark.planning import SegmentRange
from poe.storage import Archive
from tests.broker.nodes import address, read_by_next
from tests.spark.archives import (
    MAX_AGE_S,
    TOPIC,
    ArchivedNode,
    archive_folder,
    assert_whole,
    in_a_loop,
)
from tests.spark.sources import batch_table
from tests.waiting import wait_until

pytestmark = pytest.mark.spark


def a_range(number, count=5):
    first = number * 100
    return SegmentRange("t", first, first, first + count - 1, count, 100 * count)


def never(segment):
    return False


def test_the_newest_segment_is_never_due():
    segments = [a_range(1), a_range(2), a_range(3)]
    assert due(segments, never) == segments[:2]
    assert due(segments[:1], never) == []
    assert due([], never) == []


def test_an_empty_segment_is_not_due_and_makes_the_one_before_it_the_last_sealed():
    empty = a_range(3, count=0)
    assert due([a_range(1), empty, a_range(4), empty], never) == [a_range(1), a_range(4)]


def test_what_is_archived_is_not_due():
    segments = [a_range(1), a_range(2), a_range(3)]
    assert due(segments, lambda each: each.segment == 100) == [a_range(2)]


def test_so_many_of_the_oldest_are_due_as_are_wanted():
    segments = [a_range(1), a_range(2), a_range(3)]
    assert due(segments, never, count=0) == []
    assert due(segments, never, count=1) == [a_range(1)]
    assert due(segments, never, count=3) == segments[:2]


def manifests(archived):
    return dict(Archive.existing(archived.archive_dir).manifests(TOPIC.encode()))


def test_what_is_sealed_is_archived_once(archived):
    for _ in range(3):
        archived.put(10)
    first = archived.archive()
    assert [(each.topic, each.count, each.failure) for each in first] == [(TOPIC, 10, "")] * 3
    assert [each.count for each in manifests(archived).values()] == [10, 10, 10]
    assert archived.archive() == []
    archived.put(10)
    assert len(archived.archive()) == 1


def test_an_archive_alone_knows_partitions_and_envelopes(archived):
    node = archived.sim.node
    node.create_topic("p", partitions=2, envelope=True)
    for number in range(40):
        node.put(f"p-{number % 2}", encode(b"k", b"%d" % number, None))
        archived.sim.advance(1)
    assert not any(each.failure for each in archived.archive(topics=("p-0", "p-1")))
    read = batch_table(archive=archived.archive_dir, topic="p").to_pylist()
    assert sorted(int(row["message"]) for row in read) == list(range(40))
    assert {(row["topic"], row["partition"]) for row in read} == {("p-0", 0), ("p-1", 1)}
    assert {row["key"] for row in read} == {b"k"}


def test_what_a_store_has_forgotten_of_a_topic_its_archive_knows(archived):
    node = archived.sim.node
    node.create_topic("p", partitions=2, envelope=True)
    for topic in ("p-0", "p-1"):
        node.put_many(topic, [encode(b"k", topic.encode(), None)] * 10)
        archived.sim.advance(1)
    archived.archive(topics=("p-0", "p-1"))
    node.control("delete", topic=b"p")
    both = {"path": archived.folder, "archive": archived.archive_dir, "topic": "p"}

    def read():
        rows = batch_table(["partition", "key", "message"], **both).to_pylist()
        return {tuple(row.values()) for row in rows}

    gone = {(0, b"k", b"p-0"), (1, b"k", b"p-1")}
    assert read() == gone
    node.create_topic("p", envelope=True)
    assert read() == gone
    node.put("p", encode(None, b"anew", None))
    archived.sim.advance(3)
    assert read() == {*gone, (0, None, b"anew")}


def test_envelopes_that_an_older_version_has_archived_are_opened(archived):
    archived.sim.node.create_topic("p", envelope=True)
    archived.sim.node.put_many("p", [encode(b"k", b"v", None)] * 10)
    archived.sim.advance(1)
    archived.archive(topics=("p",))
    [path] = archived.archive_dir.glob("topic=p/_manifest/*")
    told = json.loads(path.read_bytes())
    assert told.pop("envelope") is True
    path.write_text(json.dumps(told))
    for where in ({}, {"path": archived.folder}):
        rows = batch_table(["key", "message"], archive=archived.archive_dir, topic="p", **where)
        assert rows.to_pylist() == [{"key": b"k", "message": b"v"}] * 10


@pytest.mark.parametrize("are_first_enveloped", [True, False])
def test_a_topic_that_was_made_anew_with_or_without_envelopes_is_read_as_it_was_put(
    archived, are_first_enveloped
):
    node = archived.sim.node
    place = {"archive": archived.archive_dir, "topic": "p"}

    def put(message, *, is_enveloped):
        if is_enveloped:
            node.create_topic("p", envelope=True)
            message = encode(b"k", message, None)
        node.put_many("p", [message] * 10)
        archived.sim.advance(1)

    def read(**where):
        rows = batch_table(["key", "message"], **place, **where).to_pylist()
        assert len(rows) == 20
        return {row["message"]: row["key"] for row in rows}

    put(b"old", is_enveloped=are_first_enveloped)
    archived.archive(topics=("p",))
    node.control("delete", topic=b"p")
    put(b"new", is_enveloped=not are_first_enveloped)
    keys = {b"old": b"k" if are_first_enveloped else None}
    keys |= {b"new": None if are_first_enveloped else b"k"}
    assert read(path=archived.folder) == keys
    archived.archive(topics=("p",))
    assert read(path=archived.folder) == read() == keys


def test_what_nobody_has_described_is_read_by_its_name_beside_partitions_made_later(archived):
    node = archived.sim.node
    node.put_many("p", [b"old"] * 10)  # by this put it is made, and nothing is noted of it
    archived.sim.advance(1)
    archived.archive(topics=("p",))
    node.control("delete", topic=b"p")
    node.create_topic("p", partitions=2)
    node.put_many("p-1", [b"new"] * 10)
    archived.sim.advance(1)
    archived.archive(topics=("p-1",))
    for where in ({}, {"path": archived.folder}):
        found = batch_table(["message"], archive=archived.archive_dir, topic="p", **where)
        assert sorted(found["message"].to_pylist()) == [b"new"] * 10 + [b"old"] * 10


def test_a_read_of_named_topics_lists_none_of_the_others(archived, monkeypatch):
    archived.sim.node.create_topic("p", partitions=2)
    archived.put(10)
    archived.archive()
    archived.put(1)
    archived.sim.node.put("p-0", b"11")
    archived.sim.advance(3)
    monkeypatch.delattr(FolderSegments, "topics")
    both = {"path": archived.folder, "archive": archived.archive_dir, "topics": "t,p"}
    found = batch_table(["message"], **both)["message"].to_pylist()
    assert sorted(map(int, found)) == list(range(12))


def test_where_nothing_is_due_spark_is_not_started(archived, monkeypatch):
    archived.put(3)
    monkeypatch.setattr("tests.spark.archives.in_a_loop", None)
    assert archived.archive() == []


def test_a_topic_that_is_not_there_is_told(archived):
    with pytest.raises(UnknownTopic):
        archived.archive(topics=["other"])


def test_a_topic_that_is_deleted_meanwhile_keeps_no_other_from_being_archived(archived):
    archived.put(10)
    archived.expire()
    [outcome] = archived.archive_due(["a", TOPIC, "z"])
    assert (outcome.topic, outcome.count, outcome.failure) == (TOPIC, 10, "")


def test_two_archivers_do_not_meet(archived):
    archived.put(10)
    lock = Archive.at(archived.archive_dir).begin()
    with pytest.raises(OptionError, match="no other archiver"):
        archived.archive()
    del lock
    assert len(archived.archive()) == 1


def files_count(folder):
    return sum(path.is_file() for path in folder.rglob("*"))


def has_come_so_far(process, folder, wanted):
    return files_count(folder) >= wanted or not process.is_alive()


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_an_archiver_that_is_killed_again_and_again_archives_each_segment_once(archived, seed):
    rng = random.Random(seed)
    for _ in range(20):
        archived.put(10)
    context = multiprocessing.get_context("forkserver")  # it loads PySpark once for all
    context.set_forkserver_preload(["tests.spark.archives"])
    for _ in range(10):
        places = str(archived.folder), str(archived.archive_dir)
        process = context.Process(target=archive_folder, args=places)
        process.start()
        wanted = files_count(archived.archive_dir) + rng.randint(0, 5)
        wait_until(partial(has_come_so_far, process, archived.archive_dir, wanted), 60)
        process.kill()
        process.join()
        assert archived.read() == list(range(200))
    archived.archive()
    assert_whole(archived.archive_dir, 20)
    archived.expire()
    assert archived.segments_count() == 1
    assert archived.read() == list(range(200))


@pytest.mark.parametrize("topic", [b"\xff\xfe", b"a/b", "bücher".encode(), b"."])
def test_a_topic_of_any_name_is_archived_and_expires(tmp_path, java, topic):
    archived = ArchivedNode(tmp_path, names="escape")
    archived.sim.node.put_many(topic, [b"1"] * 10)
    archived.sim.advance(1)
    [outcome] = archived.archive(topics=[os.fsdecode(topic)])
    assert outcome.count == 10
    assert Archive.existing(archived.archive_dir).topics() == [topic]
    archived.expire()
    assert archived.segments_count() == 1
    archived.sim.stop()


def test_a_topic_of_any_name_is_archived_through_its_server(tmp_path):
    topic = b"\xff\xfe"
    options: dict[str, Any] = {"names": "escape", "count_limit": 10, "check_interval": 0.01}
    with Node(dir=tmp_path / "node", port=0, **options) as node:
        node.put_many(topic, [b"1"] * 10)
        wait_until(lambda: len(dict(node.info())[topic]) > 1)
        servers = [Server(*address(node))]
        source = partial(BrokerSegments, servers, retry_timeout_s=1.0, is_known=False)
        [outcome] = archive_topics(source, [os.fsdecode(topic)], tmp_path / "archive", in_a_loop)
    assert (outcome.count, outcome.failure) == (10, "")


def test_a_damaged_segment_is_told_and_keeps_no_other_from_being_archived(archived):
    for _ in range(3):
        archived.put(10)
    damaged = sorted(archived.folder.glob("topics/t/*_data"))[1]
    content = bytearray(damaged.read_bytes())
    content[-1] ^= 1
    damaged.write_bytes(content)
    outcomes = archived.archive()
    assert [each.count for each in outcomes] == [10, 0, 10]
    assert "CorruptRecord" in outcomes[1].failure
    assert len(manifests(archived)) == 2
    archived.expire()
    assert damaged.exists()
    assert archived.segments_count() == 2


@pytest.mark.parametrize("damage", ["data cut", "index cut", "index lost"])
def test_damage_that_a_listing_sees_keeps_no_other_segment_from_being_archived(archived, damage):
    for _ in range(3):
        archived.put(10)
    file, _, what = damage.partition(" ")
    damaged = sorted(archived.folder.glob(f"topics/t/*_{file}"))[1]
    if what == "lost":
        damaged.unlink()
    else:
        damaged.write_bytes(damaged.read_bytes()[:20])
    assert archived.archive_due() == []
    archived.sim.advance(MAX_AGE_S)
    outcomes = archived.archive_due()
    assert [each.count for each in outcomes] == [10, 0, 10]
    assert "CorruptRecord" in outcomes[1].failure
    assert len(manifests(archived)) == 2


def test_a_segment_that_is_deleted_while_it_is_archived_gets_no_manifest(archived, monkeypatch):
    archived.put(10)

    def delete_first():
        for path in sorted(archived.folder.glob("topics/t/*"))[:3]:
            path.unlink()
        return in_a_loop()

    monkeypatch.setattr("tests.spark.archives.in_a_loop", delete_first)
    [outcome] = archived.archive()
    assert "DataLost" in outcome.failure
    assert manifests(archived) == {}


def test_a_topic_with_an_archive_of_its_own_or_none_expires_as_its_option_says(tmp_path, java):
    own = tmp_path / "own"
    own.mkdir()
    archived = ArchivedNode(
        tmp_path, topics={"u": {"archive_dir": own}, "v": {"archive_dir": "none"}}
    )
    node = archived.sim.node
    for topic in ("u", "v"):
        node.put(topic, b"1")
    archived.expire()
    assert node.next("v", 0) is None
    for folder, is_gone in ((archived.archive_dir, False), (own, True)):
        archive_topics(partial(FolderSegments, str(archived.folder)), ["u"], folder, in_a_loop)
        archived.sim.advance(25)
        assert (node.next("u", 0) is None) == is_gone
    archived.sim.stop()


@pytest.fixture
def aged_by_days(tmp_path, java):
    """A node whose own `max_age` is a day, as that in `archived` is not."""
    made = ArchivedNode(tmp_path, max_age=86400.0)
    yield made
    made.sim.stop()


def test_what_is_older_than_its_topic_wants_is_archived_before_the_node_s_age(aged_by_days):
    node = aged_by_days.sim.node
    node.create_topic(TOPIC, max_age=MAX_AGE_S)
    aged_by_days.put(10)
    aged_by_days.sim.advance(MAX_AGE_S * 0.5)
    aged_by_days.put(10)
    node.put("u", b"1")
    assert aged_by_days.archive_due((TOPIC, "u")) == []
    aged_by_days.sim.advance(MAX_AGE_S * 0.45)  # the first is soon due
    assert len(aged_by_days.archive_due((TOPIC, "u"))) == 1
    aged_by_days.expire()
    assert [message for _, message in read_by_next(node, TOPIC)][:1] == [b"10"]
    assert len(aged_by_days.archive_due((TOPIC, "u"))) == 1, "it takes what is due by then"
    aged_by_days.sim.advance(25)
    assert node.next(TOPIC, 0) is None
    assert node.next("u", 0) is not None
    assert aged_by_days.read() == list(range(20))


@pytest.mark.parametrize("is_node_s", [True, False])
def test_what_is_beyond_max_bytes_is_archived_however_young_it_is(tmp_path, java, is_node_s):
    segment_bytes = 10 * (11 + 1)
    limit = {"max_bytes": 4 * segment_bytes}
    archived = ArchivedNode(tmp_path, max_age=86400.0, **(limit if is_node_s else {}))
    if not is_node_s:
        archived.sim.node.create_topic(TOPIC, **limit)
    for count in range(4):
        archived.sim.node.put_many(TOPIC, [b"%d" % count] * 10)
        archived.sim.advance(1)
    assert len(archived.archive_due()) == 1, "not beyond it, but soon"
    for count in range(4):
        archived.sim.node.put_many(TOPIC, [b"%d" % count] * 10)
        archived.sim.advance(1)
    assert len(archived.archive_due()) == 4
    archived.sim.advance(1201)
    assert archived.segments_count() == 5
    archived.sim.stop()


def test_what_its_topic_keeps_longer_is_not_archived_by_the_node_s_age(archived):
    node = archived.sim.node
    for topic, max_age in (("u", "none"), ("v", 10 * MAX_AGE_S)):
        node.create_topic(topic, max_age=max_age)
    for topic in ("u", "v", TOPIC):
        node.put_many(topic, [b"1"] * 10)
    archived.expire()
    assert [each.topic for each in archived.archive_due(("u", "v", TOPIC))] == [TOPIC]
    archived.sim.advance(10 * MAX_AGE_S)
    assert [each.topic for each in archived.archive_due(("u", "v", TOPIC))] == ["v"]


def test_partitions_are_archived_as_their_topic_says(aged_by_days):
    node = aged_by_days.sim.node
    node.create_topic("p", partitions=2, max_age=MAX_AGE_S)
    for topic in ("p-0", "p-1"):
        node.put_many(topic, [b"1"] * 10)
    aged_by_days.expire()
    assert len(aged_by_days.archive_due(("p-0", "p-1"))) == 2


def test_where_nobody_knows_what_topics_say_they_are_archived_by_the_node_s_age(archived):
    archived.sim.node.create_topic(TOPIC, max_age="none")
    archived.put(10)
    archived.expire()
    assert archived.archive_due() == []
    (archived.folder / "store.topics").write_bytes(b"damaged")
    assert len(archived.archive_due()) == 1


def test_a_segment_expires_only_once_it_is_archived(archived):
    for _ in range(4):
        archived.put(10)
    archived.expire()
    assert archived.segments_count() == 5
    archived.archive()
    archived.sim.advance(25)
    assert archived.segments_count() == 1


def test_an_idle_writer_is_sealed_archived_and_deleted_too(archived):
    archived.put(3)
    archived.expire()
    assert [each.count for each in archived.archive()] == [3]
    archived.sim.advance(25)
    assert archived.segments_count() == 1
    assert archived.read() == [0, 1, 2]


def test_puts_and_reads_go_on_while_the_archive_is_away(archived):
    archived.put(10)
    away = archived.archive_dir.rename(archived.archive_dir.with_name("away"))
    archived.expire()
    archived.put(10)
    assert archived.sim.node.next(TOPIC, 0)[1] == b"0"
    assert archived.segments_count() == 3
    assert not archived.archive_dir.exists()
    away.rename(archived.archive_dir)
    archived.archive()
    archived.expire()
    assert archived.segments_count() == 1
    assert archived.read() == list(range(20))
