"""A store that is closed makes all its segments durable at once, and ends none before it is."""

import errno
import logging
import subprocess
import sys
from random import Random

import pytest

from poe.storage import SegmentOptions, Store
from poe.storage.formats.record import decode_records
from poe.storage.store import store as store_module
from tests.python_process import environment
from tests.storage.faulty_files import FaultyFiles
from torture.layers.crash_state import after_power_cut
from torture.layers.memory import MemoryFiles
from torture.layers.recorder import Recorder
from torture.layers.watched import WatchedFiles

NOW = 1_700_000_000_000_000
TOPICS = [b"t%d" % number for number in range(20)]


class Counted(FaultyFiles):
    """Counts the syncs that go through it."""

    def __init__(self, files):
        super().__init__(files)
        self.syncs: list[str] = []

    def check(self, operation):
        if operation.startswith("sync"):
            self.syncs.append(operation)
        super().check(operation)


def filled(files, topics=TOPICS, segments=2, **options):
    """Make a store with topics of some segments, none of which was synced."""
    store = Store.open(files, SegmentOptions(**options))
    for topic in topics:
        for number in range(segments):
            store.create_segment(topic, NOW + number).append([topic, b"%d" % number], NOW)
    return store


def content_of(store):
    """Tell the messages of all topics."""
    found = {}
    for topic, segments in store.topics.items():
        slices = [segment.read(0, 1000, 1 << 20) for segment in segments]
        records = [record for each in slices if each for record in decode_records(each.read())]
        found[topic] = [message for _, message in records]
    return found


EXPECTED = {topic: [topic, b"0", topic, b"1"] for topic in TOPICS}


def is_closed(files, topic):
    return not any("_lock" in entry.name for entry in files.list_folder(f"topics/{topic.decode()}"))


def test_however_many_segments_there_are_the_disk_is_asked_twice():
    files = Counted(MemoryFiles())
    store = filled(files)
    files.syncs.clear()
    store.close()
    assert files.syncs == ["sync_all", "sync_all", "sync", "sync"], "the last two: of store.meta"
    assert all(is_closed(files, topic) for topic in TOPICS)
    reopened = Store.open(files)
    assert content_of(reopened) == EXPECTED


def test_one_segment_alone_does_not_wait_for_what_others_write():
    files = Counted(MemoryFiles())
    store = filled(files, TOPICS[:1], segments=1)
    files.syncs.clear()
    store.close()
    assert "sync_all" not in files.syncs
    assert is_closed(files, TOPICS[0])


@pytest.mark.parametrize("error_number", [errno.ENOSPC, errno.EIO, errno.EMFILE])
@pytest.mark.parametrize("nth", [0, 5])
def test_a_lock_that_cannot_be_removed_hinders_no_other_segment(nth, error_number):
    files = FaultyFiles(MemoryFiles())
    store = filled(files)
    files.fail(nth, error_number, "unlink")
    store.close()
    assert files.failed_count == 1
    files.heal()
    reopened = Store.open(files)
    assert content_of(reopened) == EXPECTED
    reopened.close()
    assert all(is_closed(files, topic) for topic in TOPICS)


@pytest.mark.parametrize("nth", [0, 1])
def test_where_the_disk_cannot_be_asked_at_once_each_segment_is_closed_by_itself(nth):
    files = Counted(MemoryFiles())
    store = filled(files)
    files.fail(nth, errno.EOPNOTSUPP, "sync_all", is_for_ever=True)
    files.syncs.clear()
    store.close()
    # Data, index and sums, then the end of the sums; where nothing of a topic is lost, no more.
    assert files.syncs.count("sync") >= 2 * 2 * len(TOPICS)
    assert all(is_closed(files, topic) for topic in TOPICS)
    assert content_of(Store.open(files)) == EXPECTED


def test_after_a_shared_sync_has_failed_each_segment_is_closed_by_itself():
    files = Counted(MemoryFiles())
    store = filled(files)
    segments = [segment for topic in TOPICS for segment in store.topics[topic]]
    syncs = [segment.begin_sync(store.shared_sync) for segment in segments]
    files.fail(0, errno.EIO, "sync_all")
    for sync in syncs:
        sync()
    files.syncs.clear()
    store.close()
    assert "sync_all" not in files.syncs
    assert all(is_closed(files, topic) for topic in TOPICS)
    assert content_of(Store.open(files)) == EXPECTED


def test_a_segment_whose_sums_cannot_be_opened_hinders_no_other():
    files = Counted(MemoryFiles())
    store = filled(files)
    for topic in TOPICS:
        for segment in store.topics[topic]:
            segment.seal()
    files.fail(7, errno.EIO, "open")  # nothing but sums is opened
    files.syncs.clear()
    store.close()
    assert files.failed_count == 1
    assert files.syncs.count("sync_all") == 2
    assert files.syncs.count("sync") == 4 + 2, "of that segment, and of store.meta"
    assert all(is_closed(files, topic) for topic in TOPICS)
    assert content_of(Store.open(files)) == EXPECTED


@pytest.mark.parametrize("nth", range(0, 400, 7))
def test_whatever_fails_what_was_put_is_there(nth):
    files = Counted(MemoryFiles())
    store = filled(files, TOPICS[:5])
    files.fail(nth, errno.EIO)
    store.close()
    del store
    files.heal()
    assert content_of(Store.open(files)) == {topic: EXPECTED[topic] for topic in TOPICS[:5]}


@pytest.mark.parametrize("seed", range(15))
def test_a_power_cut_while_a_store_is_closed_costs_nothing_that_was_synced(seed, caplog):
    rng = Random(seed)
    recorder = Recorder(MemoryFiles())
    store = filled(recorder.files, TOPICS[:4])
    for topic in TOPICS[:4]:
        for segment in store.topics[topic]:
            segment.sync()
    begun = len(recorder.events)
    store.close()
    del store
    cut_at = rng.randint(begun, len(recorder.events))
    left = after_power_cut(recorder.events[:cut_at], rng, has_torn_sectors=True)
    with caplog.at_level(logging.ERROR):
        found = content_of(Store.open(left))
    assert found == {topic: EXPECTED[topic] for topic in TOPICS[:4]}
    assert not caplog.records, "what a power cut leaves is no damage"


@pytest.mark.parametrize("seed", range(15))
def test_what_was_closed_and_not_synced_before_survives_a_power_cut(seed, caplog):
    recorder = Recorder(MemoryFiles())
    filled(recorder.files, TOPICS[:4]).close()
    left = after_power_cut(recorder.events, Random(seed), has_torn_sectors=True)
    with caplog.at_level(logging.WARNING):
        found = content_of(Store.open(left))
    assert found == {topic: EXPECTED[topic] for topic in TOPICS[:4]}
    assert not caplog.records


def test_a_segment_asleep_is_sealed_without_being_opened():
    files = Counted(MemoryFiles())
    store = filled(files, TOPICS[:1], segments=1)
    (segment,) = store.topics[TOPICS[0]]
    segment.hibernate()
    files.fail(0, errno.EIO, "open", is_for_ever=True)
    segment.seal()
    files.heal()
    store.close()
    assert content_of(Store.open(files)) == {TOPICS[0]: EXPECTED[TOPICS[0]][:2]}


@pytest.mark.slow
@pytest.mark.parametrize("segments", [1, 2])
def test_a_kill_while_a_store_is_closed_leaves_nothing_to_look_into_at_a_start(
    segments, monkeypatch
):
    monkeypatch.setattr(store_module, "FEW_TOPICS", 0)
    memory = MemoryFiles()
    left = []
    watched = WatchedFiles(memory, lambda _: left.append(memory.copy(memory.boot_id)))
    store = filled(watched, TOPICS[:5], segments)
    left.clear()
    store.close()
    expected = {topic: EXPECTED[topic][: 2 * segments] for topic in TOPICS[:5]}
    looked_into = []
    for number, files in enumerate(left):
        reopened = Store.open(files)
        looked_into += [(number, topic) for topic in reopened.topics.loaded]
        assert content_of(reopened) == expected
        reopened.close()
        again = Store.open(files)
        assert not again.topics.loaded, "what was told to rest is noted as that"
        assert content_of(again) == expected
    assert looked_into == []


class Unlinking(FaultyFiles):
    """Has locks removed in several threads, and notes in which order those of a topic went."""

    def __init__(self, files):
        super().__init__(files)
        self.unlink_threads = 4
        self.unlinked: dict[str, list[str]] = {}

    def unlink(self, path):
        super().unlink(path)
        folder, _, name = path.rpartition("/")
        self.unlinked.setdefault(folder, []).append(name)


def test_in_several_threads_the_segments_of_a_topic_end_in_their_order():
    files = Unlinking(MemoryFiles())
    store = filled(files, segments=3)
    store.close()
    for topic in TOPICS:
        names = files.unlinked[f"topics/{topic.decode()}"]
        assert names == sorted(names)
        assert len(names) == 3
    assert content_of(Store.open(files)) == {
        topic: [*EXPECTED[topic], topic, b"2"] for topic in TOPICS
    }


CLOSED_AT_EXIT = """
import atexit
from tests.storage.test_closing import TOPICS, Unlinking, filled, is_closed
from torture.layers.memory import MemoryFiles

files = Unlinking(MemoryFiles())
store = filled(files)
atexit.register(lambda: print(sum(is_closed(files, topic) for topic in TOPICS)))
atexit.register(store.close)
"""


@pytest.mark.slow
def test_a_store_may_be_closed_as_the_interpreter_ends():
    """There are no new threads by then; it was an error, and all was left to recovery."""
    ended = subprocess.run(
        [sys.executable, "-c", CLOSED_AT_EXIT],
        check=True,
        capture_output=True,
        text=True,
        timeout=60,
        env=environment(),
    )
    assert ended.stderr == ""
    assert int(ended.stdout) == len(TOPICS)


@pytest.mark.parametrize("seed", range(30))
def test_what_was_recovered_and_not_put_onto_since_survives_a_power_cut(seed, caplog):
    memory = MemoryFiles()
    recorder = Recorder(memory)
    filled(recorder.files, [b"t"], segments=1).close()
    killed = Store.open(recorder.files)
    (segment,) = killed.topics[b"t"]
    segment.unseal()
    for number in range(8):
        segment.append([b"%d" % number], NOW)
        segment.hibernate()
    memory.locked.clear()
    recovered = content_of(Store.open(recorder.files))
    assert len(recovered[b"t"]) == 10
    left = after_power_cut(recorder.events, Random(seed), has_torn_sectors=True)
    assert content_of(Store.open(left)) == recovered
    assert "written anew" not in caplog.text
