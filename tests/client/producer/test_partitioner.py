"""Each strategy does what its name says, also where the numbers of partitions have gaps."""

from collections import Counter
from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from poe.client.producer.murmur2 import murmur2
from poe.client.producer.partitioner import partitioner
from poe.client.producer.payload import Message
from poe.client.producer.producer_options import TopicOptions
from poe.errors import PickerFailed

PARTITIONS = (0, 1, 3)
KEYED = st.lists(
    st.builds(Message, st.just(b"v"), st.none() | st.binary(max_size=5)), min_size=1, max_size=60
)


def chooser(strategy="random", **options):
    return partitioner(b"orders", TopicOptions(strategy=strategy, **options), Random(7))


def picks(chosen, count, *arguments):
    return [chosen.pick(None, PARTITIONS, *arguments) for _ in range(count)]


def test_random_takes_any_partition_each_time():
    counts = Counter(picks(chooser("random"), 3000))
    assert set(counts) == set(PARTITIONS)
    assert min(counts.values()) > 900


def test_random_can_be_repeated():
    assert picks(chooser("random"), 50) == picks(chooser("random"), 50)


def test_strict_round_robin_takes_the_next_partition_for_each_call_however_large():
    chosen = chooser("strict_round_robin")
    assert picks(chosen, 2, 500) + picks(chosen, 5, 1) == [0, 1, 3, 0, 1, 3, 0]


def test_strict_round_robin_goes_on_when_there_are_more_partitions():
    chosen = chooser("strict_round_robin")
    assert picks(chosen, 3) == [0, 1, 3]
    assert [chosen.pick(None, (0, 1, 3, 4)) for _ in range(3)] == [4, 0, 1]


def test_sticky_round_robin_changes_after_so_many_messages():
    chosen = chooser("sticky_round_robin", sticky_count=4)
    assert picks(chosen, 9) == [0, 0, 0, 0, 1, 1, 1, 1, 3]


def test_sticky_round_robin_counts_messages_and_tears_no_call():
    chosen = chooser("sticky_round_robin", sticky_count=4)
    assert picks(chosen, 3, 3) + picks(chosen, 3, 1) == [0, 0, 1, 1, 3, 3]


@pytest.mark.parametrize("strategy", ["sticky_round_robin", "strict_round_robin", "custom"])
def test_a_look_takes_no_turn(strategy):
    chosen, unseen = chooser(strategy, sticky_count=2), chooser(strategy, sticky_count=2)
    for _ in range(9):
        looks = picks(chosen, 2, 0)
        assert looks == [chosen.pick(None, PARTITIONS)] * 2 == [unseen.pick(None, PARTITIONS)] * 2


@pytest.mark.parametrize("strategy", ["random", "sticky_round_robin", "strict_round_robin"])
def test_only_custom_looks_at_keys(strategy):
    chosen, unkeyed = chooser(strategy), chooser(strategy)
    assert [chosen.pick(b"key", PARTITIONS) for _ in range(9)] == picks(unkeyed, 9)


@given(key=st.binary(), count=st.integers(1, 50))
def test_custom_chooses_by_java_s_hash(key, count):
    partitions = range(10, 10 + count)
    expected = 10 + (murmur2(key) & 0x7FFFFFFF) % count
    assert chooser("custom").pick(key, partitions) == expected


def test_custom_without_a_key_is_sticky():
    chosen = chooser("custom", sticky_count=2)
    assert picks(chosen, 5) == [0, 0, 1, 1, 3]


@pytest.mark.slow
@pytest.mark.parametrize(
    "strategy", ["random", "sticky_round_robin", "strict_round_robin", "custom"]
)
@given(messages=KEYED)
def test_a_keyed_payload_goes_as_its_messages_one_by_one(strategy, messages):
    slowly = chooser(strategy, sticky_count=4)
    expected = [slowly.pick(message.key, PARTITIONS) for message in messages]
    split = chooser(strategy, sticky_count=4).split(messages, PARTITIONS)
    assert split.failed == {}
    assert all(places == sorted(places) for places in split.places.values())
    found = {place: partition for partition, places in split.places.items() for place in places}
    assert [found[place] for place in range(len(messages))] == expected


def test_a_picker_decides_whatever_the_strategy():
    seen = []

    def picker(topic, key, partitions):
        seen.append((topic, key, partitions))
        return partitions[-1]

    chosen = chooser("strict_round_robin", picker=picker)
    assert [chosen.pick(key, PARTITIONS) for key in (b"k", None)] == [3, 3]
    assert seen == [(b"orders", b"k", PARTITIONS), (b"orders", None, PARTITIONS)]


@pytest.mark.parametrize(
    "picked", [2, -1, None, "0", True, 1.0, np.int64(1), np.arange(3)], ids=repr
)
def test_a_picker_that_names_no_partition_fails_its_message(picked):
    with pytest.raises(PickerFailed, match="returned") as caught:
        chooser(picker=lambda *_: picked).pick(b"k", PARTITIONS)
    assert caught.value.topic == b"orders"


def test_a_picker_that_fails_for_one_message_leaves_the_others_alone():
    def picker(topic, key, partitions):
        return partitions[int(key)]

    messages = [Message(b"v", key) for key in (b"0", b"x", b"2", b"0", b"7")]
    split = chooser(picker=picker).split(messages, PARTITIONS)
    assert split.places == {0: [0, 3], 3: [2]}
    assert {place: str(error) for place, error in split.failed.items()} == {
        1: "picker of topic 'orders' raised ValueError(\"invalid literal for int() with base 10: "
        "b'x'\"); return one of the partitions it is given",
        4: "picker of topic 'orders' raised IndexError('tuple index out of range'); return one of "
        "the partitions it is given",
    }
