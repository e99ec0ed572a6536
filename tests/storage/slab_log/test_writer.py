"""The writer gives addresses, fills slabs, and keeps what it took when the disk does not."""

import contextlib
import errno
import gc
import hashlib
import os
import subprocess
import sys
from functools import partial
from itertools import pairwise

import numpy as np
import pytest
from xxhash import xxh3_64_digest

from poe.errors import (
    NoDescriptors,
    OptionError,
    ReadFailed,
    SegmentLocked,
    StorageFull,
    SyncFailed,
    WriteFailed,
)
from poe.storage import RealFiles
from poe.storage.slab_log import LogClosed, MessageTooLarge, Reader, Writer
from poe.storage.slab_log.record import ROWS_COUNT_MIN
from tests.forks import exit_code_of, fork
from tests.interrupts import places
from tests.python_process import environment
from tests.storage.faulty_files import FaultyFiles
from tests.storage.slab_log.logs import (
    messages,
    read_all,
    record,
    slab_of,
    slabs_in,
    sum_of,
    write_log,
)
from torture.layers.memory import MemoryFiles

WRITER_FILES = (
    "poe/storage/slab_log/writer.py",
    "poe/storage/slab_log/slab_writer.py",
    "poe/storage/failure.py",
    "torture/layers/memory.py",
)
MANY = [b"%020d" % number for number in range(ROWS_COUNT_MIN)]


@pytest.fixture
def layer(tmp_path):
    return FaultyFiles(RealFiles.at(tmp_path))


def test_slabs_are_the_original_s_byte_by_byte(tmp_path):
    batch = messages(40)
    write_log(tmp_path, [batch[:1], batch[1:15], batch[15:]], slab_size_hint=200)
    # The original starts a slab when the one before exceeds the hint.
    expected, start, content = {}, 0, b""
    for each in batch:
        if len(content) > 200:
            expected[start], start, content = content, start + len(content), b""
        content += record(each)
    expected[start] = content
    assert {slab: slab_of(tmp_path, slab).read_bytes() for slab in slabs_in(tmp_path)} == expected
    assert len(expected) > 3


def test_slabs_are_those_that_the_original_itself_wrote(tmp_path):
    batch = [b"go message %d " % number + b"x" * (number % 30) for number in range(1000)]
    write_log(tmp_path, [batch], slab_size_hint=5000)
    digest = hashlib.sha256()
    for slab in slabs_in(tmp_path):
        digest.update(slab_of(tmp_path, slab).name.encode() + slab_of(tmp_path, slab).read_bytes())
    # Of names and contents that queuefka.go made from the same calls, built with Go 1.26.
    assert digest.hexdigest() == "ecd9c79d8f5c43cfbcd669732a32fbd8674dfefd614f42506806dc0083143729"


def test_addresses_are_where_records_begin(tmp_path):
    batch = messages(40)
    addresses = write_log(tmp_path, [batch], slab_size_hint=200)
    assert addresses[0] == 0
    sizes = [len(record(each)) for each in batch]
    assert [b - a for a, b in pairwise(addresses)] == sizes


@pytest.mark.parametrize("many", [MANY, np.array([list(each) for each in MANY], np.uint8)])
def test_many_messages_are_written_like_single_ones(tmp_path, many):
    single = write_log(tmp_path / "single", [MANY, MANY, [b"last"]], slab_size_hint=9000)
    with Writer(tmp_path / "many", 9000) as writer:
        addresses = [*writer.write_many(many), *writer.write_many(MANY[:9])]
        addresses += [*writer.write_many(MANY[9:]), *writer.write_many([b"last"]), writer.address]
    assert addresses == single
    assert slabs_in(tmp_path / "many") == slabs_in(tmp_path / "single")
    for slab in slabs_in(tmp_path / "many"):
        written = slab_of(tmp_path / "many", slab).read_bytes()
        assert written == slab_of(tmp_path / "single", slab).read_bytes()


def test_empty_messages_and_empty_batches_are_allowed(tmp_path):
    with Writer(tmp_path) as writer:
        assert list(writer.write_many([])) == []
        assert writer.write(b"") == 0
        assert list(writer.write_many([b""] * ROWS_COUNT_MIN))[-1] == 8 * ROWS_COUNT_MIN
    assert read_all(tmp_path) == [b""] * (ROWS_COUNT_MIN + 1)


def test_messages_that_can_change_are_copied(tmp_path):
    content = bytearray(b"before")
    with Writer(tmp_path) as writer:
        writer.write(content)
        writer.write_many([memoryview(content)])
        content[:] = b"after!"
    assert read_all(tmp_path) == [b"before", b"before"]


@pytest.mark.parametrize("wrong", ["text", 5, None])
def test_what_is_no_message_is_refused_and_changes_nothing(tmp_path, wrong):
    with Writer(tmp_path) as writer:
        with pytest.raises(TypeError):
            writer.write(wrong)
        with pytest.raises(TypeError):
            writer.write_many([b"good", wrong])
        assert writer.address == 0
    assert read_all(tmp_path) == []


def test_a_message_that_is_too_large_refuses_its_batch(tmp_path):
    with Writer(tmp_path, message_max=5) as writer:
        with pytest.raises(MessageTooLarge, match="use 0 to 5"):
            writer.write(b"123456")
        with pytest.raises(MessageTooLarge):
            writer.write_many([b"1", b"123456"])
        with pytest.raises(MessageTooLarge):
            writer.write_many([b"123456"] * ROWS_COUNT_MIN)
        assert (writer.write(b"12345"), writer.address) == (0, 13)
    assert read_all(tmp_path) == [b"12345"]


@pytest.mark.parametrize(
    "options",
    [
        {"slab_size_hint": 0},
        {"message_max": 0},
        {"message_max": 2**32},
        {"buffer_bytes_max": 0},
    ],
)
def test_options_out_of_range_are_refused(tmp_path, options):
    with pytest.raises(OptionError, match=next(iter(options))):
        Writer(tmp_path, **options)


def test_nothing_is_seen_before_it_is_flushed_and_all_of_it_after(tmp_path):
    with Writer(tmp_path) as writer:
        writer.write(b"one")
        assert read_all(tmp_path) == []
        writer.flush()
        assert read_all(tmp_path) == [b"one"]


def test_a_full_buffer_is_flushed_by_the_next_write(tmp_path):
    with Writer(tmp_path, buffer_bytes_max=30) as writer:
        for number in range(9):
            writer.write(b"number %d" % number)
        assert len(read_all(tmp_path)) == 8


def test_a_writer_goes_on_where_the_last_one_ended(tmp_path):
    first, second = messages(20), messages(20, 20)
    addresses = write_log(tmp_path, [first], slab_size_hint=150)
    assert write_log(tmp_path, [second], slab_size_hint=150)[0] == addresses[-1]
    assert read_all(tmp_path) == first + second


def test_a_closed_writer_takes_nothing(tmp_path):
    writer = Writer(tmp_path)
    writer.close()
    writer.close()
    for call in (
        lambda: writer.write(b"x"),
        lambda: writer.write_many([b"x"]),
        writer.flush,
        writer.sync,
    ):
        with pytest.raises(LogClosed, match="open another"):
            call()


@pytest.mark.slow
def test_a_second_writer_is_refused_until_the_first_is_closed(tmp_path):
    with Writer(tmp_path) as writer:
        writer.write(b"one")
        with pytest.raises(SegmentLocked, match=f"pid {os.getpid()}"):
            Writer(tmp_path)
        code = f"from poe.storage.slab_log import Writer; Writer({str(tmp_path)!r})"
        run = subprocess.run(
            [sys.executable, "-c", code], env=environment(), check=False, capture_output=True
        )
        assert b"SegmentLocked" in run.stderr
    write_log(tmp_path, [[b"two"]])
    assert read_all(tmp_path) == [b"one", b"two"]


def test_a_writer_that_is_dropped_gives_the_log_free(tmp_path):
    writer = Writer(tmp_path)
    writer.write(b"never flushed")
    del writer
    write_log(tmp_path, [[b"two"]])
    assert read_all(tmp_path) == [b"two"]


def test_a_writer_that_could_not_begin_keeps_no_lock_whoever_keeps_the_error(tmp_path, layer):
    write_log(tmp_path, [[b"one"]])
    layer.fail(1, errno.ENOSPC, "write_at")  # the first is that of the lock
    with pytest.raises(StorageFull) as told:
        Writer(layer)
    write_log(tmp_path, [[b"two"]])
    assert read_all(tmp_path) == [b"one", b"two"]
    assert told.value.__traceback__ is not None


def test_a_full_disk_is_told_as_such_by_a_writer_that_begins(tmp_path, layer):
    """It was told to be a folder that this user may not write."""
    write_log(tmp_path, [[b"one"]])
    layer.fail(0, errno.ENOSPC, "write_at", is_for_ever=True)
    with pytest.raises(StorageFull):
        Writer(layer)


@pytest.mark.parametrize(
    ("error", "told"), [(errno.ENOSPC, StorageFull), (errno.EMFILE, NoDescriptors)]
)
def test_nor_does_a_lock_that_cannot_be_made_say_that_the_folder_is_closed(layer, error, told):
    layer.fail(0, error, "lock")
    with pytest.raises(told):
        Writer(layer)


def test_a_log_whose_lock_cannot_be_noted_is_written_all_the_same(tmp_path, layer):
    write_log(tmp_path, [[b"one"]])
    layer.fail(0, errno.ENOSPC, "write_at")
    with Writer(layer) as writer:
        writer.write(b"two")
    assert read_all(tmp_path) == [b"one", b"two"]


def test_the_copy_of_a_writer_that_a_fork_has_made_writes_nothing(tmp_path):
    def go_on():
        with writer:  # which a child leaves too, by `sys.exit` for example
            writer.write(b"of the child")
            with pytest.raises(LogClosed):
                writer.flush()

    with Writer(tmp_path) as writer:
        writer.write(b"one")
        assert exit_code_of(fork(go_on)) == 0
        assert read_all(tmp_path) == []
        with pytest.raises(SegmentLocked):
            Writer(tmp_path)
        writer.write(b"two")
    assert read_all(tmp_path) == [b"one", b"two"]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["flush", "write", "write_many", "close"])
def test_an_interrupt_at_any_place_doubles_nothing_and_leaves_addresses_right(name):
    for interrupted in places(*WRITER_FILES):
        files = MemoryFiles()
        writer = Writer(files, slab_size_hint=40, buffer_bytes_max=30)
        before, torn, behind = messages(4), messages(2, 4), messages(4, 6)
        addresses = [writer.write(each) for each in before]
        arguments = {"write": torn[:1], "write_many": [torn]}.get(name, [])
        interrupted(partial(getattr(writer, name), *arguments))
        if name == "close":
            writer.close()
            writer = Writer(files, slab_size_hint=40)
        addresses += [writer.write(each) for each in behind]
        writer.close()
        found = read_all(files)
        assert found in [before + torn[:count] + behind for count in range(3)]
        assert [read_all(files, each)[0] for each in addresses] == before + behind


@pytest.mark.parametrize("error_number", [errno.ENOSPC, errno.EFBIG, errno.EIO])
def test_what_a_failed_flush_holds_is_written_by_the_next(tmp_path, layer, error_number):
    batch = messages(30)
    with Writer(layer, slab_size_hint=100) as writer:
        writer.write(batch[0])
        writer.flush()
        before = slab_of(tmp_path).read_bytes()
        for each in batch[1:]:
            writer.write(each)
        layer.fail(0, error_number, "write_at")
        with pytest.raises(WriteFailed if error_number == errno.EIO else StorageFull):
            writer.flush()
        assert slab_of(tmp_path).read_bytes() == before
        assert read_all(tmp_path) == batch[:1]
    assert read_all(tmp_path) == batch


def test_what_a_failed_flush_holds_may_be_discarded(tmp_path, layer):
    with Writer(layer) as writer:
        addresses = [writer.write(b"first")]
        writer.flush()
        end = writer.address
        writer.write_many([b"refused"] * ROWS_COUNT_MIN)
        writer.write(b"refused")
        layer.fail(0, errno.ENOSPC, "write_at")
        with pytest.raises(StorageFull):
            writer.flush()
        writer.discard()
        assert writer.address == end
        addresses.append(writer.write(b"second"))
    assert addresses[1] == end
    assert read_all(tmp_path) == [b"first", b"second"]


def test_a_write_with_a_full_buffer_on_a_full_disk_is_refused_and_works_once_there_is_room(
    tmp_path, layer
):
    writer = Writer(layer, buffer_bytes_max=10)
    first = writer.write(b"the first")
    layer.fail(0, errno.ENOSPC, "write_at", is_for_ever=True)
    for _ in range(3):
        with pytest.raises(StorageFull):
            writer.write(b"refused")
        with pytest.raises(StorageFull):
            writer.write_many([b"refused"] * ROWS_COUNT_MIN)
    with pytest.raises(StorageFull):
        writer.close()
    layer.heal()
    assert writer.write(b"the second") == first + len(record(b"the first"))
    writer.close()
    assert read_all(tmp_path) == [b"the first", b"the second"]


def test_a_close_that_cannot_flush_raises_and_can_be_repeated(tmp_path, layer):
    writer = Writer(layer)
    writer.write(b"one")
    layer.fail(0, errno.EIO, "write_at")
    with pytest.raises(WriteFailed):
        writer.close()
    writer.close()
    assert read_all(tmp_path) == [b"one"]


def test_a_failed_write_that_cannot_be_cut_off_is_never_read(tmp_path, layer):
    batch = [b"a longer message" * 9, b"more"]
    with Writer(layer) as writer:
        writer.write(b"one")
        writer.flush()
        writer.write_many(batch)
        layer.fail(0, errno.EIO, "write_at", "truncate", is_for_ever=True)
        with pytest.raises(WriteFailed):
            writer.flush()
        layer.heal()
        assert slab_of(tmp_path).stat().st_size > len(record(b"one"))
        assert read_all(tmp_path) == [b"one"]
    assert read_all(tmp_path) == [b"one", *batch]


def test_a_new_slab_that_cannot_be_made_is_an_error_and_made_later(tmp_path, layer):
    batch = messages(20)
    writer = Writer(layer, slab_size_hint=50)
    writer.write_many(batch)
    for nth in range(3):
        layer.fail(nth, errno.ENOSPC, "open")
        with pytest.raises(StorageFull):
            writer.flush()
    writer.close()
    assert read_all(tmp_path) == batch


def test_a_new_slab_that_can_neither_be_made_nor_removed_is_made_later(tmp_path, layer):
    batch = messages(20)
    writer = Writer(layer, slab_size_hint=50)
    writer.write_many(batch)
    for nth in range(4):
        layer.fail(nth, errno.EIO, "open", "unlink", is_for_ever=True)
        with pytest.raises(WriteFailed):
            writer.flush()
    layer.heal()
    writer.close()
    assert read_all(tmp_path) == batch


def test_a_failed_sync_is_final(tmp_path, layer):
    writer = Writer(layer, fsync=True)
    writer.write(b"one")
    layer.fail(0, errno.EIO, "sync")
    with pytest.raises(SyncFailed):
        writer.flush()
    writer.write(b"two")
    for call in (writer.flush, writer.sync, writer.close):
        with pytest.raises(SyncFailed):
            call()
    write_log(tmp_path, [[b"two"]])
    assert read_all(tmp_path) == [b"one", b"two"]


@pytest.mark.parametrize("operation", ["open", "sync_folder"])
def test_a_lack_of_descriptors_is_no_failed_sync(tmp_path, layer, operation):
    batch = messages(9)
    writer = Writer(layer, slab_size_hint=40)
    for each in batch:
        writer.write(each)
    writer.flush()  # into several slabs, which a sync has to open
    layer.fail(0, errno.EMFILE, operation, is_for_ever=True)
    with pytest.raises(NoDescriptors):
        writer.sync()
    layer.heal()
    writer.sync()
    writer.close()
    assert read_all(tmp_path) == batch


def test_a_writer_that_is_dropped_after_a_failed_sync_lets_go_of_the_log(layer, tmp_path):
    writer = Writer(layer)
    layer.fail(0, errno.EIO, "sync")
    with contextlib.suppress(SyncFailed):
        writer.sync()
    gc.disable()
    try:
        del writer
        Writer(tmp_path).close()
    finally:
        gc.enable()


class CountingFiles(FaultyFiles):
    """Notes what was synced."""

    def __init__(self, files):
        super().__init__(files)
        self.synced = []

    def must_fail(self, operation):
        if operation.startswith("sync"):
            self.synced.append(operation)
        return super().must_fail(operation)


def test_fsync_syncs_each_flush_and_new_names(tmp_path):
    layer = CountingFiles(RealFiles.at(tmp_path))
    writer = Writer(layer, fsync=True)
    writer.write(b"one")
    writer.flush()
    assert layer.synced == ["sync", "sync", "sync_folder"]
    writer.flush()
    writer.write(b"two")
    writer.flush()
    assert layer.synced == ["sync", "sync", "sync_folder", "sync", "sync"]


def test_without_fsync_nothing_is_synced_until_sync_which_takes_in_all_slabs(tmp_path):
    layer = CountingFiles(RealFiles.at(tmp_path))
    writer = Writer(layer, 50)
    writer.write_many(messages(20))
    writer.flush()
    assert layer.synced == []
    writer.sync()
    assert layer.synced == ["sync"] * 2 * len(slabs_in(tmp_path)) + ["sync_folder"]
    layer.synced.clear()
    writer.sync()
    assert layer.synced == []


def test_a_side_file_of_a_later_version_is_left_alone(tmp_path):
    write_log(tmp_path, [[b"one"]])
    content = bytearray(sum_of(tmp_path).read_bytes())
    content[9] = 2
    content[56:64] = xxh3_64_digest(bytes(content[:56]))
    sum_of(tmp_path).write_bytes(content)
    for open_ in (Writer, Reader):
        with pytest.raises(ReadFailed, match="later version"):
            open_(tmp_path)
    assert sum_of(tmp_path).read_bytes() == content


def test_the_buffer_is_empty_after_a_batch_that_fills_many_slabs(tmp_path):
    with Writer(tmp_path, 5000) as writer:
        writer.write_many(MANY * 3)
        writer.flush()
        assert read_all(tmp_path) == MANY * 3
        assert len(slabs_in(tmp_path)) > 10
