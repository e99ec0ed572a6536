"""Whatever a kill or a power cut leaves, a producer that puts again has each message there once."""

from random import Random

import pytest

from tests.storage.sequenced import History, open_store, replay, survivors
from torture.layers.crash_state import after_kill, after_power_cut

SEEDS = [pytest.param(seed, marks=[] if seed < 2 else [pytest.mark.slow]) for seed in range(12)]


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("ack", ["flushed", "fsync"])
def test_killed_at_any_operation_each_message_is_there_once_after_a_replay(ack, seed):
    history = History(ack, seed).play(25)
    for number in range(len(history.events) + 1):
        for share in (0.0, 0.5, 1.0):
            acked = history.acked_before(number)
            store = open_store(after_kill(history.events[:number], share), ack)
            newest = survivors(store)
            assert all(sequence <= newest[producer] for producer, sequence in acked)
            replay(store, history, acked)


@pytest.mark.parametrize("seed", SEEDS)
def test_after_a_power_cut_at_any_operation_nothing_synced_is_lost_and_nothing_is_there_twice(seed):
    history = History("fsync", seed).play(25)
    for number in range(len(history.events) + 1):
        for attempt in range(3):
            rng = Random(f"{seed} {number} {attempt}")
            acked = history.acked_before(number)
            left = after_power_cut(history.events[:number], rng, has_torn_sectors=True)
            store = open_store(left, "fsync")
            newest = survivors(store)
            assert all(sequence <= newest[producer] for producer, sequence in acked)
            replay(store, history, acked)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("ack", ["flushed", "memory"])
def test_without_syncs_a_power_cut_leaves_a_beginning_of_what_each_producer_put(ack, seed):
    history = History(ack, seed).play(25)
    for number in range(len(history.events) + 1):
        for attempt in range(3):
            rng = Random(f"{seed} {number} {attempt}")
            left = after_power_cut(history.events[:number], rng, has_torn_sectors=True)
            store = open_store(left, ack)
            survivors(store)
            replay(store, history, {})
