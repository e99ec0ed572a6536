"""Whatever a kill or a power cut leaves, a producer that puts again has each message there once."""

from random import Random

import pytest

from tests.storage.sequenced import History, open_store, replay, survivors
from torture.layers.crash_state import after_kill, after_power_cut
from torture.layers.recorder import Recorder

SEED = 0
"""Others, and whole stores, are tried by the scenario `states` of torture."""
ACKS = ["memory", "flushed", "fsync"]


def killed(history, number, share=1.0):
    """The disk when the process dies in its operation of this number."""
    before = history.begun_with
    return after_kill(history.events[:number], share, before.copy(before.boot_id))


def cut(history, number, rng):
    """A disk that a power cut behind so many operations may leave."""
    return power_cut(history.events[:number], rng, history.begun_with)


def power_cut(events, rng, begun_with):
    left = after_power_cut(events, rng, has_torn_sectors=True, begun_with=begun_with)
    left.boot_id = begun_with.boot_id + "'"
    return left


def check(history, left, acked):
    """Expect what was acknowledged to be there, all in order, and the rest after a replay, once."""
    store = open_store(left, history.ack)
    newest = survivors(store)
    assert all(sequence <= newest[producer] for producer, sequence in acked)
    replay(store, history, acked)


@pytest.mark.parametrize("ack", ["flushed", "fsync"])
def test_killed_at_any_operation_each_message_is_there_once_after_a_replay(ack):
    history = History(ack, SEED).play(25)
    for number in range(len(history.events) + 1):
        for share in (0.0, 0.5, 1.0):
            check(history, killed(history, number, share), history.acked_before(number))


def test_after_a_power_cut_at_any_operation_what_was_synced_and_a_replay_are_there_once():
    history = History("fsync", SEED).play(25)
    for number in range(len(history.events) + 1):
        for attempt in range(3):
            left = cut(history, number, Random(f"{SEED} {number} {attempt}"))
            check(history, left, history.acked_before(number))


@pytest.mark.parametrize("ack", ["flushed", "memory"])
def test_without_syncs_a_power_cut_leaves_a_beginning_of_what_each_producer_put(ack):
    history = History(ack, SEED).play(25)
    for number in range(len(history.events) + 1):
        for attempt in range(3):
            check(history, cut(history, number, Random(f"{SEED} {number} {attempt}")), {})


@pytest.mark.parametrize("ack", ACKS)
def test_a_process_that_goes_on_behind_a_crash_may_crash_as_well(ack):
    rng = Random(f"{ack} {SEED}")
    history = History(ack, SEED).play(20)
    for life in range(4):
        number = rng.randint(0, len(history.events))
        left = killed(history, number) if rng.random() < 0.5 else cut(history, number, rng)
        left.boot_id += "'" * rng.choice([0, 1])  # the machine may start anew by itself
        history = History(ack, f"{SEED} {life}", left).play(15)
        for number in range(0, len(history.events) + 1, 3):
            acked = history.acked_before(number)
            found = history.acked_before(min(number, history.found_count))
            check(history, killed(history, number), found if ack == "memory" else acked)
            check(history, cut(history, number, rng), acked if ack == "fsync" else found)


def test_dying_anywhere_in_recovery_changes_nothing_in_the_result():
    rng = Random(SEED)
    history = History("fsync", SEED).play(25)
    for number in range(0, len(history.events) + 1, 9):
        acked = history.acked_before(number)
        left = killed(history, number) if rng.random() < 0.5 else cut(history, number, rng)
        recorder = Recorder(left.copy(left.boot_id))
        survivors(open_store(recorder.files, "fsync"))
        for died in range(len(recorder.events) + 1):
            events = recorder.events[:died]
            check(history, after_kill(events, 1.0, left.copy(left.boot_id)), acked)
            check(history, power_cut(events, rng, left.copy(left.boot_id)), acked)
