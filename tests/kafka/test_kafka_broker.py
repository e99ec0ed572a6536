"""The broker that the other tests use is the real one, and comes back after a kill."""

import pytest
from confluent_kafka import Producer

pytestmark = [pytest.mark.kafka, pytest.mark.slow, pytest.mark.timeout(180)]


def test_a_killed_broker_comes_back_with_its_topics(kafka_broker):
    topic = kafka_broker.create_topic("comes-back", partitions=3)
    pid = kafka_broker.pid
    kafka_broker.kill()
    kafka_broker.start()
    assert kafka_broker.pid != pid
    producer = Producer({"bootstrap.servers": kafka_broker.address})
    assert len(producer.list_topics(topic, timeout=10).topics[topic].partitions) == 3
