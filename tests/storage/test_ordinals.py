"""Each message keeps its ordinal, whatever becomes of those before it; nobody gets it anew.

What a message is here is its ordinal, in digits.
"""

import errno
import os
import random
import shutil

import pytest
from xxhash import xxh3_64_digest

from poe.errors import WriteFailed
from poe.storage import RealFiles, SegmentOptions, SharedFolder, Store, stopped_store
from poe.storage.formats.hashed import FILE_HEADER_BYTES, FileHeader
from poe.storage.formats.sum_file import SUM_MAGIC, SUMS
from poe.storage.store import removals
from poe.storage.store.check import check_segments
from poe.storage.store.repair import repair_segments
from tests.storage.faulty_files import FaultyFiles
from tests.storage.ordinals import (
    NOW,
    TOPIC,
    all_true,
    fill,
    found_on,
    newest_writer,
    put,
)
from tests.storage.segments import ENDS, started_again
from torture.layers.crash_state import after_kill, store_after_power_cut
from torture.layers.memory import MemoryFiles
from torture.layers.recorder import Recorder
from torture.layers.simulated_disk import SimulatedDisk

FOLDER = "topics/t"


@pytest.fixture
def disk():
    return SimulatedDisk()


def again(disk, store, how):
    """End a server, whose messages are durable, and start another one."""
    if how == "power cut":
        for segment in store.topics.get(TOPIC, []):
            segment.sync()
    return started_again(disk, store, how)


def destroy(store, count, topic=TOPIC):
    """Remove the oldest segments of a topic, as expiry and trim do."""
    segments = store.topics[topic][:count]
    store.note_removal(topic, segments)
    store.sync_notes()
    for segment in segments:
        segment.seal()
        store.destroy_segment(topic, segment)


def expect(store, ordinals):
    found = found_on(store)
    assert [ordinal for ordinal, _ in found] == list(ordinals)
    assert all_true(found)


@pytest.mark.parametrize("how", ENDS)
def test_ordinals_go_on_from_segment_to_segment_and_start_to_start(disk, how):
    store = Store.open(disk.files())
    assert fill(store) == 12
    store = again(disk, store, how)
    expect(store, range(12))
    put(newest_writer(store), 12)
    expect(store, range(13))


def test_a_segment_that_sleeps_wakes_with_its_ordinals(disk):
    store = Store.open(disk.files())
    fill(store, 2)
    for segment in store.topics[TOPIC]:
        segment.hibernate()
    expect(store, range(8))
    put(store.topics[TOPIC][-1], 8)
    expect(store, range(9))


@pytest.mark.parametrize("how", ENDS)
def test_who_comes_behind_what_was_removed_keeps_its_ordinal(disk, how):
    store = Store.open(disk.files())
    fill(store, 4)
    destroy(store, 3)
    store = again(disk, store, how)
    expect(store, range(12, 16))
    put(newest_writer(store), 16)
    expect(store, range(12, 17))


@pytest.mark.parametrize("how", ENDS)
def test_a_topic_that_is_made_anew_gives_no_ordinal_twice(disk, how):
    store = Store.open(disk.files())
    fill(store, 2)
    destroy(store, 2)
    store = again(disk, store, how)
    assert TOPIC not in store.topics
    fill(store, 1, begin=8)
    expect(store, range(8, 12))


def test_the_ordinals_of_topics_that_are_gone_outlast_that_the_notes_are_written_anew(
    disk, monkeypatch
):
    monkeypatch.setattr(removals, "_COMPACT_BYTES_MIN", 3000)
    store = Store.open(disk.files())
    fill(store, 1)
    destroy(store, 1)
    for number in range(100):
        fill(store, 1, topic=b"%d" % number)
        destroy(store, 1, topic=b"%d" % number)
    store = again(disk, store, "stop")
    fill(store, 1, begin=4)
    expect(store, range(4, 8))


# ---- folders of older programs -------------------------------------------------------------------


def forget_bases(base):
    """Make the folder be one that a version without ordinals has written."""
    for path in (base / FOLDER).glob("*_sum"):
        content = bytearray(path.read_bytes())
        timestamp = int(path.name.partition("_")[0])
        content[10] = 0
        content[48:56] = timestamp.to_bytes(8, "big")  # when it was made, as they wrote here
        content[56:64] = xxh3_64_digest(content[:56])
        path.write_bytes(content)


def forget_sums(base):
    """Make the folder be one of the original."""
    for path in (base / FOLDER).iterdir():
        if path.name.rpartition("_")[2] not in {"data", "index"}:
            path.unlink()
    for path in base.glob("store.*"):
        path.unlink()


OLDER = pytest.mark.parametrize("forget", [forget_bases, forget_sums])


def older_folder(base, forget, count=4):
    store = Store.open(base)
    fill(store, count)
    store.close()
    forget(base)


@OLDER
def test_in_an_older_folder_ordinals_begin_at_0(tmp_path, forget):
    older_folder(tmp_path, forget)
    store = Store.open(tmp_path)
    expect(store, range(16))
    put(newest_writer(store), 16)
    fill(store, 1, begin=17)
    expect(store, range(21))
    store.close()
    expect(Store.open(tmp_path), range(21))


@OLDER
@pytest.mark.parametrize("is_closed", [True, False])
def test_what_is_removed_of_an_older_folder_leaves_the_ordinals_of_the_rest(
    tmp_path, forget, is_closed
):
    """Nothing in the files of the rest tells them."""
    older_folder(tmp_path, forget)
    for removed in (1, 2, 3):
        store = Store.open(tmp_path)
        destroy(store, 1)
        if is_closed:
            store.close()
        del store
        store = Store.open(tmp_path)
        expect(store, range(4 * removed, 16))
        del store


@OLDER
def test_a_removal_of_an_older_folder_that_was_interrupted_anywhere_moves_nothing(tmp_path, forget):
    older_folder(tmp_path, forget)
    begun = MemoryFiles()
    for path in sorted(tmp_path.rglob("*")):
        name = path.relative_to(tmp_path).as_posix()
        if path.is_dir():
            begun.make_folder(name)
        else:
            begun.open(name, "w+").write_at(path.read_bytes(), 0)
    recorder = Recorder(begun.copy(begun.boot_id))
    store = Store.open(recorder.files)
    destroy(store, 1)
    destroy(store, 2)
    put(newest_writer(store), 16)
    for number in range(len(recorder.events) + 1):
        left = after_kill(recorder.events[:number], 0.5, begun.copy(begun.boot_id))
        found = found_on(Store.open(left))
        assert all_true(found)
        assert {ordinal for ordinal, _ in found} >= {*range(12, 16)}


def test_sums_that_are_made_later_tell_the_ordinal(tmp_path):
    older_folder(tmp_path, forget_sums)
    store = Store.open(tmp_path)
    store.topics[TOPIC][-1].unseal()
    store.close()
    newest = max((tmp_path / FOLDER).glob("*_sum"))
    header = FileHeader.decode(newest.read_bytes(), newest.name, SUM_MAGIC)
    assert header is not None
    assert header.base == 12


# ---- damage --------------------------------------------------------------------------------------


def closed_folder(base, entries=5):
    """A topic of two segments, each with so many entries of sums, of four messages each."""
    store = Store.open(base)
    number = 0
    for _ in range(2):
        segment = store.create_segment(TOPIC, NOW)
        for _ in range(entries):
            put(segment, number, 4)
            segment.flush()
            segment.sync()
            number += 4
    store.close()
    return sorted((base / FOLDER).glob("*_data"))


def beside(data, suffix):
    return data.with_name(data.name.replace("data", suffix))


def repair(base):
    with stopped_store(base, for_repair=True) as files:
        assert any(each.notes for each in repair_segments(files))


def flip(path, offset):
    content = bytearray(path.read_bytes())
    content[offset] ^= 0x55
    path.write_bytes(content)


@pytest.mark.parametrize("is_index_lost", [False, True])
@pytest.mark.parametrize("entry", range(5))
@pytest.mark.parametrize("is_entry_damaged", [False, True])
def test_damage_in_the_middle_leaves_a_hole(tmp_path, is_index_lost, entry, is_entry_damaged):
    """Should the entry of the sums be damaged, too, and the index be lost."""
    first, _ = closed_folder(tmp_path)
    flip(first, first.stat().st_size * entry // 5 + 15 if entry else 1)
    if is_entry_damaged:
        flip(beside(first, "sum"), FILE_HEADER_BYTES + SUMS.size_bytes * entry + 31)
    if is_index_lost:
        beside(first, "index").unlink()
    (tmp_path / "store.meta").unlink()
    for _ in range(2):
        store = Store.open(tmp_path)
        ordinals = [ordinal for ordinal, _ in found_on(store)]
        assert all_true(found_on(store))
        assert set(ordinals) >= {*range(40)} - {*range(4 * entry, 4 * entry + 4)}
        assert len(ordinals) < 40
        store.close()


def test_an_index_that_is_lost_is_made_with_the_same_numbers(tmp_path):
    for path in closed_folder(tmp_path):
        beside(path, "index").unlink()
    expect(Store.open(tmp_path), range(40))


@pytest.mark.parametrize("number", [0, 1])
def test_a_header_that_is_damaged_is_made_with_the_same_ordinal(tmp_path, number):
    path = closed_folder(tmp_path)[number]
    store = Store.open(tmp_path)
    destroy(store, 1)
    fill(store, 1, begin=40)
    store.close()
    if number:
        flip(beside(path, "sum"), 20)
    for _ in range(2):
        store = Store.open(tmp_path)
        expect(store, range(20, 44))
        store.close()


@pytest.mark.parametrize("number", [0, 1])
def test_repair_makes_a_header_with_the_same_ordinal(tmp_path, number):
    path = closed_folder(tmp_path)[number]
    flip(beside(path, "sum"), 20)
    files = RealFiles.at(tmp_path)
    assert any(each.notes for each in repair_segments(files))
    assert not any(each.damage for each in check_segments(files))
    expect(Store.open(tmp_path), range(40))


@pytest.mark.parametrize("is_repaired", [False, True])
@pytest.mark.parametrize("number", [0, 1])
def test_behind_a_segment_that_is_gone_all_ordinals_stay(tmp_path, number, is_repaired):
    path = closed_folder(tmp_path)[number]
    for suffix in ("data", "index", "sum"):
        beside(path, suffix).unlink()
    if is_repaired:
        repair(tmp_path)
    for life in range(2):
        store = Store.open(tmp_path)
        left = range(20, 40) if number == 0 else range(20)
        expect(store, [*left, *range(40, 40 + life)])
        put(newest_writer(store), 40 + life)
        expect(store, [*left, *range(40, 41 + life)])
        store.close()


@pytest.mark.parametrize("damaged", [None, 0, 1])
@pytest.mark.parametrize("is_killed", [False, True])
def test_what_was_put_onto_a_segment_in_a_later_life_counts_when_it_is_gone(
    tmp_path, damaged, is_killed
):
    """What the store noted of it when that life began says nothing of its end."""
    paths = closed_folder(tmp_path)
    if damaged is not None:
        flip(paths[damaged], 15)
        beside(paths[damaged], "index").unlink()
    Store.open(tmp_path).close()
    store = Store.open(tmp_path)
    put(newest_writer(store), 40, 3)
    if is_killed:
        store.topics[TOPIC][-1].flush()
        (tmp_path / "store.lock").rename(tmp_path / "lock of the dead")
    else:
        store.close()
    for suffix in ("data", "index", "sum", "lock"):
        beside(paths[-1], suffix).unlink(missing_ok=True)
    store = Store.open(tmp_path)
    newest = newest_writer(store)
    assert newest.base >= 43
    assert newest.append([b"43"], NOW) > NOW + 42


def test_a_damaged_segment_whose_sums_are_empty_leaves_its_topic_in_service(tmp_path):
    paths = closed_folder(tmp_path)
    flip(paths[0], 15)
    beside(paths[0], "index").unlink()
    Store.open(tmp_path).close()
    beside(paths[0], "sum").write_bytes(b"")
    store = Store.open(tmp_path)
    assert [each for each in found_on(store) if each[0] >= 20] == [
        (ordinal, b"%d" % ordinal) for ordinal in range(20, 40)
    ]


@pytest.mark.parametrize("is_repaired", [False, True])
@pytest.mark.parametrize("is_put_onto", [True, False])
def test_an_end_that_is_lost_keeps_its_ordinals(tmp_path, is_put_onto, is_repaired):
    """The sums tell how many there were; nobody may have put anything before the next start."""
    _, newest = closed_folder(tmp_path)
    os.truncate(newest, newest.stat().st_size // 2)
    if is_repaired:
        repair(tmp_path)
    store = Store.open(tmp_path)
    expect(store, range(28))
    if is_put_onto:
        put(newest_writer(store), 40)
    store.close()
    store = Store.open(tmp_path)
    put(newest_writer(store), 40 + is_put_onto)
    expect(store, [*range(28), *range(40, 41 + is_put_onto)])


def test_a_segment_that_is_put_into_quarantine_leaves_a_hole(tmp_path):
    first, _ = closed_folder(tmp_path)
    other = tmp_path / "other"
    store = Store.open(other)
    fill(store, 3, topic=b"u")
    store.close()
    for suffix in ("data", "index", "sum"):
        (theirs,) = sorted(other.glob(f"topics/u/*_{suffix}"))[1:2]
        shutil.copy(theirs, beside(first, suffix))
    (tmp_path / "store.meta").unlink()
    store = Store.open(tmp_path)
    found = found_on(store)
    assert [each for each in found if each[0] >= 20] == [(n, b"%d" % n) for n in range(20, 40)]


# ---- at every step -------------------------------------------------------------------------------


def history(ack="flushed"):
    """Record a life with rotations, removals and a restart; return what has happened."""
    recorder = Recorder(MemoryFiles())
    options = SegmentOptions(ack=ack)
    store = Store.open(recorder.files, options)
    number = fill(store, 3)
    store.topics[TOPIC][-1].sync()
    destroy(store, 1)
    store.close()
    store = Store.open(recorder.files, options)
    segment = newest_writer(store)
    put(segment, number, 3)
    segment.sync()
    number = fill(store, 2, begin=number + 3)
    destroy(store, 3)
    put(store.topics[TOPIC][-1], number, 5)
    store.topics[TOPIC][-1].flush()
    return recorder.events


@pytest.mark.slow
@pytest.mark.parametrize("share", [0.0, 0.5, 1.0])
def test_killed_at_any_operation_each_message_keeps_its_ordinal(share):
    events = history()
    for number in range(len(events) + 1):
        store = Store.open(after_kill(events[:number], share))
        found = found_on(store)
        assert all_true(found)
        ordinals = [ordinal for ordinal, _ in found]
        if ordinals:
            assert ordinals == list(range(ordinals[0], ordinals[-1] + 1))
        put(newest_writer(store), store.next_ordinal(TOPIC))
        assert all_true(found_on(store))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("ack", ["flushed", "fsync"])
def test_after_a_power_cut_at_any_operation_each_message_keeps_its_ordinal(seed, ack):
    events = history(ack)
    for number in range(len(events) + 1):
        left = store_after_power_cut(events[:number], random.Random(f"{seed} {number}"))
        left.boot_id = "another boot"
        store = Store.open(left)
        assert all_true(found_on(store))
        put(newest_writer(store), store.next_ordinal(TOPIC))
        assert all_true(found_on(store))


def test_a_batch_that_is_given_up_keeps_its_ordinals(tmp_path):
    """Whoever reads what is not synced may have seen them."""
    store = Store.open(tmp_path, SegmentOptions(ack="fsync"))
    fill(store, 1)
    segment = store.topics[TOPIC][-1]
    segment.sync()
    put(segment, 4, 3)
    segment.begin_cut(os.strerror(errno.EIO))()
    behind = store.create_segment(TOPIC, NOW, after_failure=True)
    assert behind.base == 7
    put(behind, 7)
    expect(store, [*range(4), 7])


# ---- in other programs ---------------------------------------------------------------------------


@pytest.mark.parametrize("forget", [forget_bases, forget_sums, lambda _: None])
def test_whoever_reads_the_folder_alone_finds_the_same(tmp_path, forget):
    older_folder(tmp_path, forget)
    folder = SharedFolder.at(tmp_path)
    found = [
        (records.ordinal, bytes(records.data[11 : int(records.starts[1])]))
        for segment in folder.segments(TOPIC)
        for records in folder.read(TOPIC, segment.timestamp, 0, segment.last)
    ]
    assert found == [(number, b"%d" % number) for number in range(0, 16, 4)]


@pytest.mark.parametrize("how", ["stop", "kill"])
def test_a_segment_that_could_neither_be_made_nor_removed_gives_no_ordinal_again(disk, how):
    layer = FaultyFiles(disk.files())
    store = Store.open(layer, SegmentOptions(ack="fsync"))
    fill(store, 1)
    layer.fail(0, errno.EIO, "sync_folder", "unlink", is_for_ever=True)
    with pytest.raises(WriteFailed):
        store.create_segment(TOPIC, NOW)
    layer.heal()
    put(newest_writer(store), 4, 3)
    store = started_again(disk, store, how)
    put(newest_writer(store), 7)
    found = found_on(store)
    assert [ordinal for ordinal, _ in found] == list(range(8))
    assert all_true(found)
