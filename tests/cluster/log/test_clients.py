"""A producer and a consumer go on while nodes are killed: each message once, and in its order.

More than CI has time for: `python -m tests.cluster.log.test_clients 20`.
"""

import random
import sys
import tempfile
import threading
from pathlib import Path

import pytest

from poe.client import Consumer, Delivery, Producer
from tests.cluster.log.test_log_faults import are_same, make_topic
from tests.cluster.nodes import nodes
from tests.waiting import wait_until

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(400)]

OPTIONS = ["--log-engine", "nats", "--put-timeout", "5"]
PRODUCER = {"reconnect_max_s": 0.2, "batch_count": 100, "delivery_timeout_s": 120}


def check_kills(folder, kills, seed):
    dice = random.Random(seed)
    with nodes(folder, 3, *OPTIONS) as made:
        make_topic(made)
        is_over = threading.Event()
        found: list[int] = []
        sent: list[Delivery] = []

        def produce():
            with Producer(made.url, **PRODUCER) as producer:
                while not is_over.is_set():
                    sent.append(producer.produce_async("t", b"%d" % len(sent)))
                    is_over.wait(0.002)

        def consume():
            with Consumer(made.url, "t", follow=True, timeout_s=60) as consumer:
                for received in consumer:
                    if received.value == b"over":
                        return
                    assert received.value is not None
                    found.append(int(received.value))

        threads = [threading.Thread(target=each, daemon=True) for each in (produce, consume)]
        for each in threads:
            each.start()
        for _ in range(kills):
            before = len(found)
            wait_until(lambda: len(found) > before + 100, 60)  # noqa: B023 - of this turn
            killed = dice.choice(list(made))
            killed.kill()
            before = len(found)
            wait_until(lambda: len(found) > before + 100, 60)  # noqa: B023 - likewise
            killed.start()
            made.wait_until_whole()
        is_over.set()
        threads[0].join(120)
        assert not threads[0].is_alive()
        for delivery in sent:
            delivery.result(0)
        with Producer(made.url) as producer:
            producer.produce_sync("t", b"over")
        threads[1].join(120)
        assert found == list(range(len(sent)))
        wait_until(lambda: are_same(made["a"]), 60)


def test_each_message_comes_once_and_in_its_order_whichever_node_is_killed(nats_program, tmp_path):
    del nats_program
    check_kills(tmp_path, kills=2, seed=3)


@pytest.mark.parametrize("trouble", ["frozen", "cut off"])
def test_a_producer_goes_on_at_another_node_than_one_that_does_not_answer(
    nats_program, tmp_path, trouble
):
    del nats_program
    with nodes(tmp_path, 3, *OPTIONS) as made:
        make_topic(made)
        with Producer(made.url, request_timeout_s=2, **PRODUCER) as producer:
            producer.produce_sync("t", b"0")
            first = made["a"]
            if trouble == "frozen":
                first.process.freeze()
            else:
                made.net.cut_off(first.host)
            try:
                for number in range(1, 20):
                    producer.produce_sync("t", b"%d" % number, timeout_s=60)
            finally:
                if trouble == "frozen":
                    first.process.thaw()
                else:
                    made.net.connect(first.host)
        wait_until(lambda: are_same(first), 60)
        found = first.control("describe", topic=b"t")
        assert found["partitions"][0]["messages"] == 20


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(prefix="poe-log-clients-") as made_folder:
        check_kills(Path(made_folder), kills=int(sys.argv[1]), seed=1)
    print("each message came once, and in its order")
