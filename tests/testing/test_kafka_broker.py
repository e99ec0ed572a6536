"""The test broker of Kafka has the interface of Poe's."""

import time

import pytest

pytest.importorskip("confluent_kafka", reason="needs confluent-kafka: the extra poe-queue[kafka]")

from poe.client import Consumer, Producer
from poe.errors import ConnectFailed, KafkaRefused, OptionError
from poe.testing import broker

pytest_plugins = ["poe.testing.fixtures"]
pytestmark = [pytest.mark.kafka, pytest.mark.slow]


def values(messages):
    return sorted(each.value for each in messages)


@pytest.fixture
def producer(poe_kafka_broker):
    options = {"reconnect_min_s": 0.05, "reconnect_max_s": 0.1}
    with Producer(poe_kafka_broker.url, **options) as producer:
        yield producer


def test_messages_are_collected(poe_kafka_broker, producer):
    assert poe_kafka_broker.collected("t") == []
    producer.produce_sync("t", (b"k", b"v"))
    producer.produce_sync("t", [b"a", b"b"])
    collected = poe_kafka_broker.collected("t")
    assert values(collected) == [b"a", b"b", b"v"]
    assert {each.key for each in collected} == {b"k", None}


def test_a_stopped_broker_is_not_there_until_it_is_started(poe_kafka_broker, producer):
    producer.produce_sync("t", b"before")
    poe_kafka_broker.stop()
    delivery = producer.produce_async("t", b"after")
    with pytest.raises(ConnectFailed), Consumer(poe_kafka_broker.url, "t", timeout_s=0.5):
        pass
    poe_kafka_broker.start()
    delivery.result(20)
    assert values(poe_kafka_broker.collected("t")) == [b"after", b"before"]


def test_requests_take_longer_with_latency(poe_kafka_broker, producer):
    producer.produce_sync("t", b"m")
    poe_kafka_broker.set_latency(0.3)
    begin_s = time.monotonic()
    producer.produce_sync("t", b"m")
    assert time.monotonic() - begin_s >= 0.3


def test_connections_that_are_cut_are_made_again(poe_kafka_broker, producer):
    for number in range(3):
        producer.produce_sync("t", b"%d" % number)
        poe_kafka_broker.cut()
    assert values(poe_kafka_broker.collected("t")) == [b"0", b"1", b"2"]


def test_puts_are_answered_with_errors_that_are_ordered(poe_kafka_broker, producer):
    poe_kafka_broker.fail(10)
    with pytest.raises(KafkaRefused) as caught:
        producer.produce_sync("t", b"too large, it is told")
    assert caught.value.kafka_code == 10
    poe_kafka_broker.fail(7, count=2)
    producer.produce_sync("t", b"tried again")
    assert values(poe_kafka_broker.collected("t")) == [b"tried again"]


def test_a_stopped_broker_stays_so_when_it_is_cut_and_shows_nothing(poe_kafka_broker):
    poe_kafka_broker.stop()
    poe_kafka_broker.cut()
    with pytest.raises(ConnectFailed), Consumer(poe_kafka_broker.url, "t", timeout_s=0):
        pass
    with pytest.raises(RuntimeError, match="it is stopped"):
        poe_kafka_broker.collected("t")


@pytest.mark.parametrize(
    "call",
    [lambda made: made.start(), lambda made: made.stop(), lambda made: made.cut(),
     lambda made: made.set_latency(0), lambda made: made.fail(7),
     lambda made: made.collected("t"), lambda made: made.cluster.fail(7)],
)  # fmt: skip
def test_a_closed_broker_says_so(call):
    with broker("kafka") as closed:
        pass
    closed.close()
    with pytest.raises(RuntimeError, match="was closed"):
        call(closed)


@pytest.mark.parametrize("wrong", [{"brokers": 0}, {"brokers": "2"}])
def test_a_wrong_number_of_brokers_is_told(wrong):
    with pytest.raises(OptionError, match="'brokers' is"):
        broker("kafka", **wrong)


def test_a_cluster_has_as_many_brokers_as_are_asked_for():
    with broker("kafka", brokers=3) as cluster:
        assert cluster.url.count(",") == 2
