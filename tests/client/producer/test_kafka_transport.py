"""The transport of Kafka, against librdkafka's mock cluster with brokers that fail."""

import asyncio
import subprocess
import sys
import textwrap
import time
from typing import Any

import pytest

pytest.importorskip("confluent_kafka", reason="needs confluent-kafka: the extra poe-queue[kafka]")

from confluent_kafka import Consumer, TopicPartition

from poe.client import Failed, Producer, Sent
from poe.client.producer.payload import Message
from poe.client.producer.producer_options import ProducerOptions
from poe.client.producer.transport import OutgoingBatch, PartlyStored, transport_of
from poe.errors import (
    ConfigError,
    ConnectFailed,
    ConnectionClosed,
    DeliveryTimeout,
    KafkaNotReady,
    KafkaRefused,
    LocalProtocolError,
    OptionError,
    ProducerClosed,
    UnknownTopic,
)
from poe.testing.kafka_cluster import KafkaCluster
from tests.python_process import environment

pytestmark = pytest.mark.kafka


@pytest.fixture
def cluster():
    with KafkaCluster() as cluster:
        cluster.create_topic("t", partitions=2)
        yield cluster


class Sender:
    """A transport and its current link, as a worker has them."""

    def __init__(self, url, **options):
        options = {"reconnect_min_s": 0.05, "reconnect_max_s": 0.1} | options
        self.transport = transport_of(url, ProducerOptions.load(options))
        self.lost = asyncio.Event()
        self.reason = ""

    async def connect(self):
        broker = (await self.transport.metadata(b"t")).brokers[0]
        self.lost.clear()
        self.link = await self.transport.connect(b"t", broker, self._note_lost)
        return self

    def send(self, *messages, partition=0):
        return self.send_batch(OutgoingBatch(b"t", partition, list(messages), None, 1))

    def send_batch(self, batch):
        answered = asyncio.get_running_loop().create_future()

        def take(answer):
            answered.set_result(answer)
            return True

        self.link.send(batch, take)
        assert not answered.done()
        return answered

    def _note_lost(self, reason):
        self.reason = reason
        self.lost.set()


@pytest.fixture
async def sender(cluster):
    sender = Sender(cluster.url, kafka={"retry.backoff.ms": 10, "retry.backoff.max.ms": 10})
    yield await sender.connect()
    sender.transport.close()


def stored(cluster, partition=0):
    """What a consumer finds, until there is nothing more."""
    consumer = Consumer(
        {"bootstrap.servers": cluster.addresses, "group.id": "g", "enable.partition.eof": True}
    )
    consumer.assign([TopicPartition("t", partition, 0)])
    found = []
    while (message := consumer.poll(10)) is not None and message.error() is None:
        found.append(message)
    consumer.close()
    return found


async def test_metadata_tells_partitions_and_brokers(cluster, sender):
    metadata = await sender.transport.metadata(b"t")
    assert metadata.topic == b"t"
    assert [(each.id, each.leader) for each in metadata.partitions] == [(0, 1), (1, 1)]
    assert [f"{each.host}:{each.port}" for each in metadata.brokers] == [cluster.addresses]


async def test_a_leader_that_is_not_among_the_brokers_is_none():
    with KafkaCluster(brokers=2) as cluster:
        cluster.create_topic("t", partitions=2)
        for partition in (0, 1):
            cluster.set_leader("t", partition, partition + 1)
        cluster.down(2)
        transport = Sender(cluster.url).transport
        metadata = await transport.metadata(b"t")
        assert [(each.id, each.leader) for each in metadata.partitions] == [(0, 1), (1, None)]
        transport.close()


async def test_topics_are_asked_for_side_by_side(sender):
    topics = [b"one", b"two", b"three"]
    found = await asyncio.gather(*map(sender.transport.metadata, topics))
    assert [each.topic for each in found] == topics


async def test_a_topic_is_created_by_asking_for_it(sender):
    assert len((await sender.transport.metadata(b"new")).partitions) == 4


async def test_an_answer_is_the_offset_of_the_last_message(sender):
    first = sender.send(b"a", b"b", b"c")
    second = sender.send(b"d")
    other = sender.send(b"e", partition=1)
    assert [await first, await second, await other] == [2, 3, 0]


async def test_messages_arrive_with_key_and_headers(cluster, sender):
    await sender.send(Message(b"v", b"k"), Message(None, b"gone"), Message(b"", None))
    await sender.send(Message(b"v", b"k", {"h": b"1"}), Message(b"w"), partition=1)
    assert [(each.key(), each.value()) for each in stored(cluster)] == [
        (b"k", b"v"),
        (b"gone", None),
        (None, b""),
    ]
    assert [(each.value(), each.headers()) for each in stored(cluster, 1)] == [
        (b"v", [("h", b"1")]),
        (b"w", None),
    ]


@pytest.mark.slow
async def test_latency_delays_answers_and_not_sending(cluster, sender):
    await sender.send(b"a")
    cluster.set_latency(0.3)
    start_s = time.monotonic()
    answer = sender.send(b"b")
    assert time.monotonic() - start_s < 0.2
    assert await answer == 1
    assert time.monotonic() - start_s >= 0.3


@pytest.mark.parametrize("code", [6, 7])
async def test_errors_that_pass_are_retried(cluster, sender, code):
    cluster.fail(code, code)
    assert await sender.send(b"a") == 0
    assert await sender.send(b"b") == 1


async def test_an_error_that_stays_refuses_the_batch(cluster, sender):
    cluster.fail(10)
    error = await sender.send(b"a")
    assert type(error) is KafkaRefused
    assert (error.kafka_code, error.retriable) == (10, False)
    assert await sender.send(b"b") == 0


async def test_a_message_that_is_too_large_is_told_and_its_neighbours_are_stored(sender):
    answer = await sender.send(b"a", bytes(2_000_000), b"b")
    assert type(answer) is PartlyStored
    assert type(answer.error) is KafkaRefused
    assert "1 of 3 messages" in str(answer.error)
    assert [answer.error_in(place, place + 1) is None for place in range(3)] == [True, False, True]
    assert (answer.all[0], answer.all[2]) == (0, 1)
    assert await sender.send(b"c") == 2


def test_a_call_that_is_refused_fails_no_other_one_of_its_batch(cluster):
    gathering = {"batch_count": 6, "linger_s": 60.0}
    with Producer(cluster.url, **gathering, kafka={"message.max.bytes": 2000}) as producer:
        cluster.create_topic("one")
        producer.prepare("one", timeout_s=20)
        large = bytes(3000)
        calls = [b"a", [b"b", large], large, [b"c", b"d"]]
        deliveries = [producer.produce_async_batched("one", each) for each in calls]
        first, mixed, alone, last = (each.exception(20) for each in deliveries)
        assert (first, last) == (None, None)
        assert "for 1 of 2 messages; the others are stored" in str(mixed)
        assert type(alone) is KafkaRefused
        assert "others" not in str(alone)
        assert deliveries[0].result() == Sent(b"one", 0, 0, 1)
        assert deliveries[3].result() == Sent(b"one", 0, 3, 2)
        counts = producer.statistics()
        assert (counts["messages_delivered"], counts["messages_failed"]) == (4, 2)


def test_a_message_with_a_key_fails_for_itself(cluster):
    with Producer(cluster.url, strategy="custom", kafka={"message.max.bytes": 2000}) as producer:
        payload = [(b"k", b"a"), Message(bytes(3000), b"k", {"h": b"1"}), (b"k", b"b")]
        sent: Any = producer.produce_sync("t", payload, timeout_s=20)
        assert [type(each) for each in sent] == [Sent, Failed, Sent]
        assert [each.pointer for each in sent if type(each) is Sent] == [0, 1]


def test_what_a_broker_refuses_of_a_batch_is_found_among_what_is_like_it(cluster):
    one_by_one = {"batch.num.messages": 1, "max.in.flight.requests.per.connection": 1}
    gathering = {"batch_count": 4, "linger_s": 60.0}
    with Producer(cluster.url, **gathering, kafka=one_by_one) as producer:
        cluster.create_topic("alike")
        producer.prepare("alike", timeout_s=20)
        cluster.fail(0, 10)
        payloads = [b"ping", (b"key", b"ping"), b"ping", b"pong"]
        deliveries = [producer.produce_async_batched("alike", each) for each in payloads]
        failed = [each.exception(20) is not None for each in deliveries]
        assert failed == [False, True, False, False]


class Failing:
    """A library that takes some messages with headers, and then raises."""

    def __init__(self, library, count, error):
        self._library = library
        self._count = count
        self._error = error

    def produce(self, *arguments, **more):
        if not self._count:
            raise self._error
        self._count -= 1
        self._library.produce(*arguments, **more)


@pytest.fixture
def failing(sender, monkeypatch):
    """Have the library raise at the message behind so many."""
    library = sender.transport._producer  # noqa: SLF001 - a signal comes when it likes
    return lambda *what: monkeypatch.setattr(
        sender.transport, "_producer", Failing(library, *what) if what else library
    )


WITH_HEADERS = [Message(b"%d" % i, None, {"h": b"1"}) for i in range(3)]


async def test_what_the_library_has_no_room_for_is_told_and_its_neighbours_are_stored(
    cluster, sender, failing
):
    failing(1, BufferError("Local: Queue full"))
    answer = await sender.send(*WITH_HEADERS)
    assert type(answer) is PartlyStored
    assert "Queue full, for 2 of 3 messages" in str(answer.error)
    assert type(answer.error_in(1, 3)) is KafkaNotReady
    assert [each.value() for each in stored(cluster)] == [b"0"]
    failing(0, BufferError("Local: Queue full"))
    error = await sender.send(*WITH_HEADERS)
    assert type(error) is KafkaNotReady
    assert error.retriable


async def test_an_interrupt_among_messages_keeps_none_behind_them_waiting(sender, failing):
    answers: list[Any] = []

    def take(answer):
        answers.append(answer)
        return True

    failing(1, KeyboardInterrupt())
    batch = OutgoingBatch(b"t", 0, WITH_HEADERS, None, 3)
    with pytest.raises(KeyboardInterrupt):
        sender.link.send(batch, take)
    failing()
    assert await sender.send(b"next") == 1
    assert "for 2 of 3 messages" in str(answers[0].error)


async def test_an_interrupt_before_the_first_message_refuses_none_for_good(sender, failing):
    """It may come to a thread that sends what others have put."""
    answers: list[Any] = []
    failing(0, KeyboardInterrupt())
    batch = OutgoingBatch(b"t", 0, WITH_HEADERS, None, 3)
    with pytest.raises(KeyboardInterrupt):
        sender.link.send(batch, answers.append)
    failing()
    assert await sender.send_batch(batch) == 2
    assert type(answers[0]) is KafkaNotReady
    assert answers[0].retriable


async def test_an_interrupt_before_plain_messages_are_given_keeps_none_behind_them_waiting(sender):
    """As while the list that the library wants is made of them."""

    class Interrupting(list[bytes]):
        def __iter__(self):
            raise KeyboardInterrupt

    def take(answer):
        answers.append(answer)
        return True

    answers: list[Any] = []
    batch = OutgoingBatch(b"t", 0, Interrupting([b"a", b"b"]), None, 2)
    with pytest.raises(KeyboardInterrupt):
        sender.link.send(batch, take)
    assert await sender.send(b"c") == 0
    assert type(answers[0]) is KafkaNotReady
    assert answers[0].retriable


async def test_an_interrupt_behind_plain_messages_refuses_none(sender, monkeypatch):
    class Interrupted:
        def produce_batch(self, *arguments, **more):
            library.produce_batch(*arguments, **more)
            raise KeyboardInterrupt

    library = sender.transport._producer  # noqa: SLF001 - a signal comes when it likes
    answered = asyncio.get_running_loop().create_future()

    def take(answer):
        answered.set_result(answer)
        return True

    with monkeypatch.context() as patch:
        patch.setattr(sender.transport, "_producer", Interrupted())
        with pytest.raises(KeyboardInterrupt):
            sender.link.send(OutgoingBatch(b"t", 0, [b"a", b"b"], None, 2), take)
    assert await sender.send(b"c") == 2
    assert await answered == 1


async def test_a_partition_that_there_is_not_is_refused(sender):
    assert type(await sender.send(b"a", b"b", partition=7)) is KafkaRefused


async def test_what_is_not_retried_may_be_sent_again(cluster):
    settings = {"enable.idempotence": False, "acks": 1, "retries": 0}
    sender = await Sender(cluster.url, kafka=settings).connect()
    cluster.fail(19)
    error = await sender.send(b"a")
    assert type(error) is KafkaNotReady
    assert error.retriable
    sender.transport.close()


@pytest.mark.slow
async def test_a_batch_under_way_when_all_brokers_are_lost_is_answered_over_the_next_link(
    cluster, sender
):
    assert await sender.send(b"a") == 0
    cluster.down()
    batch = OutgoingBatch(b"t", 0, [b"b", b"c"], None, 2)
    unanswered = sender.send_batch(batch)  # the loss is not known yet
    await sender.lost.wait()
    assert type(await sender.send(b"x")) is ConnectionClosed
    cluster.up()
    await sender.connect()
    assert await sender.send_batch(batch) == 2
    assert not unanswered.done()
    assert [each.value() for each in stored(cluster)] == [b"a", b"b", b"c"]


@pytest.mark.slow
async def test_a_library_that_has_given_up_is_replaced(cluster, sender):
    assert await sender.send(b"a") == 0
    cluster.fail(45)  # out of order: an idempotent producer cannot go on
    refused = OutgoingBatch(b"t", 0, [b"b"], None, 1)
    answer = sender.send_batch(refused)
    await sender.lost.wait()
    await sender.connect()
    if not answer.done():  # else the library has told of the batch before it told of its end
        answer = sender.send_batch(refused)
    assert type(await answer) is KafkaRefused
    assert await sender.send(b"c") == 1


@pytest.mark.slow
async def test_what_a_library_that_has_given_up_did_not_send_is_sent_by_the_next_one(cluster):
    settings = {"max.in.flight.requests.per.connection": 1, "batch.num.messages": 1}
    sender = await Sender(cluster.url, kafka=settings).connect()
    assert await sender.send(b"a") == 0
    cluster.set_latency(0.3)
    cluster.fail(45)
    batches = [OutgoingBatch(b"t", 0, [b"%d" % i], None, 1) for i in range(5)]
    answers = [sender.send_batch(batch) for batch in batches]
    await sender.lost.wait()
    cluster.set_latency(0)
    await sender.connect()
    for i, batch in enumerate(batches):
        if not answers[i].done():
            answers[i] = sender.send_batch(batch)
    assert type(await answers[0]) is KafkaRefused
    assert [await answer for answer in answers[1:]] == [1, 2, 3, 4]
    assert [each.value() for each in stored(cluster)] == [b"a", b"1", b"2", b"3", b"4"]
    sender.transport.close()


@pytest.mark.slow
async def test_messages_that_are_too_old_are_given_up(cluster):
    sender = await Sender(cluster.url, delivery_timeout_s={"t": 0.2, "*": 0.1}).connect()
    await sender.send(b"a")
    cluster.down()
    await sender.lost.wait()
    sender.link.is_over = False  # as if nobody had heard of it yet
    error = await sender.send(b"b")
    assert type(error) is DeliveryTimeout
    assert error.timeout_s == 0.2
    sender.transport.close()


@pytest.mark.parametrize(
    ("options", "setting", "expected"),
    [
        ({"delivery_timeout_s": 2147483.647}, "message.timeout.ms", 2**31 - 1),
        ({"delivery_timeout_s": 50 * 86_400}, "message.timeout.ms", 0),
        ({"delivery_timeout_s": 1e300}, "message.timeout.ms", 0),
        ({"request_timeout_s": 1e-9}, "socket.timeout.ms", 10),
        ({"request_timeout_s": 1e300}, "socket.timeout.ms", 300_000),
        ({"reconnect_min_s": 1e5, "reconnect_max_s": 1e300}, "reconnect.backoff.ms", 3_600_000),
        ({"reconnect_max_s": 1e300}, "reconnect.backoff.max.ms", 3_600_000),
    ],
)
def test_a_time_that_librdkafka_does_not_know_is_the_nearest_that_it_does(
    options, setting, expected
):
    """It takes what is left of a greater number: 50 days were 7 hours."""
    transport: Any = Sender("kafka://127.0.0.1:1", **options).transport
    assert transport._settings()[setting] == expected  # noqa: SLF001 - what it is told
    transport.close()


async def test_what_a_closed_transport_has_is_given_up(cluster, sender):
    await sender.send(b"a")
    cluster.set_latency(5)
    answer = sender.send(b"b")
    sender.transport.close()
    assert type(await answer) is ProducerClosed


async def test_what_a_closed_transport_has_is_given_up_whatever_callbacks_raise(cluster):
    class Raising:
        """A library that calls a function of the user's, which raises, as it is flushed."""

        def __init__(self, library):
            self._library = library
            self._raised = 0

        def __getattr__(self, name):
            return getattr(self._library, name)

        def flush(self, timeout_s):
            if self._raised < 3:
                self._raised += 1
                raise ValueError
            return self._library.flush(timeout_s)

    sender = Sender(cluster.url)
    transport: Any = sender.transport
    transport._producer = Raising(transport._producer)  # noqa: SLF001 - it calls when it likes
    await sender.connect()
    await sender.send(b"a")
    cluster.set_latency(5)
    answer = sender.send(b"b")
    transport.close()
    assert type(await asyncio.wait_for(answer, 20)) is ProducerClosed


async def test_nobody_there_is_told_with_the_reason(cluster):
    sender = Sender(cluster.url, request_timeout_s=2)
    cluster.close()
    with pytest.raises(ConnectFailed, match="refused"):
        await sender.connect()
    sender.transport.close()


@pytest.mark.slow
def test_a_process_whose_producer_is_closed_without_a_broker_ends_at_once(cluster):
    cluster.close()
    program = f"""
        import sys, threading
        from poe.client import Producer
        producer = Producer({cluster.url!r})
        assert threading.active_count() == 1, "an unused one has no thread"
        producer.produce_async("t", b"m")
        assert len(producer.close(timeout_s=0.1)) == 1
        print("closed", flush=True)
    """
    with subprocess.Popen(
        [sys.executable, "-X", "dev", "-c", textwrap.dedent(program)],
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline() == "closed\n"
        process.wait(20)
        assert "destroyed" not in process.stderr.read()


@pytest.mark.slow
async def test_brokers_that_speak_no_tls_are_told(cluster):
    sender = Sender(cluster.url, request_timeout_s=1, kafka={"security.protocol": "ssl"})
    with pytest.raises(ConnectFailed, match="SSL"):
        await sender.connect()
    sender.transport.close()


async def test_a_topic_that_there_is_not_is_told(cluster):
    settings = {"allow.auto.create.topics": False}
    transport = Sender(cluster.url, request_timeout_s=0.2, kafka=settings).transport
    with pytest.raises(UnknownTopic):
        await transport.metadata(b"none")
    with pytest.raises(LocalProtocolError, match="no name for Kafka"):
        await transport.metadata("Straße".encode())
    transport.close()


@pytest.mark.slow
def test_a_name_that_kafka_refuses_is_told_before_the_first_message(cluster):
    with Producer(cluster.url) as producer:
        for call in (producer.prepare, producer.metadata):
            with pytest.raises(LocalProtocolError, match="no name for Kafka"):
                call("Straße", timeout_s=2)


@pytest.mark.parametrize(
    ("name", "value", "kind"),
    [
        ("compresion.type", "lz4", ConfigError),
        ("compression.codec", "brotli", ConfigError),
        ("security.protocol", ["ssl"], ConfigError),
        ("acks", 1, ConfigError),
        ("bootstrap.servers", "other:9092", OptionError),
        ("transactional.id", "x", OptionError),
    ],
)
def test_a_setting_that_cannot_be_used_is_named(name, value, kind):
    with pytest.raises(kind, match=name):
        Sender("kafka://localhost:9092", kafka={name: value})


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
async def test_compression_passes_through(cluster, codec):
    sender = await Sender(cluster.url, kafka={"compression.type": codec}).connect()
    value = b"poe" * 1000
    assert await sender.send(value, value) == 1
    assert [each.value() for each in stored(cluster)] == [value, value]
    sender.transport.close()


@pytest.mark.slow
def test_a_forked_process_ends_though_it_has_a_copy(cluster):
    told = output_of(
        f"""
        import os, sys
        transport = transport_of({cluster.url!r}, ProducerOptions())
        pid = os.fork()
        if not pid:
            transport.close()
            del transport
            sys.exit(7)
        print("child", os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
        """
    )
    assert told == "child 7\n"


@pytest.mark.slow
def test_the_extra_that_is_missing_is_named():
    told = output_of(
        """
        import sys
        sys.modules["confluent_kafka"] = None
        transport_of("kafka://localhost:9092", ProducerOptions())
        """
    )
    assert "KafkaMissing: kafka:// needs confluent-kafka" in told


def output_of(program):
    """What a program of its own prints; it ends by itself."""
    imports = (
        "from poe.client.producer.producer_options import ProducerOptions\n"
        "from poe.client.producer.transport import transport_of\n"
    )
    run = subprocess.run(
        [sys.executable, "-c", imports + textwrap.dedent(program)],
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        timeout=20,
    )
    return run.stdout
