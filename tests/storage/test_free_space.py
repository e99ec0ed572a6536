"""A disk is nearly full before it is full; it is asked now and then, and never for nothing."""

import errno

import pytest

from poe.errors import OptionError, StorageFull
from poe.storage import FreeSpace, RealFiles, Store, StoreOptions
from tests.storage.faulty_files import FaultyFiles
from tests.storage.segments import NOW

MIN_FREE = 1000


@pytest.fixture
def files(tmp_path):
    files = FaultyFiles(RealFiles.at(tmp_path))
    files.free = MIN_FREE
    return files


def test_a_disk_is_low_below_the_limit_and_not_at_it(files):
    space = FreeSpace(files, MIN_FREE)
    space.check("t", 0)
    files.free = MIN_FREE - 1
    space.measure()
    with pytest.raises(StorageFull, match="999 bytes are free on the disk, less than min_free"):
        space.check("t", 0)


def test_it_is_asked_once_a_second_at_most(files):
    space = FreeSpace(files, MIN_FREE)
    space.look(10.0)
    files.free = 0
    space.look(10.9)
    assert not space.is_low
    space.look(11.0)
    assert space.is_low
    files.free = MIN_FREE
    with pytest.raises(StorageFull):
        space.check("t", 11.9)
    space.check("t", 12.0)
    assert not space.is_low


def test_each_new_segment_is_a_reason_to_ask(files):
    store = Store.open(files, store_options=StoreOptions(min_free=MIN_FREE))
    files.free = 0
    assert not store.space.is_low
    store.create_segment(b"t", NOW)
    assert store.space.is_low


def test_without_a_limit_nothing_is_asked(files):
    files.fail(0, errno.EIO, "free_bytes", is_for_ever=True)
    files.free = 0
    space = FreeSpace(files, 0)
    space.look(0)
    assert not space.is_low
    assert files.failed_count == 0


def test_a_disk_that_does_not_answer_is_as_it_was(files):
    space = FreeSpace(files, MIN_FREE)
    files.free = 0
    space.measure()
    files.fail(0, errno.EIO, "free_bytes", is_for_ever=True)
    space.measure()
    assert files.failed_count == 1
    assert space.is_low


def test_the_beginning_and_the_end_are_told_in_the_log_once(files, caplog):
    space = FreeSpace(files, MIN_FREE)
    for files.free in (0, 1, MIN_FREE, MIN_FREE + 1):
        space.measure()
    refused, accepted = caplog.messages
    assert refused.startswith("puts are refused: 0 bytes are free")
    assert accepted.startswith("puts are accepted again")


def test_less_than_nothing_cannot_stay_free():
    with pytest.raises(OptionError, match="min_free"):
        StoreOptions(min_free=-1)


def test_the_real_disk_tells_what_is_left(disk):
    files = RealFiles.at(disk.folder)
    assert 0 < files.free_bytes() <= 1 << 20
    disk.fill()
    assert files.free_bytes() == 0
