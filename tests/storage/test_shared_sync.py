"""Where many segments are to be synced, one sync of the whole disk does for all of them."""

import errno
from random import Random
from threading import Event, Thread

import pytest

from poe.storage import SegmentOptions, SharedSync, Store
from tests.storage.faulty_files import FaultyFiles
from tests.storage.segments import read_all
from torture.layers.crash_state import after_power_cut
from torture.layers.memory import MemoryFiles
from torture.layers.recorder import Recorder

NOW = 1_700_000_000_000_000


class Syncs(FaultyFiles):
    """Notes the syncs that go through it."""

    def __init__(self, files):
        super().__init__(files)
        self.done: list[str] = []

    def check(self, operation):
        if operation.startswith("sync"):
            self.done.append(operation)
        super().check(operation)


def written(files, count, **options):
    """Make a store with so many segments, each with a message that was not synced."""
    store = Store.open(files, SegmentOptions(**options))
    segments = [store.create_segment(b"t%d" % number, NOW) for number in range(count)]
    for segment in segments:
        segment.append([b"m"], NOW)
    return store, segments


def test_many_share_one_sync():
    files = Syncs(MemoryFiles())
    store, segments = written(files, 100)
    syncs = [segment.begin_sync(store.shared_sync) for segment in segments]
    files.done.clear()
    for sync in syncs:
        sync()
    assert files.done == ["sync_all"]


def test_a_few_do_not_wait_for_what_others_have_written():
    files = Syncs(MemoryFiles())
    store, segments = written(files, 15)
    syncs = [segment.begin_sync(store.shared_sync) for segment in segments]
    files.done.clear()
    for sync in syncs:
        sync()
    assert "sync_all" not in files.done
    assert len(files.done) == 4 * len(segments), "two folders, data and sums of each"


def test_what_nobody_is_going_to_sync_does_not_count():
    files = Syncs(MemoryFiles())
    store, segments = written(files, 40)
    syncs = [segment.begin_sync(store.shared_sync) for segment in segments]
    del syncs[10:]
    for sync in syncs:
        sync()
    assert "sync_all" not in files.done


def test_what_comes_during_a_sync_waits_for_the_next_one():
    files = Syncs(MemoryFiles())
    shared = SharedSync(files)
    begun, go_on = Event(), Event()

    def wait():
        begun.set()
        assert go_on.wait(10)

    files.real.sync_all = wait  # type: ignore[method-assign]  # a disk that takes its time
    first = [shared.ticket() for _ in range(20)]
    thread = Thread(target=first[0].is_synced)
    thread.start()
    assert begun.wait(10)
    later = [shared.ticket() for _ in range(20)]
    go_on.set()
    thread.join()
    assert files.done == ["sync_all"]
    assert all(ticket.is_synced() for ticket in first)
    assert files.done == ["sync_all"]
    assert all(ticket.is_synced() for ticket in later)
    assert files.done == ["sync_all"] * 2


@pytest.mark.parametrize("error_number", [errno.EIO, errno.EOPNOTSUPP, errno.ENOSPC])
def test_after_a_failure_each_segment_is_synced_by_itself(error_number):
    files = Syncs(MemoryFiles())
    store, segments = written(files, 30)
    syncs = [segment.begin_sync(store.shared_sync) for segment in segments]
    files.fail(0, error_number, "sync_all")
    files.done.clear()
    for sync in syncs:
        sync()
    assert files.done.count("sync_all") == 1
    assert files.done.count("sync") == 2 * len(segments)
    assert not any(segment.durability.has_failed for segment in segments)
    syncs = [segment.begin_sync(store.shared_sync) for segment in segments]
    for sync in syncs:
        sync()
    assert files.done.count("sync_all") == 1, "a failure is told once; later nobody would know"


def test_a_failure_is_told_once_and_so_no_ticket_is_believed_after_it():
    files = FaultyFiles(MemoryFiles())
    shared = SharedSync(files)
    before = [shared.ticket() for _ in range(20)]
    files.fail(0, errno.EIO, "sync_all")
    assert not before[0].is_synced()
    later = [shared.ticket() for _ in range(20)]
    assert not any(ticket.is_synced() for ticket in later + before)


def test_what_was_synced_before_a_failure_is_durable_all_the_same():
    files = FaultyFiles(MemoryFiles())
    shared = SharedSync(files)
    before = [shared.ticket() for _ in range(20)]
    assert before[0].is_synced()
    later = [shared.ticket() for _ in range(20)]
    files.fail(0, errno.EIO, "sync_all")
    assert not later[0].is_synced()
    assert all(ticket.is_synced() for ticket in before)


def test_sums_that_waited_for_a_shared_sync_are_written_behind_it():
    files = Syncs(MemoryFiles())
    store, segments = written(files, 20)
    syncs = [segment.begin_sync(store.shared_sync) for segment in segments]
    for segment in segments:
        segment.append([b"later"], NOW)
        segment.flush()
    sizes = [files.size(segment.path + "_sum") or 0 for segment in segments]
    for sync in syncs:
        sync()
    for segment, size in zip(segments, sizes, strict=True):
        segment.flush()
        assert (files.size(segment.path + "_sum") or 0) > size
    store.close()


@pytest.mark.parametrize("seed", range(30))
def test_what_a_shared_sync_has_covered_survives_a_power_cut(seed):
    rng = Random(seed)
    recorder = Recorder(MemoryFiles())
    store, segments = written(recorder.files, 20, ack=rng.choice(["flushed", "memory"]))
    syncs = [segment.begin_sync(store.shared_sync) for segment in segments]
    for segment in segments[:10]:
        segment.append([b"later"], NOW)
    for sync in syncs:
        sync()
    for segment in segments[5:15]:
        segment.append([b"last"], NOW)
        segment.flush()
    left = after_power_cut(recorder.events, rng, has_torn_sectors=True)
    found = Store.open(left).topics
    for number in range(20):
        (segment,) = found[b"t%d" % number]
        messages = [message for _, message in read_all(segment)]
        full = [b"m", *[b"later"] * (number < 10), *[b"last"] * (5 <= number < 15)]
        assert messages == full[: len(messages)]
        assert messages
        assert not segment.damage
