"""Times and names of topics that callers give: refused at once, or taken as they are meant."""

from functools import partial
from typing import Any

import pytest

from poe.client import AsyncProducer, Producer
from poe.errors import BrokerDown, InvalidTopicName, LocalProtocolError, OptionError
from poe.testing.broker import broker
from tests.client.producer.test_producer import stored

pytestmark = pytest.mark.slow

NO_TIMES = [float("nan"), -1, "1", True, [1]]
LONG_TIMES = [float("inf"), 1e300, pytest.param(10**400, id="huge")]


@pytest.mark.parametrize("timeout_s", NO_TIMES)
def test_what_is_no_time_is_refused_before_anything_is_taken(url, timeout_s):
    with Producer(url) as producer:
        for call in (
            partial(producer.produce_sync, "times", b"a"),
            partial(producer.prepare, "times"),
            partial(producer.metadata, "times"),
            producer.flush,
            producer.close,
        ):
            with pytest.raises(OptionError, match="timeout_s"):
                call(timeout_s=timeout_s)
        delivery = producer.produce_async("times", b"b")
        for wait in (delivery.result, delivery.exception):
            with pytest.raises(OptionError, match="timeout_s"):
                wait(timeout_s=timeout_s)
        assert delivery.result(20).count == 1
        assert producer.statistics()["messages_delivered"] == 1


@pytest.mark.parametrize("timeout_s", LONG_TIMES)
def test_a_time_may_be_as_long_as_it_likes(url, timeout_s):
    with Producer(url) as producer:
        assert producer.prepare("times", timeout_s=timeout_s).state == "ready"
        assert producer.metadata("times", timeout_s=timeout_s).partitions
        for _ in range(3):
            producer.produce_sync("times", b"a", timeout_s=timeout_s)
        delivery = producer.produce_async("times", b"b")
        assert delivery.result(timeout_s).count == 1
        assert producer.flush(timeout_s)
        assert producer.close(timeout_s) == []


def test_times_among_the_options_may_be_long_too(url, topic):
    with Producer(url, request_timeout_s=1e300, block_timeout_s=1e300, buffer_count=1) as producer:
        producer.produce_async(topic, b"a")
        producer.produce_sync(topic, b"b")
    assert producer.close() == []


def test_metrics_that_there_are_not_are_told_when_the_producer_is_made(url):
    with pytest.raises(OptionError, match="prometheus"):
        Producer(url, metrics=["promotheus"])


@pytest.mark.parametrize("name", [["t"], {"t": 1}, 1, None, "", b""])
def test_what_can_be_no_name_of_a_topic_is_refused(url, name):
    with Producer(url) as producer:
        for call in (
            partial(producer.produce_sync, data=b"a"),
            partial(producer.produce_async, data=b"a"),
            producer.prepare,
            producer.info,
        ):
            with pytest.raises(LocalProtocolError, match="topic is"):
                call(name)


@pytest.mark.parametrize("name", ["a/b", ".a", "a" * 201, "a" * 70_000])
async def test_a_name_that_the_server_refuses_is_told_before_the_first_message(url, name):
    with Producer(url) as producer:
        for call in (producer.prepare, producer.pick):
            with pytest.raises((InvalidTopicName, LocalProtocolError)):
                call(name)
    async with AsyncProducer(url) as async_producer:
        with pytest.raises((InvalidTopicName, LocalProtocolError)):
            await async_producer.prepare(name)


def test_a_name_that_is_far_too_long_is_short_in_the_log(url, caplog):
    with Producer(url) as producer, pytest.raises(InvalidTopicName):
        producer.produce_sync("a" * 60_000, b"message")
    assert 0 < len(caplog.text) < 2000


def test_a_name_that_is_too_long_with_its_partition_is_told(url):
    with Producer(url, partitions=2) as producer:
        assert producer.prepare("a" * 198).state == "ready"
        with pytest.raises(InvalidTopicName):
            producer.prepare("a" * 199)


def test_a_server_that_escapes_names_takes_them():
    with broker(names="escape") as server, Producer(server.url) as producer:
        assert producer.prepare("a/b").state == "ready"
        producer.produce_sync("a/b", b"message")
        assert [each.value for each in server.collected("a/b")] == [b"message"]


def test_a_name_is_not_refused_while_nobody_answers():
    with broker() as server, Producer(server.url) as producer:
        server.stop()
        with pytest.raises(BrokerDown):
            producer.prepare("a/b", timeout_s=0.1)
        server.start()
        with pytest.raises(InvalidTopicName):
            producer.prepare("a/b", timeout_s=30)


def test_a_name_may_be_of_any_kind_of_bytes(url, node, topic):
    with Producer(url) as producer:
        name: Any
        for name in (bytearray(topic.encode()), memoryview(bytearray(topic.encode()))):
            producer.produce_sync(name, b"a")
    assert len(stored(node, topic)) == 2
