"""Producers and consumers on Apache Kafka itself, which is killed again and again."""

import threading
from collections import defaultdict
from typing import Any

import pytest

from poe.client import AsyncProducer, Message, Producer, Sent
from poe.client.consumer.async_consumer import AsyncConsumer
from poe.client.consumer.consumer import Consumer
from tests.waiting import wait_until

pytestmark = [pytest.mark.kafka, pytest.mark.slow, pytest.mark.timeout(600)]

KILLS = 4
KEYS = [b"key %d" % number for number in range(20)]
MESSAGES_OF_A_KEY = 20_000
LIST = 500


def test_messages_come_back_as_they_were_sent(kafka_broker):
    topic = kafka_broker.create_topic("round-trip", partitions=3)
    messages = [
        Message(b"value", b"key", {"one": b"1", "two": b""}),
        Message(None, b"key"),
        Message(b"", None),
        Message(bytes(range(256)), bytes(range(256))),
    ]
    with Producer(kafka_broker.url, strategy="custom") as producer:
        sent: Any = producer.produce_sync(topic, messages)
        assert len(producer.metadata(topic).partitions) == 3
    with Consumer(kafka_broker.url, topic) as consumer:
        received = {(each.partition, each.pointer): each for each in consumer}
    for message, where in zip(messages, sent, strict=True):
        found = received.pop((where.partition, where.pointer))
        assert (found.value, found.key, found.headers) == message
    assert not received


async def test_the_asyncio_pair_does_so_too(kafka_broker):
    topic = kafka_broker.create_topic("asyncio")
    async with AsyncProducer(kafka_broker.url) as producer:
        assert await producer.produce_sync(topic, [b"a", b"b"]) == Sent(topic.encode(), 0, 1, 2)
    async with AsyncConsumer(kafka_broker.url, topic, start=0) as consumer:
        assert [each.value async for each in consumer] == [b"b"]


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_compressed_messages_are_read(kafka_broker, codec):
    topic = kafka_broker.create_topic(codec)
    values = [b"poe" * 1000] * 100
    with Producer(kafka_broker.url, kafka={"compression.type": codec}) as producer:
        assert producer.produce_sync(topic, values).count == 100
    with Consumer(kafka_broker.url, topic) as consumer:
        assert [each.value for each in consumer] == values


def test_a_consumer_follows_over_a_kill(kafka_broker):
    topic = kafka_broker.create_topic("followed")
    with (
        Producer(kafka_broker.url) as producer,
        Consumer(kafka_broker.url, topic, follow=True) as consumer,
    ):
        producer.produce_sync(topic, b"before")
        assert [each.value for each in consumer.receive(30)] == [b"before"]
        kafka_broker.kill()
        kafka_broker.start()
        producer.produce_sync(topic, b"behind", timeout_s=60)
        assert [each.value for each in consumer.receive(60)] == [b"behind"]


def test_of_a_broker_that_is_killed_again_and_again_nothing_acknowledged_is_missing_or_out_of_order(
    kafka_broker,
):
    topic = kafka_broker.create_topic("killed", partitions=3)
    total = len(KEYS) * MESSAGES_OF_A_KEY
    deliveries = []

    def feed(producer):
        for first in range(0, MESSAGES_OF_A_KEY, LIST):
            for key in KEYS:
                payload = [(key, b"%d" % number) for number in range(first, first + LIST)]
                deliveries.append(producer.produce_async(topic, payload))

    losses = []
    options = {
        "strategy": "custom",
        "buffer_count": total // 20,
        "reconnect_max_s": 0.5,
        "callbacks": {"worker_down": lambda *told: losses.append(told)},
    }
    with Producer(kafka_broker.url, **options) as producer:
        producer.prepare(topic)
        feeder = threading.Thread(target=feed, args=(producer,))
        feeder.start()
        for kill in range(KILLS):
            share = total * (kill + 1) // (KILLS + 1)
            wait_until(lambda: producer.statistics()["messages_delivered"] >= share, 120)  # noqa: B023 - called here
            kafka_broker.kill()
            kafka_broker.start()
        feeder.join()
        for delivery in deliveries:
            assert all(isinstance(each, Sent) for each in delivery.result(120))
    assert len(losses) >= KILLS
    found = defaultdict(list)
    with Consumer(kafka_broker.url, topic) as consumer:
        for each in consumer:
            found[each.key].append(int(each.value or b""))
    for key in KEYS:
        assert found[key] == list(range(MESSAGES_OF_A_KEY))
