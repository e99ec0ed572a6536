"""What was removed is known for ever: after a restart, a kill, a power cut; of new topics, too."""

import contextlib
import errno
import random
from typing import Any, cast

import pytest

from poe.errors import (
    CorruptRecord,
    FormatNotSupported,
    PoeError,
    SequenceGap,
    StorageError,
    StorageFull,
)
from poe.record import POINTER_MAX
from poe.storage import RealFiles, Removals, Segment, SharedFolder, Store, check_removals
from poe.storage.formats.hashed import FILE_HEADER_BYTES, FileHeader
from poe.storage.formats.store_meta import (
    META_FILE,
    META_MAGIC,
    Event,
    Kind,
    decode_events,
    encode_event,
)
from poe.storage.store import removals
from poe.storage.store.removals import (
    EXTENTS_MAX,
    GONE_TOPICS_MAX,
    REMOVED_FILE,
    REMOVED_MAGIC,
    Bases,
    RemovalNotes,
    RemovedExtent,
    read_removals,
)
from tests.storage.faulty_files import FaultyFiles
from torture.layers.simulated_disk import SimulatedDisk
from torture.layers.watched import Failing

NOW = 1_000_000
STEP = 1_000
PUT_ID = (b"p" * 16, 0, 0)


@pytest.fixture
def disk():
    return SimulatedDisk()


def fill(store, topic=b"t", count=3, begin=NOW):
    """Make segments of two messages each; return their extents."""
    extents = []
    for number in range(count):
        segment = store.create_segment(topic, begin + number * STEP)
        last = segment.append([b"a", b"b"], begin + number * STEP)
        extents.append((segment.pointer_low, last))
    return extents


def destroy(store, *numbers, topic=b"t"):
    segments = store.topics[topic]
    for segment in [segments[number] for number in numbers]:
        segment.seal()
        store.destroy_segment(topic, segment)


def removed(store, pointer=0, topic=b"t"):
    return [(each.first, each.last) for each in store.removals.extents(topic, pointer)]


def end(disk, store, how):
    """End a server in one of the ways there are, and start another one."""
    if how == "stop":
        store.close()
        disk.kill()
    elif how == "kill":
        disk.kill()
    elif how == "power cut":
        disk.cut_power(random.Random(1))
    if how != "none":
        store = Store.open(disk.files())
    return store


@pytest.mark.parametrize("how", ["none", "stop", "kill", "power cut"])
def test_what_was_removed_is_known_segment_by_segment(disk, how):
    store = Store.open(disk.files())
    extents = fill(store, count=4)
    assert removed(store) == []
    assert store.removals.newest(b"t") == 0
    destroy(store, 0, 2)
    store = end(disk, store, how)
    assert removed(store) == [extents[0], extents[2]]
    assert removed(store, extents[0][1] + 1) == [extents[2]]
    assert store.removals.newest(b"t") == extents[2][1]
    assert store.removals.unknown_high == 0


@pytest.mark.parametrize("how", ["none", "stop", "kill", "power cut"])
def test_a_topic_that_is_gone_or_made_anew_has_not_forgotten(disk, how):
    store = Store.open(disk.files())
    extents = fill(store)
    destroy(store, 0, 1, 2)
    store = end(disk, store, how)
    assert b"t" not in store.topics
    assert removed(store) == extents
    segment = store.create_segment(b"t", 1)
    assert segment.timestamp > extents[-1][1], "its pointers go on behind the old ones"
    segment.append([b"new"], 1)
    store = end(disk, store, how)
    assert removed(store) == extents


def open_half_made(disk):
    """Open a store of a numbered put, behind which is a segment without receipts.

    Its making failed half-way, and so did removing it.
    """
    store = Store.open(disk.files())
    store.create_segment(b"t", NOW).append([b"a"], NOW, PUT_ID)
    behind = store.create_segment(b"t", NOW + STEP)
    disk.files().unlink(f"{behind.path}_seq")
    return end(disk, store, "kill")


@pytest.mark.parametrize("how", ["none", "kill", "power cut"])
def test_who_numbers_puts_is_known_when_the_segment_that_tells_of_them_goes(disk, how):
    store = open_half_made(disk)
    assert [each.count for each in store.topics[b"t"]] == [1, 0]
    destroy(store, 0)
    store = end(disk, store, how)
    behind = store.topics[b"t"][-1]
    assert behind.count == 0
    behind.unseal()
    with pytest.raises(SequenceGap):
        behind.append([b"c"], NOW, (PUT_ID[0], 0, 2))
    behind.append([b"b"], NOW, (PUT_ID[0], 0, 1))


def test_where_nothing_goes_nothing_is_kept(disk):
    store = open_half_made(disk)
    disk.failing.fail(0, errno.EIO, is_for_ever=True)
    store.note_removal(b"t", [])
    disk.failing.heal()


def test_what_tells_of_who_numbers_puts_stays_where_that_cannot_be_kept(disk):
    store = open_half_made(disk)
    first, _ = store.topics[b"t"]
    disk.failing.fail(0, errno.ENOSPC, is_for_ever=True)
    with pytest.raises(StorageFull):
        store.note_removal(b"t", [first])
    disk.failing.heal()
    assert store.topics[b"t"][0] is first
    assert first.read(0, 1, 100) is not None


def test_an_empty_segment_leaves_no_note(disk):
    store = Store.open(disk.files())
    store.create_segment(b"t", NOW)
    destroy(store, 0)
    assert removed(store) == []
    assert disk.memory.size(REMOVED_FILE) is None


CHANGES = {
    "open",
    "write_at",
    "truncate",
    "sync",
    "rename",
    "unlink",
    "remove_folder",
    "sync_folder",
}


def die_behind(disk, step):
    """Have each change behind so many fail; return the list of those that will have been tried."""
    tried: list[str] = []

    def failing(operation):
        if operation.name in CHANGES:
            tried.append(operation.name)
            if len(tried) > step:
                raise OSError(errno.EIO, "the process is dead")

    disk.failing = cast("Any", failing)
    return tried


@pytest.mark.parametrize("is_power_cut", [False, True])
@pytest.mark.parametrize("seed", range(8))
def test_whatever_step_is_the_last_no_removal_is_forgotten_and_none_invented(seed, is_power_cut):
    """A segment whose data is not there is known as removed; one that is there is not."""
    step = 0
    while True:
        disk = SimulatedDisk()
        store = Store.open(disk.files())
        extents = fill(store, count=3)
        store.topics[b"t"][-1].seal()
        for segment in store.topics[b"t"]:
            segment.close()
        die_behind(disk, step)
        has_died = True
        try:
            destroy(store, 0, 1)
            has_died = False
        except StorageError:
            pass
        disk.failing = cast("Any", lambda _: None)
        disk.cut_power(random.Random(seed)) if is_power_cut else disk.kill()
        assert list(check_removals(disk.files())) == []
        store = Store.open(disk.files())
        there = {(s.pointer_low, s.pointer_high) for s in store.topics[b"t"] if s.count}
        assert set(removed(store)) == set(extents) - there
        assert store.removals.unknown_high == 0
        if not has_died:
            break
        step += 1
    assert step > 5


def test_it_is_durable_before_the_first_file_goes(disk):
    store = Store.open(disk.files())
    fill(store)
    for segment in store.topics[b"t"]:
        segment.close()
    destroy(store, 0)  # makes the file, which is durable with all that is in it
    calls = []
    disk.failing = lambda operation: calls.append(operation.name)
    destroy(store, 0)
    assert calls.index("write_at") < calls.index("sync") < calls.index("unlink")


def test_where_it_cannot_be_noted_nothing_goes(tmp_path):
    layer = FaultyFiles(RealFiles.at(tmp_path))
    store = Store.open(layer)
    extents = fill(store)
    for segment in store.topics[b"t"]:
        segment.close()
    layer.fail(0, errno.ENOSPC, "write_at", "sync", is_for_ever=True)
    with pytest.raises(StorageFull):
        store.destroy_segment(b"t", store.topics[b"t"][0])
    layer.heal()
    assert len(store.topics[b"t"]) == 3
    assert removed(store) == []
    destroy(store, 0)
    assert removed(store) == extents[:1]


def test_what_a_note_that_failed_has_left_is_no_damage_to_the_next_start(tmp_path, caplog):
    layer = FaultyFiles(RealFiles.at(tmp_path))
    store = Store.open(layer)
    extents = fill(store)
    for segment in store.topics[b"t"]:
        segment.close()
    destroy(store, 0)
    layer.fail(0, errno.ENOSPC, "write_at")
    with pytest.raises(StorageFull):
        store.note_removal(b"t", store.topics[b"t"])
    store.close()
    again = Store.open(tmp_path)
    assert removed(again) == extents[:1]
    assert again.removals.unknown_high == 0
    assert not caplog.records


def test_notes_of_many_segments_are_synced_once(disk):
    store = Store.open(disk.files())
    names = [b"%d" % number for number in range(20)]
    for name in names:
        fill(store, name, 1)
        store.topics[name][0].close()
    destroy(store, 0, topic=names.pop())  # makes the file
    syncs = []
    disk.failing = lambda operation: syncs.append(operation.name)
    for name in names:
        store.note_removal(name, store.topics[name])
        assert removed(store, topic=name) == [], "it can still be read"
    store.removals.sync()
    for name in names:
        destroy(store, 0, topic=name)
    assert syncs.count("sync") == 1


@pytest.mark.parametrize("count", [4, EXTENTS_MAX + 5])
def test_who_tells_of_removals_before_the_files_go_has_them_noted_and_synced_once(disk, count):
    store = Store.open(disk.files())
    extents = fill(store, count=count + 1)
    destroy(store, 0)  # makes the file
    segments = store.topics[b"t"].copy()
    for segment in segments:
        segment.close()
    store.note_removal(b"t", segments)
    store.sync_notes()
    size_bytes = disk.memory.size(REMOVED_FILE)
    syncs = []
    disk.failing = lambda operation: syncs.append(operation.name)
    for segment in segments:
        store.removals.publish(b"t", segment.timestamp)
    for segment in segments:
        store.destroy_segment(b"t", segment)
    assert syncs.count("sync") == 0
    assert disk.memory.size(REMOVED_FILE) == size_bytes
    disk.failing = Failing()
    for _ in range(2):
        assert removed(store)[-1] == extents[-1]
        assert len(removed(store)) == min(len(extents), EXTENTS_MAX)
        store = end(disk, store, "kill")


def test_what_was_put_after_a_removal_was_told_is_noted_too(disk):
    store = Store.open(disk.files())
    [(first, _)] = fill(store, count=1)
    [segment] = store.topics[b"t"]
    store.note_removal(b"t", [segment])
    store.removals.sync()
    store.removals.publish(b"t", segment.timestamp)
    last = segment.append([b"c"], NOW + 1)
    segment.close()
    store.destroy_segment(b"t", segment)
    assert removed(end(disk, store, "kill")) == [(first, last)]


def test_what_a_power_cut_brings_back_goes_on_behind_what_was_removed(disk):
    """The note of the removal is durable, and neither the removal nor all that was removed."""
    store = Store.open(disk.files())
    ((_, synced),) = fill(store, count=1)
    segment = store.topics[b"t"][0]
    segment.sync()
    lost = segment.append([b"c"] * 100, NOW)
    store.note_removal(b"t", [segment])
    store.removals.sync()
    disk.cut_power(random.Random(1))
    store = Store.open(disk.files())
    (segment,) = store.topics[b"t"]
    assert synced <= segment.last_pointer < lost
    segment.unseal()
    assert segment.failure
    behind = store.create_segment(b"t", NOW)
    assert behind.append([b"d"], NOW) > lost
    assert behind.base == 102
    assert behind.next(lost) == (behind.last_pointer, b"d")


@pytest.mark.parametrize("seed", range(8))
def test_a_power_cut_behind_a_stop_tears_no_note(disk, seed):
    """Of a store that was closed in good order, it would be damage."""
    store = Store.open(disk.files())
    extents = fill(store, count=2)
    destroy(store, 0)
    last = store.topics[b"t"][-1]
    last.skip_to(0, last.next_ordinal + 1)  # as behind messages that are lost
    store.create_segment(b"t", NOW + 2 * STEP)
    for segment in store.topics[b"t"]:
        segment.sync()
    store.close()
    disk.cut_power(random.Random(seed))
    store = Store.open(disk.files())
    assert removed(store) == extents[:1]
    assert store.removals.unknown_high == 0


def test_of_many_removed_segments_the_newest_are_known_one_by_one(disk):
    store = Store.open(disk.files())
    extents = fill(store, count=EXTENTS_MAX + 5)
    destroy(store, *range(EXTENTS_MAX + 4))
    for _ in range(2):
        known = removed(store)
        assert len(known) == EXTENTS_MAX
        assert known[0] == (extents[0][0], extents[4][1])
        assert known[1:] == extents[5:-1]
        store = end(disk, store, "kill")


@pytest.mark.slow
def test_a_removal_of_more_segments_than_one_note_holds_is_noted(tmp_path):
    count = 0x10000 + 2
    removals = Removals(RealFiles.at(tmp_path), b"s" * 16, is_after_power_cut=False)
    removals.note(b"t", [RemovedExtent(each, each, each) for each in range(1, count + 1)])
    removals.sync()
    again = Removals(RealFiles.at(tmp_path), b"s" * 16, is_after_power_cut=False)
    known = again.extents(b"t")
    assert known[0] == RemovedExtent(0, 1, count - EXTENTS_MAX + 1)
    assert known[1] == RemovedExtent(count - EXTENTS_MAX + 2, *2 * [count - EXTENTS_MAX + 2])
    assert known[-1] == RemovedExtent(count, count, count)
    assert len(known) == EXTENTS_MAX


def test_of_too_many_topics_that_are_gone_the_oldest_are_forgotten_honestly(tmp_path):
    removals = Removals(RealFiles.at(tmp_path), b"s" * 16, is_after_power_cut=False)
    removals.begin((), 0, is_known=True)
    for number in range(GONE_TOPICS_MAX + 2):
        topic = b"%d" % number
        removals.note(topic, [RemovedExtent(number + 1, number + 1, number + 2)])
        removals.finish(topic, number + 1)
        removals.note_gone(topic)
    assert removals.extents(b"1") == []
    assert removals.newest(b"1") is None
    assert removals.unknown_high == 3
    assert removals.newest(b"2") == 4
    again = Removals(RealFiles.at(tmp_path), b"s" * 16, is_after_power_cut=False)
    again.begin((), 0, is_known=True)
    assert again.unknown_high == 3
    assert again.newest(b"1") is None


def test_a_segment_whose_files_somebody_has_taken_away_is_known_as_removed(disk):
    store = Store.open(disk.files())
    extents = fill(store)
    store.close()
    name = store.topics[b"t"][1].path
    disk.kill()
    for path in [path for path in disk.memory.inodes if path.startswith(name)]:
        disk.memory.unlink(path)
    store = Store.open(disk.files())
    assert removed(store) == [extents[1]]


# ---- stores of older versions, and damage -------------------------------------------------------


def as_older(disk):
    """Make a stopped store what an older version would have left."""
    disk.kill()
    disk.memory.unlink(REMOVED_FILE)
    file = disk.memory.open(META_FILE, "r+")
    content = file.read_at(file.size(), 0)
    header = FileHeader.decode(content, META_FILE, META_MAGIC)
    assert header is not None
    events = [
        each._replace(size_bytes=0, record_count=0) if each.kind is Kind.OPEN else each
        for each in decode_events(content[FILE_HEADER_BYTES:], header.store_id)
    ]
    rows = [encode_event(each, header.store_id) for each in events]
    file.truncate(0)
    file.write_at(content[:FILE_HEADER_BYTES] + b"".join(rows), 0)


def test_what_an_older_version_has_removed_is_not_known_and_that_is_said(disk, caplog):
    store = Store.open(disk.files())
    extents = fill(store)
    store.close()
    as_older(disk)
    store = Store.open(disk.files())
    assert "what was removed in memory before now is not known" in caplog.text
    assert store.removals.unknown_high >= extents[-1][1]
    assert store.removals.newest(b"t") is None
    assert removed(store) == []
    destroy(store, 0)
    unknown_high = store.removals.unknown_high
    caplog.clear()
    store = end(disk, store, "kill")
    assert removed(store) == extents[:1]
    assert store.removals.unknown_high == unknown_high, "and stays so"
    assert "is not known" not in caplog.text


def test_an_older_version_that_has_served_the_store_in_between_is_noticed(disk):
    store = Store.open(disk.files())
    extents = fill(store)
    destroy(store, 0)
    store.close()
    disk.kill()
    file = disk.memory.open(META_FILE, "r+")
    content = file.read_at(file.size(), 0)
    header = FileHeader.decode(content, META_FILE, META_MAGIC)
    assert header is not None
    store_id = header.store_id
    file.write_at(encode_event(Event(Kind.OPEN), store_id), file.size())
    store = Store.open(disk.files())
    assert store.removals.unknown_high >= extents[-1][1]
    assert removed(store) == extents[:1]


@pytest.mark.parametrize("damage", ["lost", "header", "note", "no id of the store"])
def test_notes_that_are_damaged_are_not_known_any_more(disk, damage):
    store = Store.open(disk.files())
    extents = fill(store)
    assert list(check_removals(disk.files())) == []
    destroy(store, 0)
    store.close()
    disk.kill()
    assert list(check_removals(disk.files())) == []
    file = disk.memory.open(REMOVED_FILE, "r+")
    if damage == "lost":
        disk.memory.unlink(REMOVED_FILE)
    elif damage == "no id of the store":
        disk.memory.unlink(META_FILE)
    else:
        file.write_at(b"?", 3 if damage == "header" else FILE_HEADER_BYTES + 5)
    [told] = check_removals(disk.files())
    assert told.startswith(f"{REMOVED_FILE} is {'lost' if damage == 'lost' else 'damaged'}")
    store = Store.open(disk.files())
    assert list(check_removals(disk.files())) == []
    assert store.removals.unknown_high >= extents[-1][1]
    destroy(store, 0)
    assert removed(store) == extents[1:2]


def test_a_folder_of_the_original_is_opened_and_nothing_is_known(disk):
    disk.memory.make_folder("topics")
    store = Store.open(disk.files())
    extents = fill(store)
    assert removed(store) == []
    destroy(store, 0)
    assert removed(store) == extents[:1]


@pytest.mark.parametrize(
    "left_by", ["the original", "an older version", "us, and the notes are lost"]
)
def test_a_start_that_ends_early_leaves_it_unknown(left_by):
    """Whatever step was its last, and where the disk takes nothing from there on."""
    step = 0
    while True:
        disk = SimulatedDisk()
        store = Store.open(disk.files())
        extents = fill(store)
        destroy(store, 0)
        store = end(disk, store, "stop")
        store.close()
        disk.kill()
        if left_by == "an older version":
            as_older(disk)
        else:
            disk.memory.unlink(REMOVED_FILE)
        if left_by == "the original":
            disk.memory.unlink(META_FILE)
        tried = die_behind(disk, step)
        with contextlib.suppress(PoeError):
            Store.open(disk.files())
        disk.failing = cast("Any", lambda _: None)
        disk.kill()
        store = Store.open(disk.files())
        assert store.removals.unknown_high >= extents[-1][1], step
        if len(tried) <= step:
            break
        step += 1
    assert step > 5


def test_notes_of_a_newer_version_are_refused(disk):
    store = Store.open(disk.files())
    fill(store)
    destroy(store, 0)
    store.close()
    disk.kill()
    head = bytearray(disk.memory.open(REMOVED_FILE, "r").read_at(FILE_HEADER_BYTES, 0))
    newer = FileHeader(b"s" * 16, 0).encode(REMOVED_MAGIC)
    assert len(head) == len(newer)
    from xxhash import xxh3_64_intdigest  # noqa: PLC0415 - here alone

    head[9] = 2
    head[-8:] = xxh3_64_intdigest(bytes(head[:-8])).to_bytes(8, "big")
    disk.memory.open(REMOVED_FILE, "r+").write_at(bytes(head), 0)
    with pytest.raises(FormatNotSupported):
        Store.open(disk.files())


# ---- who reads the folder beside the server -----------------------------------------------------


def test_the_folder_tells_it_too(tmp_path):
    store = Store.open(tmp_path)
    extents = fill(store)
    folder = SharedFolder.at(tmp_path)
    assert folder.removed(b"t", 0) == ((), 0)
    store.note_removal(b"t", store.topics[b"t"][:1])
    store.removals.sync()
    assert folder.removed(b"t", 0) == ((), 0), "it is still there"
    destroy(store, 0, 1)
    assert folder.removed(b"t", 0) == (tuple(extents[:2]), 0)
    assert folder.removed(b"t", extents[0][1] + 1) == (tuple(extents[1:2]), 0)
    destroy(store, 0)
    assert SharedFolder.at(tmp_path).removed(b"t", 0) == (tuple(extents), 0)
    assert folder.removed(b"never", 0) == ((), 0)
    assert read_removals(RealFiles.at(tmp_path / "elsewhere")) is None
    assert read_removals(files_of_older(tmp_path)) is None


def test_beside_a_removal_that_has_just_begun_a_segment_is_gone_and_not_damaged(tmp_path):
    store = Store.open(tmp_path)
    extents = fill(store)
    store.note_removal(b"t", store.topics[b"t"][:1])
    store.sync_notes()
    store.close()
    (tmp_path / f"topics/t/{NOW}_index").unlink()
    folder = SharedFolder.at(tmp_path)
    assert [each[1:3] for each in folder.segments(b"t")] == extents[1:]
    assert list(folder.read(b"t", NOW, 0, POINTER_MAX)) == []
    (tmp_path / f"topics/t/{NOW + STEP}_index").unlink()
    with pytest.raises(CorruptRecord):
        folder.segments(b"t")


def files_of_older(tmp_path):
    (tmp_path / "older/topics").mkdir(parents=True)
    return RealFiles.at(tmp_path / "older")


def test_a_base_that_no_topic_can_reach_is_left_out():
    notes = RemovalNotes()
    notes.note_base(b"t", 0, 7)
    notes.note_base(b"t", 0, POINTER_MAX + 1)
    notes.note_base(b"t", 5, (1 << 64) - 1)
    assert notes.bases_of(b"t") == Bases(7, 0, 0)


def test_what_a_sync_has_failed_for_is_written_anew_before_it_is_believed(tmp_path):
    """The kernel may drop what it could not write, and say of the next sync that all is well."""
    layer = FaultyFiles(RealFiles.at(tmp_path))
    notes = Removals(layer, b"s" * 16, is_after_power_cut=False)
    notes.note(b"t", [RemovedExtent(1, 1, 2)])
    notes.sync()
    notes.note(b"t", [RemovedExtent(3, 3, 4)])
    layer.fail(0, errno.EIO, "sync")
    with pytest.raises(StorageError):
        notes.sync()
    distrusted = (tmp_path / REMOVED_FILE).stat().st_ino
    notes.sync()
    assert (tmp_path / REMOVED_FILE).stat().st_ino != distrusted
    told = read_removals_of(layer)
    assert [each.last for each in told] == [2, 4]


def test_behind_a_compaction_whose_name_is_not_durable_nothing_is_lost(tmp_path, monkeypatch):
    monkeypatch.setattr(removals, "_COMPACT_BYTES_MIN", 200)
    layer = FaultyFiles(RealFiles.at(tmp_path))
    notes = Removals(layer, b"s" * 16, is_after_power_cut=False)
    for pointer in range(1, 200, 2):
        layer.fail(0, errno.EIO, "sync_folder")
        try:
            notes.note(b"t", [RemovedExtent(pointer, pointer, pointer + 1)])
        except StorageError:
            notes.note(b"t", [RemovedExtent(pointer, pointer, pointer + 1)])
        layer.heal()
        notes.sync()
        assert read_removals_of(layer)[-1].last == pointer + 1
        layer.fail(0, errno.EIO, "sync_folder")
        notes.finish(b"t", pointer)
        layer.heal()


def read_removals_of(files):
    notes = read_removals(files)
    assert notes is not None
    return notes.extents(b"t")


def test_a_removal_of_many_segments_looks_at_each_of_them_once(disk):
    """Compared with one another, 100,000 of them would take half a minute of all topics."""
    store = Store.open(disk.files())
    fill(store, count=4)
    compared = []

    class Watched(Segment):
        __slots__ = ()

        def __eq__(self, other):
            compared.append(other)
            return self is other

        __hash__ = Segment.__hash__

    segments = store.topics[b"t"]
    for segment in segments:
        segment.seal()
        segment.__class__ = Watched
    store.note_removal(b"t", segments[:3])
    assert compared == []
