"""Checking a folder: every kind of damage is named, and nothing is changed."""

import contextlib
import shutil
import subprocess
from typing import Any, cast

import pytest

from poe.errors import OptionError, ReadFailed, StoreLocked
from poe.storage import (
    SegmentOptions,
    Store,
    check_events,
    check_properties,
    check_removals,
    check_segments,
    repair_segments,
    stopped_store,
)
from poe.topic_properties import TopicProperties
from tests.storage.test_removals import CHANGES
from torture.layers.simulated_disk import SimulatedDisk

NOW_US = 1_700_000_000_000_000


@pytest.fixture
def base(tmp_path):
    """A closed folder with one topic of two segments, of three and two records."""
    base = tmp_path / "data"
    store = Store.open(base, SegmentOptions())
    first = store.create_segment(b"t", NOW_US)
    first.append([b"one", b"two", b"three"], NOW_US)
    second = store.create_segment(b"t", NOW_US + 1000)
    second.append([b"four", b"five"], NOW_US + 1000)
    store.close()
    return base


def content_of(base):
    return {path: path.read_bytes() for path in sorted(base.rglob("*")) if path.is_file()}


def checked(base):
    before = content_of(base)
    with stopped_store(base) as files:
        found = list(check_segments(files))
    assert content_of(base) == before, "checking changes nothing"
    return found


def file_of(base, number, suffix):
    return sorted((base / "topics" / "t").glob(f"*_{suffix}"))[number]


def alter(path, offset, byte):
    content = bytearray(path.read_bytes())
    content[offset] = byte
    path.write_bytes(content)


def test_a_closed_folder_is_sound(base):
    first, second = checked(base)
    assert (first.count, first.size_bytes, first.damage, first.notes) == (3, 44, [], [])
    assert (second.count, second.size_bytes, second.damage, second.notes) == (2, 30, [], [])
    assert first.pointer_low == NOW_US
    assert first.pointer_high < second.pointer_low < second.pointer_high


def test_a_folder_without_topics_is_sound(tmp_path):
    Store.open(tmp_path).close()
    assert checked(tmp_path) == []


def test_a_record_that_is_none_is_damage(base):
    alter(file_of(base, 0, "data"), 14, 0xFF)
    first, second = checked(base)
    assert "no valid record at offset 14" in first.damage[0]
    assert "the index disagrees with the data from record 1 on" in first.damage
    assert second.damage == []


def test_a_data_file_that_was_cut_is_damage(base):
    path = file_of(base, 1, "data")
    path.write_bytes(path.read_bytes()[:-1])
    first, second = checked(base)
    assert first.damage == []
    assert "no valid record at offset 15" in second.damage[0]


def test_an_index_that_names_other_places_is_damage(base):
    alter(file_of(base, 0, "index"), 23, 0x77)
    assert checked(base)[0].damage == ["the index disagrees with the data from record 1 on"]


@pytest.mark.parametrize(("suffix", "told"), [("data", "data file"), ("index", "index file")])
def test_a_missing_file_is_damage(base, suffix, told):
    file_of(base, 0, suffix).unlink()
    assert f"the {told} is missing" in checked(base)[0].damage[0]


def test_a_segment_that_begins_before_the_one_in_front_ends_is_damage(base):
    for suffix in ("data", "index"):
        last, early = file_of(base, 1, suffix), base / "topics" / "t" / f"2{NOW_US}_{suffix}"
        early.write_bytes(last.read_bytes())
    found = checked(base)
    assert [bool(segment.damage) for segment in found] == [False, False, True]
    assert "before the segment in front of it ends" in found[2].damage[0]


def test_a_changed_pointer_speaks_against_its_own_segment_alone(base):
    """The last record seems to come after the segment behind it."""
    path = file_of(base, 0, "data")
    alter(path, 32, 0xFF)
    first, second = checked(base)
    assert (first.count, first.pointer_high >> 48) == (3, 0xFF)
    assert first.damage
    assert second.damage == []


class Killed(BaseException):
    """Ends a life at an operation; what it still does fails, too."""


def live(disk):
    """Make segments, with receipts and without, and remove some; stop, go on, and stop again."""
    store = Store.open(disk.files())
    store.create_topic(b"p", TopicProperties(partitions=2), NOW_US)
    for number in range(3):
        segment = store.create_segment(b"t", NOW_US + number * 1000)
        segment.append([b"one", b"two"], NOW_US + number * 1000, (b"a" * 16, 0, number))
    store.create_segment(b"u", NOW_US).append([b"three"], NOW_US)
    for topic in (b"t", b"u"):
        store.topics[topic][0].seal()
        store.destroy_segment(topic, store.topics[topic][0])
    store.close()
    store = Store.open(disk.files())
    store.topics[b"t"][-1].unseal()
    store.topics[b"t"][-1].append([b"four"], NOW_US + 3000)
    store.close()


@pytest.mark.slow
def test_wherever_a_server_is_killed_a_check_finds_no_damage_nor_anything_behind_a_repair():
    step, is_over = 0, False
    while not is_over:
        disk, left = SimulatedDisk(), [step]

        def failing(operation, left=left):
            left[0] -= operation.name in CHANGES
            if left[0] < 0:
                raise Killed

        disk.failing = cast("Any", failing)
        with contextlib.suppress(Killed):
            live(disk)
            is_over = True
        disk.failing = cast("Any", lambda _: None)
        disk.kill()
        files = disk.files()
        if files.modified_us("topics") is not None:
            segments = list(check_segments(files))
            damage = [finding for each in segments for finding in each.damage]
            told = [*check_events(files), *check_properties(files), *check_removals(files), *damage]
            assert told == [], step
            list(repair_segments(files))
            assert not any(each.damage + each.notes for each in check_segments(files)), step
        step += 1
    assert step > 50


@pytest.fixture
def killed(base):
    """The folder as a kill leaves it after another put: locked, with a short index."""
    store = Store.open(base)
    store.topics[b"t"][-1].unseal()
    store.topics[b"t"][-1].append([b"six"], NOW_US + 2000)
    copy = base.with_name("killed")
    shutil.copytree(base, copy)
    store.close()
    return copy


def test_a_topic_whose_folder_is_a_link_is_told_and_hides_no_other(base, tmp_path):
    store = Store.open(base)
    store.create_segment(b"u", NOW_US).append([b"one"], NOW_US)
    store.close()
    folder = base / "topics" / "t"
    folder.rename(tmp_path / "elsewhere")
    folder.symlink_to(tmp_path / "elsewhere")
    with stopped_store(base) as files:
        told = list(check_events(files))
    assert [each.partition(":")[0] for each in told] == [f"cannot read topics/t/{NOW_US}"]
    assert [(each.path, each.damage) for each in checked(base)] == [(f"topics/u/{NOW_US}", [])]
    with stopped_store(base) as files, pytest.raises(ReadFailed):  # which would forget it
        list(repair_segments(files))
    folder.unlink()
    (tmp_path / "elsewhere").rename(folder)
    assert [each.damage for each in checked(base)] == [[], [], []]
    with stopped_store(base) as files:
        assert list(check_events(files)) == []


@pytest.mark.parametrize("end", ["stop", "power cut"])
def test_damage_of_what_topics_have_is_told_after_a_reboot_unless_the_power_was_cut(base, end):
    store = Store.open(base)
    for name in (b"u", b"v"):
        store.create_topic(name, TopicProperties(partitions=2), NOW_US)
    if end == "stop":
        store.close()
    del store
    (base / "store.lock").write_text("1\nanother boot\n")
    alter(base / "store.topics", 80, 0xFF)
    with stopped_store(base) as files:
        found = [each.partition(":")[0] for each in check_properties(files)]
    told = ["store.topics is damaged from offset 64 to 113"]
    assert found == (told if end == "stop" else [])


def test_what_a_killed_writer_leaves_is_a_note(killed):
    with file_of(killed, 1, "data").open("ab") as data:
        data.write(b"half")
    first, second = checked(killed)
    assert first.damage == first.notes == []
    assert second.damage == []
    assert second.notes == [
        "was not closed; the next start recovers it",
        "4 bytes of an unfinished batch",
        "the index is short; it will be completed",
    ]
    assert second.count == 3


def test_flushed_records_that_are_gone_are_damage_even_after_a_kill(killed):
    path = file_of(killed, 1, "data")
    path.write_bytes(path.read_bytes()[:-1])
    damage = checked(killed)[1].damage
    assert damage[0].startswith("no valid record at offset 30 of the data file; 14 bytes")


def test_a_disk_that_cannot_be_written_can_be_checked_but_not_repaired(disk):
    """As a snapshot or a copy for keeps is mounted."""
    base = disk.folder / "data"
    store = Store.open(base)
    store.create_segment(b"t", NOW_US).append([b"x"], NOW_US)
    store.close()
    del store  # and with it the last file that is open for writing
    subprocess.run(["mount", "-o", "remount,ro", str(disk.folder)], check=True)
    assert [(each.count, each.damage) for each in checked(base)] == [(1, [])]
    with pytest.raises(OptionError, match="not writable"), stopped_store(base, for_repair=True):
        pass
    with pytest.raises(OptionError, match="not writable"):
        Store.open(base)


def test_a_folder_in_use_is_refused(base):
    store = Store.open(base)
    with pytest.raises(StoreLocked), stopped_store(base):
        pass
    store.close()


def test_a_server_cannot_start_meanwhile(base):
    with stopped_store(base), pytest.raises(StoreLocked):
        Store.open(base)


def test_the_pid_of_a_server_that_has_ended_is_not_told_to_hold_a_folder_that_is_checked(base):
    (base / "store.lock").write_text(f"{2**22 + 1}\n")  # no process has such a pid
    with stopped_store(base), pytest.raises(StoreLocked, match="or by `poe check`") as caught:
        Store.open(base)
    assert caught.value.pid is None


def test_a_folder_of_the_original_has_no_store_lock_and_gets_none(base):
    (base / "store.lock").unlink()
    assert [segment.damage for segment in checked(base)] == [[], []]


@pytest.mark.parametrize("name", [".", "missing"])
def test_what_is_no_server_s_folder_is_refused_and_not_made(tmp_path, name):
    with pytest.raises(OptionError, match="a server's folder"), stopped_store(tmp_path / name):
        pass
    assert list(tmp_path.iterdir()) == []
