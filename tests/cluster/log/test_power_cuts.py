"""All nodes lose their power at once, each with a disk of its own, engines and copies on it.

More than CI has time for: `python -m tests.cluster.log.test_power_cuts 2 20`.
"""

import os
import random
import signal
import sys
import tempfile
import time
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

from tests.cluster.log.log_witness import LogWitness
from tests.cluster.log.test_log_faults import are_same, make_topic
from tests.cluster.network import network
from tests.cluster.nodes import Nodes
from tests.waiting import wait_until
from torture.disk import powered_disk
from torture.scenario import missing

_MISSING = missing("loop")
_DISK_MIB = 512

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.timeout(300),
    pytest.mark.skipif(_MISSING is not None, reason=str(_MISSING)),
]


def children(pid):
    """The processes that a process has started."""
    found: list[int] = []
    for task in Path(f"/proc/{pid}/task").iterdir():
        with suppress(FileNotFoundError):  # a thread that has just ended
            found += map(int, (task / "children").read_text().split())
    return found


def run_with(made, disks):
    """Have each node live on a disk of its own, in the boot that this is in."""
    for node, disk in zip(made, disks, strict=True):
        node.folder = disk.folder / "node"
        node.prefix = ["-m", "torture.server"]
        node.variables["TORTURE_BOOT_ID"] = disk.boot_id


def cut_all(made, disks, dice):
    """Take the power of all at once: nothing runs on, and what was not synced is gone."""
    for node in made:
        # Between two system calls: see `torture/faults/power.py`.
        for pid in (node.process.pid, *children(node.process.pid)):
            os.kill(pid, signal.SIGSTOP)
    for disk in disks:
        disk.cut(has_flushed_log=dice.random() < 0.3)
    for node in made:
        engines = children(node.process.pid)
        node.kill()
        wait_until(lambda: not any(map(runs, engines)), 10)  # noqa: B023 - at once
    for node, disk in zip(made, disks, strict=True):
        disk.restore()
        node.variables["TORTURE_BOOT_ID"] = disk.boot_id


def runs(pid):
    try:
        return ") Z" not in Path(f"/proc/{pid}/stat").read_text()
    except FileNotFoundError:
        return False


def check_cuts(folder, seed, cuts):
    """Cut the power so often under load; all that was acknowledged is there at every node."""
    dice = random.Random(seed)
    with ExitStack() as stack:
        net = stack.enter_context(network(3))
        disks = [
            stack.enter_context(powered_disk(folder / f"disk-{name}", _DISK_MIB)) for name in "abc"
        ]
        options = ["--log-engine", "nats", "--put-timeout", "5", "--min-free", "0"]
        made = Nodes.joined(net, folder, options)
        run_with(made, disks)
        with made.running():
            make_topic(made)
            for cut in range(cuts):
                with LogWitness(made, first=3 * cut) as witness:
                    witness.wait_more(20, 60)
                    time.sleep(dice.uniform(0, 0.5))
                    cut_all(made, disks, dice)
                for node in made:
                    node.start()
                made.wait_until_whole()
                witness.judge()
                wait_until(lambda: are_same(made["b"]), 60)


def test_all_nodes_lose_their_power_at_once_and_nothing_that_was_acknowledged(
    nats_program, tmp_path
):
    del nats_program
    check_cuts(tmp_path, 1, 2)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(prefix="poe-log-cuts-") as made_folder:
        check_cuts(Path(made_folder), seed=int(sys.argv[1]), cuts=int(sys.argv[2]))
    print("nothing that was acknowledged is missing")
