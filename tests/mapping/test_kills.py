"""Mappings in processes that are killed, stopped and continued, at a node that is killed, too."""

import contextlib
import json
import random
import signal
import socket as tcp
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import pytest

from poe import protocol
from poe.client import Consumer
from poe.errors import PoeError, UnknownGroup
from poe.protocol import PutId
from tests.python_process import ROOT, environment
from torture.server import Server

MEMBERS_COUNT = 2
STOPPED_S = 2.0
"""Longer than a session: who is stopped for so long is a zombie when it goes on."""


class World:
    """A node, two processes with the mapping, and a producer; `hurt` does something to one.

    With a disk whose power can be cut the node has its folder there.
    """

    def __init__(self, folder, seed, disk=None, **node_options):
        self.seed = seed
        self.rng = random.Random(seed)
        self.folder = folder
        self.disk = disk
        self.node_options = {"count_limit": 2000, **node_options}
        with tcp.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        self.log = (folder / "mapping.log").open("ab")
        self.node = self.start_node()
        with self.connect() as socket:
            socket.create_topic("numbers", partitions=2)
            socket.create_topic("audit", partitions=3, envelope=True)
            socket.create_topic("third", partitions=2, envelope=True)
        self.members = [self.start_member() for _ in range(MEMBERS_COUNT)]
        self.count = 0
        self.faults: Counter[str] = Counter()

    def start_node(self):
        if self.disk is None:
            return Server(self.folder / "data", port=self.port, **self.node_options)
        made = {"boot": self.disk.boot, "log": self.folder / "node.log", "min_free": 0}
        return Server(self.disk.folder / "data", port=self.port, **made, **self.node_options)

    def connect(self):
        return protocol.socket("127.0.0.1", self.port, timeout_s=20)

    def start_member(self):
        url = f"poe://127.0.0.1:{self.port}"
        command = [sys.executable, "-m", "tests.mapping.mapping_process", url]
        batch = str(self.rng.choice((7, 50, 1000)))
        quiet = {"stdout": subprocess.DEVNULL, "stderr": self.log}
        return subprocess.Popen([*command, batch, "1"], env=environment(), cwd=ROOT, **quiet)

    def put(self, count):
        """Put more numbers onto both partitions, each once."""
        for partition in range(2):
            kinds = ("even", "third", "none")
            messages = [
                json.dumps({"number": number, "kind": kinds[number % 3]}).encode()
                for number in range(self.count, self.count + count)
                if number % 2 == partition
            ]
            put_id = PutId(b"p" * 16, self.count, 0)
            while True:
                with contextlib.suppress(PoeError), self.connect() as socket:
                    socket.write(f"numbers-{partition}", messages, put_id)
                    break
                time.sleep(0.05)
        self.count += count

    def hurt(self):
        """Do something to somebody."""
        kind = self.rng.choice(("kill", "kill", "stop", "node"))
        self.faults[kind] += 1
        place = self.rng.randrange(MEMBERS_COUNT)
        member = self.members[place]
        if kind == "node":
            self.node.kill()
            self.node = self.start_node()
        elif kind == "kill":
            member.kill()
            member.wait()
            self.members[place] = self.start_member()
        else:
            member.send_signal(signal.SIGSTOP)
            self.put(500)
            time.sleep(STOPPED_S)
            member.send_signal(signal.SIGCONT)

    def cut_power(self):
        """Have the node lose what was not synced, and begin in another boot."""
        assert self.disk is not None
        self.faults["power"] += 1
        # Between two system calls: see `torture/faults/power.py`.
        self.node.freeze()
        self.disk.cut(has_flushed_log=self.rng.random() < 0.3)
        self.node.kill()
        self.disk.restore()
        self.node = self.start_node()

    def wait_until_done(self, timeout_s=60):
        deadline_s = time.monotonic() + timeout_s
        lag = None
        while time.monotonic() < deadline_s:
            with contextlib.suppress(PoeError), self.connect() as socket:
                lag = socket.control("group_lag", group="mapping.sort")
                if all(each["messages"] == 0 for each in lag.values()):
                    return lag
            time.sleep(0.2)
        return pytest.fail(f"it is not done: {lag}; see {self.log.name}")

    def stored(self, topic):
        with Consumer(f"poe://127.0.0.1:{self.port}", topic) as consumer:
            return Counter(json.loads(each.value or b"")["number"] for each in consumer)

    def check(self):
        """Wait for the mapping to be done; each message is where it belongs, once."""
        seed = self.seed
        lag = self.wait_until_done()
        for topic, kind in (("even", 0), ("audit", 0), ("third", 1), ("sort.dead", 2)):
            expected = Counter(range(kind, self.count, 3))
            stored = self.stored(topic)
            for word, wrong in (("lost", expected - stored), ("twice", stored - expected)):
                told = f"{topic}: {word} with seed {seed}, {self.faults}, where the lag was {lag}"
                assert not wrong, f"{told}: {sorted(wrong.elements())}"

    def close(self):
        for member in self.members:
            member.send_signal(signal.SIGCONT)
            member.terminate()
        late = []
        for member in self.members:
            try:
                member.wait(30)
            except subprocess.TimeoutExpired:
                member.kill()
                member.wait()
                late.append(member.pid)
        self.node.kill()
        self.log.close()
        assert not late, f"processes {late} do not end; see {self.log.name}"


@contextlib.contextmanager
def made(folder, seed):
    """A world, which is closed."""
    world = World(folder, seed)
    try:
        yield world
    finally:
        world.close()


def check_kills(folder, seed, faults):
    with made(folder, seed) as world:
        world.put(2000)
        for _ in range(faults):
            world.put(600)
            time.sleep(world.rng.uniform(0.05, 0.6))
            world.hurt()
        world.put(300)
        world.check()
    return world.faults


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_nothing_is_lost_or_twice_when_processes_are_killed(tmp_path):
    check_kills(tmp_path, 1, 8)


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_nothing_is_lost_where_a_pause_is_taken_back_before_all_have_heard_of_it(tmp_path):
    with made(tmp_path, 1) as world:
        for _ in range(20):
            world.put(600)
            for _ in range(3):
                time.sleep(world.rng.uniform(0, 0.1))
                with world.connect() as socket, contextlib.suppress(UnknownGroup):  # yet
                    socket.control("group_pause", group="mapping.sort")
                    time.sleep(world.rng.choice((0, 0.005, 0.02)))
                    socket.control("group_resume", group="mapping.sort")
        world.check()


if __name__ == "__main__":
    # More than CI has time for: `python -m tests.mapping.test_kills 2 200`.
    with tempfile.TemporaryDirectory(prefix="poe-kills-") as made_folder:
        print(check_kills(Path(made_folder), int(sys.argv[1]), int(sys.argv[2])))
