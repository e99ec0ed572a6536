"""What is answered to a put that is numbered, against a model that keeps everything."""

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from poe.errors import ProducerFenced, RepeatedPut, SequenceGap
from poe.storage.segment.producers import (
    PINNED_COUNT_MAX,
    PINNED_PREFIX,
    PRODUCER_IDLE_MAX_US,
    PRODUCERS_COUNT_MAX,
    WINDOW_COUNT,
    LastPut,
    Producers,
)

P, Q = b"p" * 16, b"q" * 16

STEPS = st.lists(
    st.tuples(
        st.sampled_from([P, Q]),
        st.sampled_from([0, 0, 0, 0, 1, -1]),  # epochs behind the newest
        st.sampled_from([1, 1, 1, 1, 1, 1, 0, 2, -62, -63, -64]),  # puts behind the newest
        st.integers(1, 100),  # in a row
    ),
    max_size=30,
)


def answer(find, *arguments) -> Any:
    """Tell what is answered, or the class and the values of the error."""
    try:
        return find(*arguments)
    except (RepeatedPut, SequenceGap, ProducerFenced) as error:
        return type(error), vars(error)


class Model:
    """Keeps all puts for ever, by epoch."""

    def __init__(self):
        self.pointers: dict[bytes, dict[int, list[int]]] = {}

    def newest(self, producer):
        epochs = self.pointers.get(producer, {})
        return max(epochs, default=None)

    def find(self, put):
        producer, epoch, sequence = put
        newest = self.newest(producer)
        if newest is not None and epoch < newest:
            raise ProducerFenced(producer, epoch, newest)
        pointers = self.pointers.get(producer, {}).get(epoch, [])
        if sequence > len(pointers):
            raise SequenceGap(producer, epoch, sequence, len(pointers))
        if sequence == len(pointers):
            return None
        if sequence < len(pointers) - 64:
            raise RepeatedPut(producer, epoch, sequence)
        return pointers[sequence]

    def add(self, put, pointer):
        producer, epoch, _ = put
        self.pointers.setdefault(producer, {}).setdefault(epoch, []).append(pointer)

    def last(self, producer):
        newest = self.newest(producer)
        if newest is None:
            return None
        pointers = self.pointers[producer][newest]
        return newest, len(pointers) - 1, pointers[-1]


@given(STEPS)
def test_every_put_is_answered_as_by_one_who_keeps_everything(steps):
    producers, model = Producers(), Model()
    pointer = 1000
    for producer, epoch_step, step, count in steps:
        for _ in range(count):
            last = model.last(producer) or (0, -1, 0)
            epoch = max(last[0] + epoch_step, 0)
            sequence = 0 if epoch > last[0] and step == 1 else max(last[1] + step, 0)
            put = (producer, epoch, sequence)
            expected = answer(model.find, put)
            assert answer(producers.find, put) == expected
            if expected is None:
                pointer += 7
                producers.add(put, pointer)
                model.add(put, pointer)
            assert producers.last(producer) == model.last(producer)
    told = Producers()
    for put, each in producers.live(pointer):
        told.add(put, each)
    for producer in (P, Q):
        epoch, newest, _ = model.last(producer) or (0, -1, 0)
        for sequence in range(max(newest - 70, 0), newest + 3):
            put = (producer, epoch, sequence)
            assert answer(told.find, put) == answer(model.find, put)


def test_a_new_producer_begins_with_0_in_any_epoch():
    producers = Producers()
    assert producers.find((P, 7, 0)) is None
    with pytest.raises(SequenceGap, match=r"put 1 of producer 7070.*put 0 next") as caught:
        producers.find((P, 7, 1))
    assert caught.value.expected == 0


def test_the_oldest_put_that_is_known_is_the_64th():
    producers = Producers()
    for number in range(100):
        producers.add((P, 0, number), 1000 + number)
    assert producers.find((P, 0, 100 - WINDOW_COUNT)) == 1000 + 100 - WINDOW_COUNT
    with pytest.raises(RepeatedPut):
        producers.find((P, 0, 99 - WINDOW_COUNT))


def test_what_lies_in_a_greater_epoch_forgets_the_lesser_one():
    producers = Producers()
    producers.add((P, 0, 0), 1)
    producers.add((P, 3, 0), 2)
    assert producers.last(P) == LastPut(3, 0, 2)
    with pytest.raises(ProducerFenced):
        producers.find((P, 0, 0))


def test_a_new_segment_is_told_of_who_put_lately_and_of_no_more_than_so_many():
    producers = Producers()
    names = [b"%016d" % number for number in range(PRODUCERS_COUNT_MAX + 5)]
    for number, name in enumerate(names):
        producers.add((name, 0, 0), 1000 + number)
    told = [put[0] for put, _ in producers.live(2000)]
    assert told == names[:4:-1]
    told = [put[0] for put, _ in producers.live(1000 + PRODUCER_IDLE_MAX_US + 995)]
    assert told == names[:994:-1]


def test_a_new_segment_is_told_of_the_puts_of_each_producer_in_their_order():
    producers = Producers()
    for number in range(100):
        producers.add((P, 0, number), 1000 + number)
    told = [put[2] for put, _ in producers.live(2000)]
    assert told == list(range(36, 100))
    assert all(a < b for a, b in pairwise(told))


def pinned(family, life):
    return PINNED_PREFIX + family.to_bytes(5) + life.to_bytes(7)


def test_a_producer_of_a_mapping_is_told_however_long_it_was_idle_and_whoever_put_since():
    producers = Producers()
    producers.add((pinned(1, 1), 7, 0), 1000)
    producers.add((pinned(1, 1), 7, 1), 1001)
    for number in range(PRODUCERS_COUNT_MAX + 1):
        producers.add((b"%016d" % number, 0, 0), 2000 + number)
    told = list(producers.live(1001 + PRODUCER_IDLE_MAX_US))
    assert told[-1] == ((pinned(1, 1), 7, 1), 1001)
    assert len(told) == PRODUCERS_COUNT_MAX + 1


def test_of_the_lives_of_a_mapping_the_newest_is_told_and_shuts_out_the_others():
    producers = Producers()
    for life in range(5):
        assert producers.find((pinned(1, life), 9 - life, 0)) is None
        producers.add((pinned(1, life), 9 - life, 0), 1000 + life)
    producers.add((pinned(2, 3), 0, 0), 500)
    told = [((pinned(1, 4), 5, 0), 1004), ((pinned(2, 3), 0, 0), 500)]
    assert list(producers.live(2000)) == told
    with pytest.raises(ProducerFenced):
        producers.find((pinned(1, 3), 2**32 - 1, 0))
    assert producers.last(pinned(1, 3)) is None
    assert producers.last(pinned(1, 5)) is None
    assert producers.last(pinned(1, 4)) == LastPut(5, 0, 1004)


def test_what_a_mapping_put_before_its_newest_put_is_known_without_a_pointer():
    told = Producers()
    producers = Producers()
    for sequence in range(3):
        producers.add((pinned(1, 1), 4, sequence), 1000 + sequence)
    for put, each in producers.live(2000):
        told.add(put, each)
    assert told.find((pinned(1, 1), 4, 2)) == 1002
    with pytest.raises(RepeatedPut):
        told.find((pinned(1, 1), 4, 1))
    with pytest.raises(ProducerFenced):
        told.find((pinned(1, 1), 3, 0))


def test_mappings_are_bounded_too():
    producers = Producers()
    for number in range(PINNED_COUNT_MAX + 3):
        producers.add((pinned(number, 0), 0, 0), 1000 + number)
    told = [put[0] for put, _ in producers.live(2000)]
    assert told == [pinned(number, 0) for number in range(PINNED_COUNT_MAX + 2, 2, -1)]


def test_the_newest_producers_are_told_by_the_names_and_epochs_that_they_put_under():
    producers = Producers()
    producers.add((P, 3, 0), 1000)
    producers.add((pinned(1, 2**45), 7, 0), 2000)
    assert producers.newest(5) == [
        (pinned(1, 2**45), LastPut(7, 0, 2000)),
        (P, LastPut(3, 0, 1000)),
    ]
    assert len(producers.newest(1)) == 1
