"""A writer that is killed while another process reads along loses nothing that it had flushed."""

import random
import signal
import subprocess
import sys

import pytest

from poe.storage.slab_log import Reader, Writer
from tests.python_process import environment
from tests.storage.slab_log.logs import read_all

KILLS = 8

# Numbers messages from the end of the log on, and tells after each flush what the next one is.
WRITER = """
import sys
from poe.storage.slab_log import Reader, Writer
path, batch_max = sys.argv[1], int(sys.argv[2])
with Writer(path, 20_000) as writer:
    number = sum(1 for _ in Reader(path))
    while True:
        for count in (1, batch_max, 3):
            for number in range(number, number + count):
                writer.write(b"message %d" % number + b"." * (number % 50))
            number += 1
            writer.flush()
            print(number, flush=True)
"""

# Reads along, checks that nothing is missing, doubled or changed, and tells how far it is.
READER = """
import sys
from poe.storage.slab_log import Reader
path = sys.argv[1]
reader = Reader(path)
number = 0
while True:
    seen = number
    for message in reader:
        assert message == b"message %d" % number + b"." * (number % 50), (number, message)
        number += 1
    if number != seen:
        print(number, flush=True)
"""


def start(code, *arguments):
    return subprocess.Popen(
        [sys.executable, "-c", code, *map(str, arguments)],
        env=environment(),
        stdout=subprocess.PIPE,
        text=True,
    )


def kill(process):
    """Kill a process, and return the last number that it told."""
    process.send_signal(signal.SIGKILL)
    lines = process.stdout.read().splitlines()
    process.wait()
    process.stdout.close()
    return int(lines[-1]) if lines else 0


@pytest.mark.slow
def test_kills_of_a_writer_lose_nothing_and_its_reader_resumes_exactly(tmp_path):
    seed = random.randrange(2**32)
    print("seed", seed)
    rng = random.Random(seed)
    Writer(tmp_path).close()
    reader = start(READER, tmp_path)
    try:
        for _ in range(KILLS):
            writer = start(WRITER, tmp_path, rng.choice([5, 200]))
            try:
                for _ in range(rng.randrange(1, 60)):
                    flushed = int(writer.stdout.readline())
            finally:
                flushed_last = kill(writer)
            assert len(read_all(tmp_path)) >= max(flushed, flushed_last)
        # Takes in whole records that were written, but not yet covered when the last writer died.
        Writer(tmp_path).close()
        expected = len(read_all(tmp_path))
        told = 0
        while told < expected:
            told = int(reader.stdout.readline())
        assert told == expected
    finally:
        kill(reader)
    numbers = [int(each.split(b".")[0].split()[1]) for each in Reader(tmp_path)]
    assert numbers == list(range(expected))
