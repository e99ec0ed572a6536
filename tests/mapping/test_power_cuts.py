"""The power of a node fails while mappings run: on a file system whose power can really be cut.

With `ack="fsync"` nothing is lost and nothing is there twice. At the defaults topics may go back by
what was not synced, each for itself; what was done before the last sync stays as it was.
"""

import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import pytest

from tests.mapping.test_kills import World
from torture.disk import powered_disk
from torture.scenario import missing

TARGETS = {"even": 0, "audit": 0, "third": 1}
"""Topics that the rules fill, and which of each three numbers go there."""
SYNCED_S = 2.5
"""Longer than `sync_interval`, which is a second by default."""
_MISSING = missing("loop")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(300),
    pytest.mark.skipif(_MISSING is not None, reason=str(_MISSING)),
]


def check_cuts(folder, seed, cuts):
    """Cut the power so often, and kill and stop in between, where what counts is synced."""
    with powered_disk(folder, 256) as disk:
        world = World(folder, seed, disk, ack="fsync")
        try:
            for _ in range(cuts):
                world.put(600)
                time.sleep(world.rng.uniform(0.05, 0.6))
                if world.rng.random() < 0.3:
                    world.hurt()
                world.cut_power()
            world.put(300)
            # Batches of seven, each of which syncs several times: 50 cuts leave thousands behind.
            world.wait_until_done(60 + 10 * cuts)
            for topic, kind in TARGETS.items():
                stored = world.stored(topic)
                expected = Counter(range(kind, world.count, 3))
                told = f"{topic} with seed {seed}, {world.faults}"
                assert not expected - stored, f"{told}: lost"
                assert not stored - expected, f"{told}: twice"
        finally:
            world.close()
    return world.faults


def check_default(folder, seed, cuts):
    """Cut the power at the defaults: all that was done and synced before is as it was."""
    with powered_disk(folder, 256) as disk:
        world = World(folder, seed, disk)
        try:
            for _ in range(cuts):
                world.put(600)
                world.wait_until_done()
                time.sleep(SYNCED_S)
                synced_count = world.count
                before = {topic: world.stored(topic) for topic in TARGETS}
                world.put(1200)
                time.sleep(world.rng.uniform(0.05, 0.6))
                world.cut_power()
                world.wait_until_done()
                for topic, kind in TARGETS.items():
                    stored = world.stored(topic)
                    old = Counter({each: n for each, n in stored.items() if each < synced_count})
                    assert old == before[topic], f"{topic} with seed {seed}, {world.faults}"
                    assert all(each % 3 == kind and each < world.count for each in stored)
        finally:
            world.close()
    return world.faults


def test_nothing_is_lost_or_twice_when_the_power_fails_and_all_is_synced(tmp_path):
    check_cuts(tmp_path, 1, 2)


def test_what_was_synced_stays_as_it_was_when_the_power_fails_at_the_defaults(tmp_path):
    check_default(tmp_path, 1, 1)


if __name__ == "__main__":
    # More than CI has time for: `python -m tests.mapping.test_power_cuts 2 50`.
    for check in (check_cuts, check_default):
        with tempfile.TemporaryDirectory(prefix="poe-cuts-") as made:
            print(check.__name__, check(Path(made), int(sys.argv[1]), int(sys.argv[2])))
