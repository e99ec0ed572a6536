"""Batches come while a thread syncs, and what the sums say of it is true."""

import errno
import shutil
import sys

import pytest

from poe.errors import NoDescriptors, WriteFailed
from poe.storage import check_segments
from poe.storage.formats.hashed import FILE_HEADER_BYTES
from poe.storage.formats.sum_file import SUMS, Flag, seed_of
from poe.storage.recovery.recovery import NO_STORE
from tests.storage.faulty_files import FaultyFiles
from tests.storage.segments import FOLDER, NOW, create, files_at, path_of, read_all, reopen

ENDED = Flag.CLEAN | Flag.SEALED | Flag.EARLIER_SYNCED


def flags_of(base):
    """The flags of all entries of the sums."""
    content = path_of(base, "sum").read_bytes()[FILE_HEADER_BYTES:]
    found = SUMS.decode(content, seed_of(f"{FOLDER}/{NOW}", NO_STORE))
    assert all(each.is_chained for each in found)
    return [each.entry.flags for each in found]


def test_what_comes_during_a_sync_has_its_sums_written_after_it(tmp_path):
    segment = create(files_at(tmp_path))
    segment.append([b"1"], NOW)
    sync = segment.begin_sync()
    segment.append([b"2"], NOW)
    segment.flush()
    assert flags_of(tmp_path) == [0]
    sync()
    segment.flush()
    assert flags_of(tmp_path) == [0, Flag.EARLIER_SYNCED]


def test_of_what_was_written_since_a_sync_nobody_says_that_it_is_durable(tmp_path):
    segment = create(files_at(tmp_path))
    segment.append([b"1"], NOW)
    segment.sync()
    for message in (b"2", b"3"):
        segment.append([message], NOW)
        segment.flush()
    assert flags_of(tmp_path) == [0, Flag.EARLIER_SYNCED, 0]


def test_a_sync_that_failed_is_neither_repeated_nor_believed(tmp_path):
    layer = FaultyFiles(files_at(tmp_path))
    segment = create(layer, ack="fsync")
    segment.append([b"1"], NOW)
    sync = segment.begin_sync()
    layer.fail(0, errno.EIO, "sync")
    with pytest.raises(WriteFailed):
        sync()
    assert segment.durability.has_failed
    segment.append([b"2"], NOW)
    segment.flush()
    segment.close()
    assert flags_of(tmp_path) == [0, 0]  # nothing says that it was closed


def test_a_sync_that_could_not_open_the_folder_is_made_again(tmp_path):
    layer = FaultyFiles(files_at(tmp_path))
    segment = create(layer)
    segment.append([b"1"], NOW)
    layer.fail(0, errno.EMFILE, "sync_folder")
    with pytest.raises(NoDescriptors):
        segment.sync()
    assert not segment.durability.has_failed
    assert segment.failure == ""
    layer.heal()
    segment.sync()
    segment.append([b"2"], NOW)
    assert [message for _, message in read_all(segment)] == [b"1", b"2"]


def test_a_sync_that_is_made_again_covers_what_came_since_the_first_one(tmp_path):
    layer = FaultyFiles(files_at(tmp_path))
    segment = create(layer)
    segment.append([b"1"], NOW)
    layer.fail(0, errno.EMFILE, "sync_folder")
    with pytest.raises(NoDescriptors):
        segment.sync()
    segment.append([b"2"], NOW)
    segment.sync()
    assert flags_of(tmp_path) == [0, 0]
    segment.append([b"3"], NOW)
    segment.begin_cut("I/O error")()
    assert read_all(reopen(layer)) == [(NOW, b"1"), (NOW + 1, b"2")]
    assert [check.damage for check in check_segments(layer.real)] == [[]]


def test_dying_in_a_sync_loses_nothing(tmp_path):
    segment = create(files_at(tmp_path / "living"))
    segment.append([b"1"], NOW)
    segment.begin_sync()
    segment.append([b"2"], NOW)
    segment.flush()
    shutil.copytree(tmp_path / "living", tmp_path / "dead")
    found = reopen(files_at(tmp_path / "dead"))
    assert read_all(found) == [(NOW, b"1"), (NOW + 1, b"2")]


def test_a_segment_that_must_rest_during_a_sync_is_complete(tmp_path):
    files = files_at(tmp_path)
    segment = create(files)
    segment.append([b"1"], NOW)
    sync = segment.begin_sync()
    segment.append([b"2"], NOW)
    segment.hibernate()
    sync()
    segment.append([b"3"], NOW)
    segment.close()
    assert flags_of(tmp_path) == [0, 0, 0, ENDED]
    assert [check.damage for check in check_segments(files)] == [[]]


def test_wherever_a_flush_comes_in_the_end_of_a_sync_the_next_sums_say_what_is_durable(tmp_path):
    nth, is_reached = 0, True
    while is_reached:
        segment = create(files_at(tmp_path / str(nth)))
        segment.append([b"1"], NOW)
        sync = segment.begin_sync()
        segment.append([b"2"], NOW)
        is_reached = flush_at_step(nth, sync, segment)
        segment.flush()
        assert flags_of(tmp_path / str(nth)) == [0, Flag.EARLIER_SYNCED]
        nth += 1


def flush_at_step(nth, sync, segment):
    """Sync, and flush in between, when so many lines of it were run; tell whether it has them."""
    left = nth

    def trace(frame, event, _):
        nonlocal left
        if "/poe/storage/" not in frame.f_code.co_filename:
            return None
        if event == "line":
            left -= 1
            if left == -1:
                sys.settrace(None)
                segment.flush()
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        sync()
    finally:
        sys.settrace(before)
    return left < 0
