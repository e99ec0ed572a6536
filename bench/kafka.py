"""Measures the producer on Apache Kafka beside bare confluent-kafka: 100-byte messages, acks=all.

Both are idempotent and hear of each message; they take turns on one broker, which shares the
machine with them and is more than half of the work. Needs the extra `kafka`, Java and Maven.
"""

import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import confluent_kafka

from bench import rounds
from bench.row import Sample
from poe.client import Producer
from poe.client.consumer.consumer import Consumer
from tests.kafka.kafka_broker import KafkaBroker

MESSAGE = b"x" * 100
LIST_COUNT = 1000
TOPIC = "bench"


def measure_rounds(count: int, *, quick: bool) -> Iterator[list[Sample]]:
    """Load one broker, round by round."""
    messages_count = 20_000 if quick else 1_000_000
    with tempfile.TemporaryDirectory(prefix="poe-bench-") as folder:
        broker = KafkaBroker(Path(folder))
        try:
            broker.start()
            broker.create_topic(TOPIC)
            bare(broker, messages_count)  # while the broker's code is still being compiled
            for number in range(count):
                # In turns: who comes second finds the broker still writing for the first.
                yield samples(broker, messages_count, is_bare_first=number % 2 == 0)
        finally:
            broker.kill()


def samples(broker: KafkaBroker, messages_count: int, *, is_bare_first: bool) -> list[Sample]:
    """Measure each way once, one after the other."""
    if is_bare_first:
        peer = bare(broker, messages_count)
    single = ours(broker, MESSAGE, messages_count)
    if not is_bare_first:
        peer = bare(broker, messages_count)
    lists = ours(broker, [MESSAGE] * LIST_COUNT, messages_count // LIST_COUNT) * LIST_COUNT
    reading = read(broker, messages_count)
    one = "to Kafka, a message per call"
    many = f"to Kafka, {LIST_COUNT} messages per call"
    return [
        Sample.at_least(f"{one}, confluent-kafka alone", peer, "msg/s", 0),
        Sample.at_least(f"{one}, produce_async_batched", single, "msg/s", 0),
        Sample.at_least(f"{one}, beside", single / peer, "× confluent-kafka's", 0.6),
        Sample.at_least(f"{many}, produce_async_batched", lists, "msg/s", 0),
        Sample.at_least(f"{many}, beside", lists / peer, "× its single calls", 0.6),
        Sample.at_least("from Kafka, Consumer, batches", reading, "msg/s", 0),
    ]


def bare(broker: KafkaBroker, count: int) -> float:
    """Messages per second of confluent-kafka alone, until all are acknowledged."""
    settings = {
        "bootstrap.servers": broker.address,
        "enable.idempotence": True,
        "queue.buffering.max.messages": count + 1,
    }
    producer = confluent_kafka.Producer(settings)
    producer.list_topics(TOPIC, timeout=10)
    acknowledged = 0

    def note(error: object, message: object) -> None:
        nonlocal acknowledged
        acknowledged += error is None

    begun = time.perf_counter()
    for number in range(count):
        producer.produce(TOPIC, MESSAGE, partition=0, on_delivery=note)
        if number % LIST_COUNT == 0:
            producer.poll(0)
    producer.flush(60)
    took_s = time.perf_counter() - begun
    assert acknowledged == count
    return count / took_s


def ours(broker: KafkaBroker, data: object, calls_count: int) -> float:
    """Calls per second, until all are acknowledged."""
    with Producer(broker.url) as producer:
        producer.prepare(TOPIC)
        begun = time.perf_counter()
        for _ in range(calls_count):
            producer.produce_async_batched(TOPIC, data)
        assert producer.flush(60)
        took_s = time.perf_counter() - begun
        assert not producer.statistics()["messages_failed"]
    return calls_count / took_s


def read(broker: KafkaBroker, count: int) -> float:
    """Messages per second that a consumer hands out."""
    with Consumer(broker.url, TOPIC) as consumer:
        begun = time.perf_counter()
        found = 0
        for batch in consumer.batches():
            found += len(batch)
            if found >= count:
                break
        return found / (time.perf_counter() - begun)


if __name__ == "__main__":
    rounds.main(measure_rounds)
