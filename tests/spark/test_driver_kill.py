"""Drivers are killed in their commits, again and again: each message is there once.

A commit that ends at any of its calls is tried in `test_staging.py`, without Spark.
"""

import random
import signal
import subprocess
import sys

import pytest

from tests.broker.nodes import address, stored
from tests.python_process import environment

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(900)]

KILLS_COUNT = 2
CALLS_MAX = 14
"""A commit onto two topics makes about so many calls."""


class Chain:
    """One query after another over the same files and checkpoint, all but the last one killed."""

    def __init__(self, folder, seed):
        self.folder = folder
        self.dice = random.Random(seed)
        self.lines = [b"line %d" % number for number in range(200 * KILLS_COUNT)]
        (folder / "in").mkdir(parents=True)
        files_count = KILLS_COUNT + 1  # each micro-batch takes one, and each driver is to find one
        for number in range(files_count):
            lines = self.lines[number::files_count]
            (folder / "in" / str(number)).write_bytes(b"\n".join(lines))

    def run(self, port):
        for _ in range(KILLS_COUNT):
            kill = self.dice.choice((0, 0, 1)), self.dice.randrange(CALLS_MAX)
            assert self.drive(port, self.dice.choice((1, 2, 3)), *kill) == -signal.SIGKILL
        assert self.drive(port, 2) == 0

    def drive(self, port, *arguments):
        """Run a driver to its end, and tell its exit code."""
        command = [sys.executable, "-m", "tests.spark.mortal_driver", port, self.folder, *arguments]
        return subprocess.run(
            [str(each) for each in command],
            env=environment(),
            start_new_session=True,
            check=False,
        ).returncode


def test_each_message_is_there_once_when_the_driver_is_killed_in_its_commits(java, node, tmp_path):
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    chain = Chain(tmp_path / "chain", seed)
    chain.run(address(node)[1])
    for topic, rest in ((b"even", 0), (b"odd", 1)):
        expected = [line for line in chain.lines if len(line) % 2 == rest]
        assert sorted(stored(node, topic)) == sorted(expected)
