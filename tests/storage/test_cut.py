"""After a sync that failed, what nobody was promised is cut off, and the rest is durable."""

import contextlib
import errno
import shutil

import pytest

from poe.errors import CorruptRecord, StorageError, WriteFailed
from poe.storage import SegmentOptions, Store, check_segments
from tests.storage.faulty_files import FaultyFiles
from tests.storage.segments import NOW, create, files_at, path_of, read_all, reopen

SYNCED = [(NOW, b"one"), (NOW + 1, b"two")]


def fail_a_sync(layer, segment):
    """Append to what is synced, before a sync that fails and during it."""
    segment.append([b"doubtful"] * 3, NOW)
    sync = segment.begin_sync()
    segment.append([b"behind"], NOW)
    layer.fail(0, errno.EIO, "sync")
    with pytest.raises(WriteFailed):
        sync()
    layer.heal()


def failed(layer):
    segment = create(layer, ack="fsync")
    segment.append([b"one", b"two"], NOW)
    segment.sync()
    fail_a_sync(layer, segment)
    return segment


def sizes(base):
    return {suffix: path_of(base, suffix).stat().st_size for suffix in ("data", "index", "sum")}


def test_a_cut_leaves_what_was_synced_and_is_durable(tmp_path, layer):
    segment = failed(layer)
    segment.begin_cut("I/O error")()
    assert read_all(segment) == SYNCED
    assert sizes(tmp_path) == {"data": 2 * 14, "index": 2 * 12, "sum": 64 + 2 * 48}
    assert not path_of(tmp_path, "lock").exists()
    assert not segment.is_writer
    assert not segment.durability.has_failed
    assert [check.damage for check in check_segments(layer)] == [[]]


def test_a_cut_is_made_on_files_that_are_opened_anew(layer):
    """A descriptor whose sync has failed once may say of the next one that all is well."""
    segment = failed(layer)
    before = segment.read(0, 1, 100)
    segment.begin_cut("I/O error")()
    assert segment.read(0, 1, 100).file is not before.file


def test_a_segment_of_which_nothing_was_synced_is_empty_then(tmp_path, layer):
    segment = create(layer, ack="fsync")
    fail_a_sync(layer, segment)
    segment.begin_cut("I/O error")()
    assert read_all(segment) == []
    assert segment.pointer_high is None
    assert sizes(tmp_path) == {"data": 0, "index": 0, "sum": 64 + 48}
    assert read_all(reopen(layer)) == []


def test_what_was_there_when_it_became_a_writer_is_never_cut(layer):
    segment = create(layer, ack="fsync")
    segment.append([b"one", b"two"], NOW)
    segment.close()
    segment.unseal()
    fail_a_sync(layer, segment)
    segment.begin_cut("I/O error")()
    assert read_all(segment) == SYNCED


def test_the_pointers_of_what_was_cut_off_are_remembered(layer):
    segment = failed(layer)
    last_pointer = segment.last_pointer
    segment.begin_cut("I/O error")()
    assert segment.last_pointer < segment.given_pointer == last_pointer


@pytest.mark.parametrize("operation", ["open", "truncate"])
def test_a_cut_that_fails_is_made_by_the_next_seal(tmp_path, layer, operation):
    segment = failed(layer)
    layer.fail(0, errno.EIO, operation)
    with pytest.raises(StorageError):
        segment.begin_cut("I/O error")
    assert read_all(segment) == SYNCED
    segment.close()
    assert sizes(tmp_path)["data"] == 2 * 14
    assert not path_of(tmp_path, "lock").exists()
    assert [check.damage for check in check_segments(layer)] == [[]]


def test_a_cut_that_is_not_durable_stays_locked(tmp_path, layer):
    segment = failed(layer)
    sync = segment.begin_cut("I/O error")
    layer.fail(0, errno.EIO, "sync")
    with pytest.raises(StorageError):
        sync()
    segment.close()
    assert path_of(tmp_path, "lock").exists()
    assert read_all(reopen(layer)) == SYNCED


@pytest.mark.slow
@pytest.mark.parametrize("is_for_ever", [False, True])
def test_whichever_call_of_a_cut_fails_what_was_synced_is_there_after_a_crash(
    tmp_path, is_for_ever
):
    for nth in range(100):
        layer = FaultyFiles(files_at(tmp_path / str(nth)))
        segment = failed(layer)
        layer.fail(nth, errno.EIO, is_for_ever=is_for_ever)
        with contextlib.suppress(StorageError):
            segment.begin_cut("I/O error")()
        failed_count = layer.failed_count
        layer.heal()
        assert read_all(segment) == SYNCED
        shutil.copytree(tmp_path / str(nth), tmp_path / f"{nth} died")
        died = reopen(files_at(tmp_path / f"{nth} died"))
        assert read_all(died)[:2] == SYNCED
        assert not died.damage
        if not failed_count:
            break
    assert 10 < nth < 100


# ---- what is acknowledged already is kept, and doubted ------------------------------------------


def doubtful(layer, **options):
    """A segment that was sealed after its sync has failed."""
    segment = create(layer, **options)
    segment.append([b"one", b"two"], NOW)
    layer.fail(0, errno.EIO, "sync")
    with pytest.raises(WriteFailed):
        segment.sync()
    segment.seal()
    return segment


def lose(tmp_path):
    """Let the data be what a disk has kept of pages that could not be written."""
    data = path_of(tmp_path, "data")
    data.write_bytes(bytes(data.stat().st_size))


def test_what_no_sync_has_covered_is_compared_at_each_read(tmp_path, layer):
    segment = doubtful(layer)
    for _ in range(2):
        assert read_all(segment) == SYNCED
    lose(tmp_path)
    for read in (lambda: segment.next(NOW), lambda: segment.read(0, 10, 1000)):
        with pytest.raises(CorruptRecord):
            read()


def test_a_sealed_segment_whose_sync_fails_is_compared_at_each_read(tmp_path, layer):
    segment = create(layer)
    segment.append([b"one", b"two"], NOW)
    segment.seal()
    layer.fail(0, errno.EIO, "sync")
    with pytest.raises(WriteFailed):
        segment.sync()
    segment.distrust()
    assert read_all(segment) == SYNCED
    lose(tmp_path)
    with pytest.raises(CorruptRecord):
        segment.read(0, 10, 1000)


def test_who_wants_nothing_compared_gets_nothing_compared(tmp_path, layer):
    segment = doubtful(layer, verify="never")
    content = bytearray(path_of(tmp_path, "data").read_bytes())
    content[-1] ^= 1
    path_of(tmp_path, "data").write_bytes(content)
    assert segment.next(NOW) == (NOW + 1, b"twn")


def test_a_sync_that_ends_when_its_segment_was_taken_over_leaves_the_lock_of_the_next(tmp_path):
    """Without it, what comes after the next kill would be looked at as closed in good order."""
    layer = FaultyFiles(files_at(tmp_path))
    store = Store.open(layer, SegmentOptions(ack="fsync"))
    segment = store.create_segment(b"t", NOW)
    segment.append([b"one", b"two"], NOW)
    segment.sync()
    segment.append([b"three"], NOW)
    segment.seal()
    sync = segment.begin_sync()
    repaired = store.repair_segment(b"t", segment)
    assert repaired is not None
    repaired.unseal()
    sync()
    assert path_of(tmp_path, "lock").exists()
    store.close()
