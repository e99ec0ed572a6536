"""A query from one replicated topic to another one, while nodes are killed: each message once.

More than CI has time for: `python -m tests.spark.test_node_kills 20`.
"""

import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

from poe import protocol
from poe.client import Consumer, Delivery, Producer
from tests.cluster.log.conftest import nats_program as nats_program  # noqa: PLC0414 - a fixture
from tests.cluster.log.test_log_faults import make_topic
from tests.cluster.nodes import CALL_S, PORT, Nodes, RunningNode, nodes
from tests.python_process import environment
from tests.waiting import wait_until

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.spark,
    pytest.mark.slow,
    pytest.mark.timeout(600),
]

OPTIONS = ["--log-engine", "nats", "--put-timeout", "5"]
PRODUCER = {"reconnect_max_s": 0.2, "batch_count": 100, "delivery_timeout_s": 120}
WAIT_S = 240


class Driver:
    """Spark, which copies from `t` to `out` in a process of its own, beside the nodes."""

    def __init__(self, made: Nodes, folder: Path) -> None:
        # The thread that starts it is in the network of the nodes, and so is all that it starts.
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.spark.copying_driver", made.url, str(folder)],
            env=environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    @property
    def is_running(self) -> bool:
        return self._process.poll() is None

    def end(self) -> int:
        """Have it end, and return how many messages it has found in the end."""
        told, _ = self._process.communicate("end\n", timeout=WAIT_S)
        assert self._process.returncode == 0
        return int(told)

    def kill(self) -> None:
        """End it, and all that it has started."""
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.communicate()


class Work:
    """Numbers that a producer puts onto `t`, and what a consumer finds on `out`."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.sent: list[Delivery] = []
        self.found: list[int] = []
        self._is_over = threading.Event()
        self._producing = threading.Thread(target=self._produce, daemon=True)
        self._consuming = threading.Thread(target=self._consume, daemon=True)
        self._producing.start()
        self._consuming.start()

    def _produce(self) -> None:
        with Producer(self.url, **PRODUCER) as producer:
            while not self._is_over.is_set():
                self.sent.append(producer.produce_async("t", b"%d" % len(self.sent)))
                self._is_over.wait(0.01)

    def _consume(self) -> None:
        with Consumer(self.url, "out", follow=True, timeout_s=WAIT_S) as consumer:
            for received in consumer:
                if received.value == b"over":
                    return
                self.found.append(int(received.value or b""))

    def wait_more(self, driver: Driver) -> None:
        """Wait until what is put from now on comes out."""
        goal = len(self.sent) + 1

        def has_come() -> bool:
            assert driver.is_running
            return len(self.found) >= goal

        wait_until(has_come, WAIT_S)

    def end_to_produce(self) -> None:
        """Return once all is acknowledged."""
        self._is_over.set()
        self._producing.join(120)
        assert not self._producing.is_alive()
        for delivery in self.sent:
            delivery.result(0)

    def end(self) -> None:
        """Return once all that has come out is found."""
        with Producer(self.url) as producer:
            producer.produce_sync("out", b"over")
        self._consuming.join(120)
        assert not self._consuming.is_alive()


def are_same(node: RunningNode) -> bool:
    """Whether the copies of all topics are the same at all nodes."""
    with protocol.socket(node.host.client_address, PORT, timeout_s=CALL_S * 4) as socket:
        rows = [row for rows in socket.control("cluster_verify").values() for row in rows]
    assert not any(row["differing"] for row in rows), rows
    return len(rows) == 6 and not any("error" in row or row["behind"] for row in rows)


def check_kills(folder: Path, kills: int, seed: int) -> None:
    dice = random.Random(seed)
    with nodes(folder, 3, *OPTIONS) as made, ExitStack() as stack:
        make_topic(made, count_limit=1000)
        made["b"].control("topic_create", topic=b"out", properties={"replicas": 3})
        driver = Driver(made, folder)
        stack.callback(driver.kill)
        work = Work(made.url)
        stack.callback(work.end_to_produce)
        work.wait_more(driver)
        for _ in range(kills):
            killed = dice.choice(list(made))
            killed.kill()
            work.wait_more(driver)
            killed.start()
            made.wait_until_whole()
        work.wait_more(driver)
        work.end_to_produce()
        assert driver.end() == len(work.sent)
        work.end()
        assert sorted(work.found) == list(range(len(work.sent)))
        wait_until(lambda: are_same(made["a"]), WAIT_S)
        print(f"{len(work.found)} messages, {kills} kills")


def test_each_message_comes_out_once_whichever_node_is_killed(java, nats_program, tmp_path):
    del java, nats_program
    check_kills(tmp_path, kills=1, seed=5)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(prefix="poe-spark-kills-") as made_folder:
        began_s = time.monotonic()
        check_kills(Path(made_folder), kills=int(sys.argv[1]), seed=1)
    print(f"each came out once; {time.monotonic() - began_s:.0f} s")
