"""Three nodes share a queue; one is killed while jobs are done, and none of them is lost."""

import logging
import random
import sys
import tempfile
from collections import Counter
from contextlib import ExitStack
from subprocess import DEVNULL, Popen

from poe import PoeError, protocol
from poe.client import GroupWorker, Job, Queue
from poe.testing import wait_until

logging.getLogger("poe").addHandler(logging.NullHandler())
JOBS = [b"job %d" % number for number in range(300)]


def ask(port: int, op: str) -> dict[str, int]:
    with protocol.socket("127.0.0.1", port) as connection:
        return connection.control(op)


def live_count(port: int) -> int:
    try:
        return ask(port, "cluster")["live"]
    except PoeError:  # it has not started yet
        return 0


first = random.randrange(15_000, 17_000, 6)  # below the ports that any client may get
ports = range(first, first + 6)

with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
    nodes = []
    for port, peer_port in zip(ports[:3], ports[3:], strict=True):
        command = [sys.executable, "-m", "poe", "serve", "--dir", f"{folder}/{port}"]
        command += ["--port", f"{port}", "--cluster", "example", "--cluster-port", f"{peer_port}"]
        command += ["--seeds", f"127.0.0.1:{ports[3]}"]  # the first one is a seed of the others
        nodes.append(Popen(command, stdout=DEVNULL, stderr=DEVNULL))
        stack.callback(nodes[-1].kill)
    wait_until(lambda: [live_count(port) for port in ports[:3]] == [3, 3, 3], 30)
    url = "poe://" + ",".join(f"127.0.0.1:{port}" for port in ports[:3])
    with Queue(url, "mails", group="mailers") as queue:
        queue.put(JOBS)  # two nodes hold each of them when this returns

    done: Counter[bytes] = Counter()

    def work(job: Job) -> None:
        done[job.value or b""] += 1
        if len(done) == len(JOBS) // 3:
            nodes[0].kill()

    with GroupWorker(url, "mails", work, group="mailers", concurrency=2):
        wait_until(lambda: len(done) == len(JOBS), 40)
    print("a node was killed:", nodes[0].wait() != 0)
    print("done:", len(done), "of", len(JOBS))
    came_twice = any(count > 1 for count in done.values())
    print("what came twice is named:", bool(ask(ports[1], "cluster_report")) or not came_twice)
