"""A disk that fails at any call loses nothing that was flushed, and never shows anything else."""

import contextlib
import errno

import pytest

from poe.errors import PoeError, ReadFailed, StorageFull
from poe.storage import RealFiles
from poe.storage.slab_log import Reader, Writer
from tests.storage.faulty_files import FaultyFiles
from tests.storage.slab_log.logs import messages, read_all, slab_of, write_log

CALLS_MAX = 400


def fill(layer):
    """Write some batches as a program that tries again, and return what was flushed."""
    flushed: list[bytes] = []
    written: list[bytes] = []
    writer = Writer(layer, 120, buffer_bytes_max=40)
    for each in messages(24):
        with contextlib.suppress(PoeError):
            writer.write(each)
            written.append(each)
        if len(written) % 5 == 0:
            with contextlib.suppress(PoeError):
                writer.sync()
                flushed = written.copy()
    writer.close()
    return flushed, written


@pytest.mark.slow
@pytest.mark.parametrize("is_for_ever", [False, True])
@pytest.mark.parametrize("error_number", [errno.ENOSPC, errno.EIO])
def test_every_call_of_a_writer_may_fail(tmp_path, error_number, is_for_ever):
    for nth in range(CALLS_MAX):
        path = tmp_path / f"{nth}"
        layer = FaultyFiles(RealFiles.at(path))
        layer.fail(nth, error_number, is_for_ever=is_for_ever)
        try:
            flushed, written = fill(layer)
        except PoeError:
            flushed = written = []
        layer.heal()
        if layer.failed_count == 0:
            break
        # What was closed with success is all there; what was refused is not.
        if written:
            assert read_all(path) == written
        write_log(path, [[b"new"]])
        found = read_all(path)
        assert found[: len(flushed)] == flushed
        assert found[-1] == b"new"
    else:
        pytest.fail("the writer made too many calls")
    assert nth > 50


def test_every_call_of_recovery_may_fail(tmp_path):
    for nth in range(CALLS_MAX):
        path = tmp_path / f"{nth}"
        write_log(path, [messages(9)])
        with slab_of(path).open("ab") as slab:
            slab.write(b"half a record")
        layer = FaultyFiles(RealFiles.at(path))
        layer.fail(nth, errno.EIO)
        try:
            Writer(layer).close()
        except PoeError:
            assert read_all(path) == messages(9)
        layer.heal()
        write_log(path, [messages(3, 9)])
        assert read_all(path) == messages(12)
        if layer.failed_count == 0:
            break
    assert nth > 5


def test_every_call_of_a_reader_may_fail_and_it_stays_where_it_is(tmp_path):
    write_log(tmp_path, [messages(9), messages(20, 9)], slab_size_hint=100)
    layer = FaultyFiles(RealFiles.at(tmp_path))
    for nth in range(CALLS_MAX):
        layer.fail(nth, errno.EIO)
        found: list[bytes] = []
        reader = None
        while len(found) < 29:
            try:
                reader = reader or Reader(layer)
                found.append(reader.read())
            except ReadFailed:
                assert layer.failed_count == 1
        assert found == messages(29)
        if layer.failed_count == 0:
            break
    assert nth > 10


def test_a_real_disk_that_is_full_refuses_and_takes_again_what_it_has_room_for(disk):
    path = disk.folder / "log"
    with Writer(path, 20_000, buffer_bytes_max=1000) as writer:
        first = messages(1000)
        writer.write_many(first)
        writer.flush()
        disk.fill()
        taken = []
        with contextlib.suppress(StorageFull):
            for each in messages(10_000, 1000):
                writer.write(each)
                taken.append(each)
        with pytest.raises(StorageFull, match="free space"):
            writer.write(b"refused")
        assert read_all(path)[: len(first)] == first
        disk.free()
        writer.write(b"last")
    assert read_all(path) == [*first, *taken, b"last"]
