"""After a power cut no pointer is given again that anybody has seen, whatever the clock says."""

import errno
import logging
import threading
from random import Random

import pytest

from poe.record import POINTER_MAX
from poe.storage import PointerBound, RealFiles
from poe.storage.store.pointer_bound import AHEAD_US, BOUND_FILE
from tests.storage.faulty_files import FaultyFiles
from tests.storage.segments import NOW
from torture.checker import Put
from torture.layers.simulated_disk import SimulatedDisk
from torture.simulated_node import WORK_S_MAX, SimulatedNode

S = 1_000_000
DAY = 86_400 * S
ID = bytes(16)


@pytest.fixture
def files(tmp_path):
    return FaultyFiles(RealFiles.at(tmp_path))


def bound(files, *, was_closed=True, is_after_power_cut=False, store_id=ID):
    return PointerBound(
        files, store_id, was_closed=was_closed, is_after_power_cut=is_after_power_cut
    )


def give(each, pointer, now_us=NOW):
    """Give a pointer, and have it raised."""
    each.given(pointer, now_us)
    each.raise_it()


def after_power_cut(files, store_id=ID):
    return bound(files, was_closed=False, is_after_power_cut=True, store_id=store_id)


# ---- of a whole node -----------------------------------------------------------------------------


def put(node, topic, message):
    """Put a message; return its pointer."""
    sent = Put(topic, 0, 0, [message])
    node.begin_put(0, sent)
    node.advance(0.0)
    assert sent.pointer is not None, sent.answer
    return sent.pointer


def cut_power(node, set_back_s):
    """Have the machine lose its power, and begin with a clock that is behind."""
    node.abandon(lambda: node.disk.cut_power(Random(0)))
    node.wall.offset_us -= round(set_back_s * S)
    node.start()


@pytest.mark.parametrize("set_back_s", [0.001, 5, 3600, 3 * 86_400])
def test_a_clock_set_back_while_the_power_was_away_has_no_pointer_given_again(set_back_s):
    node = SimulatedNode(SimulatedDisk(), "flushed", 100)
    seen = 0
    for _ in range(3):
        pointer = put(node, b"topic", b"message")
        assert pointer > seen
        seen = pointer
        cut_power(node, set_back_s)


def test_nor_of_a_topic_that_is_lost_as_a_whole():
    node = SimulatedNode(SimulatedDisk(), "flushed", 100)
    seen = put(node, b"topic", b"message")
    cut_power(node, 3600)
    assert put(node, b"other", b"message") > seen


def test_nor_by_a_later_start():
    """A topic onto which nothing was put in between has lost its last messages all the same."""
    node = SimulatedNode(SimulatedDisk(), "flushed", 100)
    seen = put(node, b"topic", b"one")
    cut_power(node, 3600)
    node.stop()
    node.start()
    assert put(node, b"topic", b"two") > seen


class Slowest(Random):
    """Has each work of a thread take the longest time."""

    def choice(self, seq):
        return seq[-1]


def test_whoever_gave_the_pointer_may_end_before_a_thread_has_time():
    node = SimulatedNode(SimulatedDisk(), "flushed", 100, Slowest())
    put(node, b"first", b"message")
    first = node.servers()
    seen = put(node, b"topic", b"message")
    node.kill_actor(*first)
    node.advance(WORK_S_MAX + 0.1)
    cut_power(node, 3600)
    assert put(node, b"topic", b"other") > seen


def test_it_is_raised_each_ten_seconds_and_not_while_nothing_is_put(monkeypatch):
    raised = []
    raise_it = PointerBound.raise_it

    def count(self):
        raised.append(self)
        raise_it(self)

    monkeypatch.setattr(PointerBound, "raise_it", count)
    node = SimulatedNode(SimulatedDisk(), "flushed", 100_000)
    for _ in range(60):
        put(node, b"topic", b"message")
        node.advance(1.0)
    assert 4 <= len(raised) <= 7
    node.advance(60.0)
    put(node, b"topic", b"message")
    assert len(raised) <= 8


# ---- the file ------------------------------------------------------------------------------------


def test_pointers_are_less_than_it_says(files):
    first = bound(files)
    give(first, NOW, NOW)
    assert after_power_cut(files).floor >= NOW


def test_it_is_written_once_for_what_is_given_in_ten_seconds(files):
    first = bound(files)
    give(first, NOW, NOW)
    for us in range(0, AHEAD_US // 2 + 1, S):
        assert NOW + us <= first.quiet_until
    first.given(first.quiet_until + 1, NOW)
    assert first.is_due
    before = first.quiet_until
    first.raise_it()
    assert not first.is_due
    assert first.quiet_until == before + AHEAD_US // 2 + 1


def test_one_that_is_not_raised_in_time_is_urgent_once(files):
    first = bound(files)
    give(first, NOW)
    assert not first.given(first.quiet_until + 1, NOW)
    assert first.is_due
    assert first.given(NOW + AHEAD_US + 1, NOW)
    assert not first.given(NOW + AHEAD_US + 2, NOW)
    first.raise_it()
    assert after_power_cut(files).floor > NOW + AHEAD_US


def test_what_is_given_while_it_is_raised_costs_no_second_write(files, monkeypatch):
    first = bound(files)
    writes = []
    open_file = files.open

    def slow_open(path, mode):
        if path == BOUND_FILE:
            writes.append(path)
        assert not first.given(NOW + 1, NOW)
        return open_file(path, mode)

    monkeypatch.setattr(files, "open", slow_open)
    assert first.given(NOW, NOW)
    first.raise_it()
    assert not first.is_due
    first.raise_it()
    assert len(writes) == 1


def test_behind_the_end_of_a_store_nothing_is_written_by_a_thread_that_had_no_time(files, tmp_path):
    """The folder may be another node's by then."""
    each = bound(files)
    each.given(NOW, NOW)
    each.close()
    each.raise_it()
    assert list(tmp_path.iterdir()) == []


def test_a_store_does_not_end_while_it_is_raised(files, monkeypatch):
    each = bound(files)
    begun, goes_on, ended = threading.Event(), threading.Event(), threading.Event()
    steps: list[str] = []

    def write(*_):
        begun.set()
        assert goes_on.wait(30)
        steps.append("written")

    def close():
        each.close()
        steps.append("closed")
        ended.set()

    monkeypatch.setattr(PointerBound, "_write", write)
    each.given(NOW, NOW)
    threads = [threading.Thread(target=each.raise_it), threading.Thread(target=close)]
    threads[0].start()
    assert begun.wait(30)
    threads[1].start()
    goes_on.set()
    assert ended.wait(30)
    for thread in threads:
        thread.join()
    assert steps == ["written", "closed"]


def test_a_store_that_was_closed_has_lost_nothing(files):
    give(bound(files), NOW + 3600 * S, NOW + 3600 * S)  # the clock was wrong
    second = bound(files)
    assert second.floor == 0
    assert after_power_cut(files).floor == 0  # before anything was put
    give(second, NOW)
    assert NOW <= after_power_cut(files).floor <= NOW + AHEAD_US


def test_behind_its_floor_it_follows_topics_whatever_the_clock_says(files):
    give(bound(files), NOW)
    second = after_power_cut(files)
    give(second, second.floor + 5, NOW - 3 * DAY)
    assert after_power_cut(files).floor > second.floor + 5


def test_a_write_that_failed_is_written_over_and_not_what_is_good(files, tmp_path):
    first = bound(files)
    give(first, NOW)
    files.fail(0, errno.EIO, "sync")
    give(first, NOW + 2 * AHEAD_US)
    files.heal()
    give(first, NOW + 4 * AHEAD_US)
    content = bytearray((tmp_path / BOUND_FILE).read_bytes())
    content[20] ^= 1
    (tmp_path / BOUND_FILE).write_bytes(content)
    assert after_power_cut(files).floor == NOW + AHEAD_US


def test_nor_has_one_whose_process_was_killed(files):
    first = bound(files)
    give(first, NOW, NOW)
    second = bound(files, was_closed=False)
    assert second.floor == 0
    assert second.quiet_until == first.quiet_until


def test_a_topic_that_runs_ahead_of_the_clock_takes_the_others_along_by_a_day_at_most(files):
    first = bound(files)
    give(first, NOW + 3 * DAY, NOW)
    assert after_power_cut(files).floor == NOW + DAY + AHEAD_US


def test_it_does_not_exceed_the_greatest_pointer(files):
    first = bound(files)
    give(first, POINTER_MAX, POINTER_MAX)
    assert after_power_cut(files).floor == POINTER_MAX


@pytest.mark.parametrize("count", range(1, 6))
def test_a_torn_write_leaves_what_was_before_it(files, tmp_path, count):
    first = bound(files)
    for number in range(count):
        give(first, NOW + number * AHEAD_US * 2, NOW)
    before = NOW + (count - 1) * AHEAD_US * 2 - AHEAD_US if count > 1 else 0
    content = bytearray((tmp_path / BOUND_FILE).read_bytes())
    place = count % 2 * 512
    content[place + 20] ^= 1
    (tmp_path / BOUND_FILE).write_bytes(content)
    assert after_power_cut(files).floor == before


def test_one_of_another_store_or_that_is_damaged_is_told_and_begun_anew(files, tmp_path, caplog):
    give(bound(files), NOW)
    with caplog.at_level(logging.ERROR):
        second = after_power_cut(files, b"another store id")
    assert second.floor == 0
    assert "store.bound is damaged, or of another store" in caplog.text
    give(second, NOW, NOW)
    assert after_power_cut(files, b"another store id").floor > NOW


@pytest.mark.parametrize("operation", ["open", "write_at", "sync", "rename", "sync_folder"])
@pytest.mark.parametrize("error", [errno.EIO, errno.ENOSPC])
def test_a_disk_that_does_not_take_it_refuses_nothing_and_is_told(files, operation, error, caplog):
    files.fail(0, error, operation, is_for_ever=True)
    first = bound(files)
    give(first, NOW, NOW)
    assert "store.bound was not written" in caplog.text
    assert first.quiet_until > NOW  # not again for each put
    files.heal()
    give(first, NOW + AHEAD_US + 1, NOW)
    assert after_power_cut(files).floor > NOW + AHEAD_US


def test_after_a_power_cut_it_stays_for_all_later_starts(files):
    give(bound(files), NOW)
    floor = after_power_cut(files).floor
    for was_closed in (True, False):
        assert bound(files, was_closed=was_closed).floor == floor
