"""The events of a store make starts fast; whatever becomes of them, nothing is lost by it."""

import contextlib
import errno
import logging
import os
import shutil
from threading import Thread

import pytest
from hypothesis import given
from hypothesis import strategies as st
from xxhash import xxh3_64_digest

from poe.errors import FormatNotSupported, TopicDamaged, WriteFailed
from poe.storage import RealFiles, SegmentOptions, Store
from poe.storage.formats.store_meta import (
    Event,
    Kind,
    OpenState,
    StoreMeta,
    decode_events,
    encode_event,
)
from tests.broker.nodes import descriptors
from tests.storage.faulty_files import FaultyFiles
from tests.storage.segments import NOW, names_in, read_all, some_of, started_again
from torture.layers.memory import MemoryFiles
from torture.layers.simulated_disk import SimulatedDisk

U64 = st.integers(0, 2**64 - 1)
EVENTS = st.lists(
    st.builds(Event, st.sampled_from(Kind), st.binary(max_size=20), *[U64] * 7),
    min_size=1,
    max_size=5,
)
STORE_ID = bytes(range(16))


@given(events=EVENTS, data=st.data())
def test_events_are_read_up_to_the_first_that_is_damaged(events, data):
    parts = [encode_event(event, STORE_ID) for event in events]
    content = bytearray(b"".join(parts))
    assert list(decode_events(bytes(content), STORE_ID)) == events
    assert list(decode_events(bytes(content), bytes(16))) == []
    bit = data.draw(st.integers(0, len(content) * 8 - 1))
    content[bit // 8] ^= 1 << bit % 8
    sound = [e for n, e in enumerate(events) if len(b"".join(parts[: n + 1])) <= bit // 8]
    assert list(decode_events(bytes(content), STORE_ID)) == sound


def closed_store(base):
    """Two topics, one of them with two segments."""
    store = Store.open(base)
    for number in range(2):
        store.create_segment(b"t", NOW).append([b"t%d" % number] * 3, NOW)
    store.create_segment(b"u", NOW).append([b"u"], NOW)
    store.close()


def messages_in_topic(store, topic):
    return [message for segment in store.topics[topic] for _, message in read_all(segment)]


def messages_in(store):
    return {topic: messages_in_topic(store, topic) for topic in store.topics}


EXPECTED = {b"t": [b"t0"] * 3 + [b"t1"] * 3, b"u": [b"u"]}


class OpenedFiles(RealFiles):
    """Notes which files are opened."""

    def open(self, path, mode):
        OPENED.append(path)
        return super().open(path, mode)


OPENED: list[str] = []


def test_a_store_that_is_closed_holds_no_file_open(tmp_path):
    store = Store.open(tmp_path)
    store.create_segment(b"t", NOW)
    store.close()
    assert [path for path in descriptors() if path.startswith(f"{tmp_path}/")] == []


def test_of_sealed_segments_a_start_opens_the_sums_alone(tmp_path):
    closed_store(tmp_path)
    OPENED.clear()
    store = Store.open(OpenedFiles.at(tmp_path))
    assert sorted(store.topics) == [b"t", b"u"]
    assert [segment.count for segment in store.topics[b"t"]] == [3, 3]
    of_segments = [path for path in OPENED if path.startswith("topics/")]
    assert of_segments == [path for path in of_segments if path.endswith("_sum")]
    assert len(of_segments) == len(set(of_segments)) > 0
    assert messages_in(store) == EXPECTED


@pytest.mark.parametrize("number", [0, 1])
def test_a_sealed_segment_of_a_newer_version_is_neither_read_nor_written(tmp_path, number):
    closed_store(tmp_path)
    path = sorted((tmp_path / "topics" / "t").glob("*_sum"))[number]
    content = bytearray(path.read_bytes())
    content[11] = 1  # a feature that nobody knows yet
    content[56:64] = xxh3_64_digest(content[:56])
    path.write_bytes(content)
    store = Store.open(tmp_path)
    segment = store.topics[b"t"][number]
    with pytest.raises(FormatNotSupported):
        segment.read(0, 10, 1000)
    with pytest.raises(FormatNotSupported):
        segment.unseal()
    assert not segment.is_writer
    assert messages_in_topic(store, b"u") == EXPECTED[b"u"]
    store.close()
    assert path.read_bytes() == content
    assert not path.with_name(path.name.replace("sum", "lock")).exists()


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["flipped", "cut"])
def test_whatever_becomes_of_the_events_all_messages_are_there(tmp_path, kind):
    closed_store(tmp_path)
    path = tmp_path / "store.meta"
    whole = path.read_bytes()
    for at in some_of(len(whole)):
        content = bytearray(whole)
        content[at] ^= 0x40
        path.write_bytes(content if kind == "flipped" else whole[:at])
        store = Store.open(tmp_path)
        assert messages_in(store) == EXPECTED
        store.close()
        assert not (tmp_path / "quarantine").exists()


def test_a_disk_that_takes_no_events_refuses_nothing(tmp_path):
    layer = FaultyFiles(RealFiles.at(tmp_path))
    store = Store.open(layer)
    (tmp_path / "store.meta").unlink()
    segment = store.create_segment(b"t", NOW)
    segment.append([b"a"], NOW)
    store.close()
    assert messages_in(Store.open(tmp_path)) == {b"t": [b"a"]}


@pytest.mark.parametrize("failing", range(4))
def test_a_deletion_that_was_interrupted_is_finished(tmp_path, failing):
    closed_store(tmp_path)
    layer = FaultyFiles(RealFiles.at(tmp_path))
    store = Store.open(layer)
    layer.fail(failing, errno.EIO, "unlink", is_for_ever=True)
    segment = store.topics[b"t"][0]
    with pytest.raises(Exception, match="Input/output"):
        store.destroy_segment(b"t", segment)
    del store
    store = Store.open(tmp_path)
    assert messages_in(store) == {**EXPECTED, b"t": [b"t1"] * 3}
    assert not any(name.startswith(f"{NOW}_") for name in names_in(tmp_path / "topics/t"))
    assert not (tmp_path / "quarantine").exists()


@pytest.mark.parametrize("is_closed", [False, True])
@pytest.mark.parametrize("failing", [None, 0, 1, 2, 3])
def test_a_deleted_segment_can_be_restored_from_a_copy(tmp_path, failing, is_closed):
    """After the deletion is finished: what is there then was put there by somebody."""
    closed_store(tmp_path)
    folder, copy = tmp_path / "topics/t", tmp_path / "copy"
    shutil.copytree(folder, copy)
    layer = FaultyFiles(RealFiles.at(tmp_path))
    store = Store.open(layer)
    if failing is not None:
        layer.fail(failing, errno.EIO, "unlink", is_for_ever=True)
    with contextlib.suppress(WriteFailed):
        store.destroy_segment(b"t", store.topics[b"t"][0])
    if failing is not None:
        del store
        store = Store.open(tmp_path)
    if is_closed:
        store.close()
    del store
    assert not (folder / f"{NOW}_data").exists()
    shutil.copytree(copy, folder, dirs_exist_ok=True)
    store = Store.open(tmp_path)
    assert messages_in(store) == EXPECTED
    store.close()
    assert messages_in(Store.open(tmp_path)) == EXPECTED


def test_a_deleted_segment_can_be_restored_from_a_copy_that_was_made_while_it_was_written_to(
    tmp_path,
):
    store = Store.open(tmp_path)
    segment = store.create_segment(b"t", NOW)
    segment.append([b"one"], NOW)
    sync = segment.begin_sync()
    segment.append([b"two"], NOW)
    segment.flush()
    folder, copy = tmp_path / "topics/t", tmp_path / "copy"
    shutil.copytree(folder, copy, ignore=shutil.ignore_patterns("*_lock"))
    sync()
    segment.append([b"three"], NOW)
    store.destroy_segment(b"t", segment)
    store.close()
    shutil.copytree(copy, folder)
    assert messages_in(Store.open(tmp_path)) == {b"t": [b"one", b"two"]}


@pytest.mark.parametrize("done", range(5))
def test_of_a_deletion_that_nothing_tells_of_all_messages_are_there_or_none(tmp_path, done):
    """A power cut may have taken the note; what comes back is deleted again at the next look."""
    closed_store(tmp_path)
    meta = (tmp_path / "store.meta").read_bytes()
    layer = FaultyFiles(RealFiles.at(tmp_path))
    store = Store.open(layer)
    layer.fail(done, errno.EIO, "unlink", is_for_ever=True)
    with contextlib.suppress(WriteFailed):
        store.destroy_segment(b"t", store.topics[b"t"][0])
    del store
    (tmp_path / "store.meta").write_bytes(meta)
    store = Store.open(tmp_path)
    are_back = done < 2  # the index alone was gone, which can be made from the data
    assert messages_in(store) == (EXPECTED if are_back else {**EXPECTED, b"t": [b"t1"] * 3})
    assert not any(segment.damage for segment in store.topics[b"t"])
    if are_back:
        store.destroy_segment(b"t", store.topics[b"t"][0])
    assert len(names_in(tmp_path / "topics/t")) == 3
    kept = names_in(tmp_path / "quarantine") if (tmp_path / "quarantine").exists() else []
    assert kept == ([f"{NOW}_sum_t"] if done == 2 else [])


def test_data_that_vanished_without_a_deletion_is_reported_and_the_rest_put_away(tmp_path, caplog):
    closed_store(tmp_path)
    (tmp_path / f"topics/t/{NOW}_data").unlink()
    with caplog.at_level(logging.ERROR):
        store = Store.open(tmp_path)
    assert messages_in(store) == {**EXPECTED, b"t": [b"t1"] * 3}
    assert "belongs to no data" in caplog.text
    assert sorted(names_in(tmp_path / "quarantine")) == [f"{NOW}_index_t", f"{NOW}_sum_t"]


def test_a_server_that_was_not_stopped_is_told_of(tmp_path, caplog):
    Store.open(tmp_path).close()
    store = Store.open(tmp_path)
    assert "was not stopped" not in caplog.text
    del store
    store = Store.open(FaultyFiles(RealFiles.at(tmp_path)))
    assert "was not stopped, in this boot" in caplog.text
    del store
    Store.open(FaultyFiles(RealFiles.at(tmp_path), boot_id="another"))
    assert "was not stopped, before a reboot" in caplog.text


def test_lost_sums_are_reported_and_made_anew(tmp_path, caplog):
    closed_store(tmp_path)
    (tmp_path / f"topics/t/{NOW}_sum").unlink()
    with caplog.at_level(logging.ERROR):
        store = Store.open(tmp_path)
    assert "is lost; it is made from the data" in caplog.text
    assert messages_in(store) == EXPECTED
    assert (tmp_path / f"topics/t/{NOW}_sum").exists()


@pytest.mark.slow
def test_events_of_topics_that_come_and_go_do_not_pile_up(tmp_path, caplog):
    closed_store(tmp_path)
    store = Store.open(tmp_path)
    for number in range(1000):
        topic = b"short-lived-%d" % number
        store.destroy_segment(topic, store.create_segment(topic, NOW))
    assert (tmp_path / "store.meta").stat().st_size < 70_000
    assert "was not stopped" not in caplog.text
    del store
    store = Store.open(FaultyFiles(RealFiles.at(tmp_path)))
    assert "was not stopped" in caplog.text
    assert messages_in(store) == EXPECTED


def test_with_strict_a_topic_that_was_damaged_takes_no_messages(tmp_path):
    closed_store(tmp_path)
    (path,) = tmp_path.glob("topics/u/*_data")
    os.truncate(path, path.stat().st_size - 1)
    store = Store.open(tmp_path, SegmentOptions(recovery="strict"))
    (segment,) = store.topics[b"u"]
    with pytest.raises(TopicDamaged, match="topics/u"):
        segment.unseal()
    with pytest.raises(TopicDamaged):
        store.create_segment(b"u", NOW)
    store.topics[b"t"][-1].unseal()
    assert store.topics[b"t"][-1].append([b"goes on"], 0)


def test_with_strict_the_segment_that_is_damaged_is_named(tmp_path):
    closed_store(tmp_path)
    first, *_, last = sorted(tmp_path.glob("topics/t/*_data"))
    os.truncate(first, first.stat().st_size - 1)
    store = Store.open(tmp_path, SegmentOptions(recovery="strict"))
    with pytest.raises(TopicDamaged) as caught:
        store.create_segment(b"t", NOW)
    assert first != last
    assert caught.value.path == str(first.relative_to(tmp_path)).removesuffix("_data")


@pytest.mark.parametrize("number", [0, 1])
def test_with_strict_a_topic_that_has_lost_a_segment_takes_no_messages(tmp_path, number):
    closed_store(tmp_path)
    data = sorted(tmp_path.glob("topics/t/*_data"))[number]
    lost = data.name.removesuffix("_data")
    for path in tmp_path.glob(f"topics/t/{lost}_*"):
        path.unlink()
    store = Store.open(tmp_path, SegmentOptions(recovery="strict"))
    (segment,) = store.topics[b"t"]
    for _ in range(2):
        with pytest.raises(TopicDamaged, match=f"topics/t/{lost} is damaged .all its files"):
            segment.unseal()
        with pytest.raises(TopicDamaged):
            store.create_segment(b"t", NOW)
        assert len(read_all(segment)) == 3
        store.repair_segment(b"t", segment)
        (segment,) = store.topics[b"t"]
    store.topics[b"u"][-1].unseal()


def test_with_strict_what_was_deleted_or_was_empty_is_not_lost(tmp_path):
    closed_store(tmp_path)
    store = Store.open(tmp_path)
    first, last = store.topics[b"t"]
    empty = store.create_segment(b"t", NOW)
    store.close()
    store = Store.open(FaultyFiles(RealFiles.at(tmp_path)))
    store.destroy_segment(b"t", store.topics[b"t"][0])
    del store
    for path in tmp_path.glob(f"topics/t/{empty.timestamp}_*"):
        path.unlink()
    (segment,) = Store.open(tmp_path, SegmentOptions(recovery="strict")).topics[b"t"]
    assert (first.count, segment.timestamp) == (3, last.timestamp)
    segment.unseal()


def test_with_strict_damage_is_not_forgotten_when_an_index_is_made_anew(tmp_path):
    closed_store(tmp_path)
    first, last = sorted(tmp_path.glob("topics/t/*_data"))
    os.truncate(first, first.stat().st_size - 1)
    index = last.with_name(last.name.replace("_data", "_index"))
    content = index.read_bytes()
    index.write_bytes(bytes(len(content)))
    store = Store.open(tmp_path, SegmentOptions(recovery="strict"))
    assert read_all(store.topics[b"t"][-1])
    assert index.read_bytes() == content
    with pytest.raises(TopicDamaged):
        store.topics[b"t"][-1].unseal()


def test_a_folder_copied_from_another_store_is_read_and_written(tmp_path):
    closed_store(tmp_path / "a")
    closed_store(tmp_path / "b")
    shutil.rmtree(tmp_path / "b/topics/t")
    (tmp_path / "a/topics/t").rename(tmp_path / "b/topics/t")
    store = Store.open(tmp_path / "b")
    assert messages_in(store) == EXPECTED
    newest = store.topics[b"t"][-1]
    newest.unseal()
    newest.append([b"more"], 0)
    store.close()
    assert messages_in(Store.open(tmp_path / "b"))[b"t"] == [*EXPECTED[b"t"], b"more"]


class Writes(FaultyFiles):
    """Counts the writes that go through it."""

    def __init__(self, files):
        super().__init__(files)
        self.count = 0

    def must_fail(self, operation):
        self.count += operation == "write_at"
        return super().must_fail(operation)


def noted(files):
    return StoreMeta(files, bytes(16)).live


def test_events_that_are_noted_together_are_written_at_once():
    files = Writes(MemoryFiles())
    meta = StoreMeta(files, STORE_ID)
    files.count = 0
    events = [Event(Kind.CREATE, b"t", number) for number in range(100)]
    with meta.together():
        threads = [Thread(target=meta.add, args=(event,)) for event in events]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert noted(files) == {}
    assert files.count == 1
    meta.add(Event(Kind.CREATE, b"u", 1))
    assert noted(files) == {(e.topic, e.timestamp): e for e in events} | {
        (b"u", 1): Event(Kind.CREATE, b"u", 1)
    }


def test_events_that_are_noted_together_are_written_whatever_happens():
    files = MemoryFiles()
    meta = StoreMeta(files, STORE_ID)
    with contextlib.suppress(WriteFailed), meta.together():
        meta.add(Event(Kind.CREATE, b"t", 1))
        raise WriteFailed("t", "reason")
    assert list(noted(files)) == [(b"t", 1)]


def test_what_is_compacted_meanwhile_is_there_once_or_twice_and_means_the_same():
    files = MemoryFiles()
    meta = StoreMeta(files, STORE_ID)
    with meta.together():
        for number in range(2000):
            meta.add(Event(Kind.CREATE, b"t", number))
            meta.add(Event(Kind.GONE, b"t", number))
        meta.add(Event(Kind.CREATE, b"u", 1))
    assert list(noted(files)) == [(b"u", 1)]


def test_events_that_a_full_disk_has_torn_are_no_damage_to_the_next_start(tmp_path, caplog):
    layer = FaultyFiles(RealFiles.at(tmp_path))
    meta = StoreMeta(layer, STORE_ID)
    meta.begin(OpenState(), is_same_boot=True)
    layer.fail(0, errno.ENOSPC, "write_at")
    with meta.together():
        for number in range(50):
            meta.add(Event(Kind.REST, b"%d" % number, NOW))
    meta.close()
    caplog.clear()
    meta = StoreMeta(layer, STORE_ID)
    assert meta.was_closed
    assert not meta.is_damaged
    assert not caplog.records


@pytest.mark.parametrize("how", ["stop", "kill"])
def test_what_was_deleted_while_the_disk_failed_does_not_come_back_when_it_works(how):
    disk = SimulatedDisk()
    closed_store(disk.files())
    disk.kill()
    layer = FaultyFiles(disk.files())
    store = Store.open(layer)
    [going] = store.topics[b"u"]
    store.note_removal(b"u", [going])
    store.sync_notes()
    layer.fail(0, errno.EIO, "write_at", "unlink", is_for_ever=True)
    with pytest.raises(WriteFailed):
        store.destroy_segment(b"u", going)
    layer.heal()
    if how == "kill":
        store.create_segment(b"t", NOW)
    store = started_again(disk, store, how)
    assert messages_in(store) == {b"t": EXPECTED[b"t"]}


def test_events_behind_a_name_that_is_not_durable_are_in_the_file_all_the_same(tmp_path):
    layer = FaultyFiles(RealFiles.at(tmp_path))
    meta = StoreMeta(layer, STORE_ID)
    meta.begin(OpenState(), is_same_boot=True)
    meta.add(Event(Kind.CREATE, b"t", 1))
    layer.fail(0, errno.EIO, "sync_folder")
    meta.keep_only(())
    meta.add(Event(Kind.CREATE, b"t", 2))
    meta.close()
    meta = StoreMeta(layer, STORE_ID)
    assert meta.was_closed
    assert list(meta.live) == [(b"t", 2)]


def lacking_an_event(folder):
    """Events of which the disk has not taken one, nor takes all of them in another file."""
    layer = FaultyFiles(RealFiles.at(folder))
    meta = StoreMeta(layer, STORE_ID)
    meta.begin(OpenState(), is_same_boot=True)
    layer.fail(0, errno.EIO, "write_at")
    meta.add(Event(Kind.CREATE, b"t", 1))
    layer.fail(0, errno.EIO, "rename", is_for_ever=True)
    return layer, meta


def test_a_store_that_lacks_an_event_is_not_noted_as_closed(tmp_path):
    layer, meta = lacking_an_event(tmp_path)
    meta.close()
    layer.heal()
    assert not StoreMeta(layer, STORE_ID).was_closed


def test_a_file_that_cannot_be_replaced_is_not_written_anew_with_each_event(tmp_path):
    layer, meta = lacking_an_event(tmp_path)
    for timestamp in range(2, 10):
        meta.add(Event(Kind.CREATE, b"t", timestamp))
    assert layer.failed_count == 1
    layer.heal()
    meta.close()
    meta = StoreMeta(layer, STORE_ID)
    assert meta.was_closed
    assert [timestamp for _, timestamp in meta.live] == list(range(1, 10))
