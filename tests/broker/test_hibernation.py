"""A segment that nobody asks for closes its files, and only a request opens them again."""

import gc

import pytest

from tests.broker.nodes import open_files, read_by_frames, read_by_next

TOPIC = b"t"
ASLEEP = ["store.lock"]


def test_a_reader_falls_asleep_and_wakes_for_a_read(simulate):
    sim = simulate(count_limit=2)
    first = sim.node.put_many(TOPIC, [b"1", b"2"]) - 1
    sim.advance(0.6)
    sim.node.next(TOPIC, 0)
    assert sim.roles(TOPIC) == "rw"
    sim.advance(2.1)
    assert sim.roles(TOPIC) == "hw"
    assert sim.node.next(TOPIC, 0) == (first, b"1")
    assert sim.roles(TOPIC) == "rw"


def test_writers_and_readers_without_requests_hold_no_files(simulate):
    sim = simulate(count_limit=2)
    for topic in (b"a", b"b", b"c"):
        for _ in range(3):
            sim.node.put_many(topic, [b"1", b"2"])
            sim.advance(0.5)
    assert open_files(sim.folder) != ASLEEP
    sim.advance(2.1)
    assert open_files(sim.folder) == ASLEEP


def test_no_tick_wakes_what_is_asleep(simulate):
    sim = simulate(count_limit=2, max_age=1000)
    for _ in range(3):
        sim.node.put_many(TOPIC, [b"1", b"2"])
        sim.advance(0.5)
    sim.advance(2.1)
    for _ in range(60):
        sim.advance(1.7)
        assert open_files(sim.folder) == ASLEEP
    assert sim.roles(TOPIC) == "hhhw"


def test_looking_at_the_status_wakes_nothing(simulate):
    sim = simulate(count_limit=2)
    sim.node.put_many(TOPIC, [b"1", b"2"])
    sim.advance(3)
    for op in ("topics", "status", "info"):
        sim.node.control(op)
    sim.node.control("segments", topic=TOPIC)
    assert open_files(sim.folder) == ASLEEP


def test_a_read_behind_the_newest_message_wakes_nothing(simulate):
    sim = simulate()
    pointer = sim.node.put(TOPIC, b"1")
    sim.advance(3)
    assert sim.node.next(TOPIC, pointer) is None
    assert sim.read(TOPIC, pointer, 100) == []
    assert open_files(sim.folder) == ASLEEP


def test_who_is_asked_again_and_again_stays_awake(simulate):
    sim = simulate()
    sim.node.put(TOPIC, b"1")
    for _ in range(20):
        sim.advance(0.9)
        sim.node.next(TOPIC, 0)
        assert open_files(sim.folder) != ASLEEP


def test_a_writer_takes_puts_in_its_sleep(simulate):
    sim = simulate()
    for number in range(10):
        sim.node.put(TOPIC, b"%d" % number)
        sim.advance(3)
        assert open_files(sim.folder) == ASLEEP
    expected = [b"%d" % number for number in range(10)]
    assert [message for _, message in read_by_next(sim.node, TOPIC)] == expected
    assert [message for _, message in read_by_frames(sim.read, TOPIC, 3)] == expected


def test_a_slice_outlives_the_sleep_of_its_segment(simulate):
    sim = simulate()
    sim.node.put_many(TOPIC, [b"x" * 1000] * 10)
    segment_files = open_files(sim.folder)
    assert any(name.endswith("_data") for name in segment_files)
    sim.advance(3)
    assert len(sim.read(TOPIC, 0, 10)) == 10


@pytest.mark.slow
def test_ten_thousand_polls_at_the_end_of_a_sleeping_topic_leave_nothing(simulate):
    """The original woke the segment for each, and leaked two descriptors."""
    sim = simulate()
    pointer = sim.node.put(TOPIC, b"1")
    sim.advance(3)

    def poll(count):
        for _ in range(count):
            assert sim.read(TOPIC, pointer, 100) == []
        gc.collect()
        return len(gc.get_objects())

    before = poll(100)
    assert poll(10_000) - before < 100
    assert open_files(sim.folder) == ASLEEP


def test_a_sealed_segment_that_is_synced_in_its_sleep_goes_on_sleeping(simulate):
    sim = simulate(count_limit=2, worker_timeout=0.01, sync_interval=1.0)
    sim.node.put_many(b"t", [b"1", b"2"])
    sim.advance(0.9)
    assert sim.roles(b"t") == "hw"
    sim.advance(0.2)
    assert sim.roles(b"t") == "hw"
    assert open_files(sim.folder) == ["store.lock"]
