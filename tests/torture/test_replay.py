"""A seed replays: what a simulated history does depends on that, and on nothing of the process."""

import os

import pytest

from poe.storage.store import store
from torture.scenario import play
from torture.table import SCENARIOS


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "seed", "trials"), [("sim", 13001, [653]), ("groups-node", 3, range(4))]
)
def test_a_history_is_the_same_whatever_number_its_process_has(name, seed, trials, monkeypatch):
    """Of what lock files hold, a power cut may leave so many bytes: more digits were other cuts."""
    monkeypatch.setattr(store, "FEW_TOPICS", 0)
    told = []
    for pid in (7, 54321):
        monkeypatch.setattr(os, "getpid", lambda pid=pid: pid)
        runs = [play(SCENARIOS[name], seed=seed, only=trial) for trial in trials]
        told.append([(run.counts, run.failures) for run in runs])
    assert told[0] == told[1]
