import subprocess
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

import poe
from poe.client import Buffered, Failed, Message, Producer, Sent
from poe.client.producer.topic_queues import TopicQueues
from poe.errors import (
    BrokerDown,
    BufferFull,
    CallTimeout,
    DeliveryTimeout,
    Dropped,
    InvalidMessage,
    InvalidPayload,
    InvalidTopicName,
    LocalProtocolError,
    OptionError,
    Overloaded,
    PickerFailed,
    PoeError,
    ProducerClosed,
    UnknownOption,
    WouldBlock,
)
from poe.protocol.envelope import decode
from tests.forks import exit_code_of, fork
from tests.ports import free_port
from tests.protocol.scripted_server import Peer, ScriptedServer, older, pointer_body
from tests.python_process import environment
from tests.waiting import wait_until

pytestmark = pytest.mark.slow

OVERLOADED = Overloaded("in_flight_max", 1)


def pointer_of(result):
    """The pointer of what must be one result."""
    assert isinstance(result, Sent)
    return result.pointer


def url_of(node):
    return "poe://{}:{}".format(*node.address)


def stored(node, topic):
    """All messages of a topic with their pointers."""
    records, pointer = [], 0
    while (found := node.next(topic, pointer)) is not None:
        records.append(found)
        pointer = found[0]
    return records


def messages(node, topic):
    return [message for _, message in stored(node, topic)]


def test_each_way_to_produce_tells_where_its_messages_are(node, url, topic):
    with Producer(url, linger_s=1.0) as producer:
        one = producer.produce_sync(topic, b"a")
        several = producer.produce_sync(topic, [b"b", b"c"])
        at_once = producer.publish(topic, b"d").result(5)
        batched = producer.produce_async_batched(topic, [b"e", b"f"])
        assert producer.batch(topic, b"g") == Buffered(0, 3)
        later = batched.result(5)
    records = stored(node, topic)
    pointers = [pointer for pointer, _ in records]
    assert [message for _, message in records] == [b"a", b"b", b"c", b"d", b"e", b"f", b"g"]
    name = topic.encode()
    assert one == Sent(name, 0, pointers[0], 1)
    assert several == Sent(name, 0, pointers[2], 2)
    assert at_once == Sent(name, 0, pointers[3], 1)
    assert later == Sent(name, 0, pointers[5], 2)


def test_messages_with_keys_get_a_result_each_in_their_order(node, url, topic):
    with Producer(url, partitions=3, strategy="custom", envelope=True) as producer:
        data = [(b"k%d" % (i % 5), b"v%d" % i) for i in range(50)]
        results = producer.produce_sync(topic, data)
    found = [result for result in results if isinstance(result, Sent)]
    for (key, value), sent in zip(data, found, strict=True):
        record = node.next(f"{topic}-{sent.partition}", sent.pointer - 1)
        assert record[0] == sent.pointer
        assert decode(record[1])[:2] == (key, value)
    of_keys = {(key, sent.partition) for (key, _), sent in zip(data, found, strict=True)}
    assert len(of_keys) == 5  # each key has one partition


def test_headers_come_along_in_an_envelope(node, url, topic):
    with Producer(url, envelope=True) as producer:
        producer.produce_sync(topic, Message(b"v", b"k", {"h": b"1"}))
    assert decode(messages(node, topic)[0]) == (b"k", b"v", {"h": b"1"})


def test_keys_that_are_not_stored_are_told_once(node, url, topic, caplog):
    with Producer(url) as producer:
        for _ in range(3):
            producer.produce_sync(topic, (b"k", b"v"))
    assert messages(node, topic) == [b"v"] * 3
    assert caplog.text.count("are not stored; use envelope=True") == 1


def test_a_picker_that_fails_for_some_leaves_the_others(node, url, topic):
    def picker(_topic, key, _partitions):
        return 7 if key == b"bad" else 1

    with Producer(url, partitions=2, picker=picker) as producer:
        results = producer.produce_sync(topic, [(b"good", b"a"), (b"bad", b"b"), (b"good", b"c")])
        assert isinstance(results[1], Failed)
        assert isinstance(results[1].error, PickerFailed)
        with pytest.raises(PickerFailed):
            producer.produce_sync(topic, [(b"bad", b"a")])
        assert producer.statistics()["messages_buffered"] == 0
    assert messages(node, f"{topic}-1") == [b"a", b"c"]


def test_strict_round_robin_takes_partitions_in_turn_in_sync_calls_too(url, topic):
    with Producer(url, partitions=3, strategy="strict_round_robin") as producer:
        partitions = [producer.produce_sync(topic, b"m").partition for _ in range(6)]
    assert partitions == [0, 1, 2, 0, 1, 2]


def test_options_are_by_topic(url, topic):
    with Producer(url, partitions={topic: 2, "*": 1}) as producer:
        assert len(producer.metadata(topic).partitions) == 2
        assert len(producer.metadata(topic + "-other").partitions) == 1


def test_wrong_arguments_are_told_at_once(url, topic):
    with pytest.raises(UnknownOption, match="linger_s"):
        Producer(url, linger=1)
    with pytest.raises(OptionError, match="poe://host:port"):
        Producer("http://127.0.0.1:1")
    with Producer(url) as producer:
        with pytest.raises(InvalidPayload, match="encode it"):
            producer.produce_async(topic, "text")
        with pytest.raises(InvalidPayload, match="1 byte or more"):
            producer.produce_async(topic, b"")
        with pytest.raises(LocalProtocolError):
            producer.produce_async("", b"a")


def test_a_refusal_of_the_broker_is_raised(url, topic):
    with Producer(url) as producer:
        with pytest.raises(InvalidMessage):
            producer.produce_sync(topic, b"x" * (17 << 20))
        assert producer.produce_sync(topic, b"fine").count == 1
        with pytest.raises(InvalidTopicName):
            producer.produce_sync("a" * 300, b"m")


def test_small_messages_are_stored_though_a_batch_of_them_is_more_than_frame_max(tmp_path, topic):
    """Each of them fits; what the node refuses is what the producer has made of them."""
    names = [b"%01000d" % number for number in range(300)]
    with poe.Node(dir=tmp_path, port=0, frame_max=65536) as node:
        with Producer(url_of(node)) as producer:
            one_call = producer.produce_sync(topic, names[:200])
            deliveries = [producer.produce_async(topic, name) for name in names[200:]]
            sent = [delivery.result(10.0) for delivery in deliveries]
        found = stored(node, topic)
    assert one_call.count == 200
    assert [message for _, message in found] == names
    assert [pointer for pointer, _ in found[199:]] == list(map(pointer_of, [one_call, *sent]))


def test_what_no_frame_takes_is_told_at_once(url, topic):
    with Producer(url) as producer:
        producer.produce_sync(topic, b"a")
        begun_s = time.monotonic()
        with pytest.raises(LocalProtocolError):
            producer.produce_sync(topic, b"x" * (65 << 20), timeout_s=30)
        assert time.monotonic() - begun_s < 10.0


def test_messages_of_many_threads_are_each_stored_once_in_the_order_of_their_thread(
    node, url, topic
):
    def produce(name):
        deliveries = [
            producer.produce_async_batched(topic, b"%d %d" % (name, i)) for i in range(2000)
        ]
        deliveries += [
            producer.produce_async(topic, [b"%d %d" % (name, 2000 + i)]) for i in range(200)
        ]
        for delivery in deliveries:
            delivery.result(20)

    with Producer(url, batch_count=100, buffer_count=1000) as producer:
        threads = [threading.Thread(target=produce, args=[i]) for i in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    numbers: dict[int, list[int]] = {}
    for message in messages(node, topic):
        name, number = map(int, message.split())
        numbers.setdefault(name, []).append(number)
    assert numbers == {name: list(range(2200)) for name in range(4)}


def test_with_on_full_raise_a_full_buffer_is_an_error(topic):
    with Producer(f"poe://127.0.0.1:{free_port()}", buffer_count=2, on_full="raise") as producer:
        producer.produce_async(topic, b"a")
        producer.produce_async(topic, b"b")
        with pytest.raises(BufferFull):
            producer.produce_async(topic, b"c")
        assert [message for each in producer.close(0) for message in each.messages] == [b"a", b"b"]


def test_a_full_buffer_blocks_for_so_long_and_then_raises(topic):
    url = f"poe://127.0.0.1:{free_port()}"
    with Producer(url, buffer_count=1, block_timeout_s=0.05) as producer:
        producer.produce_async(topic, b"a")
        with pytest.raises(BufferFull):
            producer.produce_async(topic, b"b")
        producer.close(0)


def test_sync_without_a_broker_is_an_error_in_time_and_withdrawn(tmp_path, topic):
    port = free_port()
    with Producer(f"poe://127.0.0.1:{port}") as producer:
        wait_until(lambda: producer.info(topic).state == "downtime")
        with pytest.raises(BrokerDown, match="withdrawn"):
            producer.produce_sync(topic, b"never", timeout_s=0.05)
        with pytest.raises(BrokerDown):
            producer.produce_sync(topic, [(b"k", b"never")], timeout_s=0.05)
        kept = producer.produce_async(topic, b"kept")
        with poe.Node(dir=tmp_path / "data", port=port) as late:
            assert kept.result(10).count == 1
            assert producer.produce_sync(topic, b"later").count == 1
            assert messages(late, topic) == [b"kept", b"later"]


def test_a_node_that_is_stopped_and_started_gets_what_came_meanwhile_in_order(tmp_path, topic):
    events = []

    def note(event, _worker, _state, _data, extra):
        events.append((event, extra))

    names = ("worker_up", "worker_down", "time_down", "downtime_saved", "downtime_replayed")
    folder = tmp_path / "data"
    with poe.Node(dir=folder, port=0) as first:
        url = url_of(first)
        producer = Producer(url, callbacks=dict.fromkeys(names, note))
        producer.produce_sync(topic, b"0")
        port = int(url.rpartition(":")[2])
    wait_until(lambda: producer.info(topic).state == "downtime")
    deliveries = [producer.produce_async_batched(topic, b"%d" % i) for i in range(1, 100)]
    assert producer.info(topic).buffered_count == 99
    with poe.Node(dir=folder, port=port) as second:
        for delivery in deliveries:
            delivery.result(10)
        wait_until(lambda: "time_down" in dict(events))
        assert producer.close() == []
        assert messages(second, topic) == [b"%d" % i for i in range(100)]
    kinds = [event for event, _ in events]
    assert kinds[:2] == ["worker_up", "worker_down"]
    assert kinds.count("downtime_saved") == 99
    assert len(dict(events)["downtime_replayed"]) == 99
    assert dict(events)["time_down"] > 0


def test_downtime_keeps_only_so_many_messages_and_tells_of_the_others(tmp_path, topic):
    port = free_port()
    dropped = []
    producer = Producer(
        f"poe://127.0.0.1:{port}",
        downtime_count=5,
        callbacks={"max_downtime_buffer_reached": lambda *args: dropped.append(args[-1])},
    )
    wait_until(lambda: producer.info(topic).state == "downtime")
    deliveries = producer.produce_async(topic, [b"%d" % i for i in range(10)])
    assert dropped == [[b"0", b"1", b"2", b"3", b"4"]]
    assert producer.statistics()["messages_dropped"] == 5
    with poe.Node(dir=tmp_path / "data", port=port) as node:
        with pytest.raises(Dropped):
            deliveries.result(10)
        assert messages(node, topic) == [b"5", b"6", b"7", b"8", b"9"]
        assert producer.close() == []


def test_close_delivers_what_waits(node, url, topic):
    producer = Producer(url, linger_s=60.0)
    deliveries = [producer.produce_async_batched(topic, b"%d" % i) for i in range(2500)]
    assert producer.close() == []
    assert all(delivery.done() for delivery in deliveries)
    assert len(messages(node, topic)) == 2500
    assert producer.close() == []
    for method in (producer.produce_async, producer.produce_sync, producer.batch):
        with pytest.raises(ProducerClosed):
            method(topic, b"late")


def test_what_a_server_refuses_is_counted_and_logged_though_nobody_looks(url, topic, caplog):
    with Producer(url) as producer:
        producer.produce_async(topic, b"good")
        producer.produce_async(topic, b"x" * (17 << 20))
    assert "1 messages are given up" in caplog.text
    statistics = producer.statistics()
    assert (statistics["messages_delivered"], statistics["messages_failed"]) == (1, 1)
    assert (statistics["messages_buffered"], statistics["workers"]) == (0, 0)


def test_close_without_a_broker_ends_in_time_and_returns_what_it_has(topic):
    producer = Producer(f"poe://127.0.0.1:{free_port()}", partitions=2, strategy="custom")
    delivery = producer.produce_async(topic, b"a")
    producer.produce_async_batched(topic + "2", [(b"k", b"b")])
    begun_s = time.monotonic()
    undelivered = producer.close(0.2)
    assert time.monotonic() - begun_s < 3.0
    assert [each.messages for each in undelivered] == [[b"a"], [Message(b"b", b"k")]]
    assert isinstance(delivery.exception(0), ProducerClosed)


def test_a_call_whose_picker_takes_longer_than_the_producer_lives_is_refused(url, topic):
    ends: list[Callable[[], object]] = []

    def picker(_topic, _key, partitions):
        for end in ends:
            end()
        return partitions[0]

    producer = Producer(url, picker=picker)
    producer.metadata(topic)
    ends.append(partial(producer.close, timeout_s=0))  # or another thread does so
    with pytest.raises(ProducerClosed):
        producer.produce_async(topic, [(b"k", b"v")])
    assert producer.statistics()["messages_buffered"] == 0


def test_what_a_picker_is_asked_about_while_the_producer_ends_is_returned(away, monkeypatch):
    is_asked, is_given_up = threading.Event(), threading.Event()
    give_up_all = TopicQueues.give_up_all

    def give_up_and_tell(topic, error):
        found = give_up_all(topic, error)
        is_given_up.set()
        return found

    def picker(_topic, _key, partitions):
        is_asked.set()
        is_given_up.wait(20)
        return partitions[0]

    monkeypatch.setattr(TopicQueues, "give_up_all", give_up_and_tell)
    producer = Producer(away.url, picker=picker, reconnect_max_s=0.1)
    delivery = producer.produce_async("t", b"a")
    away.start()
    assert is_asked.wait(20)
    [left] = producer.close(timeout_s=0)
    assert left.messages == [b"a"]
    assert isinstance(delivery.exception(0), ProducerClosed)
    assert producer.statistics()["messages_buffered"] == 0


@pytest.mark.parametrize("name", ["prepare", "metadata"])
def test_who_waits_for_a_broker_is_told_that_the_producer_was_closed(name):
    producer = Producer(f"poe://127.0.0.1:{free_port()}", strategy="custom")
    call = partial(getattr(producer, name), "t", timeout_s=30)
    errors: list[PoeError] = []

    def wait():
        try:
            call()
        except PoeError as error:
            errors.append(error)

    thread = threading.Thread(target=wait, daemon=True)
    thread.start()
    wait_until(lambda: producer.info("t").state == "downtime")
    producer.close()
    thread.join(20)
    assert [type(each) for each in errors] == [ProducerClosed]
    for late in (call, partial(producer.pick, "t")):
        with pytest.raises(ProducerClosed):
            late()


def test_a_producer_that_was_never_used_can_be_closed(url):
    assert Producer(url).close() == []


def test_a_callback_may_produce(node, url, topic):
    with Producer(url) as producer:
        done = threading.Event()

        def go_on(delivery):
            assert delivery.exception() is None
            producer.produce_async(topic, b"second").add_done_callback(lambda _: done.set())

        producer.produce_async(topic, b"first").add_done_callback(go_on)
        assert done.wait(5)
    assert messages(node, topic) == [b"first", b"second"]


def test_a_callback_that_would_wait_for_its_own_thread_is_told_so(node, url, topic):
    with Producer(url) as producer:
        raised: list[str] = []

        def block(_):
            other = producer.produce_async_batched(topic, b"b")
            produce = partial(producer.produce_sync, topic, b"never")
            for call in (producer.flush, producer.close, produce, other.result):
                try:
                    call()
                except WouldBlock as error:
                    raised.append(error.call)

        delivery = producer.produce_async(topic, b"a")
        delivery.add_done_callback(block)
        wait_until(lambda: len(raised) == 4)
        # A thread that waits for an answer runs callbacks, too.
        wait_until(lambda: producer.info(topic).state == "ready")
        queue = producer._core.topics[topic].only  # noqa: SLF001 - so that both are one batch
        assert queue is not None
        first = queue.add_one(b"c", is_due=False)
        first.add_done_callback(block)
        assert producer.produce_sync(topic, b"d").count == 1
        wait_until(lambda: len(raised) == 8)
    assert b"never" not in messages(node, topic)


def test_when_the_tree_gives_up_nobody_is_left_waiting_and_close_ends_the_rest(topic):
    threads = set(threading.enumerate())
    with Producer(f"poe://127.0.0.1:{free_port()}") as producer:
        delivery = producer.produce_async(topic, b"a")
        core: Any = producer._core  # noqa: SLF001 - to break something
        core._system.exit(core._sup, "kill")  # noqa: SLF001
        with pytest.raises(ProducerClosed, match="has failed"):
            delivery.result(10)
        with pytest.raises(ProducerClosed):
            producer.produce_async(topic, b"b")
    assert set(threading.enumerate()) <= threads


def test_a_picker_is_asked_where_there_is_only_one_partition_too(url, topic):
    asked = []

    def picker(*arguments):
        asked.append(arguments)
        return 0

    with Producer(url, picker=picker) as producer:
        for _ in range(2):
            producer.produce_sync(topic, b"a")
    assert asked == [(topic.encode(), None, (0,))] * 2


def test_two_producers_may_have_the_same_metrics(url, topic):
    pytest.importorskip("prometheus_client")
    options = {"metrics": ["prometheus"]}
    with Producer(url, **options) as one, Producer(url, **options) as other:
        assert one.produce_sync(topic, b"a").count == other.produce_sync(topic, b"b").count


def test_a_forked_process_has_a_producer_of_its_own(node, url, topic):
    with Producer(url, linger_s=60.0) as producer:
        producer.produce_sync(topic, b"before")
        waiting = producer.produce_async_batched(topic, b"of the parent")

        def go_on():
            assert isinstance(waiting.exception(0), ProducerClosed)
            producer.produce_sync(topic, b"of the child", timeout_s=10)
            assert producer.close() == []

        assert exit_code_of(fork(go_on)) == 0
        producer.produce_sync(topic, b"after")
        assert waiting.result(5).count == 1
    assert messages(node, topic) == [b"before", b"of the child", b"of the parent", b"after"]


def test_info_and_pick_tell_of_workers(url, topic):
    with Producer(url) as producer:
        assert producer.prepare(topic, lambda info: info.state) == "ready"
        assert producer.pick(topic, lambda worker: worker.partitions) == (0,)
        (worker,) = producer.info(topic).workers
        assert (worker.state, worker.in_flight_count) == ("ready", 0)
    with Producer(f"poe://127.0.0.1:{free_port()}") as producer, pytest.raises(BrokerDown):
        producer.prepare(topic, timeout_s=0.05)


def test_partitions_are_dealt_out_to_workers(url, topic):
    with Producer(url, partitions=5, workers=2) as producer:
        producer.prepare(topic)
        wait_until(lambda: [w.state for w in producer.info(topic).workers] == ["ready"] * 2)
        assert [worker.partitions for worker in producer.info(topic).workers] == [
            (0, 2, 4),
            (1, 3),
        ]
        sent = [producer.produce_async(topic, b"%d" % i) for i in range(100)]
        assert all(delivery.result(5).count == 1 for delivery in sent)


def test_without_order_one_partition_may_have_several_workers(node, url, topic):
    with Producer(url, workers=3, ordered=False) as producer:
        producer.prepare(topic)
        wait_until(lambda: [w.state for w in producer.info(topic).workers] == ["ready"] * 3)
        for i in range(300):
            producer.produce_async(topic, b"%d" % i)
        assert producer.flush(10)
    assert sorted(map(int, messages(node, topic))) == list(range(300))


# ---- hostile peers --------------------------------------------------------------------------


def test_a_peer_that_closes_each_connection_is_tried_again_with_the_same_number():
    numbers = []

    def script(peer: Peer) -> None:
        kind, body = peer.receive()
        numbers.append((kind, body[:24]))
        if len(numbers) == 3:
            peer.send(3, pointer_body(7))
            peer.wait_closed()

    with (
        ScriptedServer(older(script)) as server,
        Producer(f"poe://127.0.0.1:{server.port}") as producer,
    ):
        assert pointer_of(producer.produce_sync("t", b"m", timeout_s=10)) == 7
    assert numbers == [numbers[0]] * 3
    assert numbers[0][0] == 4


def test_a_server_without_room_is_asked_less_and_less_often_and_its_reason_is_told(
    tmp_path, caplog
):
    refused: list[object] = []
    with (
        poe.Node(dir=tmp_path / "data", port=0, connections_max=1) as node,
        Producer(url_of(node)) as first,
        Producer(
            url_of(node), callbacks={"worker_still_down": lambda *args: refused.append(args[-1])}
        ) as second,
    ):
        first.produce_sync("t", b"0")
        begun_s = time.monotonic()
        delivery = second.produce_async("t", b"1")
        wait_until(lambda: len(refused) >= 3, timeout_s=30)
        assert time.monotonic() - begun_s > 0.1 + 0.2
        assert "connections_max" in str(second.info("t").last_error)
        with pytest.raises((BrokerDown, CallTimeout, DeliveryTimeout), match="connections_max"):
            second.produce_sync("t", b"2", timeout_s=0.1)
        told = [each for each in caplog.records if each.name.endswith("topic_producer")]
        assert 1 <= len(told) <= 2
        first.close()
        delivery.result(10)


def test_threads_that_wait_for_answers_get_theirs_whenever_the_peer_closes():
    """Whoever waits receives for all others; a connection may end at any moment of it."""
    numbers: dict[bytes, int] = {}

    def script(peer: Peer) -> None:
        for _ in range(30):
            try:
                _, body = peer.receive()
            except EOFError:
                return
            pointer = numbers.setdefault(body[:24], len(numbers) + 1)
            peer.send(3, pointer_body(pointer))

    def produce():
        results.extend(producer.produce_sync("t", b"m", timeout_s=20) for _ in range(100))

    results: list[Sent] = []
    with (
        ScriptedServer(older(script)) as server,
        Producer(f"poe://127.0.0.1:{server.port}") as producer,
    ):
        threads = [threading.Thread(target=produce) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len(results) == 400


def test_a_peer_that_sends_nonsense_is_hung_up_on():
    count = 0

    def script(peer: Peer) -> None:
        nonlocal count
        count += 1
        peer.receive()
        if count == 1:
            peer.send_bytes(b"\xff" * 100)
        elif count == 2:
            peer.send(3, b"short")
        else:
            peer.send(3, pointer_body(7))
        peer.wait_closed()

    with (
        ScriptedServer(older(script)) as server,
        Producer(f"poe://127.0.0.1:{server.port}") as producer,
    ):
        assert pointer_of(producer.produce_sync("t", b"m", timeout_s=10)) == 7


def test_a_peer_that_says_nothing_is_given_up_and_the_caller_is_told():
    def script(peer: Peer) -> None:
        peer.receive()
        peer.wait_closed()

    with ScriptedServer(older(script)) as server:
        producer = Producer(f"poe://127.0.0.1:{server.port}", request_timeout_s=0.1)
        with pytest.raises(CallTimeout, match="may have been done"):
            producer.produce_sync("t", b"m")
        wait_until(lambda: producer.info("t").workers and producer.info("t").workers[0].id > 1)
        assert len(producer.close(0.1)) == 1


def test_a_peer_that_refuses_for_a_while_gets_it_again():
    def script(peer: Peer) -> None:
        for _ in range(2):
            peer.receive()
            peer.send_error(OVERLOADED.code, "Overloaded", str(OVERLOADED), **vars(OVERLOADED))
        peer.receive()
        peer.send(3, pointer_body(7))
        peer.wait_closed()

    with (
        ScriptedServer(older(script)) as server,
        Producer(f"poe://127.0.0.1:{server.port}") as producer,
    ):
        assert pointer_of(producer.produce_sync("t", b"m", timeout_s=10)) == 7


def test_replies_byte_by_byte_are_put_together():
    def script(peer: Peer) -> None:
        for pointer in (5, 6):
            peer.receive()
            peer.send_bytes(b"\0\0\0\x09\0\x03" + pointer_body(pointer), piece_size=1)
        peer.wait_closed()

    with (
        ScriptedServer(older(script)) as server,
        Producer(f"poe://127.0.0.1:{server.port}") as producer,
    ):
        assert [pointer_of(producer.produce_sync("t", b"m")) for _ in range(2)] == [5, 6]


def test_a_peer_that_reads_slowly_gets_all_in_the_end(node, url, topic):
    large = [b"%03d" % i + b"x" * 500_000 for i in range(60)]
    with Producer(url, in_flight=64) as producer:
        for message in large:
            producer.produce_async(topic, message)
        assert producer.flush(30)
    assert messages(node, topic) == large


def test_the_actors_of_a_topic_that_are_killed_are_started_again(node, url, topic):
    with Producer(url) as producer:
        producer.produce_sync(topic, b"a")
        before = producer._core.topics[topic].workers[0]  # noqa: SLF001 - to break something
        system = producer._core._system  # noqa: SLF001
        assert system is not None
        system.exit(f"workers of {topic.encode()!r}", "kill")
        wait_until(lambda: producer._core.topics[topic].workers not in ([], [before]))  # noqa: SLF001
        assert producer.produce_sync(topic, b"b", timeout_s=10).count == 1
    assert messages(node, topic) == [b"a", b"b"]


def test_the_end_of_a_program_that_closes_no_producer_is_told_with_what_it_loses():
    url = f"poe://127.0.0.1:{free_port()}"
    program = """if True:
        import sys
        from poe.client import Producer
        lost, closed = Producer(sys.argv[1]), Producer(sys.argv[1])
        lost.produce_async("t", [b"a", b"b"])
        lost.produce_async_batched("t", b"c")
        lost.produce_async("u", (b"key", b"d"))
        closed.produce_async("closed", b"e")
        closed.close(0)
        """
    ended = subprocess.run(
        [sys.executable, "-c", program, url],
        env=environment(),
        capture_output=True,
        text=True,
        timeout=100,
        check=True,
    )
    why = "messages were not delivered: the program ends and has not closed its producer"
    told = [line for line in ended.stderr.splitlines() if "has not closed" in line]
    assert sorted(told) == [f"topic b't': 3 {why}", f"topic b'u': 1 {why}"]
