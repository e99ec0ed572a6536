"""Consumers of Kafka, against librdkafka's mock cluster with brokers that fail."""

import re
import subprocess
import sys
import textwrap
import threading
from contextlib import suppress

import pytest

pytest.importorskip("confluent_kafka", reason="needs confluent-kafka: the extra poe-queue[kafka]")

from confluent_kafka import KafkaError, KafkaException, Producer

from poe.client.consumer import kafka_consumer
from poe.client.consumer.consumer import Consumer
from poe.client.consumer.kafka_consumer import KafkaSource
from poe.errors import (
    ConfigError,
    ConnectFailed,
    KafkaRefused,
    MessagesLost,
    OptionError,
    PoeError,
    UnknownTopic,
)
from poe.testing.kafka_cluster import KafkaCluster
from tests.client.consumers import Consumers
from tests.python_process import environment
from tests.waiting import wait_until

pytestmark = [pytest.mark.kafka, pytest.mark.slow]


@pytest.fixture
def cluster():
    with KafkaCluster() as cluster:
        cluster.create_topic("t")
        cluster.create_topic("many", partitions=3)
        yield cluster


@pytest.fixture(params=["blocking", "asyncio"])
def consumers(request):
    made = Consumers(request.param)
    yield made
    made.close()


@pytest.fixture
def put(cluster):
    """Puts messages, each in a request of its own, and returns when they are there."""
    producer = Producer(
        {"bootstrap.servers": cluster.addresses, "linger.ms": 0, "reconnect.backoff.max.ms": 100}
    )
    for topic in ("t", "many"):
        producer.list_topics(topic, timeout=10)  # or librdkafka looks only after a second

    def put(*values, topic="t", partition=0, **more):
        for value in values:
            producer.produce(topic, value, partition=partition, **more)
            assert producer.flush(30) == 0

    return put


def values(received):
    return [each.value for each in received]


def test_all_messages_are_read_then_it_ends_and_may_go_on(cluster, consumers, put):
    put(b"a", b"b")
    consumer = consumers(cluster.url)
    assert values(consumer) == [b"a", b"b"]
    assert values(consumer) == []
    put(b"c")
    assert values(consumer) == [b"c"]
    assert consumer.position() == {0: 2}
    assert consumer.statistics().received_count == 3


def test_the_end_is_where_it_is_when_it_is_asked_for(cluster, consumers, put):
    put(b"a")
    consumer = consumers(cluster.url)
    assert values(consumer.receive()) == [b"a"]
    put(b"b")
    assert values(consumer.receive()) == [b"b"]
    assert consumer.receive() == []


def test_a_message_comes_with_key_and_headers_and_where_it_lies(cluster, consumers, put):
    put(b"v", key=b"k", headers={"h": b"1"})
    put(None, key=b"k")
    put(b"")
    received = list(consumers(cluster.url))
    assert [each[2:] for each in received] == [
        (0, b"k", b"v", {"h": b"1"}, 0),
        (1, b"k", None, None, 1),
        (2, None, b"", None, 2),
    ]
    assert received[0].topic == b"t"
    assert received[0].partition == 0


def test_headers_are_bytes_by_name_whatever_kafka_has(cluster, consumers, put):
    put(b"v", headers=[("none", None), ("twice", b"1"), ("twice", b"2")])
    [received] = consumers(cluster.url)
    assert received.headers == {"none": b"", "twice": b"2"}


@pytest.mark.parametrize(
    ("start", "found"),
    [
        ("oldest", [b"a", b"b", b"c"]),
        ("newest", []),
        (-1, [b"a", b"b", b"c"]),
        (0, [b"b", b"c"]),
        ({0: 1}, [b"c"]),
    ],
)
def test_reading_begins_where_it_is_told(cluster, consumers, put, start, found):
    put(b"a", b"b", b"c")
    assert values(consumers(cluster.url, start=start)) == found


def test_a_position_is_where_the_next_consumer_goes_on(cluster, consumers, put):
    for partition in range(3):
        put(b"%d" % partition, topic="many", partition=partition)
    first = consumers(cluster.url, "many")
    begun = first.position()
    assert begun == {0: -1, 1: -1, 2: -1}
    [message] = first.receive()
    assert first.position() == {**begun, message.partition: 0}
    rest = values(consumers(cluster.url, "many", start=first.position()))
    assert sorted([message.value, *rest]) == [b"0", b"1", b"2"]


def test_seek_goes_back(cluster, consumers, put):
    put(b"a", b"b")
    consumer = consumers(cluster.url)
    assert values(consumer) == [b"a", b"b"]
    consumer.seek({0: 0})
    assert values(consumer) == [b"b"]
    consumer.seek("oldest")
    assert values(consumer) == [b"a", b"b"]


def test_following_waits_for_more(cluster, consumers, put):
    put(b"a")
    consumer = consumers(cluster.url, follow=True)
    assert values(consumer.receive()) == [b"a"]
    assert consumer.receive(timeout_s=0.1) == []
    later = threading.Timer(0.1, put, [b"b"])
    later.start()
    assert values(consumer.receive()) == [b"b"]
    later.join()


@pytest.mark.parametrize("follow", [True, False])
def test_a_partition_that_is_added_is_read_too(cluster, consumers, put, monkeypatch, follow):
    there = [0]
    monkeypatch.setattr(kafka_consumer, "_LOOK_FOR_PARTITIONS_S", 0.05)
    monkeypatch.setattr(KafkaSource, "_partitions", lambda self: there)
    put(b"a", topic="many")
    consumer = consumers(cluster.url, "many", follow=follow)
    assert values(consumer.receive()) == [b"a"]
    there.append(1)
    put(b"b", topic="many", partition=1)
    assert values(consumer.receive(20)) == [b"b"]
    put(b"c", topic="many")
    assert values(consumer.receive(20)) == [b"c"]
    assert consumer.position() == {0: 1, 1: 0}


@pytest.mark.parametrize(
    "refused",
    [
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError._TIMED_OUT,  # noqa: SLF001 - librdkafka's own codes begin so
    ],
)
def test_brokers_that_do_not_tell_of_new_partitions_end_no_follower(
    cluster, consumers, put, monkeypatch, refused
):
    """As one does that restarts, and knows of no topic yet."""
    answers = [[0], KafkaException(KafkaError(refused)), [0, 1]]

    def partitions(_):
        found = answers.pop(0) if len(answers) > 1 else answers[0]
        if isinstance(found, KafkaException):
            raise found
        return found

    monkeypatch.setattr(kafka_consumer, "_LOOK_FOR_PARTITIONS_S", 0.0)
    monkeypatch.setattr(KafkaSource, "_partitions", partitions)
    put(b"a", topic="many", partition=1)
    consumer = consumers(cluster.url, "many", follow=True, timeout_s=0)
    assert values(consumer.receive(20)) == [b"a"]


def test_a_consumer_goes_on_when_the_brokers_are_back(cluster, consumers, put):
    put(b"a")
    consumer = consumers(cluster.url, follow=True)
    assert values(consumer.receive()) == [b"a"]
    cluster.down()
    wait_until(lambda: consumer.receive(0.1) == [] and consumer.statistics().reconnect_count, 20)
    cluster.up()
    put(b"b")
    assert values(consumer.receive()) == [b"b"]


def test_brokers_that_stay_away_are_an_error_after_which_it_may_go_on(cluster, consumers, put):
    put(b"a")
    consumer = consumers(cluster.url, follow=True, timeout_s=0.3)
    assert values(consumer.receive()) == [b"a"]
    cluster.down()
    with pytest.raises(ConnectFailed, match="refused"):
        consumer.receive()
    cluster.up()
    put(b"b")
    found = []

    def is_back():
        # A broker that is back need not be found again within 0.3 s.
        with suppress(ConnectFailed):
            found.extend(consumer.receive())
        return found

    wait_until(is_back, timeout_s=20)
    assert values(found) == [b"b"]


def test_nobody_there_is_told(consumers):
    with pytest.raises(ConnectFailed):
        consumers("kafka://127.0.0.1:1", timeout_s=0).receive()


def test_deleted_messages_are_told_and_what_is_left_is_read(cluster, consumers, put):
    put(b"a", b"b", b"c", b"d")
    cluster.trim("t", 0, 2)
    consumer = consumers(cluster.url, start={0: 0})
    for _ in range(2):
        with pytest.raises(MessagesLost) as lost:
            consumer.receive()
    assert (lost.value.pointer_low, lost.value.pointer_high) == (1, 1)
    consumer.seek({0: lost.value.pointer_high})
    assert values(consumer) == [b"c", b"d"]


def test_deleted_messages_are_skipped_where_that_is_asked_for(cluster, consumers, put):
    put(b"a", b"b", b"c", b"d")
    cluster.trim("t", 0, 2)
    consumer = consumers(cluster.url, start={0: 0}, on_lost="skip")
    assert values(consumer) == [b"c", b"d"]
    assert consumer.statistics().lost_count == 1


def test_a_pointer_behind_the_end_is_an_error(cluster, consumers, put):
    put(b"a")
    with pytest.raises(KafkaRefused, match="ends before offset 8, at 1"):
        consumers(cluster.url, start=7).receive()


LIST_OFFSETS = 2


@pytest.mark.parametrize(
    "code",
    [
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.REQUEST_TIMED_OUT,
    ],
)
def test_a_question_where_a_partition_begins_that_fails_leaves_nothing_out(
    cluster, consumers, put, code
):
    put(b"a", b"b")
    consumer = consumers(cluster.url)
    assert values(consumer) == [b"a", b"b"]
    cluster.fail(code, request=LIST_OFFSETS)
    consumer.seek("oldest")
    assert values(consumer) == [b"a", b"b"]


@pytest.mark.parametrize(
    "told",
    [
        KafkaError._TRANSPORT,  # noqa: SLF001 - librdkafka's own codes begin so
        KafkaError._DESTROY_BROKER,  # noqa: SLF001
        KafkaError._UNKNOWN_PARTITION,  # noqa: SLF001
        KafkaError.FENCED_LEADER_EPOCH,
        KafkaError.UNKNOWN_LEADER_EPOCH,
        KafkaError.OFFSET_NOT_AVAILABLE,
        KafkaError.REPLICA_NOT_AVAILABLE,
        KafkaError.KAFKA_STORAGE_ERROR,
    ],
)
def test_a_question_before_the_first_message_is_asked_again_where_what_it_meets_may_pass(
    cluster, consumers, put, monkeypatch, told
):
    """What librdkafka tells of a lost connection depends on how far it has noticed."""
    errors = [KafkaException(KafkaError(told))]
    ask = KafkaSource._offset_at  # noqa: SLF001 - of librdkafka each comes now and then

    def offset_at(*arguments):
        if errors:
            raise errors.pop()
        return ask(*arguments)

    monkeypatch.setattr(KafkaSource, "_offset_at", offset_at)
    put(b"a", b"b")
    assert values(consumers(cluster.url)) == [b"a", b"b"]


def test_what_the_brokers_refuse_to_tell_is_an_error(cluster, consumers, put):
    put(b"a")
    cluster.fail(KafkaError.TOPIC_AUTHORIZATION_FAILED, request=LIST_OFFSETS)
    with pytest.raises(KafkaRefused, match="authorization"):
        consumers(cluster.url).receive()


def test_where_what_is_left_begins_is_asked_until_it_is_told(cluster, consumers, put):
    put(b"a", b"b", b"c", b"d")
    cluster.trim("t", 0, 2)
    cluster.fail(KafkaError.NOT_LEADER_FOR_PARTITION, request=LIST_OFFSETS)
    assert values(consumers(cluster.url, start={0: 0}, on_lost="skip")) == [b"c", b"d"]


def test_a_topic_that_there_is_not_is_an_error(cluster, consumers):
    with pytest.raises(UnknownTopic):
        consumers(cluster.url, "none").receive()


@pytest.mark.parametrize("topic", ["a/b", "ä", "a" * 250, "."])
def test_a_name_that_kafka_does_not_take_is_told(topic):
    with pytest.raises(PoeError, match="name"):
        Consumer("kafka://127.0.0.1:1", topic)


def test_a_partition_that_there_is_not_is_an_error(cluster, consumers):
    with pytest.raises(OptionError, match="partitions up to 0"):
        consumers(cluster.url, start={1: 5}).receive()


@pytest.mark.parametrize(
    ("name", "value", "instead"),
    [
        ("auto.offset.reset", "earliest", "on_lost"),
        ("enable.partition.eof", False, "follow"),
        ("default.topic.config", {"auto.offset.reset": "earliest"}, "beside the others"),
    ],
)
def test_a_setting_in_the_place_of_an_option_names_that(consumers, name, value, instead):
    """With one messages were left out without a word, with the other reading never ended."""
    with pytest.raises(OptionError, match=f"{re.escape(name)}.*{instead}"):
        consumers("kafka://localhost:9092", kafka={name: value})


def test_a_setting_that_cannot_be_used_is_named(consumers):
    with pytest.raises(ConfigError, match=r"fetch\.mni\.bytes"):
        consumers("kafka://localhost:9092", kafka={"fetch.mni.bytes": 1})


def test_a_callback_that_raises_keeps_no_consumer_from_closing(
    cluster, consumers, put, monkeypatch, caplog
):
    class Raising:
        """Calls a function of the user's, which raises, as it is closed."""

        def __init__(self, *arguments, **settings):
            self.library = library(*arguments, **settings)

        def __getattr__(self, name):
            return getattr(self.library, name)

        def close(self):
            self.library.close()
            raise ValueError

    library = vars(kafka_consumer)["Consumer"]
    monkeypatch.setattr(kafka_consumer, "Consumer", Raising)
    put(b"a")
    consumer = consumers(cluster.url)
    consumer.receive()
    consumer.close()
    assert "a callback in option 'kafka' raised" in caplog.text


def test_a_callback_that_raises_costs_no_message(cluster, consumers, put):
    """librdkafka may hand out messages in the moment in which it calls."""
    calls: list[str] = []

    def callback(statistics):
        calls.append(statistics)
        if len(calls) <= 3:
            raise ValueError

    put(b"a", b"b")
    settings = {"statistics.interval.ms": 1, "stats_cb": callback}
    consumer = consumers(cluster.url, follow=True, batch=1, kafka=settings)
    received = [consumer.receive(20)[0].value for _ in b"ab"]
    wait_until(lambda: consumer.receive(0.1) == [] and len(calls) > 3, 20)
    put(b"c")
    assert received + values(consumer.receive(20)) == [b"a", b"b", b"c"]


def test_a_forked_process_ends_though_it_has_a_copy(cluster, put):
    put(b"a")
    program = f"""
        import os, sys
        from poe.client import Consumer
        consumer = Consumer({cluster.url!r}, "t")
        consumer.receive()
        pid = os.fork()
        if not pid:
            sys.exit(7)
        print("child", os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)
        consumer.close()
        """
    run = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)],
        env=environment(),
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert run.stdout == "child 7\n"
