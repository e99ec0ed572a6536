"""Real logs as jobs over three nodes, of which one is killed each few seconds: none is lost.

What comes twice comes so because a node was killed, and is named by the report of each node.
"""

import random
import threading
import time
from collections import Counter
from contextlib import ExitStack, suppress

import pytest

from poe.client import GroupWorker, Queue
from poe.errors import UnderCopies
from tests.cluster.nodes import PORT, nodes
from tests.waiting import wait_until

pytest.importorskip("zenoh")
pytestmark = [pytest.mark.cluster, pytest.mark.slow, pytest.mark.timeout(180)]

KILLS = 5
BATCH = 100
OPTIONS = {"group_options": {"session_s": 3, "retry_s": 0}, "request_timeout_s": 5}


class Effects:
    """What became of the jobs: how often each was worked on, and where its message stood."""

    def __init__(self):
        self.count: Counter[tuple[int, bytes]] = Counter()
        self.places: Counter[tuple[bytes, int]] = Counter()
        self._lock = threading.Lock()

    def work(self, job):
        number, _, line = job.value.partition(b" ")
        with self._lock:
            self.count[int(number), line] += 1
            self.places[job.topic, job.pointer] += 1

    def wait_for_more(self, count):
        """Wait until another batch is worked on, or the last one of so many messages."""
        enough = min(len(self.count) + BATCH, count)
        wait_until(lambda: len(self.count) >= enough, 30)


def url_from(cluster, first):
    """The addresses of all nodes, another one first."""
    hosts = [node.host.client_address for node in cluster]
    return "poe://" + ",".join(f"{host}:{PORT}" for host in hosts[first:] + hosts[:first])


def put_all(cluster, lines, pause_s):
    """Put all lines, batch by batch; each batch is on two disks when the next one is put."""
    with Queue(url_from(cluster, 0), "logs", group="counters", **OPTIONS) as queue:
        for begin in range(0, len(lines), BATCH):
            batch = [b"%d %s" % each for each in lines[begin : begin + BATCH]]
            # Where a node was killed meanwhile it is on one disk, and will be on two.
            with suppress(UnderCopies):
                queue.put(batch)
            time.sleep(pause_s)


def test_each_line_of_real_logs_is_worked_on_and_what_comes_twice_is_named(tmp_path, loghub):
    chance = random.Random(18)
    logs = sorted(loghub.glob("*.log"))
    lines = list(enumerate(line for log in logs for line in log.read_bytes().splitlines() if line))
    effects = Effects()
    with ExitStack() as stack:
        cluster = stack.enter_context(nodes(tmp_path, 3))
        cluster["a"].control("queue_create", topic="logs", copies=2, persist=True)
        putter = threading.Thread(target=put_all, args=(cluster, lines, 0.1))
        putter.start()
        stack.callback(putter.join)
        for first in range(3):
            url = url_from(cluster, first)
            worker = GroupWorker(url, "logs", effects.work, group="counters", **OPTIONS)
            stack.enter_context(worker)
        for _ in range(KILLS):
            node = chance.choice(list(cluster))
            node.kill()
            effects.wait_for_more(len(lines))
            node.start()
            cluster.wait_until_whole()
            effects.wait_for_more(len(lines))
        putter.join()
        wait_until(lambda: len(effects.count) == len(lines), 60)
        twice = {place for place, count in effects.places.items() if count > 1}
        wait_until(lambda: not any(unnamed(node, twice) for node in cluster), 15)
    assert sorted(effects.count) == sorted(lines)


def unnamed(node, places):
    """Return which of these messages the report of a node does not name."""
    rows = node.control("cluster_report", topic=b"logs")
    ranges = [(f"logs@{row['stream']}".encode(), row["after"], row["last"]) for row in rows]
    return {
        (unit, pointer)
        for unit, pointer in places
        if not any(unit == each and after < pointer <= last for each, after, last in ranges)
    }
