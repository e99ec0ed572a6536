"""After a power cut a segment is what it was at an earlier moment, and never before its last sync.

The cut is simulated on the files: what was written behind the last sync is there, in part, as
zeros, or not at all, for each page on its own. Real cuts of real disks are in `torture/`.
"""

import contextlib
import errno
import os
import random
import shutil
from pathlib import Path

import pytest

from poe.errors import CorruptRecord, OptionError, StorageError, WriteFailed
from poe.storage import (
    RealFiles,
    Segment,
    SegmentOptions,
    Store,
    check_events,
    repair_segments,
)
from poe.storage.formats.hashed import FILE_HEADER_BYTES
from poe.storage.formats.record import encode_records
from poe.storage.formats.store_meta import Kind, StoreMeta, decode_events
from tests.storage.faulty_files import FaultyFiles
from tests.storage.segments import FOLDER, NOW, create, files_at, path_of, read_all, reopen
from torture.layers.simulated_disk import SimulatedDisk

PAGE_BYTES = 512
SEEDS = range(20)


def tear(path: Path, synced: bytes, rng: random.Random) -> None:
    """Leave of what is behind the synced bytes what a disk may have got of it."""
    content = bytearray(path.read_bytes())
    assert content[: len(synced)] == synced
    size = rng.choice([len(content), rng.randint(len(synced), len(content)), len(synced)])
    for start in range(0, len(content), PAGE_BYTES):
        if rng.random() < 0.3:
            end = min(start + PAGE_BYTES, len(content))
            content[max(start, len(synced)) : end] = bytes(max(end - max(start, len(synced)), 0))
    path.write_bytes(content[:size])


def write_batches(segment, rng, stored, count):
    for _ in range(count):
        messages = [rng.randbytes(rng.randint(1, 300)) for _ in range(rng.randint(1, 5))]
        if rng.random() < 0.3:
            messages = [rng.randbytes(50)] * 20
        last = segment.append(messages, NOW)
        first = last - len(messages) + 1
        stored += [(first + n, message) for n, message in enumerate(messages)]
        if rng.random() < 0.4:
            segment.flush()


@pytest.mark.parametrize("seed", SEEDS)
def test_after_a_power_cut_nothing_synced_is_lost_and_nothing_is_wrong(tmp_path, seed):
    rng = random.Random(seed)
    layer = FaultyFiles(files_at(tmp_path))
    segment = create(layer, ack="fsync")
    stored: list[tuple[int, bytes]] = []
    for life in range(3):
        write_batches(segment, rng, stored, rng.randint(0, 6))
        segment.sync()
        synced_count = len(stored)
        synced = {suffix: path_of(tmp_path, suffix).read_bytes() for suffix in ("data", "sum")}
        write_batches(segment, rng, stored, rng.randint(0, 6))
        del segment
        tear(path_of(tmp_path, "data"), synced["data"], rng)
        tear(path_of(tmp_path, "sum"), synced["sum"], rng)
        tear(path_of(tmp_path, "index"), b"", rng)
        layer.boot_id = f"boot {life}"
        recovered = reopen(layer, ack="fsync")
        found = read_all(recovered)
        assert found == stored[: len(found)]
        assert len(found) >= synced_count
        assert not recovered.damage
        content = {suffix: path_of(tmp_path, suffix).read_bytes() for suffix in synced}
        assert read_all(reopen(layer, ack="fsync")) == found
        assert content == {suffix: path_of(tmp_path, suffix).read_bytes() for suffix in synced}
        stored = stored[: len(found)]
        segment = recovered
        segment.unseal()


@pytest.mark.parametrize("seed", SEEDS)
def test_a_power_cut_while_a_batch_is_given_up_leaves_what_was_synced(tmp_path, seed):
    rng = random.Random(seed)
    layer = FaultyFiles(files_at(tmp_path))
    segment = create(layer, ack="fsync")
    stored: list[tuple[int, bytes]] = []
    write_batches(segment, rng, stored, rng.randint(0, 6))
    segment.sync()
    synced_count = len(stored)
    paths = [path_of(tmp_path, suffix) for suffix in ("data", "sum", "index")]
    synced = [path.read_bytes() for path in paths]
    write_batches(segment, rng, stored, rng.randint(1, 6))
    segment.flush()
    before = [path.read_bytes() for path in paths]
    layer.fail(rng.randrange(20), errno.EIO)
    with contextlib.suppress(StorageError):
        segment.begin_cut("I/O error")()
    is_durable = not layer.failed_count
    layer.heal()
    assert len(read_all(segment)) == synced_count
    del segment
    for path, old, new in zip(paths, synced, before, strict=True):
        if not is_durable:
            path.write_bytes(rng.choice([path.read_bytes(), new]))
            tear(path, b"" if path.name.endswith("index") else old, rng)
    layer.boot_id = "another boot"
    recovered = reopen(layer, ack="fsync")
    found = read_all(recovered)
    assert not recovered.damage
    assert found == stored[: len(found)]
    assert len(found) == synced_count if is_durable else len(found) >= synced_count


def test_what_was_synced_and_is_damaged_is_marked_and_nothing_behind_it_is_cut(tmp_path):
    layer = FaultyFiles(files_at(tmp_path))
    segment = create(layer, ack="fsync")
    stored = []
    for number in range(6):
        pointer = segment.append([b"%d" % number * 100], NOW)
        stored.append((pointer, b"%d" % number * 100))
        segment.sync()
    del segment
    content = bytearray(path_of(tmp_path, "data").read_bytes())
    content[250] ^= 1
    path_of(tmp_path, "data").write_bytes(content)
    layer.boot_id = "another boot"
    recovered = reopen(layer, ack="fsync")
    assert len(recovered.damage) == 1
    assert path_of(tmp_path, "data").read_bytes() == content
    assert [recovered.next(pointer - 1) for pointer, _ in stored[3:]] == stored[3:]
    with pytest.raises(CorruptRecord) as caught:
        recovered.next(stored[1][0])
    assert caught.value.pointer == stored[2][0]


def test_without_sums_a_power_cut_would_be_noticed_by_nobody(tmp_path):
    """The test above bites: a page of zeros inside of messages looks like messages."""
    layer = FaultyFiles(files_at(tmp_path))
    segment = create(layer)
    segment.append([b"x" * 3000] * 3, NOW)
    segment.flush()
    del segment
    content = bytearray(path_of(tmp_path, "data").read_bytes())
    content[1024:1536] = bytes(512)
    path_of(tmp_path, "data").write_bytes(content)
    path_of(tmp_path, "sum").unlink()
    layer.boot_id = "another boot"
    assert read_all(reopen(layer))[0] != (NOW, b"x" * 3000)


def test_a_sealed_segment_stays_locked_until_it_is_durable(tmp_path):
    segment = create(files_at(tmp_path), ack="fsync")
    segment.append([b"a"], NOW)
    segment.seal()
    assert path_of(tmp_path, "lock").exists()
    segment.sync()
    assert not path_of(tmp_path, "lock").exists()


def test_after_a_sync_that_failed_a_segment_stays_locked(tmp_path):
    layer = FaultyFiles(files_at(tmp_path))
    segment = create(layer, ack="fsync")
    segment.append([b"a"], NOW)
    layer.fail(0, errno.EIO, "sync")
    with pytest.raises(WriteFailed):
        segment.sync()
    segment.close()
    assert path_of(tmp_path, "lock").exists()
    assert read_all(reopen(layer)) == [(NOW, b"a")]
    assert not path_of(tmp_path, "lock").exists()


def half_of(*messages):
    """Return a batch of which only the first message reached the disk."""
    batch = bytes(encode_records(list(messages), NOW + 100, 100)[0])
    return batch[: 11 + len(messages[0])]


@pytest.mark.parametrize("lock", ["whole", "empty", "missing"])
def test_what_a_power_cut_leaves_of_a_sealed_segment_is_cut_to_whole_batches(tmp_path, lock):
    """The lock of a new segment is not synced: of what it says, or of it, nothing may be left."""
    layer = FaultyFiles(files_at(tmp_path))
    meta = StoreMeta(layer, bytes(16))
    place = (layer, FOLDER, NOW, SegmentOptions())
    segment = Segment.create(*place, meta)
    segment.append([b"first"], NOW)
    segment.sync()
    segment.append([b"half", b"batch"], NOW + 100)
    segment.flush()
    del segment
    with path_of(tmp_path, "data").open("r+b") as data:
        data.truncate(16 + len(half_of(b"half", b"batch")))
    if lock == "empty":
        path_of(tmp_path, "lock").write_bytes(b"")
    elif lock == "missing":
        path_of(tmp_path, "lock").unlink()
    layer.boot_id = "another boot"
    meta = StoreMeta(layer, bytes(16))
    recovered = Segment.open(*place, meta, is_locked=lock != "missing")
    assert recovered is not None
    assert read_all(recovered) == [(NOW, b"first")]
    assert not recovered.damage


def test_records_that_the_original_appended_behind_its_own_lock_are_taken_in(tmp_path):
    layer = FaultyFiles(files_at(tmp_path))
    segment = create(layer)
    segment.append([b"ours"], NOW)
    segment.close()
    with path_of(tmp_path, "data").open("ab") as data:
        data.write(half_of(b"theirs", b"x"))
    with path_of(tmp_path, "index").open("ab") as index:
        index.write((NOW + 100).to_bytes(7, "big") + (15).to_bytes(5, "big"))
    path_of(tmp_path, "lock").write_bytes(b"")
    assert read_all(reopen(layer)) == [(NOW, b"ours"), (NOW + 100, b"theirs")]


@pytest.mark.parametrize("left", ["lock_new", "no index"])
def test_a_new_segment_whose_lock_had_no_name_yet_is_cut_without_a_word_from_the_store(
    tmp_path, left
):
    """`store.meta`, which would tell of it, may be torn by the same power cut."""
    files = files_at(tmp_path)
    segment = create(files)
    segment.append([b"never synced"], NOW)
    segment.flush()
    del segment
    data = path_of(tmp_path, "data")
    data.write_bytes(bytes(data.stat().st_size))
    path_of(tmp_path, "lock").rename(path_of(tmp_path, "lock_new"))
    if left == "no index":
        path_of(tmp_path, "lock_new").unlink()
        path_of(tmp_path, "index").unlink()
    found = reopen(files)
    assert (found.count, found.damage) == (0, ())
    assert not path_of(tmp_path, "lock_new").exists()


def repaired(tmp_path):
    """Repair a store whose power was cut, before the next start."""
    found = list(repair_segments(FaultyFiles(RealFiles.at(tmp_path), boot_id="two")))
    assert not any(segment.damage for segment in found)


@pytest.mark.parametrize("is_repaired", [False, True])
def test_a_store_cuts_off_what_was_never_synced_though_the_lock_has_lost_its_name(
    tmp_path, is_repaired
):
    store = Store.open(FaultyFiles(RealFiles.at(tmp_path), boot_id="one"))
    segment = store.create_segment(b"t", NOW)
    segment.append([b"never synced", b"nor was this"], NOW)
    segment.flush()
    del store, segment
    data = path_of(tmp_path, "data")
    data.write_bytes(data.read_bytes()[:-5] + bytes(5))
    path_of(tmp_path, "lock").unlink()
    with (tmp_path / "store.meta").open("r+b") as meta:
        meta.truncate(FILE_HEADER_BYTES + 10)  # no whole event
    if is_repaired:
        repaired(tmp_path)
    store = Store.open(FaultyFiles(RealFiles.at(tmp_path), boot_id="two"))
    [segment] = store.topics[b"t"]
    assert (segment.count, segment.damage) == (0, ())


def opened_again(tmp_path):
    """Make a store with a segment that was closed once, and is written to again."""
    layer = FaultyFiles(RealFiles.at(tmp_path), boot_id="one")
    store = Store.open(layer)
    store.create_segment(b"t", NOW).append([b"first"], NOW)
    store.close()
    store = Store.open(layer)
    [segment] = store.topics[b"t"]
    segment.unseal()
    return store, segment


@pytest.mark.parametrize("are_sums_written", [False, True])
def test_what_was_never_synced_is_no_damage_where_a_removal_has_taken_the_lock_alone(
    tmp_path,
    are_sums_written,
):
    """Its event tells of its first close, so that without a lock it would be a closed one."""
    store, segment = opened_again(tmp_path)
    kept = [path_of(tmp_path, "data"), path_of(tmp_path, "sum"), tmp_path / "store.meta"]
    segment.append([b"never synced" * 9], NOW)
    if are_sums_written:
        segment.flush()
    contents = [path.read_bytes() for path in kept]
    store.destroy_segment(b"t", segment)
    del store, segment
    kept[0].parent.mkdir(exist_ok=True)
    for path, content in zip(kept, contents, strict=True):
        path.write_bytes(content)
    os.truncate(kept[0], 16)
    os.truncate(kept[0], len(contents[0]))
    store = Store.open(FaultyFiles(RealFiles.at(tmp_path), boot_id="two"))
    [segment] = store.topics[b"t"]
    assert read_all(segment) == [(NOW, b"first")]
    assert not segment.damage


def test_behind_a_removal_that_was_noted_and_never_begun_nothing_is_taken_for_never_synced(
    tmp_path,
):
    store, segment = opened_again(tmp_path)
    store.note_removal(b"t", [segment])
    store.sync_notes()
    for message in (b"second", b"third", b"fourth"):
        segment.append([message], NOW)
        segment.flush()
    store.close()
    with (tmp_path / "store.meta").open("ab") as meta:
        meta.write(b"torn")
    # Of its last four entries, the second one, and the one that says that it was closed.
    sums = bytearray(path_of(tmp_path, "sum").read_bytes())
    sums[-3 * 48] ^= 1
    sums[-1] ^= 1
    path_of(tmp_path, "sum").write_bytes(sums)
    store = Store.open(FaultyFiles(RealFiles.at(tmp_path), boot_id="two"))
    [segment] = store.topics[b"t"]
    messages = [message for _, message in read_all(segment)]
    assert messages == [b"first", b"second", b"third", b"fourth"]


def sealed(tmp_path, *, is_synced=False):
    """Make a segment that is full; tell the store's events, which live in the same folder."""
    layer = FaultyFiles(files_at(tmp_path), boot_id="one boot")
    meta = StoreMeta(layer, bytes(16))
    segment = Segment.create(layer, FOLDER, NOW, SegmentOptions(), meta)
    for number in range(4):
        segment.append([b"%d" % number * 200], NOW)
        segment.flush()
    segment.seal()
    if is_synced:
        segment.sync()
    return layer


def open_after_cut(layer, **options):
    layer.boot_id = "another boot"
    meta = StoreMeta(layer, bytes(16), is_same_boot=False)
    is_locked = layer.size(f"{FOLDER}/{NOW}_lock") is not None
    return Segment.open(layer, FOLDER, NOW, SegmentOptions(), meta, is_locked=is_locked, **options)


LOCK = b"poe-lock\0\0\0\1\0\0\1\0boot"
TORN_LOCKS = [
    None,
    b"",
    bytes(72),
    bytes(4096),
    LOCK,
    bytes(64) + b"\1" * 8,
    LOCK + bytes(60),
    b"p",
]


@pytest.mark.parametrize("lock", TORN_LOCKS)
@pytest.mark.parametrize("hole", [0, 1, 300, 500, 843])
def test_whatever_a_power_cut_leaves_of_a_lock_what_was_never_synced_is_no_damage(
    tmp_path, lock, hole
):
    """The lock of a new segment is never synced; torn, it was taken for the original's."""
    layer = sealed(tmp_path)
    data = path_of(tmp_path, "data")
    content = bytearray(data.read_bytes())
    content[hole : hole + 200] = bytes(len(content[hole : hole + 200]))
    data.write_bytes(content)
    if lock is None:
        path_of(tmp_path, "lock").unlink()
    else:
        path_of(tmp_path, "lock").write_bytes(lock)
    recovered = open_after_cut(layer)
    assert not recovered.damage
    assert [message for _, message in read_all(recovered)] == [
        b"%d" % number * 200 for number in range(hole // 211)
    ]
    assert not path_of(tmp_path, "lock").exists()


@pytest.mark.parametrize("lock", TORN_LOCKS)
def test_whatever_a_power_cut_leaves_of_a_lock_what_was_synced_and_is_damaged_is_told(
    tmp_path, lock
):
    layer = sealed(tmp_path, is_synced=True)
    assert not path_of(tmp_path, "lock").exists()
    data = path_of(tmp_path, "data")
    content = bytearray(data.read_bytes())
    content[300] ^= 1
    data.write_bytes(content)
    if lock is not None:  # its removal was not durable
        path_of(tmp_path, "lock").write_bytes(lock)
    recovered = open_after_cut(layer)
    assert data.read_bytes() == content
    with pytest.raises(CorruptRecord):
        read_all(recovered)


@pytest.mark.parametrize("size", [0, 64, 100, 112, 160, 208, 255])
@pytest.mark.parametrize("is_locked", [False, True])
def test_sums_that_a_power_cut_has_torn_cut_off_what_they_do_not_cover(tmp_path, size, is_locked):
    layer = sealed(tmp_path)
    sums = path_of(tmp_path, "sum")
    content = sums.read_bytes()
    sums.write_bytes(content[:size].ljust(len(content), b"\0"))
    if not is_locked:
        path_of(tmp_path, "lock").unlink()
    recovered = open_after_cut(layer)
    assert not recovered.damage
    assert recovered.count == max(size - 64, 0) // 48


def test_a_sealed_segment_says_that_it_was_closed_once_it_is_durable_and_no_sooner(tmp_path):
    sealed(tmp_path / "sealed")
    sealed(tmp_path / "synced", is_synced=True)
    size = path_of(tmp_path / "sealed", "sum").stat().st_size
    assert path_of(tmp_path / "synced", "sum").stat().st_size == size + 48
    content = (tmp_path / "sealed" / "store.meta").read_bytes()
    kinds = [event.kind for event in decode_events(content[64:], bytes(16))]
    assert kinds[-1] == Kind.CREATE
    assert Kind.SEAL not in kinds


def two_segments(tmp_path, **options):
    """Make a topic of two segments in a store, neither of them synced."""
    store = Store.open(
        FaultyFiles(RealFiles.at(tmp_path), boot_id="one"), SegmentOptions(**options)
    )
    first = store.create_segment(b"t", NOW)
    for message in (b"first", b"second"):
        first.append([message], NOW)
        first.flush()
    second = store.create_segment(b"t", NOW + 10)
    second.append([b"third"], NOW + 10)
    second.flush()
    return first, second


def stored_after_cut(tmp_path, boot="two"):
    store = Store.open(FaultyFiles(RealFiles.at(tmp_path), boot_id=boot))
    assert not any(segment.damage for segment in store.topics[b"t"])
    stored = [m for segment in store.topics[b"t"] for _, m in read_all(segment)]
    store.close()
    return stored


def lose_end_of_first(tmp_path):
    os.truncate(path_of(tmp_path, "data"), 16)


@pytest.mark.parametrize("is_repaired", [False, True])
def test_what_comes_behind_a_segment_that_lost_its_end_goes_too(tmp_path, is_repaired):
    two_segments(tmp_path)
    lose_end_of_first(tmp_path)
    if is_repaired:
        repaired(tmp_path)
    assert stored_after_cut(tmp_path) == [b"first"]
    assert stored_after_cut(tmp_path, "three") == [b"first"]


def test_what_is_put_onto_a_segment_that_was_cut_off_is_no_more_behind_a_hole(tmp_path):
    two_segments(tmp_path)
    lose_end_of_first(tmp_path)
    store = Store.open(FaultyFiles(RealFiles.at(tmp_path), boot_id="two"))
    newest = store.topics[b"t"][-1]
    newest.unseal()
    newest.append([b"fourth"], NOW + 20)
    newest.sync()
    del store, newest
    assert stored_after_cut(tmp_path, "three") == [b"first", b"fourth"]


def test_what_comes_behind_a_segment_that_was_removed_stays(tmp_path):
    store = Store.open(FaultyFiles(RealFiles.at(tmp_path), boot_id="one"))
    first = store.create_segment(b"t", NOW)
    first.append([b"first"], NOW)
    second = store.create_segment(b"t", NOW + 10)
    second.append([b"second"], NOW + 10)
    for segment in (first, second):
        segment.sync()
    store.destroy_segment(b"t", first)
    del store, first, second, segment
    assert stored_after_cut(tmp_path) == [b"second"]


def test_what_comes_behind_a_segment_that_is_whole_stays(tmp_path):
    two_segments(tmp_path)
    assert stored_after_cut(tmp_path) == [b"first", b"second", b"third"]


@pytest.mark.parametrize("nth", range(0, 150, 11))
def test_a_start_that_dies_does_not_keep_what_comes_behind_a_hole(tmp_path, nth):
    two_segments(tmp_path / "a")
    lose_end_of_first(tmp_path / "a")
    layer = FaultyFiles(RealFiles.at(tmp_path / "a"), boot_id="two")
    layer.fail(nth, errno.EIO, is_for_ever=True)
    with contextlib.suppress(StorageError, OptionError, OSError):
        Store.open(layer)
    # The lock of a start that failed goes with its traceback; a copy has none.
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    assert stored_after_cut(tmp_path / "b") == [b"first"]


def test_what_was_synced_behind_a_segment_that_was_damaged_later_stays(tmp_path):
    """Of a segment that was durable, a lost end is damage, and no reason to lose more."""
    first, second = two_segments(tmp_path)
    second.sync()
    first.sync()
    second.append([b"fourth"], NOW + 10)
    second.sync()
    second.append([b"fifth"], NOW + 10)
    second.flush()
    del first, second
    lose_end_of_first(tmp_path)
    store = Store.open(FaultyFiles(RealFiles.at(tmp_path), boot_id="two"))
    assert [m for _, m in read_all(store.topics[b"t"][-1])] == [b"third", b"fourth", b"fifth"]


def test_a_segment_is_closed_after_the_one_before_it(tmp_path):
    first, second = two_segments(tmp_path)
    second.seal()
    second.sync()
    assert second.durability.is_locked
    first.sync()
    assert not first.durability.is_locked
    second.sync()
    assert not second.durability.is_locked


def test_closing_a_segment_makes_those_before_it_durable(tmp_path):
    first, second = two_segments(tmp_path)
    second.close()
    assert not first.durability.is_locked
    assert not second.durability.is_locked
    assert stored_after_cut(tmp_path) == [b"first", b"second", b"third"]


def test_a_full_disk_when_a_segment_ends_is_no_failed_sync(tmp_path):
    layer = FaultyFiles(files_at(tmp_path))
    segment = create(layer)
    segment.append([b"a"], NOW)
    segment.seal()
    sync = segment.begin_sync()
    layer.fail(0, errno.ENOSPC, "write_at")
    sync()
    assert segment.durability.is_locked
    assert not segment.durability.has_failed
    segment.close()
    assert not path_of(tmp_path, "lock").exists()
    assert read_all(reopen(layer)) == [(NOW, b"a")]


def test_a_failing_disk_when_a_segment_ends_is_a_failed_sync(tmp_path):
    layer = FaultyFiles(files_at(tmp_path))
    segment = create(layer)
    segment.append([b"a"], NOW)
    segment.seal()
    sync = segment.begin_sync()
    layer.fail(0, errno.EIO, "write_at")
    with pytest.raises(WriteFailed):
        sync()
    assert segment.durability.has_failed
    segment.close()
    assert path_of(tmp_path, "lock").exists()
    assert read_all(segment) == read_all(reopen(layer)) == [(NOW, b"a")]


def cut_events(tmp_path, *, is_closed=False):
    """Leave a store whose last events are zeros, as a power cut leaves them; tell their file."""
    store = Store.open(FaultyFiles(RealFiles.at(tmp_path), boot_id="one"))
    store.create_segment(b"t", NOW).append([b"a"], NOW)
    events = tmp_path / "store.meta"
    if is_closed:
        store.close()
    content = events.read_bytes()
    middle = content[:-40] + bytes(40)
    events.write_bytes(content[:70] + bytes(20) + content[90:] if is_closed else middle)
    return events


@pytest.mark.parametrize("boot_id", ["one", "two"])
def test_events_torn_by_a_power_cut_are_told_as_such_and_others_as_damage(
    tmp_path, caplog, boot_id
):
    cut_events(tmp_path)
    files = FaultyFiles(RealFiles.at(tmp_path), boot_id=boot_id)
    findings = list(check_events(files))
    Store.open(files).close()
    levels = {record.levelname for record in caplog.records if "store.meta" in record.message}
    if boot_id == "one":
        assert levels == {"ERROR"}
        assert findings
    else:
        assert levels == {"WARNING"}
        assert "were not on the disk when the power was cut" in caplog.text
        assert not findings


@pytest.mark.parametrize("boot_id", ["one", "two"])
def test_events_of_a_store_that_was_closed_are_damaged_whatever_came_later(
    tmp_path, caplog, boot_id
):
    cut_events(tmp_path, is_closed=True)
    files = FaultyFiles(RealFiles.at(tmp_path), boot_id=boot_id)
    assert list(check_events(files))
    Store.open(files).close()
    assert "store.meta is damaged from offset 64 on" in caplog.text
    assert any(record.levelname == "ERROR" for record in caplog.records)


def test_an_id_of_the_store_that_is_damaged_is_an_error_behind_a_power_cut_too(tmp_path, caplog):
    events = cut_events(tmp_path)
    events.write_bytes(bytes(64) + events.read_bytes()[64:])
    Store.open(FaultyFiles(RealFiles.at(tmp_path), boot_id="two")).close()
    assert "store.meta is damaged and begun anew" in caplog.text


def test_a_start_that_dies_behind_a_power_cut_is_followed_by_one_that_knows_of_it(tmp_path):
    """The second one is in the same boot as the first, which has repaired nothing yet."""
    store = Store.open(FaultyFiles(RealFiles.at(tmp_path), boot_id="one"))
    segment = store.create_segment(b"t", NOW)
    segment.append([b"never synced" * 9], NOW)
    segment.flush()
    del store, segment
    data = path_of(tmp_path, "data")
    data.write_bytes(bytes(data.stat().st_size))
    path_of(tmp_path, "lock").unlink()
    with (tmp_path / "store.meta").open("r+b") as meta:
        meta.truncate(FILE_HEADER_BYTES + 10)
    layer = FaultyFiles(RealFiles.at(tmp_path), boot_id="two")
    layer.fail(0, errno.EIO, "list_folder", is_for_ever=True)
    with contextlib.suppress(StorageError, OptionError):
        Store.open(layer)
    store = Store.open(FaultyFiles(RealFiles.at(tmp_path), boot_id="two"))
    [segment] = store.topics[b"t"]
    assert (segment.count, segment.damage) == (0, ())


def sealed_segment(store, topic=b"t"):
    segment = store.create_segment(topic, NOW)
    segment.append([b"m"], NOW)
    segment.seal()
    segment.durability.belong_to(segment.path)
    return segment


def test_sealed_segments_end_in_their_order_and_are_synced_once(tmp_path):
    layer = FaultyFiles(RealFiles.at(tmp_path))
    store = Store.open(layer)
    first, second, third = (sealed_segment(store) for _ in range(3))
    for segment in (third, second):
        segment.sync()
        assert segment.durability.is_locked
        assert segment.durability.is_behind_others
    first.sync()
    assert not first.durability.is_locked
    assert first.durability.take_next() == second.path
    assert first.durability.take_next() is None
    # All of it is durable already: nothing but its end is written, and synced.
    layer.fail(2, errno.EIO, "sync")
    second.sync()
    layer.heal()
    assert not second.durability.is_locked
    assert not second.durability.is_behind_others
    third.sync()
    assert not third.durability.is_locked
    store.close()


def test_a_segment_that_goes_on_behind_its_last_sync_is_synced_again_when_it_is_sealed(
    tmp_path, monkeypatch
):
    store = Store.open(tmp_path)
    segment = sealed_segment(store)
    segment.close()
    segment.unseal()
    segment.sync()  # as a writer that nobody has put onto yet
    segment.append([b"more"], NOW)
    segment.seal()
    synced = []
    real_sync = os.fdatasync

    def sync(descriptor):
        synced.append(str(Path(f"/proc/self/fd/{descriptor}").readlink()).rpartition("_")[2])
        real_sync(descriptor)

    monkeypatch.setattr(os, "fdatasync", sync)
    segment.sync()
    assert "data" in synced
    assert not segment.durability.is_locked
    store.close()


def test_a_power_cut_that_takes_all_that_a_server_noted_is_one_all_the_same(tmp_path, monkeypatch):
    Store.open(FaultyFiles(RealFiles.at(tmp_path), boot_id="one")).close()
    closed = (tmp_path / "store.meta").read_bytes()
    synced: dict[Path, bytes] = {}
    fdatasync = os.fdatasync

    def sync(fd):
        fdatasync(fd)
        path = Path(f"/proc/self/fd/{fd}").readlink()
        synced[path] = path.read_bytes()

    monkeypatch.setattr(os, "fdatasync", sync)
    store = Store.open(FaultyFiles(RealFiles.at(tmp_path), boot_id="one"))
    segment = store.create_segment(b"t", NOW)
    segment.append([b"never synced" * 9], NOW)
    segment.flush()
    del store, segment
    events = tmp_path / "store.meta"
    events.write_bytes(synced.get(events, closed))
    data = path_of(tmp_path, "data")
    data.write_bytes(bytes(data.stat().st_size))
    path_of(tmp_path, "lock").unlink()
    store = Store.open(FaultyFiles(RealFiles.at(tmp_path), boot_id="two"))
    [segment] = store.topics[b"t"]
    assert (segment.count, segment.damage) == (0, ())


@pytest.mark.parametrize("seed", range(20))
def test_what_a_start_after_a_kill_has_recovered_survives_a_power_cut(seed):
    """Nobody puts onto the topic any more, which was new: its folder needs a name that lasts."""
    disk = SimulatedDisk()
    Store.open(disk.files()).create_segment(b"t", NOW).append([b"m"], NOW)
    disk.kill()
    Store.open(disk.files())
    disk.cut_power(random.Random(seed))
    (segment,) = Store.open(disk.files()).topics[b"t"]
    assert read_all(segment) == [(NOW, b"m")]


def recover_segment(store, segment):
    store.repair_segment(b"t", segment)


def recover_topic(store, segment):
    segment.hibernate()
    store.recover_topic(b"t")


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("recover", [recover_segment, recover_topic])
def test_what_is_recovered_while_the_store_runs_survives_a_power_cut(recover, seed):
    """A server of the topic, or their registry, has crashed before anything was synced."""
    disk = SimulatedDisk()
    store = Store.open(disk.files())
    segment = store.create_segment(b"t", NOW)
    segment.append([b"m"], NOW)
    recover(store, segment)
    disk.cut_power(random.Random(seed))
    (segment,) = Store.open(disk.files()).topics[b"t"]
    assert read_all(segment) == [(NOW, b"m")]


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("recover", [recover_segment, recover_topic])
def test_the_name_of_a_folder_that_cannot_be_synced_is_synced_by_the_next_recovery(recover, seed):
    disk = SimulatedDisk()
    store = Store.open(disk.files())
    segment = store.create_segment(b"t", NOW)
    segment.append([b"m"], NOW)
    disk.failing.fail(0, errno.EMFILE, is_for_ever=True)
    with pytest.raises(StorageError):
        recover(store, segment)
    disk.failing.heal()
    recover(store, segment)
    disk.cut_power(random.Random(seed))
    (segment,) = Store.open(disk.files()).topics[b"t"]
    assert read_all(segment) == [(NOW, b"m")]
