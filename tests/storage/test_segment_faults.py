"""A failing disk refuses batches; it never loses, splits or invents one."""

import contextlib
import errno
import re
from contextlib import closing
from functools import partial

import pytest

from poe.errors import NoDescriptors, ReadFailed, StorageError, StorageFull, WriteFailed
from poe.storage import SegmentOptions, Store
from poe.storage.formats.record import OFFSET_MAX
from poe.storage.segment.segment_files import SegmentFiles
from tests.interrupts import places
from tests.storage.faulty_files import FaultyFiles
from tests.storage.segments import NOW, create, files_at, names_in, path_of, read_all, reopen
from torture.layers.memory import MemoryFiles

NO_ROOM = [errno.ENOSPC, errno.EDQUOT, errno.EFBIG]


@pytest.mark.parametrize("error_number", [*NO_ROOM, errno.EIO, errno.EINTR])
@pytest.mark.parametrize("messages", [[b"x" * 50], [b"x" * 50] * 20, [b"x", b"yy"]])
def test_a_failing_write_refuses_the_batch_and_the_next_one_works(
    tmp_path, layer, error_number, messages
):
    segment = create(layer)
    segment.append([b"before"], NOW)
    layer.fail(0, error_number, "write_at")
    with pytest.raises(StorageFull if error_number in NO_ROOM else WriteFailed, match="_data"):
        segment.append(messages, NOW)
    assert path_of(tmp_path, "data").stat().st_size == 17
    assert (segment.count, segment.size_bytes, segment.pointer_high) == (1, 17, NOW)
    assert read_all(segment) == [(NOW, b"before")]
    segment.append([b"after"], NOW)
    expected = [(NOW, b"before"), (NOW + 1, b"after")]
    assert read_all(segment) == expected
    del segment
    assert read_all(reopen(layer)) == expected


def test_a_failing_write_that_cannot_be_cut_off_is_never_read(tmp_path, layer):
    segment = create(layer)
    segment.append([b"before"], NOW)
    layer.fail(0, errno.EIO, "write_at", "truncate", is_for_ever=True)
    with pytest.raises(WriteFailed):
        segment.append([b"refused", b"refused too"], NOW)
    layer.heal()
    assert path_of(tmp_path, "data").stat().st_size > 17
    segment.append([b"x"], NOW)
    expected = [(NOW, b"before"), (NOW + 1, b"x")]
    assert read_all(segment) == expected
    del segment
    assert read_all(reopen(layer)) == expected
    assert path_of(tmp_path, "data").stat().st_size == 17 + 12


def test_closing_cuts_what_a_failing_write_left(tmp_path, layer):
    segment = create(layer)
    segment.append([b"before"], NOW)
    layer.fail(0, errno.EIO, "write_at", "truncate", is_for_ever=True)
    with pytest.raises(WriteFailed):
        segment.append([b"refused"], NOW)
    layer.heal()
    segment.close()
    assert path_of(tmp_path, "data").stat().st_size == 17
    assert path_of(tmp_path, "index").stat().st_size == 12


def test_an_index_that_cannot_be_written_refuses_the_batch_before_its_data(tmp_path, layer):
    segment = create(layer)
    segment.append([b"x"] * 6000, NOW)
    layer.fail(0, errno.ENOSPC, "write_at")
    with pytest.raises(StorageFull, match="_index"):
        segment.append([b"y"], NOW)
    assert path_of(tmp_path, "data").stat().st_size == 6000 * 12
    assert segment.append([b"y"], NOW) == NOW + 6000
    assert segment.next(NOW + 5999) == (NOW + 6000, b"y")


@pytest.mark.parametrize("action", ["hibernate", "close", "seal", "flush"])
def test_a_segment_that_cannot_write_what_waits_stays_as_it_is(layer, action):
    segment = create(layer)
    segment.append([b"a", b"b"], NOW)
    layer.fail(0, errno.ENOSPC, "write_at")
    with pytest.raises(StorageFull):
        getattr(segment, action)()
    assert segment.is_awake
    assert segment.is_writer
    segment.append([b"c"], NOW)
    getattr(segment, action)()
    assert [m for _, m in read_all(segment)] == [b"a", b"b", b"c"]


def test_with_ack_memory_a_full_disk_keeps_what_waits_and_serves_what_is_written(layer):
    segment = create(layer, ack="memory", buffer_count_max=3)
    segment.append([b"a"] * 3, NOW)
    segment.append([b"waits"], NOW)
    segment.append([b"waits"], NOW)
    layer.fail(0, errno.ENOSPC, "write_at", is_for_ever=True)
    with pytest.raises(StorageFull):
        segment.append([b"refused"], NOW)
    with pytest.raises(StorageFull):
        segment.flush()
    assert segment.next(NOW + 1) == (NOW + 2, b"a")
    assert segment.read(0, 100, 1000).record_count == 3
    assert segment.next(NOW + 2) is None
    assert segment.read(NOW + 2, 100, 1000) is None
    layer.heal()
    segment.append([b"after"], NOW)
    assert [m for _, m in read_all(segment)] == [b"a"] * 3 + [b"waits"] * 2 + [b"after"]


@pytest.mark.parametrize("operation", ["open", "map", "read_at"])
def test_a_failing_read_is_an_error_and_passes(layer, operation):
    segment = create(layer)
    segment.append([b"a"], NOW)
    segment.close()
    layer.fail(0, errno.EIO, operation)
    with pytest.raises(ReadFailed):
        segment.next(0)
    assert segment.next(0) == (NOW, b"a")


def test_a_failing_sync_is_reported(layer):
    segment = create(layer, ack="fsync")
    segment.append([b"a"], NOW)
    layer.fail(0, errno.EIO, "sync")
    with pytest.raises(WriteFailed):
        segment.sync()


def test_a_segment_that_was_closed_is_written_to_when_its_lock_would_survive_a_power_cut(layer):
    segment = create(layer, ack="fsync")
    segment.append([b"a"], NOW)
    segment.close()
    layer.fail(0, errno.EIO, "sync_folder")
    segment.unseal()
    assert len(read_all(segment)) == 1
    with pytest.raises(WriteFailed):
        segment.append([b"b"], NOW)
    assert len(read_all(segment)) == 1
    segment.append([b"c"], NOW)
    assert len(read_all(segment)) == 2


def test_a_segment_that_was_closed_is_closed_again_without_a_sync(layer, tmp_path):
    segment = create(layer, ack="fsync")
    segment.append([b"a"], NOW)
    segment.close()
    layer.fail(0, errno.EIO, "sync", "sync_folder", "truncate", is_for_ever=True)
    for _ in range(3):
        segment.unseal()
        assert len(read_all(segment)) == 1
        segment.close()
    assert layer.failed_count == 0
    assert not path_of(tmp_path, "lock").exists()


def test_a_segment_that_cannot_be_made_leaves_nothing_behind(tmp_path, layer):
    for nth in range(100):
        layer.fail(nth, errno.ENOSPC, "open", "allocate", "write_at", "sync", "sync_folder")
        try:
            create(layer, ack="fsync")
        except StorageFull:
            assert names_in(tmp_path / "topics/t") == []
            continue
        break
    assert nth == 10


def live(segment, acknowledged):
    """Use a segment in all ways; note each batch that was accepted, and go on after errors."""
    for number, action in enumerate(
        ["append", "hibernate", "append", "flush", "append", "seal", "unseal", "append", "sync"] * 3
    ):
        messages = [b"%d" % number, b"x" * number, b"end"][: 1 + number % 3]
        if number == 0:
            messages = [b"0"]
        with contextlib.suppress(StorageError):
            if action == "append":
                last = segment.append(messages, NOW)
                first = last - len(messages) + 1
                acknowledged += [(first + i, m) for i, m in enumerate(messages)]
            else:
                getattr(segment, action)()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("error_number", "is_for_ever", "ack"),
    [(errno.ENOSPC, False, "flushed"), (errno.EIO, True, "memory")],
)
def test_whichever_call_fails_exactly_the_accepted_batches_are_stored(
    tmp_path, error_number, is_for_ever, ack
):
    nth = 0
    while True:
        layer = FaultyFiles(files_at(tmp_path / str(nth)))
        segment = create(layer, ack=ack, buffer_count_max=4)
        acknowledged: list[tuple[int, bytes]] = []
        layer.fail(nth, error_number, is_for_ever=is_for_ever)
        live(segment, acknowledged)
        is_over = layer.failed_count == 0
        layer.heal()
        assert read_all(segment) == acknowledged
        segment.flush()
        del segment
        assert read_all(reopen(layer)) == acknowledged
        if is_over:
            break
        nth += 1
    assert nth > 40


LARGE = [b"x" * 1000] * 500
"""Half a MB. From 1 MiB on, blocks are reserved ahead."""


def allocated_bytes(tmp_path):
    return path_of(tmp_path, "data").stat().st_blocks * 512


@pytest.fixture
def is_reserving(tmp_path):
    """Skip where the file system reserves nothing."""
    file = files_at(tmp_path).open("topics/t/probe", "x+")
    file.reserve(1 << 20)
    if (tmp_path / "topics/t/probe").stat().st_blocks * 512 < 1 << 20:
        pytest.skip("the file system reserves no blocks")


@pytest.mark.usefixtures("is_reserving")
@pytest.mark.parametrize("ending", ["seal", "hibernate", "kill", "failing write"])
def test_blocks_reserved_ahead_change_no_size_and_are_given_back(tmp_path, layer, ending):
    segment = create(layer)
    for _ in range(5):
        segment.append(LARGE, NOW)
    size = path_of(tmp_path, "data").stat().st_size
    assert size == segment.size_bytes
    assert size + 256 * 1024 < allocated_bytes(tmp_path) <= 2 * size
    match ending:
        case "failing write":
            layer.fail(0, errno.ENOSPC, "write_at")
            with pytest.raises(StorageFull):
                segment.append([b"x"], NOW)
        case "kill":
            del segment
            segment = reopen(layer)
        case _:
            getattr(segment, ending)()
    assert size <= allocated_bytes(tmp_path) <= size + 64 * 1024
    assert path_of(tmp_path, "data").stat().st_size == size
    assert len(read_all(segment)) == 5 * len(LARGE)


@pytest.mark.parametrize("error_number", [errno.ENOSPC, errno.EOPNOTSUPP, errno.EIO])
def test_where_no_blocks_can_be_reserved_writes_go_on(tmp_path, layer, error_number):
    segment = create(layer)
    layer.fail(0, error_number, "reserve", is_for_ever=True)
    for _ in range(5):
        segment.append(LARGE, NOW)
    assert layer.failed_count
    assert len(read_all(segment)) == 5 * len(LARGE)


def test_a_small_segment_reserves_nothing(tmp_path, layer):
    segment = create(layer)
    layer.fail(0, errno.EIO, "reserve")
    segment.append(LARGE, NOW)
    assert not layer.failed_count


def test_waking_reads_no_index_however_long_it_is(tmp_path):
    """The original read all of it, within five seconds or not at all; it is mapped here."""
    layer = FaultyFiles(files_at(tmp_path))
    segment = create(layer)
    last = segment.append([b"x"] * 100_000, NOW)
    segment.close()
    # The two that are left look at the first and the last record of the slice.
    layer.fail(2, errno.EIO, "read_at", is_for_ever=True)
    assert not segment.is_awake
    assert segment.read(last - 2, 10, 10_000).record_count == 2
    assert layer.failed_count == 0


def test_a_read_at_the_end_writes_nothing(tmp_path):
    """In the original readers made the writer flush, so that they set its pace."""
    layer = FaultyFiles(files_at(tmp_path))
    segment = create(layer)
    last = segment.append([b"1", b"2", b"3"], NOW)
    layer.fail(0, errno.EIO, "write_at", "truncate", "sync", is_for_ever=True)
    assert segment.read(last - 1, 10, 10_000).record_count == 1
    assert segment.next(last - 1) == (last, b"3")
    assert segment.read(last, 10, 10_000) is None
    assert layer.failed_count == 0


def test_a_segment_takes_no_byte_beyond_what_an_index_entry_can_name(tmp_path):
    """The original cut the offset, and served other records from then on."""
    layer = FaultyFiles(files_at(tmp_path))
    segment = create(layer)
    last = segment.append([b"1"], NOW)
    size_bytes = segment.size_bytes
    segment.size_bytes = OFFSET_MAX - 20
    layer.fail(0, errno.EIO, "write_at", is_for_ever=True)
    with pytest.raises(StorageFull, match=re.escape("2^40 - 1 bytes")):
        segment.append([b"x" * 10], NOW)
    assert layer.failed_count == 0
    segment.size_bytes = size_bytes
    layer.heal()
    assert read_all(segment) == [(last, b"1")]


def test_a_writer_whose_mending_failed_half_way_cuts_off_nothing_that_was_synced(
    tmp_path, layer, monkeypatch
):
    def refuse(files):
        raise NoDescriptors(files.path + "_lock", "too many open files")

    segment = create(layer, ack="fsync")
    for number in range(50):
        segment.append([b"%d" % number] * 20, NOW + number * 1000)
    segment.close()
    content = bytearray(path_of(tmp_path, "index").read_bytes())
    content[100] ^= 1
    path_of(tmp_path, "index").write_bytes(content)
    segment = reopen(layer, ack="fsync")
    segment.unseal()
    segment.append([b"a"], NOW + 10**6)
    segment.sync()
    with monkeypatch.context() as patched:
        patched.setattr(SegmentFiles, "sync_lock", refuse)
        with pytest.raises(NoDescriptors):
            segment.read(0, 10, 10_000)
    segment.append([b"synced"], NOW + 2 * 10**6)
    segment.sync()
    segment.append([b"doubtful"], NOW + 3 * 10**6)
    layer.fail(0, errno.EIO, "sync")
    with pytest.raises(WriteFailed) as caught:
        segment.sync()
    layer.heal()
    segment.begin_cut(str(caught.value))()
    assert [message for _, message in read_all(segment)][-2:] == [b"a", b"synced"]


WRITING_FILES = (
    "poe/storage/formats/record.py",
    "poe/storage/segment/receipts.py",
    "poe/storage/segment/record_reader.py",
    "poe/storage/segment/segment.py",
    "poe/storage/segment/segment_writer.py",
    "poe/storage/segment/sum_writer.py",
    "torture/layers/memory.py",
)
STEPS = {
    "put one": lambda segment: segment.append([b"torn"], NOW),
    "put many": lambda segment: segment.append([b"torn"] * 60, NOW),
    "put sizes": lambda segment: segment.append([b"torn" * (n % 3 + 1) for n in range(60)], NOW),
    "put numbered": lambda segment: segment.append([b"torn"], NOW, (b"p" * 16, 0, 0)),
    "read": lambda segment: segment.read(0, 100, 10_000),
    "flush": lambda segment: segment.flush(),
    "sync": lambda segment: segment.begin_sync(),
    "hibernate": lambda segment: segment.hibernate(),
}


@pytest.mark.parametrize("ack", ["flushed", "fsync", "memory"])
@pytest.mark.parametrize("name", STEPS)
def test_what_an_interrupt_cuts_short_is_recovered_from_the_files(ack, name):
    """As Ctrl-C does in an embedded node; what was half noted went to the disk, as damage."""
    for interrupted in places(*WRITING_FILES):
        with closing(Store.open(MemoryFiles(), SegmentOptions(ack=ack))) as store:
            segment = store.create_segment(b"t", NOW)
            before = [b"before", b"b", b"c"]
            for each in before:
                segment.append([each], NOW)
            interrupted(partial(STEPS[name], segment))
            repaired = store.repair_segment(b"t", segment)
            assert repaired is not None
            repaired.unseal()
            repaired.append([b"behind"], NOW)
            repaired.flush()
            repaired = store.repair_segment(b"t", repaired)
            assert repaired is not None
            assert repaired.damage == ()
            found = [message for _, message in read_all(repaired)]
            assert found[:3] == before
            assert found[-1] == b"behind"
            count = {"put many": 60, "put sizes": 60}.get(name, 1)
            assert len(found) - 4 in {0, count}


def test_what_a_lack_of_memory_cuts_short_is_not_written_by_who_closes_it(monkeypatch):
    def fail(*_):
        raise MemoryError

    store, torn = Store.open(MemoryFiles()), [b"torn" * (n % 3 + 1) for n in range(60)]
    segment = store.create_segment(b"t", NOW)
    segment.append([b"before"], NOW)
    with monkeypatch.context() as patch:
        patch.setattr("poe.storage.segment.segment.encode_entries", fail)
        with pytest.raises(MemoryError):
            segment.append(torn, NOW)
    with pytest.raises(WriteFailed):
        segment.begin_sync()
    segment.close()
    repaired = store.repair_segment(b"t", segment)
    assert repaired is not None
    assert repaired.damage == ()
    assert [message for _, message in read_all(repaired)] == [b"before", *torn]
    store.close()


@pytest.mark.parametrize("ack", ["flushed", "fsync"])
def test_a_segment_that_an_interrupt_keeps_from_being_made_leaves_nothing(ack):
    """Some of its files alone are damage to `poe check`."""
    files = ("segment/segment_files.py", "formats/segment_lock.py", "formats/hashed.py")
    for interrupted in places(*files):
        disk = MemoryFiles()
        with closing(Store.open(disk, SegmentOptions(ack=ack))) as store:
            was_cut_short = interrupted(partial(store.create_segment, b"t", NOW))
            names = {name for name, _ in disk.list_folder("topics/t")}
            assert len(names) in {0, 4}
            assert was_cut_short or names
