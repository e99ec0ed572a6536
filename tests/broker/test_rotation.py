"""A full writer is sealed and followed by a new one, and no message falls between the two."""

import os
import threading
from itertools import pairwise
from pathlib import Path

import pytest

from poe.broker import MOVED, Put
from tests.broker.nodes import connect, open_files, read_by_frames, read_by_next

TOPIC = b"t"


def counts(sim):
    return [segment.count for _, segment in dict(sim.node.info())[TOPIC]]


def test_a_writer_below_its_limits_stays(simulate):
    sim = simulate(count_limit=5)
    sim.node.put_many(TOPIC, [b"x"] * 4)
    sim.advance(0.6)
    assert counts(sim) == [4]


def test_a_writer_at_count_limit_is_followed_at_the_next_tick(simulate):
    sim = simulate(count_limit=5)
    sim.node.put_many(TOPIC, [b"x"] * 5)
    assert counts(sim) == [5]
    sim.advance(0.5)
    assert counts(sim) == [5, 0]
    assert sim.roles(TOPIC) in {"rw", "hw"}


def test_a_writer_at_size_limit_is_followed_at_the_next_tick(simulate):
    sim = simulate(size_limit=1000)
    sim.node.put(TOPIC, b"x" * (1000 - 12))
    sim.advance(0.5)
    assert counts(sim) == [1]
    sim.node.put(TOPIC, b"y")
    sim.advance(0.5)
    assert counts(sim) == [2, 0]


def test_a_writer_at_twice_its_limit_does_not_wait_for_the_tick(simulate):
    sim = simulate(count_limit=5)
    for _ in range(25):
        sim.node.put(TOPIC, b"x")
    assert max(counts(sim)) <= 10
    assert sum(counts(sim)) == 25


def test_an_empty_writer_stays_at_every_tick(simulate):
    sim = simulate(count_limit=1)
    sim.node.put(TOPIC, b"x")
    sim.advance(10)
    assert counts(sim) == [1, 0]


def test_a_batch_never_lies_in_two_segments(simulate):
    sim = simulate(count_limit=5)
    sim.node.put_many(TOPIC, [b"x"] * 1000)
    sim.advance(0.5)
    sim.node.put_many(TOPIC, [b"y"] * 3)
    assert counts(sim) == [1000, 3]


def test_each_segment_lies_behind_the_one_before(simulate):
    sim = simulate(count_limit=3)
    for number in range(20):
        sim.node.put(TOPIC, b"%d" % number)
        sim.advance(0.2)
    segments = [segment for _, segment in dict(sim.node.info())[TOPIC] if segment.count]
    assert len(segments) > 5
    for older, newer in pairwise(segments):
        assert older.pointer_high < newer.pointer_low
    expected = [b"%d" % number for number in range(20)]
    assert [message for _, message in read_by_next(sim.node, TOPIC)] == expected
    assert [message for _, message in read_by_frames(sim.read, TOPIC, 2)] == expected


def test_a_clock_that_steps_back_does_not_turn_pointers_back(simulate):
    sim = simulate(count_limit=2)
    first = sim.node.put(TOPIC, b"1")
    sim.wall.offset_us = -3600 * 1_000_000
    second = sim.node.put(TOPIC, b"2")
    sim.advance(0.5)
    third = sim.node.put(TOPIC, b"3")
    assert first < second < third
    assert len(read_by_next(sim.node, TOPIC)) == 3


def test_a_late_put_to_a_sealed_writer_is_sent_on(simulate):
    """The put of a connection that looked up the writer just before it was sealed."""
    sim = simulate(count_limit=5)
    sim.node.put_many(TOPIC, [b"x"] * 5)
    sealed = sim.node.status()[0][1][0][0]
    sim.advance(0.5)
    assert sim.system.call(sealed, Put([b"late"])) is MOVED
    pointer = sim.node.put(TOPIC, b"late")
    assert read_by_next(sim.node, TOPIC)[-1] == (pointer, b"late")
    assert counts(sim) == [5, 1]


@pytest.mark.slow
def test_no_put_is_lost_or_doubled_while_segments_roll_every_millisecond(serve):
    """The original lost 30 to 300 of 320 000 messages here."""
    node = serve(count_limit=50, check_interval=0.001, worker_timeout=0.005)
    writers, rounds, batch = 8, 500, 50

    def message(writer, number):
        return b"%d %d" % (writer, number)

    def write_by_api(writer):
        for start in range(0, rounds * batch, batch):
            node.put_many(TOPIC, [message(writer, start + i) for i in range(batch)])

    def write_by_socket(writer):
        with connect(node, 20) as socket:
            batches = (
                [message(writer, start + i) for i in range(batch)]
                for start in range(0, rounds * batch, batch)
            )
            pointers = list(socket.write_batches(TOPIC, batches))
            assert pointers == sorted(set(pointers))

    targets = [write_by_api, write_by_socket] * (writers // 2)
    threads = [threading.Thread(target=t, args=(i,)) for i, t in enumerate(targets)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(50)
        assert not thread.is_alive()

    by_next = read_by_next(node, TOPIC)
    with connect(node, 20) as socket:
        assert read_by_frames(socket.read, TOPIC, 1000) == by_next
    pointers = [pointer for pointer, _ in by_next]
    assert pointers == sorted(set(pointers))
    expected = {w: [message(w, n) for n in range(rounds * batch)] for w in range(writers)}
    found: dict[int, list[bytes]] = {writer: [] for writer in range(writers)}
    for _, text in by_next:
        found[int(text.split()[0])].append(text)
    assert found == expected
    assert len(by_next) == 200_000
    # Thousands of segments of the last seconds are synced, each by itself and in order.
    node.stop(60)


@pytest.mark.slow
def test_a_thousand_rotations_leave_no_descriptor_open(simulate):
    """The original kept one descriptor and one process for every segment that it ever opened."""
    sim = simulate(count_limit=1)
    for _ in range(1000):
        sim.node.put(TOPIC, b"x")
        sim.advance(0.5)
    assert len(counts(sim)) == 1001
    sim.advance(3)
    assert open_files(sim.folder) == ["store.lock"]


def test_a_sealed_segment_keeps_its_lock_until_it_is_synced(simulate):
    sim = simulate(count_limit=1, check_interval=0.25, sync_interval=1)
    sim.node.put(TOPIC, b"1")
    sim.advance(0.3)
    assert counts(sim) == [1, 0]
    assert len(list(sim.folder.glob("topics/*/*_lock"))) == 2
    sim.advance(1)
    assert len(list(sim.folder.glob("topics/*/*_lock"))) == 1


def test_a_node_that_stops_has_synced_what_was_put(simulate, monkeypatch):
    # Where it can be asked for all at once, tests/storage/test_closing.py tells what happens.
    monkeypatch.setattr("poe.storage.real_files._syncfs", None)
    sim = simulate()
    sim.node.put(b"idle", b"1")
    sim.advance(3)
    sim.node.put(TOPIC, b"1")
    synced = []
    real_sync = os.fdatasync

    def sync(descriptor):
        synced.append(str(Path(f"/proc/self/fd/{descriptor}").readlink()))
        real_sync(descriptor)

    monkeypatch.setattr(os, "fdatasync", sync)
    sim.stop()
    *of_segments, before_end, of_store = synced
    files = [name.rpartition("_")[2] for name in of_segments]
    # Sums say that the segment has ended when all of it is durable.
    assert files == ["data", "index", "sum", "sum"] * 2
    assert {Path(name).parent.name for name in of_segments} == {"idle", "t"}
    assert Path(before_end).name == Path(of_store).name == "store.meta"
    assert not list(sim.folder.glob("topics/*/*_lock"))
