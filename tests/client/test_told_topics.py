"""Producers and consumers learn from the server what a topic has; no option contradicts it."""

from typing import Any

import pytest

from poe.client import AsyncConsumer, AsyncProducer, Consumer, Producer
from poe.client.consumer import poe_source
from poe.client.consumer.poe_source import PoeSource
from poe.client.producer.payload import Message
from poe.errors import InvalidPayload, PropertyMismatch
from tests.ports import free_port
from tests.waiting import wait_until

WAIT_S = 10


@pytest.fixture
def url(node):
    return f"poe://{node.address[0]}:{node.address[1]}"


def everything(url, topic, **options):
    with Consumer(url, topic, **options) as consumer:
        return [(each.partition, each.key, each.value) for each in consumer]


def test_partitions_and_envelope_need_no_option(node, url):
    node.create_topic("t", partitions=3, envelope=True)
    with Producer(url, strategy="strict_round_robin") as producer:
        assert len(producer.metadata("t").partitions) == 3
        for number in range(6):
            message = Message(value=b"%d" % number, key=b"k", headers={"h": b"1"})
            producer.produce_sync("t", message)
    held = node.describe("t").partitions
    assert [each.messages for each in held] == [2, 2, 2]
    found = everything(url, "t")
    assert sorted(found) == sorted((n % 3, b"k", b"%d" % n) for n in range(6))
    assert sorted(everything(url, "t", partitions=3, envelope=True)) == sorted(found)


async def test_tasks_need_none_either(node, url):
    node.create_topic("t", partitions=2, envelope=True)
    async with AsyncProducer(url) as producer:
        await producer.metadata("t")
        await producer.produce_sync("t", Message(value=None, key=b"k"))
    async with AsyncConsumer(url, "t") as consumer:
        [message] = await consumer.receive()
    assert (message.key, message.value) == (b"k", None)


@pytest.mark.parametrize(
    ("name", "asked", "has"), [("partitions", 2, 3), ("envelope", False, True)]
)
def test_an_option_that_contradicts_the_topic_is_an_error_with_both_values(serve, name, asked, has):
    node, options = serve(), {name: asked}
    url = f"poe://127.0.0.1:{node.address[1]}"
    node.create_topic("t", partitions=3, envelope=True)
    told = []
    with Producer(url, **options) as producer, pytest.raises(PropertyMismatch) as refused:
        producer.produce_sync("t", b"1")
    told.append(refused.value)
    with pytest.raises(PropertyMismatch) as refused, Consumer(url, "t", **options) as consumer:
        consumer.receive()
    told.append(refused.value)
    for error in told:
        assert (error.topic, error.name, error.asked, error.has) == (b"t", name, asked, has)
        assert repr(asked) in str(error)
        assert repr(has) in str(error)
    assert node.topics() == []


def test_a_topic_that_an_option_contradicts_keeps_no_other_from_its_messages(serve):
    node = serve()
    node.create_topic("t", partitions=3)
    url = f"poe://127.0.0.1:{node.address[1]}"
    with Producer(url, partitions={"t": 2}) as producer:
        with pytest.raises(PropertyMismatch):
            producer.produce_sync("t", b"1")
        assert producer.produce_sync("other", b"2", timeout_s=WAIT_S).count == 1


def test_of_topics_that_nobody_described_the_options_count(node, url):
    with Producer(url, partitions=2, envelope=True) as producer:
        for _ in range(20):
            producer.produce_sync("t", Message(value=b"1", key=b"k"))
    assert node.topics() == [b"t-0", b"t-1"]
    assert len(everything(url, "t", partitions=2, envelope=True)) == 20
    node.adopt_topic("t", partitions=2, envelope=True)
    assert len(everything(url, "t")) == 20


def test_a_topic_grows_under_a_producer_and_a_consumer(node, url, monkeypatch):
    monkeypatch.setattr(poe_source, "_LOOK_FOR_PARTITIONS_S", 0.05)
    node.create_topic("t")
    with (
        Consumer(url, "t", follow=True) as consumer,
        Producer(url, strategy="strict_round_robin", metadata_refresh_s=0.05) as producer,
    ):
        producer.produce_sync("t", b"first")
        assert [each.partition for each in consumer.receive(WAIT_S)] == [0]
        node.alter_topic("t", partitions=3)
        wait_until(lambda: len(producer.metadata("t").partitions) == 3, WAIT_S)
        found: set[int] = set()

        def is_everywhere():
            # Until a new partition has its connection, others get its messages.
            producer.produce_sync("t", b"more")
            found.update(each.partition for each in consumer.receive(WAIT_S))
            return found == {0, 1, 2}

        wait_until(is_everywhere, WAIT_S)
    assert [each.topic for each in node.describe("t").partitions] == [b"t", b"t-1", b"t-2"]


def test_who_asks_again_at_the_end_reads_a_partition_that_was_added_too(node, url, monkeypatch):
    monkeypatch.setattr(poe_source, "_LOOK_FOR_PARTITIONS_S", 0.0)
    node.create_topic("t")
    with Consumer(url, "t") as consumer:
        first = node.put("t", b"first")
        assert [each.value for each in consumer] == [b"first"]
        node.alter_topic("t", partitions=2)
        second = node.put("t-1", b"second")
        assert [each.value for each in consumer] == [b"second"]
        assert consumer.position() == {0: first, 1: second}


def test_what_waited_for_the_server_leaves_as_the_topic_wants_it(serve, tmp_path):
    port = free_port()
    first = serve(dir=tmp_path / "data", port=port)
    first.create_topic("t", partitions=2, envelope=True)
    first.stop()
    with Producer(f"poe://127.0.0.1:{port}", reconnect_max_s=0.1) as producer:
        delivery = producer.produce_async("t", b"early")
        second = serve(dir=tmp_path / "data", port=port)
        delivery.result(WAIT_S)
        assert sum(each.messages for each in second.describe("t").partitions) == 1
        found = everything(f"poe://127.0.0.1:{port}", "t")
    assert [value for _, _, value in found] == [b"early"]


def test_what_waited_for_the_server_goes_where_its_key_says(serve, tmp_path):
    port = free_port()
    first = serve(dir=tmp_path / "data", port=port)
    first.create_topic("t", partitions=3)
    first.stop()
    url = f"poe://127.0.0.1:{port}"
    messages = [(b"%d" % i, b"v") for i in range(9)]
    with Producer(url, strategy="custom", reconnect_max_s=0.1) as producer:
        early: Any = producer.produce_async("t", messages)
        wait_until(lambda: producer.info("t").state == "downtime", WAIT_S)
        serve(dir=tmp_path / "data", port=port)
        found = [each.partition for each in early.result(WAIT_S)]
        late: Any = producer.produce_sync("t", messages)
        assert found == [each.partition for each in late]
    assert set(found) == {0, 1, 2}


def test_a_value_may_be_empty_once_it_is_known_that_there_are_envelopes(node, url):
    node.create_topic("plain")
    node.create_topic("wrapped", envelope=True)
    with Producer(url) as producer:
        for topic in ("plain", "wrapped"):
            producer.metadata(topic)
        with pytest.raises(InvalidPayload):
            producer.produce_sync("plain", Message(value=None))
        producer.produce_sync("wrapped", Message(value=None))
    assert everything(url, "wrapped") == [(0, None, None)]


def test_a_partition_is_read_as_a_topic_of_its_own(node, url):
    node.create_topic("t", partitions=2, envelope=True)
    with Producer(url, picker=lambda topic, key, partitions: 1) as producer:
        producer.produce_sync("t", Message(value=b"v", key=b"k"))
    assert everything(url, "t-1") == [(0, b"k", b"v")]


def test_a_topic_that_was_made_anew_with_more_partitions_is_put_onto_as_it_is(node, url):
    node.create_topic("t")
    with Producer(url, metadata_refresh_s=0.05, picker=lambda topic, key, parts: 0) as producer:
        producer.produce_sync("t", b"1")
        node.control("delete", topic="t")
        node.create_topic("t", partitions=3)

        def is_there():
            try:
                producer.produce_sync("t", b"2")
            except PropertyMismatch:
                return False
            return True

        wait_until(is_there, WAIT_S)
    assert everything(url, "t") == [(0, None, b"2")]


def test_a_group_learns_it_too(node, url):
    node.create_topic("t", partitions=2, envelope=True)
    with Producer(url, strategy="strict_round_robin") as producer:
        for number in range(4):
            producer.produce_sync("t", Message(value=b"%d" % number, key=b"k"))
    found: set[tuple[bytes | None, bytes | None]] = set()
    with Consumer(url, "t", group="g") as consumer:
        while len(found) < 4:
            found |= {(each.key, each.value) for each in consumer.receive(WAIT_S)}
    assert found == {(b"k", b"%d" % number) for number in range(4)}
    with (
        pytest.raises(PropertyMismatch),
        Consumer(url, "t", group="h", envelope=False) as consumer,
    ):
        consumer.receive(WAIT_S)


@pytest.mark.parametrize("start", ["oldest", "newest"])
@pytest.mark.parametrize("is_looked_for_first", [False, True])
def test_who_follows_a_topic_before_it_is_made_reads_the_partitions_that_it_gets(
    node, url, monkeypatch, start, is_looked_for_first
):
    looks: list[object] = []
    find_partitions = PoeSource._find_partitions  # noqa: SLF001 - what comes first has no other sign

    async def find_and_note(source):
        looks.append(found := await find_partitions(source))
        return found

    if is_looked_for_first:
        monkeypatch.setattr(poe_source, "_LOOK_FOR_PARTITIONS_S", 0.01)
        monkeypatch.setattr(PoeSource, "_find_partitions", find_and_note)
    with Consumer(url, "t", start=start, follow=True) as consumer:
        assert consumer.receive(0.05) == []
        node.create_topic("t", partitions=2, envelope=True)
        if is_looked_for_first:
            count = len(looks)
            wait_until(lambda: len(looks) > count + 1, WAIT_S)
        with Producer(url, strategy="strict_round_robin") as producer:
            for number in range(4):
                producer.produce_sync("t", Message(value=b"%d" % number, key=b"k"))
        found: set[tuple[int, bytes | None]] = set()
        while len(found) < 4:
            found |= {(each.partition, each.value) for each in consumer.receive(WAIT_S)}
        assert {partition for partition, _ in found} == {0, 1}
        assert set(consumer.position()) == {0, 1}
