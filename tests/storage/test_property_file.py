"""What topics have is known after a stop, a kill and a power cut, whatever step was the last."""

import errno
import random
import shutil
from typing import Any, cast

import pytest

from poe.errors import (
    FormatNotSupported,
    InvalidTopicName,
    OptionError,
    PoeError,
    PropertyFixed,
    PropertyMismatch,
    StorageError,
    StorageFull,
    TopicExists,
    UnknownTopic,
    WriteFailed,
)
from poe.storage import RealFiles, SegmentOptions, Store, check_properties
from poe.storage.formats.hashed import FILE_HEADER_BYTES, seal
from poe.storage.formats.store_meta import META_FILE
from poe.storage.store import property_file
from poe.storage.store import store as store_module
from poe.storage.store.property_file import (
    DESCRIBED,
    PROPERTY_FILE,
    PropertyFile,
    PropertyNote,
    read_known_topics,
)
from poe.topic_properties import TopicProperties
from tests.storage.faulty_files import FaultyFiles
from tests.storage.segments import ENDS, started_again
from torture.layers.simulated_disk import SimulatedDisk
from torture.layers.watched import Failing

NOW = 1_000_000
STEP = 1_000


@pytest.fixture
def disk():
    return SimulatedDisk()


def fill(store, topic, count=1, begin=NOW):
    for number in range(count):
        segment = store.create_segment(topic, begin + number * STEP)
        segment.append([b"m"], begin + number * STEP)
        segment.sync()


def destroy(store, topic, *numbers):
    segments = store.topics[topic]
    for segment in [segments[number] for number in numbers]:
        segment.close()
        store.destroy_segment(topic, segment)


def delete(store, topic):
    for each in store.properties.of(topic).partition_topics():
        if each in store.topics:
            destroy(store, each, *range(len(store.topics[each])))
    store.forget_topic(topic)


@pytest.mark.parametrize("how", ENDS)
def test_what_was_made_and_changed_is_known(disk, how):
    store = Store.open(disk.files())
    made = store.create_topic(b"t", TopicProperties(partitions=3, envelope=True), NOW)
    altered = store.properties.alter(b"t", {"partitions": 4, "ack": "fsync"})
    store = started_again(disk, store, how)
    found = store.properties.of(b"t")
    assert found == altered
    assert (found.id, found.created_us, found.version) == (made.id, NOW, 2)
    assert found.partition_topics() == (b"t-0", b"t-1", b"t-2", b"t-3")


@pytest.mark.parametrize("how", ENDS)
def test_a_topic_that_a_put_has_made_takes_no_room_and_is_the_same_after_its_oldest_is_gone(
    disk, how
):
    store = Store.open(disk.files())
    fill(store, b"t", 4)
    before = store.properties.of(b"t")
    assert (before.created_us, before.version) == (NOW, 0)
    assert before.properties == TopicProperties()
    store = started_again(disk, store, how)
    assert store.properties.of(b"t") == before
    assert disk.memory.size(PROPERTY_FILE) is None
    destroy(store, b"t", 0, 1)
    store = started_again(disk, store, how)
    assert store.properties.of(b"t") == before
    destroy(store, b"t", 0)
    store = started_again(disk, store, how)
    assert store.properties.of(b"t") == before
    assert disk.memory.size(PROPERTY_FILE) < FILE_HEADER_BYTES + 50


@pytest.mark.parametrize("how", ["none", "stop", "kill"])
def test_a_topic_that_was_deleted_and_made_anew_is_another(disk, how):
    store = Store.open(disk.files())
    fill(store, b"t", 3)
    ids = {store.properties.of(b"t").id}
    destroy(store, b"t", 0)
    destroy(store, b"t", 0, 1)
    store = started_again(disk, store, how)
    with pytest.raises(UnknownTopic):
        store.properties.of(b"t")
    fill(store, b"t", 1)
    ids.add(store.properties.of(b"t").id)
    store.properties.alter(b"t", {"ack": "fsync"})
    delete(store, b"t")
    ids.add(store.create_topic(b"t", TopicProperties(), 0).id)
    store = started_again(disk, store, how)
    delete(store, b"t")
    fill(store, b"t", 1)
    assert store.properties.of(b"t").properties == TopicProperties()
    ids.add(store.properties.of(b"t").id)
    assert len(ids) == 4


@pytest.mark.parametrize("how", ["none", "stop", "kill"])
def test_a_topic_of_which_something_was_to_expire_is_another_when_it_was_deleted(disk, how):
    layer = FaultyFiles(disk.files())
    store = Store.open(layer)
    fill(store, b"t", 3)
    before = store.properties.of(b"t")
    store.note_removal(b"t", store.topics[b"t"][:1])
    layer.fail(0, errno.EIO, "sync")
    with pytest.raises(WriteFailed):
        store.sync_notes()
    assert store.properties.of(b"t") == before
    store.note_removal(b"t", store.topics[b"t"])
    destroy(store, b"t", 0, 1, 2)
    store = started_again(disk, store, how)
    fill(store, b"t", begin=2 * NOW)
    assert store.properties.of(b"t").id != before.id


def test_a_topic_whose_files_somebody_has_removed_does_not_give_its_id_to_the_next(tmp_path):
    store = Store.open(tmp_path)
    fill(store, b"t", 2)
    before = store.properties.of(b"t")
    destroy(store, b"t", 0)
    store.close()
    shutil.rmtree(tmp_path / "topics" / "t")
    store = Store.open(tmp_path)
    fill(store, b"t")
    assert store.properties.of(b"t").id != before.id


def test_a_topic_that_rests_is_described_without_a_look_at_its_folder(disk, monkeypatch):
    monkeypatch.setattr(store_module, "FEW_TOPICS", 0)
    store = Store.open(disk.files())
    fill(store, b"t", 2)
    before = store.properties.of(b"t")
    store = started_again(disk, store, "stop")
    assert b"t" in store.topics.resting
    assert store.properties.of(b"t") == before
    assert b"t" in store.topics.resting


def test_a_partition_is_described_by_its_topic(disk):
    store = Store.open(disk.files())
    own = store.create_topic(b"t", TopicProperties(partitions=2, ack="fsync"), NOW)
    fill(store, b"t-1", begin=NOW + 5)
    part = store.properties.of(b"t-1")
    assert part.properties == TopicProperties(ack="fsync")
    assert part.created_us == own.created_us
    assert part.id not in {own.id, store.properties.of(b"t-0").id}
    assert store.properties.holder(b"t-1") == own
    assert store.properties.holder(b"t") is None
    assert store.properties.holder(b"t-2") is None


def test_segments_take_the_ack_of_their_topic(disk):
    store = Store.open(disk.files(), SegmentOptions(ack="memory"))
    store.create_topic(b"t", TopicProperties(partitions=2, ack="fsync"), NOW)
    store.create_topic(b"u", TopicProperties(), NOW)
    assert store.create_segment(b"t-1", NOW).options.ack == "fsync"
    assert store.create_segment(b"u", NOW).options.ack == "memory"
    store.properties.alter(b"u", {"ack": "flushed"})
    assert store.segment_options(b"u").ack == "flushed"
    store.properties.alter(b"u", {"ack": None})
    assert store.segment_options(b"u").ack == "memory"


@pytest.mark.parametrize(
    ("topic", "error"),
    [
        (b"made", TopicExists),
        (b"put", TopicExists),
        (b"many-0", TopicExists),
        (b"many-7", PropertyMismatch),
        (b"spread", TopicExists),
        (b"bad/name", InvalidTopicName),
        (b"x" * 200, InvalidTopicName),
    ],
)
def test_a_topic_that_would_share_a_partition_or_cannot_be_is_not_made(disk, topic, error):
    store = Store.open(disk.files())
    store.create_topic(b"made", TopicProperties(), NOW)
    store.create_topic(b"many", TopicProperties(partitions=3), NOW)
    fill(store, b"put")
    fill(store, b"spread-2")
    known = store.properties.described()
    with pytest.raises(error):
        store.create_topic(topic, TopicProperties(partitions=3), NOW)
    assert store.properties.described() == known


def test_a_topic_may_be_called_like_a_partition_of_one_that_has_only_one(disk):
    store = Store.open(disk.files())
    store.create_topic(b"logs", TopicProperties(), NOW)
    store.create_topic(b"logs-5", TopicProperties(), NOW)
    store.properties.check(b"logs-7")
    store.properties.alter(b"logs", {"partitions": 5})
    with pytest.raises(TopicExists):
        store.properties.alter(b"logs", {"partitions": 6})
    assert store.properties.of(b"logs").properties.partitions == 5


@pytest.mark.parametrize(
    ("topic", "is_right"),
    [
        (b"many-0", True),
        (b"many-2", True),
        (b"many-3", False),
        (b"many", False),
        (b"many-x", True),
        (b"grown", True),
        (b"grown-1", True),
        (b"grown-0", False),
        (b"grown-2", False),
        (b"other-9", True),
    ],
)
def test_nothing_is_put_onto_a_partition_that_a_topic_has_not_got(disk, topic, is_right):
    store = Store.open(disk.files())
    store.create_topic(b"many", TopicProperties(partitions=3), NOW)
    store.create_topic(b"grown", TopicProperties(), NOW)
    store.properties.alter(b"grown", {"partitions": 2})
    if is_right:
        store.properties.check(topic)
        return
    with pytest.raises(PropertyMismatch) as refused:
        store.properties.check(topic)
    assert refused.value.has == (3 if topic.startswith(b"many") else 2)


def test_who_names_a_topic_of_partitions_is_told_what_these_are_called(disk):
    store = Store.open(disk.files())
    store.create_topic(b"many", TopicProperties(partitions=3), NOW)
    with pytest.raises(PropertyMismatch, match="none of many-0 to many-2"):
        store.properties.check(b"many")


@pytest.mark.parametrize("how", ENDS)
def test_topics_are_taken_over_as_the_partitions_that_they_were_meant_for(disk, how):
    store = Store.open(disk.files())
    fill(store, b"t-2", begin=NOW + 5)
    fill(store, b"t-0", begin=NOW + 7)
    made = store.properties.adopt(b"t", TopicProperties(partitions=3, envelope=True))
    store = started_again(disk, store, how)
    found = store.properties.of(b"t")
    assert found == made
    assert found.created_us == NOW + 5
    assert found.partition_topics() == (b"t-0", b"t-1", b"t-2")


@pytest.mark.parametrize(
    ("topic", "count", "error"),
    [
        (b"t", 2, PropertyMismatch),
        (b"u", 2, UnknownTopic),
        (b"v", 2, TopicExists),
        (b"made", 3, TopicExists),
        (b"w", 1, UnknownTopic),
    ],
)
def test_what_is_not_as_it_was_said_to_be_is_not_taken_over(disk, topic, count, error):
    store = Store.open(disk.files())
    for name in (b"t-0", b"t-2", b"v", b"v-0", b"w-0"):
        fill(store, name)
    store.create_topic(b"made", TopicProperties(partitions=3), NOW)
    with pytest.raises(error):
        store.properties.adopt(topic, TopicProperties(partitions=count))


def test_a_change_that_is_refused_changes_nothing(disk):
    store = Store.open(disk.files())
    made = store.create_topic(b"t", TopicProperties(partitions=2), NOW)
    refused: list[tuple[bytes, dict[str, Any], type[PoeError]]] = [
        (b"t", {"partitions": 1}, PropertyFixed),
        (b"t", {"envelope": True}, PropertyFixed),
        (b"t", {"ack": "never"}, OptionError),
        (b"t-1", {"ack": "fsync"}, PropertyFixed),
        (b"u", {"ack": "fsync"}, UnknownTopic),
    ]
    for topic, changes, error in refused:
        with pytest.raises(error):
            store.properties.alter(topic, changes)
    assert store.properties.of(b"t") == made


CHANGES = {"open", "write_at", "truncate", "sync", "rename", "unlink", "sync_folder"}


def steps(store):
    """Do one thing after the other; yield what is promised, and what may be there besides."""
    one, two = TopicProperties(partitions=2), TopicProperties(partitions=3)
    yield {}, {b"t": one}
    store.create_topic(b"t", one, NOW)
    yield {b"t": one}, {b"t": two}
    store.properties.alter(b"t", {"partitions": 3})
    yield {b"t": two}, {b"u": one}
    store.create_topic(b"u", one, NOW)
    yield {b"u": one}, {b"t": two}
    store.forget_topic(b"t")
    yield {b"u": one}, {}


@pytest.mark.parametrize("is_power_cut", [False, True])
@pytest.mark.parametrize("seed", range(8))
def test_whatever_step_is_the_last_what_was_answered_counts(seed, is_power_cut):
    step, has_died = 0, True
    while has_died:
        disk = SimulatedDisk()
        store = Store.open(disk.files())
        count = [0]

        def failing(operation, count=count, step=step):
            if operation.name in CHANGES:
                count[0] += 1
                if count[0] > step:
                    operation.do_in_part(seed / 7)
                    raise OSError(errno.EIO, "the process is dead")

        disk.failing = cast("Any", failing)
        promised, maybe = {}, {}
        has_died = False
        try:
            for each in steps(store):
                promised, maybe = each
        except StorageError:
            has_died = True
        disk.failing = Failing()
        disk.cut_power(random.Random(seed)) if is_power_cut else disk.kill()
        store = Store.open(disk.files())
        found = {
            each: store.properties.of(each).properties for each in store.properties.described()
        }
        assert found in (promised, promised | maybe, {**maybe, **promised}), (step, found)
        # Whoever has seen it relies on it from then on.
        disk.cut_power(random.Random(seed))
        properties = Store.open(disk.files()).properties
        assert {each: properties.of(each).properties for each in properties.described()} == found
        step += 1
    assert step > 10


def test_segments_that_a_power_cut_brings_back_change_nothing_of_a_topic_that_has_their_name(disk):
    store = Store.open(disk.files())
    fill(store, b"t", 2)
    destroy(store, b"t", 0, 1)
    made = store.create_topic(b"t", TopicProperties(partitions=2), NOW * 2)
    disk.cut_power(random.Random(1))
    store = Store.open(disk.files())
    destroy(store, b"t", 0)
    assert store.properties.of(b"t") == made


@pytest.mark.parametrize("operation", ["write_at", "sync"])
def test_what_the_disk_refuses_does_not_count_and_may_be_tried_again(tmp_path, operation, caplog):
    layer = FaultyFiles(RealFiles.at(tmp_path))
    store = Store.open(layer)
    store.create_topic(b"t", TopicProperties(), NOW)
    layer.fail(0, errno.EIO, operation)
    with pytest.raises(WriteFailed):
        store.properties.alter(b"t", {"partitions": 2})
    assert store.properties.of(b"t").properties.partitions == 1
    store.properties.alter(b"t", {"partitions": 3})
    store.close()
    caplog.clear()
    assert Store.open(tmp_path).properties.of(b"t").properties.partitions == 3
    assert not caplog.records


@pytest.mark.parametrize("how", ["kill", "power cut"])
def test_a_disk_that_refuses_one_change_after_the_other_keeps_what_was_answered(disk, how):
    layer = FaultyFiles(disk.files())
    store = Store.open(layer)
    made = [store.create_topic(b"t%d" % number, TopicProperties(), NOW) for number in range(3)]
    for sync in (0, 1, 1):  # before all but the first of these, the file is written anew
        layer.fail(sync, errno.EIO, "sync")
        with pytest.raises(WriteFailed):
            store.create_topic(b"u", TopicProperties(), NOW)
    store = started_again(disk, store, how)
    assert store.properties.described() == [each.name for each in made]
    assert [store.properties.of(each.name) for each in made] == made


def test_a_change_that_was_refused_and_cannot_be_cut_off_is_not_there_after_a_stop(disk):
    layer = FaultyFiles(disk.files())
    store = Store.open(layer)
    made = store.create_topic(b"t", TopicProperties(ack="fsync"), NOW)
    layer.fail(0, errno.EIO, "sync", "truncate", is_for_ever=True)
    with pytest.raises(WriteFailed):
        store.properties.alter(b"t", {"ack": "flushed"})
    layer.heal()
    assert started_again(disk, store, "stop").properties.of(b"t") == made


def test_a_change_that_is_refused_when_the_file_was_just_written_anew_is_not_there(
    disk, monkeypatch
):
    monkeypatch.setattr(property_file, "_COMPACT_BYTES_MIN", 1000)
    layer = FaultyFiles(disk.files())
    store = Store.open(layer)
    store.create_topic(b"t", TopicProperties(), NOW)
    while disk.memory.size(PROPERTY_FILE) <= 1000:
        store.properties.alter(b"t", {"ack": "fsync"})
        store.properties.alter(b"t", {"ack": None})
    layer.fail(1, errno.EIO, "sync")
    with pytest.raises(WriteFailed):
        store.create_topic(b"u", TopicProperties(), NOW)
    assert started_again(disk, store, "kill").properties.described() == [b"t"]


def test_where_the_begin_of_a_topic_cannot_be_noted_nothing_of_it_goes(tmp_path):
    layer = FaultyFiles(RealFiles.at(tmp_path))
    store = Store.open(layer)
    fill(store, b"t", 3)
    for segment in store.topics[b"t"]:
        segment.close()
    layer.fail(0, errno.ENOSPC, "write_at", is_for_ever=True)
    with pytest.raises(StorageFull):
        store.destroy_segment(b"t", store.topics[b"t"][0])
    layer.heal()
    assert len(store.topics[b"t"]) == 3


def written(tmp_path, count):
    """Write so many notes; return the path of the file, and where each begins."""
    file = PropertyFile(RealFiles.at(tmp_path), b"s" * 16)
    path = tmp_path / PROPERTY_FILE
    begins = []
    for number in range(count):
        begins.append(path.stat().st_size if number else FILE_HEADER_BYTES)
        file.change(PropertyNote(DESCRIBED, b"t%d" % number, number, 1))
    return path, begins


def reread(tmp_path, *, is_after_power_cut=False):
    return PropertyFile(RealFiles.at(tmp_path), b"s" * 16, is_after_power_cut=is_after_power_cut)


@pytest.mark.parametrize("number", [0, 2, 4])
@pytest.mark.parametrize("seed", range(20))
def test_what_lies_behind_damage_is_found_and_the_damage_is_told(tmp_path, seed, number, caplog):
    path, begins = written(tmp_path, 5)
    content = bytearray(path.read_bytes())
    rng = random.Random(seed)
    # A last note whose head is damaged cannot be told from one that was torn.
    skipped = 12 if number == 4 else 0
    at = rng.randrange(begins[number] + skipped, [*begins, len(content)][number + 1])
    content[at] ^= rng.randrange(1, 256)
    path.write_bytes(content)
    left = [b"t%d" % each for each in range(5) if each != number]
    assert len(list(check_properties(RealFiles.at(tmp_path)))) == 1
    for _ in range(2):
        assert sorted(reread(tmp_path).known.described) == left
        assert len(caplog.records) == 1, "once"
    assert list(check_properties(RealFiles.at(tmp_path))) == []
    file = reread(tmp_path)
    file.change(PropertyNote(DESCRIBED, b"new"))
    assert b"new" in reread(tmp_path).known.described


@pytest.mark.parametrize("cut", range(1, 60, 7))
def test_a_last_note_that_is_torn_is_no_damage(tmp_path, cut, caplog):
    path, begins = written(tmp_path, 3)
    content = path.read_bytes()
    path.write_bytes(content[: begins[2] + min(cut, len(content) - begins[2] - 1)])
    file = reread(tmp_path)
    assert sorted(file.known.described) == [b"t0", b"t1"]
    file.change(PropertyNote(DESCRIBED, b"u"))
    assert sorted(reread(tmp_path).known.described) == [b"t0", b"t1", b"u"]
    assert not caplog.records
    assert list(check_properties(RealFiles.at(tmp_path))) == []


def test_notes_outlive_the_header_of_their_file_and_the_id_of_the_store(tmp_path):
    with_store = Store.open(tmp_path)
    made = with_store.create_topic(b"t", TopicProperties(partitions=2), NOW)
    with_store.close()
    path = tmp_path / PROPERTY_FILE
    content = bytearray(path.read_bytes())
    content[3] ^= 1
    path.write_bytes(content)
    assert list(check_properties(RealFiles.at(tmp_path))) != []
    store = Store.open(tmp_path)
    assert store.properties.of(b"t") == made
    store.create_topic(b"u", TopicProperties(), NOW)
    store.close()
    assert list(check_properties(RealFiles.at(tmp_path))) == []
    (tmp_path / META_FILE).unlink()
    assert Store.open(tmp_path).properties.of(b"t") == made


@pytest.mark.parametrize("later_starts_count", [0, 2])
def test_a_file_that_is_gone_is_told_once(tmp_path, caplog, later_starts_count):
    store = Store.open(tmp_path)
    store.create_topic(b"t", TopicProperties(partitions=2), NOW)
    store.close()
    for _ in range(later_starts_count):
        Store.open(tmp_path).close()
    assert not caplog.records
    assert list(check_properties(RealFiles.at(tmp_path))) == []
    (tmp_path / "store.topics").unlink()
    told = list(check_properties(RealFiles.at(tmp_path)))
    for _ in range(2):
        Store.open(tmp_path).close()
    assert [each.getMessage() for each in caplog.records] == told
    assert told == ["store.topics is lost, and with it the properties of all topics"]
    assert list(check_properties(RealFiles.at(tmp_path))) == []


def test_a_header_that_is_damaged_is_told_once(tmp_path, caplog):
    path, _ = written(tmp_path, 2)
    content = bytearray(path.read_bytes())
    content[3] ^= 1
    path.write_bytes(content)
    for _ in range(2):
        assert sorted(reread(tmp_path).known.described) == [b"t0", b"t1"]
        assert len(caplog.records) == 1


def test_what_a_newer_version_has_written_is_not_guessed_at(tmp_path):
    path, _ = written(tmp_path, 1)
    text = b'{"colour":"red"}'
    head = property_file._HEAD.pack(DESCRIBED, 1, len(text), 1, 1, 1, 0)  # noqa: SLF001 - the layout
    path.write_bytes(path.read_bytes() + seal(head + b"t" + text, b"s" * 16))
    with pytest.raises(FormatNotSupported):
        reread(tmp_path)
    with pytest.raises(FormatNotSupported):
        read_known_topics(RealFiles.at(tmp_path))


def test_the_file_is_written_anew_when_little_of_it_counts(tmp_path, monkeypatch):
    monkeypatch.setattr(property_file, "_COMPACT_BYTES_MIN", 1000)
    store = Store.open(tmp_path)
    store.create_topic(b"t", TopicProperties(), NOW)
    for number in range(500):
        store.properties.alter(b"t", {"count_limit": number + 1})
    assert (tmp_path / PROPERTY_FILE).stat().st_size < 2500
    found = store.properties.of(b"t")
    assert found.version == 501
    store.close()
    assert Store.open(tmp_path).properties.of(b"t") == found


def test_programs_beside_the_server_read_what_topics_have(tmp_path):
    assert read_known_topics(RealFiles.at(tmp_path)).described == {}
    with_store = Store.open(tmp_path)
    made = with_store.create_topic(b"t", TopicProperties(envelope=True), NOW)
    assert read_known_topics(RealFiles.at(tmp_path)).of(b"t", None) == made
