"""What waits to be put, as it is kept in memory: its order, what of the log it needs, its size."""

import sys
import tracemalloc
from random import Random
from time import process_time

import pytest

from poe.broker.coordinator.waiting import (
    Batch,
    Number,
    Waiting,
    count_of,
    due_us_of,
    entry,
    pointer_of,
    size_bytes_of,
)

DAY_US = 24 * 3600 * 1_000_000
LARGEST = 2**56 - 1


def filled(*rows):
    """Return what waits: (time, pointer, messages) each, for topic `t`."""
    waiting = Waiting()
    for due_us, pointer, count in rows:
        waiting.add(b"t", entry(due_us, pointer, count, 100))
    return waiting


def pointers(batch):
    return [pointer_of(each) for each in batch.entries]


FIRST = Number(1, 0)


def store(waiting, batch, number=FIRST, now_us=0):
    stored = Batch(batch.topic, batch.entries, number)
    waiting.stored(stored, Number(number.epoch, number.sequence + 1), now_us)


def test_an_entry_holds_what_was_put_into_it():
    for values in ((0, 0, 0, 0), (LARGEST, LARGEST, 2**24 - 1, 2**28 - 1), (5, 4, 3, 2)):
        each = entry(*values)
        told = due_us_of(each), pointer_of(each), count_of(each), size_bytes_of(each)
        assert told == values
    assert size_bytes_of(entry(0, 0, 0, 2**40)) == 2**28 - 1


def test_what_is_due_comes_by_time_and_then_as_it_came():
    waiting = filled((30, 1, 1), (10, 2, 1), (20, 3, 1), (10, 4, 1), (40, 5, 1))
    assert waiting.next_us() == 10
    batch = waiting.take(30)
    assert pointers(batch) == [2, 4, 3, 1]
    assert waiting.next_us() is None
    store(waiting, batch)
    assert waiting.next_us() == 40
    assert waiting.take(39) is None


def test_what_is_sooner_than_all_before_is_told():
    waiting = filled((30, 1, 1))
    assert waiting.next_us() == 30
    waiting.add(b"t", entry(10, 2, 1, 100))
    waiting.add(b"other", entry(5, 3, 1, 100))
    assert waiting.next_us() == 5
    assert waiting.take(10).topic == b"other"
    assert waiting.take(10).topic == b"t"


def test_a_topic_is_put_onto_by_one_batch_at_a_time():
    waiting = filled((1, 1, 1))
    first = waiting.take(10)
    waiting.add(b"t", entry(2, 2, 1, 100))
    assert waiting.take(10) is None
    store(waiting, first)
    assert pointers(waiting.take(10)) == [2]


def test_a_batch_has_as_many_bytes_as_it_may_have_or_one_record():
    waiting = Waiting()
    for pointer, size_bytes in enumerate([600_000, 300_000, 300_000, 5_000_000, 1]):
        waiting.add(b"t", entry(1, pointer, 1, size_bytes))
    found = []
    while batch := waiting.take(1):
        found.append(pointers(batch))
        store(waiting, batch)
    assert found == [[0, 1], [2], [3], [4]]


def test_what_is_refused_is_tried_again_with_what_is_due_by_then():
    waiting = filled((1, 1, 1), (2, 2, 1))
    refused = waiting.take(1)
    assert waiting.take(100) is None
    waiting.refused(refused)
    assert pointers(waiting.take(100)) == [1, 2]


def test_what_has_a_number_is_tried_again_as_it_is():
    waiting = filled((1, 1, 1))
    batch = waiting.take(1)
    waiting.add(b"t", entry(1, 2, 1, 100))
    begun = Batch(b"t", batch.entries, Number(7, 0), is_written=False)
    waiting.refused(begun)
    assert waiting.take(100) is begun
    waiting.voided(begun)
    again = waiting.take(100)
    assert (pointers(again), again.number) == ([1, 2], None)


def test_numbers_follow_each_other_until_a_day_was_silent():
    waiting = filled((1, 1, 1), (DAY_US, 2, 1), (3 * DAY_US, 3, 1))
    batch = waiting.take(1)
    assert batch.number is None
    store(waiting, batch, Number(7, 0), now_us=1)
    batch = waiting.take(DAY_US)
    assert batch.number == (7, 1)
    store(waiting, batch, Number(7, 1), now_us=DAY_US)
    assert waiting.take(3 * DAY_US).number is None


def test_what_may_have_been_put_goes_before_what_waits():
    waiting = Waiting()
    begun = Batch(b"t", (entry(1, 1, 1, 100),), Number(7, 3))
    waiting.restore(b"t", [begun], [entry(9, 3, 1, 100), entry(5, 2, 1, 100)])
    assert waiting.messages_count == 3
    assert waiting.take(0) is begun
    waiting.stored(begun, None, 0)
    assert waiting.next_us() == 5


def test_the_log_is_needed_until_what_is_put_is_marked():
    waiting = filled((1, 11, 1), (2, 12, 2))
    batch = waiting.take(2)
    assert waiting.floor() == 11
    store(waiting, batch, Number(7, 0))
    assert (waiting.messages_count, waiting.floor()) == (0, 11)
    [done] = waiting.take_done()
    assert (done.topic, done.number) == (b"t", (7, 0))
    assert waiting.take_done() == []
    waiting.give_back(done)
    [done] = waiting.take_done()
    waiting.release(done)
    assert waiting.floor() is None
    waiting.forget()
    waiting.add(b"t", entry(9, 13, 1, 100))
    assert waiting.floor() == 13


def test_the_floor_is_never_above_what_is_needed():
    random = Random(1)
    waiting, left = Waiting(), set()
    for pointer in range(1, 20_001):
        waiting.add(b"t", entry(random.randrange(1000), pointer, 1, 100))
        left.add(pointer)
    sequence = 0
    while batch := waiting.take(1000):
        store(waiting, batch, Number(1, sequence))
        sequence += 1
        for done in waiting.take_done():
            waiting.release(done)
        left.difference_update(pointers(batch))
        assert (waiting.floor() or 20_001) <= min(left, default=20_001)
    assert waiting.floor() is None


@pytest.mark.slow
def test_100_000_that_wait_take_little_memory_and_a_look_costs_nothing():
    waiting = Waiting()
    random = Random(1)
    tracemalloc.start()
    for pointer in range(100_000):
        due_us = 1_700_000_000_000_000 + random.randrange(10**9)
        waiting.add(b"t", entry(due_us, 1_700_000_000_000_000 + pointer, 1, 100))
    size_bytes, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert size_bytes < 100_000 * (sys.getsizeof(2**160) + 8 + 8)
    begin_s = process_time()
    for _ in range(1000):
        waiting.next_us()
    assert process_time() - begin_s < 0.1
