"""A thread ends a sealed segment, while something else becomes of the segment."""

import logging
import shutil
from contextlib import contextmanager
from threading import Event, Thread

import pytest

from poe.storage import RealFiles, Store, check_segments
from poe.storage.formats.hashed import FILE_HEADER_BYTES
from tests.storage.faulty_files import FaultyFiles
from tests.storage.segments import NOW, path_of, read_all

TOPIC = b"t"


class SlowFiles(FaultyFiles):
    """Takes its time for one call, at most a moment: who waits for it is to get on, too."""

    def __init__(self, files):
        super().__init__(files)
        self.slow = ("", 0)
        self.reached, self.go_on = Event(), Event()

    def must_fail(self, operation):
        name, count = self.slow
        if operation == name:
            self.slow = (name, count - 1) if count else ("", 0)
            if not count:
                self.reached.set()
                self.go_on.wait(0.2)
        return super().must_fail(operation)


@pytest.fixture
def files(tmp_path):
    return SlowFiles(RealFiles.at(tmp_path / "living"))


@pytest.fixture
def store(files):
    store = Store.open(files)
    store.create_segment(TOPIC, NOW).append([b"1"], NOW)
    return store


@pytest.fixture(params=[("write_at", 0), ("sync", 3), ("unlink", 0)], ids=lambda at: at[0])
def end_at(request):
    """Where the end takes long: it is written behind three syncs, synced, and the lock goes."""
    return request.param


@contextmanager
def ending(files, segment, end_at):
    """Have a thread that syncs a segment take long, and let it end behind the block."""
    sync = segment.begin_sync()
    files.slow = end_at
    thread = Thread(target=sync)
    thread.start()
    assert files.reached.wait(10)
    yield
    files.go_on.set()
    thread.join()


def after_kill(tmp_path):
    """Open what kill -9 would leave."""
    shutil.copytree(tmp_path / "living", tmp_path / "killed")
    return Store.open(tmp_path / "killed")


def messages_in(store):
    return [message for _, message in read_all(store.topics[TOPIC][-1])]


def test_what_is_put_onto_the_segment_that_is_a_writer_again_is_kept(
    tmp_path, files, store, end_at
):
    (segment,) = store.topics[TOPIC]
    segment.seal()
    with ending(files, segment, end_at):
        segment.unseal()
        segment.append([b"2"], NOW)
    segment.append([b"3"], NOW)
    assert messages_in(after_kill(tmp_path)) == [b"1", b"2", b"3"]
    segment.flush()
    assert [each.damage for each in check_segments(files.real)] == [[]]


def test_the_end_that_nobody_waits_for_costs_what_stands_for_the_segment_now_no_lock(
    tmp_path, files, store, end_at
):
    (segment,) = store.topics[TOPIC]
    segment.seal()
    with ending(files, segment, end_at):
        repaired = store.repair_segment(TOPIC, segment)
        assert repaired is not None
        repaired.unseal()
        repaired.append([b"2"], NOW)
    repaired.append([b"3"], NOW)
    assert messages_in(after_kill(tmp_path)) == [b"1", b"2", b"3"]


def test_what_is_read_again_by_another_owner_is_not_ended_by_the_last_one(
    tmp_path, files, store, end_at
):
    (segment,) = store.topics[TOPIC]
    segment.seal()
    with ending(files, segment, end_at):
        store.recover_topic(TOPIC)
        (recovered,) = store.topics[TOPIC]
        recovered.unseal()
        recovered.append([b"2"], NOW)
    recovered.append([b"3"], NOW)
    assert messages_in(after_kill(tmp_path)) == [b"1", b"2", b"3"]


def test_of_a_segment_that_is_destroyed_nobody_notes_that_it_has_ended(
    tmp_path, files, store, end_at, caplog
):
    (segment,) = store.topics[TOPIC]
    segment.seal()
    with ending(files, segment, end_at):
        store.destroy_segment(TOPIC, segment)
    assert not store._meta.live  # noqa: SLF001 - a note of what is gone would stay
    with caplog.at_level(logging.ERROR):
        killed = after_kill(tmp_path)
    assert TOPIC not in killed.topics
    assert not caplog.records


def test_sums_that_are_made_anew_are_not_ended_as_those_before(tmp_path, end_at):
    before = Store.open(tmp_path / "living")
    before.create_segment(TOPIC, NOW).append([b"1"], NOW)
    before.close()
    files = SlowFiles(RealFiles.at(tmp_path / "living"))
    store = Store.open(files)
    (segment,) = store.topics[TOPIC]
    segment.unseal()
    for number in range(2, 5):
        segment.append([b"%d" % number], NOW)
        segment.flush()
    segment.seal()
    with ending(files, segment, end_at):
        sums = path_of(tmp_path / "living", "sum")
        content = bytearray(sums.read_bytes())
        content[FILE_HEADER_BYTES] ^= 1
        sums.write_bytes(content)
        assert len(read_all(segment)) == 4
    segment.unseal()
    segment.append([b"5"], NOW)
    segment.flush()
    assert messages_in(after_kill(tmp_path)) == [b"%d" % number for number in range(1, 6)]
    assert [each.damage for each in check_segments(files.real)] == [[]]
