"""After a power cut a segment is what it was at an earlier moment, and never before its last sync.

The cut is simulated on the files: what was written behind the last sync is there, in part, as
zeros, or not at all, for each page on its own. Real cuts of real disks are in `torture/`.
"""

import contextlib
import errno
import random
from pathlib import Path

import pytest

from poe.errors import CorruptRecord, StorageError, WriteFailed
from poe.storage import RealFiles, Segment, SegmentOptions, Store
from poe.storage.record import encode_records
from poe.storage.store_meta import StoreMeta
from poe.storage.sum_file import SUM_HEADER_BYTES
from tests.storage.faulty_files import FaultyFiles
from tests.storage.segments import FOLDER, NOW, create, files_at, path_of, read_all, reopen

PAGE_BYTES = 512
SEEDS = range(150)


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


def test_a_store_cuts_off_what_was_never_synced_though_the_lock_has_lost_its_name(tmp_path):
    store = Store.open(FaultyFiles(RealFiles.at(tmp_path), boot_id="one"))
    segment = store.create_segment(b"t", NOW)
    segment.append([b"never synced", b"nor was this"], NOW)
    segment.flush()
    del store, segment
    data = path_of(tmp_path, "data")
    data.write_bytes(data.read_bytes()[:-5] + bytes(5))
    path_of(tmp_path, "lock").unlink()
    with (tmp_path / "store.meta").open("r+b") as meta:
        meta.truncate(SUM_HEADER_BYTES + 10)  # no whole event
    store = Store.open(FaultyFiles(RealFiles.at(tmp_path), boot_id="two"))
    [segment] = store.topics[b"t"]
    assert (segment.count, segment.damage) == (0, ())
