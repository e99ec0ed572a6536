"""Whenever its process ends, or the power, a spool has what it was given, in order."""

import random
from typing import NamedTuple

import pytest

from poe.client.spool.spool import Spool
from tests.client.spool_work import Work, is_subsequence, names_in, names_of
from tests.client.spools import batches, empty, fill, messages_in, take_all
from torture.layers.crash_state import after_kill, after_power_cut
from torture.layers.memory import MemoryFiles
from torture.layers.recorder import Event, Recorder

SHARES = (0, 0.5, 1)


class Moment(NamedTuple):
    """Between two actions of a producer."""

    event_count: int
    kept: list[bytes]
    tried: list[bytes]


def record(work: Work, begun_with: MemoryFiles) -> tuple[list[Event], list[Moment]]:
    recorder = Recorder(begun_with.copy("boot"))
    moments = [Moment(0, work.kept.copy(), work.tried.copy())]

    def note():
        moments.append(Moment(len(recorder.events), work.kept.copy(), work.tried.copy()))

    work.run(recorder.files, note)
    return recorder.events, moments


def around(moments, event_count):
    """Return the moments before and after the action that some event belongs to."""
    before = max(each for each in moments if each.event_count < event_count)
    after = min(each for each in moments if each.event_count >= event_count)
    return before, after


@pytest.mark.slow
def test_a_kill_at_any_operation_loses_nothing_and_repeats_nothing_before_the_oldest():
    events, moments = record(Work(), MemoryFiles())
    assert len(events) > 100
    for event_count in range(1, len(events) + 1):
        before, after = around(moments, event_count)
        must = [name for name in before.kept if name in after.kept]
        for share in SHARES:
            found = names_in(after_kill(events[:event_count], share))
            assert is_subsequence(must, found)
            assert is_subsequence(found, after.tried)
            # The mark may stand before what was delivered out of order, until that is taken again.
            oldest = after.tried.index(before.kept[0]) if before.kept else 0
            assert all(after.tried.index(name) >= oldest - 2 for name in found)


@pytest.mark.slow
def test_a_power_cut_at_any_operation_loses_nothing_that_a_synced_spool_has_taken():
    seed = random.randrange(2**32)
    print("seed", seed)
    rng = random.Random(seed)
    events, moments = record(Work(), MemoryFiles())
    for event_count in range(1, len(events) + 1):
        before, after = around(moments, event_count)
        must = [name for name in before.kept if name in after.kept]
        for _ in range(6):
            found = names_in(after_power_cut(events[:event_count], rng, has_torn_sectors=True))
            assert is_subsequence(must, found)
            assert is_subsequence(found, after.tried)


@pytest.mark.slow
@pytest.mark.parametrize("number", range(30))
def test_life_after_life_ends_in_a_power_cut_and_none_hides_what_the_next_one_takes(number):
    rng = random.Random(number)
    disk, work = MemoryFiles(), Work()
    for life in range(1, 6):
        events, moments = record(work, disk)
        event_count = rng.randrange(1, len(events) + 1)
        before, after = around(moments, event_count)
        cut = events[:event_count]
        disk = after_power_cut(cut, rng, has_torn_sectors=True, begun_with=disk)
        found = names_in(disk.copy("boot"))
        must = [name for name in before.kept if name in after.kept]
        assert is_subsequence(must, found)
        assert is_subsequence(found, after.tried)
        work = Work(found, first=life * 1000)


def test_a_mark_behind_a_log_that_was_cut_hides_nothing_that_comes_there_later():
    """Addresses are given anew where a power cut took the end, and the mark of then was kept."""
    files = MemoryFiles()
    spool = Spool(files)
    fill(spool, 2)
    cut = files.copy("another boot")
    fill(spool, 7)
    empty(spool)
    cut.inodes["spool.mark"] = files.inodes["spool.mark"]
    disk = cut.copy("another boot")
    recorder = Recorder(disk)
    spool = Spool(recorder.files, fsync=True)
    assert spool.is_empty
    fill(spool, 20)
    left = names_of(take_all(spool))
    assert names_in(disk.copy("boot")) == left
    synced = after_power_cut(recorder.events, _Never(), has_torn_sectors=False, begun_with=cut)
    assert names_in(synced) == left


class _Never(random.Random):
    """Nothing that was not synced reaches the disk."""

    def choice(self, some):
        return some[0]


def test_a_log_that_is_gone_with_a_mark_that_is_not_begins_anew():
    files = MemoryFiles()
    with Spool(files) as spool:
        fill(spool, 9)
        empty(spool)
    disk = files.copy("another boot")
    disk.inodes = {"spool.mark": disk.inodes["spool.mark"]}
    with Spool(disk) as spool:
        fill(spool, 2)
        assert empty(spool) == messages_in(batches(2))
