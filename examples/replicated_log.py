"""Three nodes agree on a topic; who leads it is killed while orders are put, and none is lost."""

import logging
import random
import sys
import tempfile
from contextlib import ExitStack, suppress
from itertools import islice
from subprocess import DEVNULL, Popen

from poe import PoeError, protocol
from poe.client import Consumer, Producer
from poe.testing import wait_until

logging.getLogger("poe").addHandler(logging.NullHandler())
ORDERS = [b"order %d" % number for number in range(200)]
first = random.randrange(17_000, 20_000, 9)  # below the ports that any client may get
ports = range(first, first + 9)
clients, peers, logs = ports[:3], ports[3:6], ports[6:]


def control(port, op, **arguments):
    with protocol.socket("127.0.0.1", port, timeout_s=30) as connection:
        return connection.control(op, **arguments)


def is_made():
    """Make the topic, as soon as the nodes have found each other and elected a leader."""
    with suppress(PoeError):
        return control(clients[0], "topic_create", topic=b"orders", properties={"replicas": 3})


with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
    nodes = {}
    for port, peer, log in zip(clients, peers, logs, strict=True):
        command = [sys.executable, "-m", "poe", "serve", "--dir", f"{folder}/{port}"]
        command += ["--port", f"{port}", "--cluster", "example", "--cluster-port", f"{peer}"]
        command += ["--seeds", f"127.0.0.1:{peers[0]}", "--log-engine", "nats"]
        command += ["--log-port", f"{log}", "--log-seeds", f"127.0.0.1:{logs[0]}"]
        nodes[port] = Popen(command, stdout=DEVNULL, stderr=DEVNULL)
        stack.callback(nodes[port].kill)
    wait_until(is_made, 60)
    leader = control(clients[0], "cluster_logs")["topics"][b"orders"]["leader"]
    ids = {port: control(port, "cluster")["node"].partition(".")[0] for port in clients}
    killed = next(port for port in clients if ids[port] == leader)
    rest = [port for port in clients if port != killed]
    url = "poe://" + ",".join(f"127.0.0.1:{port}" for port in [killed, *rest])
    with Producer(url) as producer:
        for number, order in enumerate(ORDERS):
            producer.produce_sync("orders", order)  # a majority has synced it when this returns
            if number == len(ORDERS) // 2:
                nodes[killed].kill()
    print("the leader was killed:", nodes[killed].wait() != 0)
    with Consumer(f"poe://127.0.0.1:{rest[0]}", "orders", follow=True) as consumer:
        # Its copy may be a moment behind what a majority has.
        found = [each.value for each in islice(consumer, len(ORDERS))]
    print("orders at another node:", "all, once, in order" if found == ORDERS else found)
    [rows] = control(rest[0], "cluster_verify").values()
    print("copies differ:", any(row["differing"] for row in rows))
