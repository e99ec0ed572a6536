"""The cluster for tests does what it is told, seen by confluent-kafka."""

import time

import pytest

pytest.importorskip("confluent_kafka", reason="needs confluent-kafka: the extra poe-queue[kafka]")

from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition

from poe.testing.kafka_cluster import KafkaCluster

pytestmark = pytest.mark.kafka


@pytest.fixture
def cluster():
    with KafkaCluster(brokers=2) as cluster:
        yield cluster


@pytest.fixture
def producer(cluster):
    producer = Producer(
        {
            "bootstrap.servers": cluster.addresses,
            "linger.ms": 0,
            "retry.backoff.ms": 10,
            "retry.backoff.max.ms": 10,
            "reconnect.backoff.max.ms": 100,
            "log_level": 0,
        }
    )
    yield producer
    producer.purge()


def send(producer, topic="t", partition=0):
    """Start to send a message; the list gets (error or None, offset) when it is known."""
    told = []
    producer.produce(
        topic,
        b"v",
        partition=partition,
        on_delivery=lambda error, message: told.append((error, message.offset())),
    )
    return told


def sent(producer, **where):
    told = send(producer, **where)
    assert producer.flush(20) == 0
    return told[0]


def offset_of(message):
    assert message is not None
    return message.offset()


def test_a_topic_has_the_partitions_it_was_made_with(cluster, producer):
    cluster.create_topic("orders", partitions=3)
    assert len(producer.list_topics("orders", timeout=5).topics["orders"].partitions) == 3


def test_a_topic_is_made_once(cluster):
    cluster.create_topic("orders")
    with pytest.raises(RuntimeError, match="topic_create"):
        cluster.create_topic("orders")


def test_messages_of_a_partition_have_consecutive_offsets(producer):
    assert [sent(producer), sent(producer), sent(producer, partition=1)] == [
        (None, 0),
        (None, 1),
        (None, 0),
    ]


@pytest.mark.slow
def test_what_is_sent_while_brokers_are_down_arrives_when_they_are_up(cluster, producer):
    assert sent(producer) == (None, 0)
    cluster.down()
    told = send(producer)
    assert producer.flush(0.3) == 1
    assert told == []
    cluster.up()
    assert producer.flush(20) == 0
    assert told == [(None, 1)]


@pytest.mark.slow
def test_answers_take_the_latency(cluster, producer):
    assert sent(producer) == (None, 0)
    cluster.set_latency(0.3)
    start_s = time.monotonic()
    assert sent(producer) == (None, 1)
    assert time.monotonic() - start_s >= 0.3


@pytest.mark.slow
def test_errors_that_pass_are_retried_by_the_client(cluster, producer):
    sent(producer)
    cluster.fail(6, 7)
    assert sent(producer) == (None, 1)


def test_an_error_that_stays_is_told(cluster, producer):
    sent(producer)
    cluster.fail(10)
    error, _ = sent(producer)
    assert error.code() == KafkaError.MSG_SIZE_TOO_LARGE


def test_a_partition_moves_to_another_broker(cluster, producer):
    cluster.create_topic("t")
    for leader in (2, 1):
        cluster.set_leader("t", 0, leader)
        assert producer.list_topics("t", timeout=5).topics["t"].partitions[0].leader == leader


@pytest.mark.slow
def test_a_partition_without_a_leader_goes_on_when_it_has_one(cluster, producer):
    """Also for clients that know who led it; those ended this process."""
    cluster.create_topic("t")
    assert sent(producer) == (None, 0)
    settings = {"bootstrap.servers": cluster.addresses, "group.id": "g", "log_level": 0}
    consumer = Consumer({**settings, "reconnect.backoff.max.ms": 100})
    consumer.assign([TopicPartition("t", 0, 0)])
    assert offset_of(consumer.poll(20)) == 0
    cluster.set_leader("t", 0, -1)
    told = send(producer)
    assert producer.flush(0.3) == 1
    assert consumer.poll(0.3) is None
    cluster.set_leader("t", 0, 2)
    assert producer.flush(20) == 0
    assert told == [(None, 1)]
    assert offset_of(consumer.poll(20)) == 1
    consumer.close()


def test_a_closed_cluster_may_be_closed_again():
    cluster = KafkaCluster()
    cluster.close()
    cluster.close()
