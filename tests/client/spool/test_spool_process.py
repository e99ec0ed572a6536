"""Producers that are killed, of a server that is killed, too: what was spooled arrives once."""

import random
import signal
import subprocess
import sys
from itertools import groupby

import pytest

from poe.client import Producer
from poe.testing.broker import broker
from poe.testing.waiting import wait_until
from tests.broker.server_process import ServerProcess
from tests.python_process import environment

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]

OPTIONS = {"batch_count": 100, "reconnect_max_s": 0.2, "linger_s": 0.002}

# Puts numbered messages, and tells how many of them are out of its memory: delivered or on disk.
LIFE = """
import sys
from poe.client import Producer
from poe.testing.broker import broker
from poe.testing.waiting import wait_until
url, folder, life, options = *sys.argv[1:4], eval(sys.argv[4])
with Producer(url, spool_dir=folder, **options) as producer:
    number = 0
    while True:
        for count in (1, 1, 30, 1, 250):
            messages = [b"%s:%d" % (life.encode(), each) for each in range(number, number + count)]
            producer.produce_async("t", messages)
            number += count
        wait_until(lambda: producer.statistics()["messages_buffered"] == 0, 60)
        print(number, flush=True)
"""


class Life:
    """A process with a producer; the end of the `with` block kills it."""

    def __init__(self, url, folder, name):
        arguments = (url, str(folder), name, repr(OPTIONS))
        self.process = subprocess.Popen(
            [sys.executable, "-c", LIFE, *arguments],
            env=environment(),
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout is not None
        self.output = self.process.stdout
        self.told = 0
        """Messages that it has told of, in the end all of them."""

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.send_signal(signal.SIGKILL)
        self.told = max([self.told, *map(int, self.output.read().splitlines())])
        self.process.wait()
        self.output.close()

    def go_on(self):
        """Wait until it tells of more."""
        line = self.output.readline()
        assert line, "the producer has ended"
        self.told = int(line)


def stored(server):
    with server.connect() as client:
        found, pointer = [], 0
        while records := client.read(b"t", pointer, 10_000):
            pointer = records[-1][0]
            found += [message for _, message in records]
        return found


def deliver_the_rest(url, folder):
    """Start a producer that has nothing to do but what is in the spool."""
    with Producer(url, spool_dir=folder, **OPTIONS) as producer:
        wait_until(lambda: producer.statistics()["messages_spooled"] == 0, 60)
        assert producer.close() == []


def check(found, told):
    """Each life's messages are there without a gap, as many as it told of at least, in order."""
    names = [message.split(b":")[0].decode() for message in found]
    assert [name for name, _ in groupby(names)] == [name for name in told if name in set(names)]
    for name, least in told.items():
        numbers = [int(m.split(b":")[1]) for m in found if m.startswith(b"%s:" % name.encode())]
        assert numbers == list(range(len(numbers)))
        assert len(numbers) >= least


def test_a_producer_killed_in_a_downtime_has_its_messages_delivered_by_the_next_one(tmp_path):
    folder = tmp_path / "spool"
    told: dict[str, int] = {}
    server = ServerProcess(tmp_path / "poe")
    port, url = server.port, f"poe://127.0.0.1:{server.port}"
    with Life(url, folder, "a") as life:
        life.go_on()
        server.kill()  # with something under way
        for _ in range(5):
            life.go_on()
    told["a"] = life.told
    with Life(url, folder, "b") as life:
        life.go_on()
    told["b"] = life.told
    with ServerProcess(tmp_path / "poe", port=port) as server:
        deliver_the_rest(url, folder)
        found = stored(server)
    check(found, told)
    assert told["a"] > 1000


def test_producers_and_servers_that_are_killed_at_any_time_leave_each_message_once_and_in_order(
    tmp_path,
):
    seed = random.randrange(1 << 32)
    print("seed", seed)
    dice = random.Random(seed)
    folder = tmp_path / "spool"
    told: dict[str, int] = {}
    server = ServerProcess(tmp_path / "poe")
    port, url = server.port, f"poe://127.0.0.1:{server.port}"
    is_up = True
    for name in "abc":
        with Life(url, folder, name) as life:
            for _ in range(dice.randint(1, 4)):
                for _ in range(dice.randint(0, 8)):
                    life.go_on()
                if is_up:
                    server.kill()
                else:
                    server = ServerProcess(tmp_path / "poe", port=port)
                is_up = not is_up
        told[name] = life.told
    server.kill()
    with ServerProcess(tmp_path / "poe", port=port) as server:
        deliver_the_rest(url, folder)
        found = stored(server)
    check(found, told)


def test_what_was_stored_without_an_answer_is_not_stored_again_by_the_next_producer(tmp_path):
    told: dict[str, int] = {}
    with broker() as server:
        for name in "abc":
            with Life(server.url, tmp_path / "spool", name) as life:
                life.go_on()
                server.lose_replies(5)
                life.go_on()
                life.go_on()
                server.lose_replies(5)
                server.stop()
                life.go_on()
                server.start()
                life.go_on()
            told[name] = life.told
        server.lose_replies(5)
        deliver_the_rest(server.url, tmp_path / "spool")
        check([each.value for each in server.collected("t")], told)
