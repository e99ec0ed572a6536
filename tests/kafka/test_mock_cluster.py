"""A producer on Kafka whose brokers go down, are slow, and refuse: librdkafka's mock cluster."""

import time

import pytest

from poe.client import Message, Producer, Sent
from poe.client.consumer.consumer import Consumer
from poe.errors import BrokerDown, KafkaRefused
from poe.testing.kafka_cluster import KafkaCluster
from tests.waiting import wait_until

pytestmark = [pytest.mark.kafka, pytest.mark.slow]


@pytest.fixture
def cluster():
    with KafkaCluster(brokers=2) as cluster:
        cluster.create_topic("t", partitions=2)
        yield cluster


@pytest.fixture
def produce(cluster):
    """Makes producers and closes them."""
    made = []

    def produce(**options):
        options = {"reconnect_min_s": 0.05, "reconnect_max_s": 0.1} | options
        made.append(Producer(cluster.url, **options))
        return made[-1]

    yield produce
    for producer in made:
        producer.close(0)


def read(cluster, topic="t"):
    with Consumer(cluster.url, topic) as consumer:
        return list(consumer)


def is_down(producer, topic="t"):
    return producer.info(topic).state == "downtime"


def test_messages_go_to_the_partition_of_their_key_with_their_headers(cluster, produce):
    producer = produce(strategy="custom")
    payload = [Message(b"%d" % number, b"key", {"h": b"1"}) for number in range(5)]
    sent = producer.produce_sync("t", [*payload, (b"other", b"v")])
    assert len({each.partition for each in sent[:5]}) == 1
    assert [each.pointer for each in sent[:5]] == [0, 1, 2, 3, 4]
    received = [each for each in read(cluster) if each.key == b"key"]
    assert [each.value for each in received] == [b"0", b"1", b"2", b"3", b"4"]
    assert received[0].headers == {"h": b"1"}


def test_what_is_sent_in_a_downtime_arrives_in_order_when_the_brokers_are_back(cluster, produce):
    told = []
    callbacks = {
        name: lambda event, *rest: told.append(event)
        for name in ("worker_down", "downtime_saved", "downtime_replayed", "worker_up")
    }
    producer = produce(callbacks=callbacks, partitions=2, strategy="custom")
    deliveries = [producer.produce_async("t", (b"k", b"0"))]
    deliveries[0].result(10)
    cluster.down()
    for number in range(1, 50):
        deliveries.append(producer.produce_async("t", (b"k", b"%d" % number)))
        if number == 25:
            wait_until(lambda: is_down(producer), 10)
    assert not deliveries[-1].done()
    cluster.up()
    for delivery in deliveries:
        delivery.result(20)
    assert [each.value for each in read(cluster)] == [b"%d" % number for number in range(50)]
    assert {b"worker_down", b"downtime_saved", b"downtime_replayed"} <= {
        each if isinstance(each, bytes) else str(each).encode() for each in told
    }


def test_a_spool_keeps_a_downtime_and_nothing_is_sent_twice(cluster, produce, tmp_path):
    producer = produce(spool_dir=tmp_path / "spool", strategy="custom")
    deliveries = [producer.produce_async("t", (b"k", b"0"))]
    deliveries[0].result(10)
    cluster.down()
    for number in range(1, 50):  # librdkafka has the first of them already
        deliveries.append(producer.produce_async("t", (b"k", b"%d" % number)))
        if number == 25:
            wait_until(lambda: is_down(producer), 10)
    wait_until(lambda: producer.info("t").spooled_count, 10)
    cluster.up()
    for delivery in deliveries:
        delivery.result(20)
    assert [each.value for each in read(cluster)] == [b"%d" % number for number in range(50)]


def test_a_spool_survives_its_producer(cluster, produce, tmp_path):
    producer = produce(spool_dir=tmp_path / "spool")
    producer.produce_sync("t", b"a")
    cluster.down()
    wait_until(lambda: is_down(producer), 10)
    producer.produce_async("t", [b"b", b"c"])
    assert producer.close(1) == []
    cluster.up()
    produce(spool_dir=tmp_path / "spool")
    wait_until(lambda: len(read(cluster)) == 3, 20)
    assert sorted(each.value for each in read(cluster)) == [b"a", b"b", b"c"]


def test_brokers_may_come_after_the_first_messages(cluster, produce):
    cluster.down()
    delivery = produce().produce_async("t", [b"a", b"b"])
    assert not delivery.done()
    cluster.up()
    assert delivery.result(20).count == 2
    assert [each.value for each in read(cluster)] == [b"a", b"b"]


def test_a_call_that_waits_ends_in_time_and_is_not_sent_later(cluster, produce):
    producer = produce()
    producer.produce_sync("t", b"a")
    cluster.down()
    wait_until(lambda: is_down(producer), 10)
    with pytest.raises(BrokerDown):
        producer.produce_sync("t", b"b", timeout_s=0.2)
    cluster.up()
    producer.produce_sync("t", b"c", timeout_s=20)
    assert sorted(each.value for each in read(cluster)) == [b"a", b"c"]


def test_refusals_come_to_the_call_that_is_refused(cluster, produce):
    producer = produce()
    producer.produce_sync("t", b"a")
    cluster.fail(10)
    with pytest.raises(KafkaRefused, match="error 10"):
        producer.produce_sync("t", b"b")
    producer.produce_sync("t", b"c")


@pytest.mark.parametrize("code", [6, 7])
def test_errors_that_pass_are_not_seen(cluster, produce, code):
    producer = produce(kafka={"retry.backoff.ms": 10, "retry.backoff.max.ms": 10})
    producer.produce_sync("t", b"a")
    cluster.fail(code)
    producer.produce_sync("t", b"b")


def test_latency_is_waited_for(cluster, produce):
    producer = produce()
    producer.produce_sync("t", b"a")
    cluster.set_latency(0.3)
    start_s = time.monotonic()
    delivery = producer.produce_async("t", b"b")
    assert not delivery.done()
    delivery.result(10)
    assert time.monotonic() - start_s >= 0.3


def test_close_tells_what_was_not_delivered(cluster, produce):
    producer = produce()
    producer.produce_sync("t", b"a")
    cluster.down()
    wait_until(lambda: is_down(producer), 10)
    producer.produce_async("t", [b"b", b"c"])
    undelivered = producer.close(0.1)
    assert [each.messages for each in undelivered] == [[b"b", b"c"]]


def test_equal_messages_of_several_workers_are_each_stored(cluster, produce):
    producer = produce(ordered=False, workers=2)
    cluster.create_topic("pings")
    producer.produce_sync("pings", b"first")
    wait_until(lambda: len(producer.info("pings").workers) == 2, 20)
    cluster.set_latency(0.2)
    for delivery in [producer.produce_async("pings", b"ping") for _ in range(10)]:
        delivery.result(20)
    cluster.set_latency(0)
    assert [each.value for each in read(cluster, "pings")] == [b"first"] + [b"ping"] * 10


def test_each_call_is_told_its_own_offset_though_others_put_in_between(cluster, produce):
    one_by_one = {"batch.num.messages": 1, "max.in.flight.requests.per.connection": 1}
    cluster.create_topic("shared")
    producers = [produce(kafka=one_by_one, batch_count=5, linger_s=60.0) for _ in range(2)]
    for producer in producers:
        producer.prepare("shared", timeout_s=20)
    told: dict[bytes, Sent] = {}
    for turn in range(20):  # on a busy machine one may be done before the other begins
        cluster.set_latency(0.05)
        deliveries = {
            value: producer.produce_async_batched("shared", value)
            for number in range(5)
            for who, producer in enumerate(producers)
            for value in [b"%d of %d, turn %d" % (number, who, turn)]
        }
        told |= {value: delivery.result(30) for value, delivery in deliveries.items()}
        cluster.set_latency(0)
        stored = {each.value: each.pointer for each in read(cluster, "shared")}
        first = [stored[b"%d of 0, turn %d" % (number, turn)] for number in range(5)]
        if first[-1] - first[0] >= 5:
            break
    else:
        pytest.fail("others never put in between")
    assert {value: sent.pointer for value, sent in told.items()} == stored
    assert {type(sent.pointer) for sent in told.values()} == {int}
