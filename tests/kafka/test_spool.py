"""A producer on Kafka with a spool: a downtime and a restart lose nothing, and keep the order."""

import signal
import subprocess
import sys

import pytest

from poe.client import Message, Producer
from poe.client.consumer.consumer import Consumer
from poe.testing.kafka_cluster import KafkaCluster
from tests.python_process import environment
from tests.waiting import wait_until

# A producer that has never reached a broker; tells when its messages are on disk.
WITHOUT_A_BROKER = """
import sys, time
from poe.client import Message, Producer
from tests.waiting import wait_until
producer = Producer(sys.argv[1], spool_dir=sys.argv[2], strategy="custom")
for number in range(100):
    producer.produce_async("t", (b"%d" % (number % 5), b"%d" % number))
wait_until(lambda: producer.info("t").spooled_count == 100, 20)
print("spooled", flush=True)
time.sleep(600)
"""

pytestmark = [pytest.mark.kafka, pytest.mark.slow]


@pytest.fixture
def cluster():
    with KafkaCluster(brokers=2) as cluster:
        cluster.create_topic("t", partitions=2)
        yield cluster


def producer_of(cluster, folder):
    return Producer(
        cluster.url, spool_dir=folder, strategy="custom", reconnect_min_s=0.05, reconnect_max_s=0.1
    )


def message(number):
    return Message(b"%d" % number, b"key", {"number": b"%d" % number})


def read(cluster):
    with Consumer(cluster.url, "t") as consumer:
        return [Message(each.value, each.key, each.headers) for each in consumer]


def test_keys_headers_and_order_survive_a_downtime_on_disk(cluster, tmp_path):
    with producer_of(cluster, tmp_path) as producer:
        producer.produce_sync("t", message(0), timeout_s=20)
        cluster.down()
        deliveries = [producer.produce_async("t", message(number)) for number in range(1, 50)]
        wait_until(lambda: producer.info("t").spooled_count == 49, 20)
        cluster.up()
        for delivery in deliveries:
            delivery.result(30)
        assert producer.statistics()["messages_spooled"] == 0
    assert read(cluster) == [message(number) for number in range(50)]


def test_what_a_producer_has_left_on_disk_is_sent_by_the_next_one(cluster, tmp_path):
    with producer_of(cluster, tmp_path) as producer:
        producer.prepare("t", timeout_s=20)
        cluster.down()
        wait_until(lambda: producer.info("t").state == "downtime", 20)
        for number in range(20):
            producer.produce_async("t", message(number))
        wait_until(lambda: producer.info("t").spooled_count == 20, 20)
        assert producer.close(timeout_s=0) == []
    cluster.up()
    with producer_of(cluster, tmp_path) as producer:
        wait_until(lambda: producer.statistics()["messages_spooled"] == 0, 30)
        producer.produce_sync("t", message(20), timeout_s=20)
    assert read(cluster) == [message(number) for number in range(21)]


def test_what_was_spooled_before_any_broker_answered_survives_a_kill(cluster, tmp_path):
    cluster.down()
    process = subprocess.Popen(
        [sys.executable, "-c", WITHOUT_A_BROKER, cluster.url, str(tmp_path)],
        env=environment(),
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "spooled\n"
    process.send_signal(signal.SIGKILL)
    process.wait()
    process.stdout.close()
    cluster.up()
    with producer_of(cluster, tmp_path) as producer:
        producer.produce_sync("t", (b"0", b"100"), timeout_s=30)
        wait_until(lambda: producer.statistics()["messages_spooled"] == 0, 30)
    found: dict[bytes, list[int]] = {b"%d" % key: [] for key in range(5)}
    for each in read(cluster):
        found[each.key].append(int(each.value))
    expected = {b"%d" % key: list(range(key, 100, 5)) for key in range(5)}
    expected[b"0"].append(100)
    assert found == expected


def test_what_was_spooled_before_any_broker_answered_leaves_when_one_does(cluster, tmp_path):
    cluster.down()
    with producer_of(cluster, tmp_path) as producer:
        deliveries = [producer.produce_async("t", message(number)) for number in range(50)]
        wait_until(lambda: producer.info("t").spooled_count == 50, 20)
        cluster.up()
        [sent] = deliveries[-1].result(30)
        assert sent.pointer == 49
    assert read(cluster) == [message(number) for number in range(50)]


def test_what_is_on_disk_is_delivered_though_librdkafka_has_given_it_up(cluster, tmp_path):
    settings = {"message.timeout.ms": 3000, "retry.backoff.ms": 500, "retry.backoff.max.ms": 500}
    options = {"reconnect_min_s": 0.05, "reconnect_max_s": 0.1, "strategy": "custom"}
    with Producer(cluster.url, spool_dir=tmp_path, kafka=settings, **options) as producer:
        producer.produce_sync("t", message(0), timeout_s=20)
        cluster.fail(6)  # so that it waits in librdkafka, which tries again
        under_way = producer.produce_async("t", message(1))
        cluster.down()
        wait_until(lambda: producer.info("t").spooled_count == 1, 20)
        later = producer.produce_async("t", message(2))
        library = producer._core._transport._producer  # type: ignore[union-attr]  # noqa: SLF001 - it tells nobody
        wait_until(lambda: not len(library), 20)
        cluster.up()
        for delivery in (under_way, later):
            delivery.result(30)
    assert read(cluster) == [message(number) for number in range(3)]
