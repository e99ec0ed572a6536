"""Drivers are killed in their commits, again and again: each message is there once."""

import random
import signal
import subprocess
import sys

import pytest

from tests.broker.nodes import address, connect, stored
from tests.python_process import environment

pytestmark = [
    pytest.mark.spark,
    pytest.mark.slow,
    pytest.mark.timeout(300),
]

KILLS_COUNT = 20
CALLS_MAX = 14
"""A commit onto two topics makes about so many calls."""


def drive(node, checkpoint, *arguments):
    """Run a driver to its end, and tell its exit code."""
    command = [sys.executable, "-m", "tests.spark.mortal_driver", address(node)[1], checkpoint]
    return subprocess.run(
        [str(each) for each in (*command, *arguments)],
        env=environment(),
        start_new_session=True,
        check=False,
    ).returncode


def test_each_message_is_there_once_when_the_driver_is_killed_in_its_commits(java, node, tmp_path):
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    dice = random.Random(seed)
    messages = [b"message %d" % number for number in range(300 * KILLS_COUNT)]
    with connect(node) as client:
        client.write(b"in", messages)
    checkpoint = tmp_path / "checkpoint"
    for _ in range(KILLS_COUNT):
        partitions = dice.choice((1, 2, 3))
        code = drive(node, checkpoint, partitions, dice.choice((0, 1)), dice.randrange(CALLS_MAX))
        assert code == -signal.SIGKILL
    assert drive(node, checkpoint, 2) == 0
    for topic, rest in ((b"even", 0), (b"odd", 1)):
        expected = [message for message in messages if len(message) % 2 == rest]
        assert sorted(stored(node, topic)) == sorted(expected)
