"""The first writer after a reboot makes what it recovered durable before it builds on it."""

from random import Random

import pytest

from poe.errors import SegmentLocked, SyncFailed
from poe.storage import RealFiles
from poe.storage.slab_log import Writer
from poe.storage.slab_log.slab_name import LOCK_FILE, slab_path, sum_path
from tests.storage.faulty_files import FaultyFiles
from tests.storage.slab_log.logs import messages, read_all, read_past_damage, write_foreign
from torture.layers.crash_state import after_kill, after_power_cut
from torture.layers.memory import MemoryFiles
from torture.layers.recorder import Recorder

SYNCED, NOT_SYNCED, LATER = messages(5), messages(5, 5), messages(5, 50)
SETTLING = [("sync", slab_path(0)), ("sync", sum_path(0)), ("sync_folder", "")]


def log_of(boot_id, contents=SYNCED, *, is_closed=True):
    """A log in memory that a writer left in a boot."""
    files = MemoryFiles(boot_id)
    writer = Writer(files)
    writer.write_many(contents)
    if is_closed:
        writer.close()
    else:
        writer.flush()
    del writer
    return files


def events_of_a_start(files):
    recorder = Recorder(files)
    Writer(recorder.files).close()
    return recorder.events


def syncs_in(events):
    return [(each.kind, each.path) for each in events if each.kind.startswith("sync")]


def lock_of(files):
    return files.snapshot()[LOCK_FILE].splitlines()


@pytest.mark.parametrize("is_closed", [True, False])
def test_in_the_same_boot_a_start_syncs_nothing(is_closed):
    files = log_of("boot", is_closed=is_closed).copy("boot")
    assert syncs_in(events_of_a_start(files)) == []
    assert lock_of(files)[1:] == [b"boot"]


@pytest.mark.parametrize("is_closed", [True, False])
def test_the_first_start_after_a_reboot_settles_the_newest_slab_and_only_then_notes_its_boot(
    is_closed,
):
    files = log_of("boot", is_closed=is_closed).copy("another boot")
    events = events_of_a_start(files)
    assert syncs_in(events) == SETTLING
    last_sync = max(at for at, each in enumerate(events) if each.kind.startswith("sync"))
    noting = [at for at, each in enumerate(events) if b"another boot" in each.data]
    assert noting
    assert min(noting) > last_sync
    # Else the kernel had no cause to write the last block again.
    rewritten = [
        each for each in events[:last_sync] if (each.kind, each.path) == ("write", slab_path(0))
    ]
    end = len(files.snapshot()[slab_path(0)])
    assert [each.offset + len(each.data) for each in rewritten] == [end]
    assert read_all(files) == SYNCED
    assert syncs_in(events_of_a_start(files)) == []


@pytest.mark.parametrize(
    "content", [None, b"", b"12", b"12\n", b"12\n\n", b"\0" * 40, b"12\nboo\n"]
)
def test_a_lock_that_does_not_tell_the_boot_is_of_another_one(content):
    files = log_of("boot").copy("boot")
    if content is None:
        files.unlink(LOCK_FILE)
    else:
        files.inodes[LOCK_FILE].resize(0)
        files.inodes[LOCK_FILE].write(content, 0)
    assert syncs_in(events_of_a_start(files)) == SETTLING
    assert syncs_in(events_of_a_start(files)) == []


def test_where_the_system_does_not_tell_the_boot_each_start_settles():
    files = log_of("")
    for _ in range(2):
        assert syncs_in(events_of_a_start(files)) == SETTLING


def test_a_start_that_dies_before_it_has_settled_leaves_that_to_the_next():
    events = events_of_a_start(log_of("boot").copy("another boot"))
    last_sync = max(at for at, each in enumerate(events) if each.kind.startswith("sync"))
    for count in range(last_sync):
        begun_with = log_of("boot").copy("another boot")
        left = after_kill(events[:count], 1, begun_with)
        assert syncs_in(events_of_a_start(left)) == SETTLING
        assert read_all(left) == SYNCED


def test_a_sync_that_fails_is_told_and_left_to_the_next_start(tmp_path):
    Writer(tmp_path).close()
    layer = FaultyFiles(RealFiles.at(tmp_path), boot_id="another boot")
    layer.fail(0, 5, "sync")
    with pytest.raises(SyncFailed):
        Writer(layer)
    assert b"another boot" not in (tmp_path / LOCK_FILE).read_bytes()
    Writer(layer).close()
    assert b"another boot" in (tmp_path / LOCK_FILE).read_bytes()


def test_a_log_that_is_new_has_nothing_to_settle():
    files = MemoryFiles("boot")
    assert syncs_in(events_of_a_start(files)) == []
    assert lock_of(files)[1:] == [b"boot"]


def test_an_empty_log_and_one_of_the_original_are_settled_as_well(tmp_path):
    empty = log_of("boot", [])
    assert syncs_in(events_of_a_start(empty.copy("another boot"))) == SETTLING
    write_foreign(tmp_path, SYNCED)
    recorder = Recorder(RealFiles.at(tmp_path))
    Writer(recorder.files).close()
    assert syncs_in(recorder.events) == SETTLING
    assert read_all(tmp_path) == SYNCED


def test_a_second_writer_is_told_the_pid_alone(tmp_path):
    writer = Writer(tmp_path)
    with pytest.raises(SegmentLocked, match=r"the writer with pid [0-9]+\b(?!\n)") as told:
        Writer(tmp_path)
    assert "\n" not in str(told.value)
    writer.close()


@pytest.mark.slow
@pytest.mark.parametrize("is_data_behind", [True, False])
@pytest.mark.parametrize("is_sum_behind", [True, False])
def test_what_was_gone_after_one_power_cut_does_not_come_back_with_the_next(
    is_data_behind, is_sum_behind
):
    """Bytes of the first life lie on the disk behind the ends of the files."""
    files = MemoryFiles("boot")
    writer = Writer(files)
    writer.write_many(SYNCED)
    writer.sync()
    sizes = {path: len(content) for path, content in files.snapshot().items()}
    for each in NOT_SYNCED:
        writer.write(each)
        writer.flush()
    del writer
    for path, is_behind in ((slab_path(0), is_data_behind), (sum_path(0), is_sum_behind)):
        files.inodes[path].forget_size(sizes[path])
        if not is_behind:
            files.inodes[path].behind = b""
    left = files.copy("boot 2")

    recorder = Recorder(left.copy("boot 2"))
    writer = Writer(recorder.files)
    assert read_all(recorder.files) == SYNCED
    for each in LATER:
        writer.write(each)
        writer.flush()
    for seed in range(300):
        again = after_power_cut(
            recorder.events, Random(seed), has_torn_sectors=seed % 2 == 1, begun_with=left
        )
        for boot_id in ("boot 3", "boot 4"):  # before a writer came, and then
            found, _ = read_past_damage(again)
            assert found[: len(SYNCED)] == SYNCED, seed
            assert set(found) <= {*SYNCED, *LATER}, seed
            again = again.copy(boot_id)
            Writer(again).close()
