"""A spool whose disk fails, or whose process ends, at any operation keeps what it has taken."""

import contextlib
import errno

import pytest

from poe.client.spool.spool import Spool
from poe.errors import PoeError, ReadFailed, StorageError, StorageFull, WriteFailed
from poe.storage import RealFiles
from tests.client.spool_work import BYTES_MAX, Work, is_subsequence, names_in
from tests.client.spools import (
    batch_of,
    batches,
    empty,
    fill,
    messages_in,
    messages_of,
    take,
    take_all,
)
from tests.storage.faulty_files import FaultyFiles
from torture.layers.memory import MemoryFiles

CALLS_MAX = 1000


def failures(*, goes_on, **fault):
    """Let each operation fail in turn; give the work that was done and the disk it left."""
    for nth in range(CALLS_MAX):
        disk = MemoryFiles()
        layer = FaultyFiles(disk)
        layer.fail(nth, **fault)
        work = Work(goes_on=goes_on)
        with contextlib.suppress(PoeError):
            work.run(layer)
        yield work, disk.copy("boot")
        if layer.failed_count == 0:
            assert nth > 150
            return
    pytest.fail("the work takes too many calls")


@pytest.mark.slow
@pytest.mark.parametrize("error_number", [errno.ENOSPC, errno.EIO])
def test_who_ends_where_a_disk_fails_has_lost_nothing_and_the_next_life_goes_on(error_number):
    for work, disk in failures(goes_on=False, error_number=error_number, is_for_ever=True):
        found = names_in(disk)
        assert is_subsequence(found, work.tried)
        assert is_subsequence(work.kept, found)
        with Spool(disk) as spool:
            fill(spool, 3)
            assert empty(spool)[-6:] == messages_in(batches(3))
        assert names_in(disk) == []


@pytest.mark.slow
@pytest.mark.parametrize("error_number", [errno.ENOSPC, errno.EIO])
def test_after_any_failure_a_spool_holds_exactly_what_it_has_taken(error_number):
    for work, disk in failures(goes_on=True, error_number=error_number):
        found = names_in(disk)
        if found != work.kept:
            # The last mark was not written.
            assert found[-len(work.kept) :] == work.kept
            assert is_subsequence(found, work.tried)


@pytest.mark.slow
def test_every_operation_of_a_start_may_fail_and_the_next_one_finds_all(tmp_path):
    for nth in range(CALLS_MAX):
        path = tmp_path / f"{nth}"
        with Spool(path, bytes_max=2000) as spool:
            fill(spool, 20)
            spool.done(take(spool))
        with (path / f"{0:020}.slab").open("ab") as slab:
            slab.write(b"half a batch")
        layer = FaultyFiles(RealFiles.at(path))
        layer.fail(nth, errno.EIO, is_for_ever=True)
        with contextlib.suppress(PoeError):
            Spool(layer).close()
        layer.heal()
        with Spool(path) as spool:
            assert empty(spool) == messages_in(batches(19, 1))
        if layer.failed_count == 0:
            break
    assert nth > 20


def test_a_full_disk_refuses_a_batch_and_drops_nothing_for_it(tmp_path):
    layer = FaultyFiles(RealFiles.at(tmp_path))
    with Spool(layer, bytes_max=BYTES_MAX) as spool:
        fill(spool, 15)
        before = (spool.size, spool.count)
        layer.fail(0, errno.ENOSPC, "write_at", is_for_ever=True)
        for _ in range(3):
            with pytest.raises(StorageFull):
                spool.append(batch_of(99, count=100))
        assert (spool.size, spool.count) == before
        layer.heal()
        fill(spool, 1, 15)
        assert empty(spool) == messages_in(batches(16))


def test_a_batch_whose_sync_failed_is_taken_and_none_behind_it(tmp_path, caplog):
    layer = FaultyFiles(RealFiles.at(tmp_path))
    spool = Spool(layer, fsync=True)
    fill(spool, 2)
    layer.fail(0, errno.EIO, "sync")
    fill(spool, 1, 2)
    assert "may lose this batch in a power cut" in caplog.text
    with pytest.raises(StorageError):
        spool.append(batch_of(3))
    assert empty(spool) == messages_in(batches(3))
    spool.close()
    with Spool(tmp_path) as another:
        assert another.is_empty
        fill(another, 1)
        assert empty(another) == messages_in(batches(1))


def test_a_mark_that_cannot_be_written_costs_a_repetition_and_is_told_once(tmp_path, caplog):
    layer = FaultyFiles(RealFiles.at(tmp_path))
    with Spool(layer) as spool:
        fill(spool, 5)
        layer.fail(0, errno.EIO, "write_at", is_for_ever=True)
        for _ in range(3):
            spool.done(take(spool))
        layer.heal()
    assert caplog.text.count("after a crash some is delivered again") == 1
    with Spool(tmp_path) as spool:
        assert empty(spool) == messages_in(batches(5))


def test_a_batch_that_cannot_be_read_is_read_again(tmp_path):
    layer = FaultyFiles(RealFiles.at(tmp_path))
    with Spool(layer) as spool:
        fill(spool, 2)
        layer.fail(0, errno.EIO, "read_at", is_for_ever=True)
        with pytest.raises(ReadFailed):
            spool.take()
        layer.heal()
        assert empty(spool) == messages_in(batches(2))


def test_files_that_are_gone_are_a_failure_of_the_disk_and_may_come_back(tmp_path):
    folder, elsewhere = tmp_path / "spool", tmp_path / "elsewhere"
    elsewhere.mkdir()
    with Spool(folder) as spool:
        fill(spool, 2)
        assert spool.take() is not None
        spool.rewind()
        slabs = list(folder.glob("*.slab"))
        for slab in slabs:
            slab.rename(elsewhere / slab.name)
        with pytest.raises(ReadFailed, match="gone"):
            spool.take()
        for slab in slabs:
            (elsewhere / slab.name).rename(slab)
        assert empty(spool) == messages_in(batches(2))


def test_slabs_that_cannot_be_removed_stay_until_they_can(tmp_path, caplog):
    layer = FaultyFiles(RealFiles.at(tmp_path))
    with Spool(layer, bytes_max=8000) as spool:
        fill(spool, 100)
        layer.fail(0, errno.EACCES, "unlink", is_for_ever=True)
        empty(spool)
        assert "slabs that are done with stay" in caplog.text
        assert len(list(tmp_path.glob("*.slab"))) > 4
        layer.heal()
    assert len(list(tmp_path.glob("*.slab"))) == 1


def test_a_real_disk_that_is_full_refuses_and_takes_again_what_it_has_room_for(disk):
    with Spool(disk.folder / "spool") as spool:
        fill(spool, 5)
        disk.fill()
        with pytest.raises((StorageFull, WriteFailed)):
            fill(spool, 10_000, 5)
        left = take_all(spool)
        assert messages_of(left[:5]) == messages_in(batches(5))
        disk.free()
        fill(spool, 1, 10_000)
        assert messages_of(take_all(spool)) == messages_in(batches(1, 10_000))
