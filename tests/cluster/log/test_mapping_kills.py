"""A mapping from a replicated topic to others goes on while nodes are killed: each message once.

More than CI has time for: `python -m tests.cluster.log.test_mapping_kills 20`.
"""

import json
import random
import subprocess
import sys
import tempfile
import threading
from collections import Counter
from contextlib import suppress
from pathlib import Path

import pytest

from poe.client import Consumer, Delivery, Producer
from poe.errors import NoQuorum, PoeError, TooFewNodes
from tests.cluster.log.test_log_group_faults import coordinator
from tests.cluster.nodes import nodes
from tests.python_process import ROOT, environment
from tests.waiting import wait_until

pytestmark = [pytest.mark.cluster, pytest.mark.slow, pytest.mark.timeout(400)]

OPTIONS = ["--log-engine", "nats", "--put-timeout", "5"]
PRODUCER = {
    "reconnect_max_s": 0.2,
    "batch_count": 100,
    "delivery_timeout_s": 120,
    "picker": lambda _topic, key, partitions: partitions[int(key)],
}
TOPICS = {"numbers": 2, "even": 1, "audit": 1, "third": 2, "sort.dead": 1}
"""And how many partitions each has."""
KINDS = {"even": 0, "audit": 0, "third": 1, "sort.dead": 2}
"""Which numbers each target is to have, by their rest of 3."""
KINDS_OF_KILLS = (
    "leader of the source",
    "leader of a target",
    "coordinator",
    "the one it is connected to",
)
MEMBERS_COUNT = 2
MORE = 50


class World:
    """Nodes, a producer of numbers, processes that map them, and a consumer of a target."""

    def __init__(self, made, folder, seed):
        self.made = made
        self.dice = random.Random(seed)
        self.kills: Counter[str] = Counter()
        for topic, partitions in TOPICS.items():
            wait_until(lambda: self.is_made(topic, partitions), 40)  # noqa: B023 - of this turn
        self.sent: list[Delivery] = []
        self.audited: list[int] = []
        self.is_over = threading.Event()
        self.threads = [threading.Thread(target=each) for each in (self.produce, self.audit)]
        self.log = (folder / "mapping.log").open("ab")
        self.members = [self.start_member() for _ in range(MEMBERS_COUNT)]
        for each in self.threads:
            each.start()

    def is_made(self, topic, partitions):
        properties = {
            "replicas": 3,
            "partitions": partitions,
            "count_limit": 2000,
            "envelope": True,
        }
        try:
            self.made["a"].control("topic_create", topic=topic.encode(), properties=properties)
        except (NoQuorum, TooFewNodes):
            return False
        return True

    def start_member(self):
        batch = str(self.dice.choice((50, 1000)))
        return subprocess.Popen(
            [sys.executable, "-m", "tests.mapping.mapping_process", self.made.url, batch, "5"],
            env=environment(),
            cwd=ROOT,
            stdout=subprocess.DEVNULL,
            stderr=self.log,
        )

    def produce(self):
        with Producer(self.made.url, **PRODUCER) as producer:
            while not self.is_over.is_set():
                number = len(self.sent)
                kind = ("even", "third", "none")[number % 3]
                value = json.dumps({"number": number, "kind": kind}).encode()
                key = b"%d" % (number % 2)
                self.sent.append(producer.produce_async("numbers", (key, value)))
                self.is_over.wait(0.005)

    def audit(self):
        with Consumer(
            self.made.url, "audit", follow=True, timeout_s=120, request_timeout_s=10
        ) as consumer:
            while not self.is_over.is_set():
                for each in consumer.receive(0.2):
                    self.audited.append(json.loads(each.value or b"")["number"])

    def wait_more(self):
        goal = len(self.audited) + MORE
        wait_until(lambda: len(self.audited) >= goal, 90)

    def leader(self, partition):
        """The node whose engine leads a partition."""
        names = {each.control("cluster")["node"].partition(".")[0]: each for each in self.made}

        def led_by():
            with suppress(PoeError):  # nobody leads yet, and it takes its time to say so
                told = self.made["a"].control("cluster_logs")["topics"].get(partition, {})
                return names.get(told.get("leader"))
            return None

        wait_until(lambda: led_by() is not None, 60)
        return led_by() or self.leader(partition)

    def reported_to(self):
        """A node to which a mapping is connected."""

        def found():
            for node in self.made:
                if any(each["state"] == "running" for each in node.control("pipelines")):
                    return node
            return None

        wait_until(lambda: found() is not None, 30)
        return found() or self.reported_to()

    def victim(self, kind):
        """The node that is meant."""
        match kind:
            case "leader of the source":
                return self.leader(b"numbers-0")
            case "leader of a target":
                return self.leader(b"even")
            case "coordinator":
                return coordinator(self.made)
        return self.reported_to()

    def kill(self, kind):
        """Kill a node, see that all goes on, and start it again."""
        self.kills[kind] += 1
        node = self.victim(kind)
        node.kill()
        self.wait_more()
        node.start()
        self.made.wait_until_whole()
        self.wait_more()

    def is_done(self):
        with suppress(PoeError):
            lag = self.made["b"].control("group_lag", group="mapping.sort")
            return bool(lag) and all(each["messages"] == 0 for each in lag.values())
        return False

    def end(self):
        """Have no more numbers come."""
        self.is_over.set()
        for each in self.threads:
            each.join(120)
            assert not each.is_alive()
        for delivery in self.sent:
            delivery.result(0)

    def stored(self, node, topic):
        with Consumer(node.url, topic) as consumer:
            return [json.loads(each.value or b"")["number"] for each in consumer]

    def judge(self):
        """Assert that each number is on the topics that it belongs onto, once, at all nodes."""
        wait_until(self.is_done, 90)
        for topic, kind in KINDS.items():
            expected = Counter(range(kind, len(self.sent), 3))
            for node in self.made:
                wait_until(lambda: len(self.stored(node, topic)) >= len(expected), 30)  # noqa: B023
                stored = self.stored(node, topic)
                assert not expected - Counter(stored), f"{topic}: lost, {self.kills}"
                assert not Counter(stored) - expected, f"{topic}: twice, {self.kills}"
                if TOPICS[topic] == 1:
                    for rest in range(2):
                        of_key = [number for number in stored if number % 2 == rest]
                        assert of_key == sorted(of_key), f"{topic}: not in order, {self.kills}"

    def close(self):
        self.is_over.set()
        late = []
        for member in self.members:
            member.terminate()
        for member in self.members:
            try:
                member.wait(40)
            except subprocess.TimeoutExpired:
                member.kill()
                member.wait()
                late.append(member.pid)
        self.log.close()
        assert not late, f"processes {late} do not end; see {self.log.name}"


def check_kills(folder, kinds, seed):
    with nodes(folder, 3, *OPTIONS) as made:
        world = World(made, folder, seed)
        try:
            world.wait_more()
            for kind in kinds:
                world.kill(kind)
            world.end()
            world.judge()
        finally:
            world.close()
            print((folder / "mapping.log").read_text()[-4000:], file=sys.stderr)
    return world


def test_each_message_is_mapped_once_whichever_node_is_killed(nats_program, tmp_path):
    del nats_program
    check_kills(tmp_path, ["coordinator", "leader of a target"], seed=3)


if __name__ == "__main__":
    dice = random.Random(1)
    chosen = [dice.choice(KINDS_OF_KILLS) for _ in range(int(sys.argv[1]))]
    with tempfile.TemporaryDirectory(prefix="poe-mapping-kills-") as made_folder:
        found = check_kills(Path(made_folder), chosen, seed=1)
    print(dict(found.kills), f"{len(found.sent)} numbers, each on its topics once")
