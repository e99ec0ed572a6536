"""No acknowledged message is lost, and none is there twice, however often the server is killed."""

import random
import threading

import pytest

from poe.client import Delivery, Producer, Sent
from poe.protocol.envelope import decode
from tests.broker.server_process import ServerProcess
from tests.waiting import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

KILLS = 5
TOTAL = 400_000


def stored(server, topic):
    with server.connect() as client:
        found, pointer = [], 0
        while records := client.read(topic, pointer, 10_000):
            pointer = records[-1][0]
            found += records
        return found


def test_a_server_that_is_killed_again_and_again_has_each_message_once_and_in_order(tmp_path):
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    dice = random.Random(seed)
    folder = tmp_path / "poe"
    deliveries: list[tuple[list[bytes], Delivery]] = []

    def produce():
        number = 0
        while number < TOTAL:
            count = dice.choice((1, 1, 1, 7, 100, 1500))
            batch = [b"%d" % each for each in range(number, number + count)]
            number += count
            is_batched = dice.random() < 0.5
            method = producer.produce_async_batched if is_batched else producer.produce_async
            deliveries.append((batch, method("t", batch if count > 1 else batch[0])))

    server = ServerProcess(folder)
    port = server.port
    options = {"reconnect_max_s": 0.2, "buffer_count": 20_000, "batch_count": 500}
    with Producer(f"poe://127.0.0.1:{port}", **options) as producer:
        thread = threading.Thread(target=produce)
        thread.start()
        for kill in range(1, KILLS + 1):
            acknowledged = kill * TOTAL // (KILLS + 2)
            wait_until(lambda: delivered(producer) >= acknowledged, 120)  # noqa: B023 - called here
            server.kill()
            server = ServerProcess(folder, port=port)
        thread.join()
        assert producer.flush(60)
        retried = producer.statistics()["messages_retried"]
    records = stored(server, "t")
    server.kill()
    total = 0
    for batch, _ in deliveries:
        total += len(batch)
    assert [message for _, message in records] == [b"%d" % each for each in range(total)]
    where = {message: pointer for pointer, message in records}
    for batch, delivery in deliveries:
        sent = delivery.result(0)
        assert isinstance(sent, Sent)
        assert (sent.count, sent.pointer) == (len(batch), where[batch[-1]])
    print(f"{total} messages, {retried} sent again after an answer")


def test_messages_of_a_key_stay_in_order_over_partitions_and_connections(tmp_path):
    count, keys = 60_000, [b"%d" % key for key in range(7)]
    folder = tmp_path / "poe"
    server = ServerProcess(folder)
    port = server.port
    options = {"partitions": 3, "workers": 2, "strategy": "custom", "envelope": True}
    with Producer(
        f"poe://127.0.0.1:{port}", **options, reconnect_max_s=0.2, buffer_count=5000
    ) as producer:

        def produce():
            for start in range(0, count, 20):
                numbers = range(start, start + 20)
                data = [(keys[number % len(keys)], b"%d" % number) for number in numbers]
                producer.produce_async("t", data)

        thread = threading.Thread(target=produce)
        thread.start()
        for kill in range(1, 4):
            wait_until(lambda: delivered(producer) >= kill * count // 5, 60)  # noqa: B023 - called here
            server.kill()
            server = ServerProcess(folder, port=port)
        thread.join()
        assert producer.close(60) == []
    by_key: dict[bytes | None, list[int]] = {}
    for partition in range(3):
        for _, message in stored(server, f"t-{partition}"):
            key, value, _ = decode(message)
            by_key.setdefault(key, []).append(int(value or b""))
    server.kill()
    assert by_key == {key: list(range(number, count, len(keys))) for number, key in enumerate(keys)}


def delivered(producer):
    return producer.statistics().get("messages_delivered", 0)
