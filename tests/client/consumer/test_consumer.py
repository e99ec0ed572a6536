"""What both consumers do, against real nodes."""

import asyncio
import gc
import os
import signal
import socket
import threading
from datetime import UTC, datetime
from operator import attrgetter
from typing import Any

import pytest

from poe import Node
from poe.client.consumer.async_consumer import AsyncConsumer
from poe.client.consumer.consumer import Consumer
from poe.errors import (
    CallTimeout,
    ConnectFailed,
    ConsumerClosed,
    CorruptRecord,
    InvalidTopicName,
    MessagesLost,
    OptionError,
    PoeError,
)
from tests.client.closing import close_at_each_place, told_at_close
from tests.client.consumers import VALUES, put_segments, url, values
from tests.forks import exit_code_of, fork
from tests.ports import free_port
from tests.waiting import wait_until

# ---- reading ------------------------------------------------------------------------------------


def test_all_messages_come_in_order_and_say_where_they_lie(node, consumer):
    last = node.put_many("t", VALUES)
    received = list(consumer())
    assert values(received) == VALUES
    assert [each.pointer for each in received] == list(range(last - 9, last + 1))
    assert [each.ordinal for each in received] == list(range(10))
    assert {(each.topic, each.partition, each.key, each.headers) for each in received} == {
        (b"t", 0, None, None)
    }


def test_messages_of_all_sizes_come_as_they_were(node, consumer):
    sent = [bytes([number % 256]) * (1 + number * 37 % 5000) for number in range(3000)]
    node.put_many("t", sent)
    assert values(consumer(fetch_bytes=100_000)) == sent


def test_reading_ends_where_the_topic_does_and_goes_on_when_there_is_more(node, consumer):
    reader = consumer()
    assert list(reader) == []
    node.put("t", b"a")
    assert values(reader) == [b"a"]
    assert reader.receive() == []
    node.put("t", b"b")
    assert values(reader.receive()) == [b"b"]


def test_a_batch_has_as_many_messages_as_were_asked_for(node, consumer):
    node.put_many("t", VALUES)
    assert [len(batch) for batch in consumer(batch=4).batches()] == [4, 4, 2]
    reader = consumer(batch=4)
    assert values(reader.receive() + reader.receive()) == VALUES[:8]


def test_columns_hold_what_was_not_handed_out_before(node, consumer):
    last = node.put_many("t", VALUES)
    reader = consumer(batch=3)
    reader.receive()
    (columns,) = reader.columns()
    pointers = list(range(last - 6, last + 1))
    assert columns[:6] == (0, pointers, range(3, 10), VALUES[3:], None, None)
    assert reader.position() == {0: last}


def test_a_loop_that_was_left_goes_on_in_the_next_one(node, consumer):
    node.put_many("t", VALUES)
    reader = consumer()
    for received in reader:
        if received.value == VALUES[3]:
            break
    assert values(reader.receive()) == VALUES[4:]


def test_the_position_is_that_of_the_message_that_was_handed_out_last(node, consumer):
    last = node.put_many("t", VALUES)
    reader = consumer()
    assert reader.position() == {0: 0}
    for received in reader:
        assert reader.position() == {0: received.pointer}
    assert reader.position() == {0: last}
    resumed = consumer(start=reader.position())
    node.put("t", b"next")
    assert values(resumed) == [b"next"]


def test_the_position_outlives_the_consumer_and_drops_what_was_not_handed_out(node, consumer):
    last = node.put_many("t", VALUES)
    reader = consumer()
    iterator = iter(reader)
    next(iterator)
    reader.close()
    assert list(iterator) == []
    assert reader.position() == {0: last - 9}


@pytest.mark.parametrize(
    ("start", "expected"),
    [
        *(("oldest", VALUES), (0, VALUES), (-1, VALUES), ({}, VALUES), ("newest", [])),
        (datetime.min, VALUES),  # noqa: DTZ901 - as it is written for "all that there is"
        (datetime(1960, 1, 1, tzinfo=UTC), VALUES),
    ],
)
def test_a_consumer_begins_where_it_is_told(node, consumer, start, expected):
    node.put_many("t", VALUES)
    reader = consumer(start=start)
    reader.position()
    node.put("t", b"later")
    assert values(reader) == [*expected, b"later"]


def test_a_consumer_begins_behind_a_pointer(node, consumer):
    last = node.put_many("t", VALUES)
    assert values(consumer(start=last - 3)) == VALUES[-3:]
    assert values(consumer(start={0: last - 1})) == VALUES[-1:]


def test_newest_of_a_topic_that_is_made_later_is_all_of_it(node, consumer):
    with consumer(start="newest") as reader:
        node.put("t", b"first")
        assert values(reader) == [b"first"]


def test_seek_goes_back_and_forth(node, consumer):
    last = node.put_many("t", VALUES)
    reader = consumer(batch=2)
    reader.receive()
    reader.seek(last - 1)
    assert reader.position() == {0: last - 1}
    assert values(reader) == VALUES[-1:]
    reader.seek("oldest")
    assert values(reader.receive()) == VALUES[:2]
    reader.seek("newest")
    assert list(reader) == []
    with pytest.raises(OptionError, match="start"):
        reader.seek("somewhere")
    reader.seek({0: last - 2})
    assert values(reader) == VALUES[-2:]


@pytest.mark.parametrize(
    ("start", "told"),
    [({5: 1}, "use partitions up to 0"), (1 << 56, "out of range"), ({0: 1 << 60}, "out of range"),
     ("somewhere", "use oldest, newest,"), (1 << 70, "use oldest, newest,"), (None, "a pointer")],
)  # fmt: skip
def test_a_seek_that_is_refused_changes_nothing(node, consumer, start, told):
    last = node.put_many("t", VALUES)
    for before in (0, 3, 10):
        reader = consumer(batch=1)
        for _ in range(before):
            reader.receive()
        for _ in range(2):
            with pytest.raises(PoeError, match=told):
                reader.seek(start)
        assert reader.position() == {0: last - 10 + before if before else 0}
        assert values(reader) == VALUES[before:]


def test_a_seek_that_fails_half_way_goes_on_where_it_was(tmp_path, consumers):
    with Node(dir=tmp_path, port=0) as node:
        last = node.put_many("t", VALUES)
        reader = consumers(node, batch=4, timeout_s=0)
        reader.receive()
        port = int(url(node).rpartition(":")[2])
    with pytest.raises(ConnectFailed):
        reader.seek("newest")
    assert reader.position() == {0: last - 6}
    with Node(dir=tmp_path, port=port) as node:
        assert values(reader) == VALUES[4:]


# ---- partitions ---------------------------------------------------------------------------------


@pytest.mark.parametrize("turns", range(12))
@pytest.mark.parametrize("options", [{}, {"group": "g"}], ids=["alone", "group"])
async def test_a_seek_that_is_cancelled_leaves_nothing_out_and_brings_nothing_twice(
    node, turns, options
):
    """Wherever it is, and though what comes next was fetched already."""
    node.put_many("t", VALUES)
    async with AsyncConsumer(url(node), "t", batch=1, fetch_bytes=1, **options) as reader:
        found = [(await reader.receive())[0].value]
        while await reader.receive(timeout_s=0):
            found.append(VALUES[len(found)])
        await asyncio.sleep(0.05)  # for what is fetched meanwhile
        seeking = asyncio.ensure_future(reader.seek({}))
        for _ in range(turns):
            await asyncio.sleep(0)
        seeking.cancel()
        await asyncio.gather(seeking, return_exceptions=True)
        found += [each.value async for each in reader]
    assert found == VALUES


def test_partitions_are_topics_and_come_each_in_order(node, consumer):
    for number in range(30):
        node.put(f"t-{number % 3}", b"%d" % number)
    received = list(consumer(partitions=3))
    for partition in range(3):
        mine = [int(each.value) for each in received if each.partition == partition]
        assert mine == list(range(partition, 30, 3))
    assert {each.topic for each in received} == {b"t"}


@pytest.mark.slow
def test_partitions_take_turns_however_much_one_of_them_has(node, consumer):
    for partition, count in enumerate((2000, 20, 20)):
        node.put_many(f"t-{partition}", [b"m"] * count)
    turns = [batch[0].partition for batch in consumer(partitions=3, batch=1).batches()]
    # Ten batches are fetched at a time; the others may connect later, but need not wait for all.
    first = turns[:1000]
    assert first.count(1) == first.count(2) == 20
    assert len(turns) == 2040


def test_each_partition_has_its_own_position(node, consumer):
    lasts = {p: node.put_many(f"t-{p}", [b"%d%d" % (p, n) for n in range(5)]) for p in range(2)}
    reader = consumer(partitions=2)
    assert len(list(reader)) == 10
    assert reader.position() == lasts
    reader.seek({1: lasts[1] - 1})
    assert reader.position() == {**lasts, 1: lasts[1] - 1}
    assert values(reader) == [b"14"]
    assert values(consumer(partitions=2, start={0: lasts[0]})) == [b"1%d" % n for n in range(5)]


def test_a_partition_that_there_is_not_is_an_error(consumer):
    with pytest.raises(OptionError, match="start"):
        consumer(partitions=2, start={2: 5}).receive()


# ---- following ----------------------------------------------------------------------------------


def test_a_follower_gets_what_comes_later(node, consumer):
    reader = consumer(follow=True)
    assert reader.receive(0.01) == []
    putter = threading.Timer(0.05, node.put, ["t", b"later"])
    putter.start()
    assert values(reader.receive()) == [b"later"]
    putter.join()
    assert reader.receive(0.01) == []
    node.put("t", b"again")
    assert values(reader.receive(10)) == [b"again"]


def test_a_follower_of_partitions_gets_what_comes_in_any(node, consumer):
    reader = consumer(follow=True, partitions=3)
    assert reader.receive(0.01) == []
    for partition in (2, 0, 1):
        node.put(f"t-{partition}", b"%d" % partition)
        assert values(reader.receive(10)) == [b"%d" % partition]


# ---- damage and loss ----------------------------------------------------------------------------


@pytest.fixture
def damaged(node, tmp_path):
    """A topic whose fifth and sixth record are overwritten, header and all."""
    pointer = node.put_many("t", VALUES)
    (path,) = (tmp_path / "data" / "topics" / "t").glob("*_data")
    record_bytes = 11 + len(VALUES[0])
    with path.open("r+b") as file:
        file.seek(4 * record_bytes)
        file.write(b"\xee" * record_bytes * 2)
    return pointer - len(VALUES)


def test_damage_is_an_error_that_says_where_to_go_on(damaged, consumer):
    reader = consumer()
    assert values(reader.receive()) == VALUES[:4]
    assert reader.position() == {0: damaged + 4}
    for behind in (damaged + 5, damaged + 6):
        for _ in range(2):
            with pytest.raises(CorruptRecord, match="poe check") as caught:
                reader.receive()
            assert caught.value.pointer == behind
        reader.seek(behind)
    assert values(reader) == VALUES[6:]


def test_damage_can_be_skipped_and_is_counted(damaged, consumer, caplog):
    reader = consumer(on_corrupt="skip")
    assert values(reader) == VALUES[:4] + VALUES[6:]
    assert reader.statistics().corrupt_count == 2
    assert f"pointers {damaged + 5} to {damaged + 5} are damaged" in caplog.text


def test_what_was_deleted_before_it_was_read_is_an_error(shedding, consumers):
    first, second, third = put_segments(shedding, b"1", b"2", b"3")
    shedding.control("trim", topic=b"t", pointer=second)
    reader = consumers(shedding, "t", start=first)
    for _ in range(2):
        with pytest.raises(MessagesLost, match='on_lost="skip"') as caught:
            reader.receive()
    lost = caught.value
    assert (lost.topic, lost.partition, lost.pointer_low) == (b"t", 0, first + 1)
    assert second <= lost.pointer_high < third
    reader.seek(lost.pointer_high)
    assert values(reader) == [b"3"]


def test_before_the_first_message_nothing_is_lost(node, consumers):
    node.put_many("t", VALUES)
    reader = consumers(node, "t", start=5)
    assert values(reader) == VALUES
    assert reader.statistics().lost_count == 0


def test_what_was_deleted_before_it_was_read_can_be_passed_by(shedding, consumers, caplog):
    first, second, _ = put_segments(shedding, b"1", b"2", b"3")
    shedding.control("trim", topic=b"t", pointer=second)
    reader = consumers(shedding, "t", start=first, on_lost="skip")
    assert values(reader) == [b"3"]
    assert reader.statistics().lost_count == 1
    assert "it was deleted before it was read" in caplog.text


def test_who_begins_at_the_newest_message_has_lost_none_of_those_before(shedding, consumers):
    _, second = put_segments(shedding, b"1", b"2")
    reader = consumers(shedding, "t", start="newest")
    assert reader.position() == {0: second}
    shedding.control("trim", topic=b"t", pointer=second)
    assert reader.receive() == []
    shedding.put("t", b"3")
    assert values(reader) == [b"3"]


def test_what_is_deleted_while_it_is_read_is_an_error_too(shedding, consumers):
    put_segments(shedding, b"1")
    reader = consumers(shedding, "t", batch=1)
    assert values(reader.receive()) == [b"1"]
    reader.seek(reader.position())  # what was read ahead is forgotten, as when a server restarts
    second, _ = put_segments(shedding, b"2", b"3")
    shedding.control("trim", topic=b"t", pointer=second)
    with pytest.raises(MessagesLost) as caught:
        reader.receive()
    reader.seek(caught.value.pointer_high)
    assert values(reader) == [b"3"]


def test_a_topic_that_was_deleted_is_lost_from_where_it_was_read(node, consumers):
    pointer = node.put_many("t", VALUES)
    reader = consumers(node, "t", start=pointer - 5)
    node.control("delete", topic=b"t")
    with pytest.raises(
        MessagesLost, match=f"nothing with pointers from {pointer - 4} on;"
    ) as caught:
        reader.receive()
    assert caught.value.pointer_high is None


def is_waiting(reader):
    """Whether it knows that it has read everything, which nothing else tells."""
    consumer = reader if isinstance(reader, Consumer) else reader._consumer  # noqa: SLF001
    source: Any = consumer._cursor._source  # noqa: SLF001
    return source._turns._readers[0]._is_at_end  # noqa: SLF001


def test_who_came_to_the_end_loses_nothing_when_that_is_deleted(shedding, consumers):
    (first,) = put_segments(shedding, b"1")
    reader = consumers(shedding, "t")
    assert values(reader) == [b"1"]
    shedding.control("trim", topic=b"t", pointer=first)
    put_segments(shedding, b"2", b"3")
    assert values(reader) == [b"2", b"3"]


def test_who_waits_at_the_end_loses_nothing_when_that_is_deleted(shedding, consumers):
    (first,) = put_segments(shedding, b"1")
    reader = consumers(shedding, "t", follow=True)
    assert values(reader.receive()) == [b"1"]
    while not is_waiting(reader):
        assert reader.receive(0.01) == []
    shedding.control("trim", topic=b"t", pointer=first)
    put_segments(shedding, b"2", b"3")
    assert values(reader.receive() + reader.receive()) == [b"2", b"3"]


# ---- servers that are away ----------------------------------------------------------------------


def test_a_server_that_is_not_there_is_an_error_after_a_while_and_then_no_more(tmp_path, consumers):
    port = free_port()
    reader = consumers(f"poe://127.0.0.1:{port}", "t", timeout_s=0.15)
    with pytest.raises(ConnectFailed, match=f"127.0.0.1:{port}"):
        reader.receive()
    assert reader.statistics().reconnect_count >= 2
    with Node(dir=tmp_path, port=port) as node:
        node.put("t", b"m")
        assert values(reader.receive()) == [b"m"]


def test_without_patience_the_first_failure_is_an_error(consumers):
    reader = consumers(f"poe://127.0.0.1:{free_port()}", "t", timeout_s=0, start="newest")
    with pytest.raises(ConnectFailed):
        reader.position()
    assert reader.statistics().reconnect_count == 1


def test_the_next_address_is_tried_where_nobody_listens(node):
    node.put("t", b"m")
    with Consumer(f"poe://127.0.0.1:{free_port()},{url(node)[6:]}", "t") as reader:
        assert values(reader) == [b"m"]


def test_a_server_that_does_not_answer_is_given_up(consumers):
    with socket.create_server(("127.0.0.1", 0)) as deaf:
        place = f"poe://127.0.0.1:{deaf.getsockname()[1]}"
        reader = consumers(place, "t", timeout_s=0, request_timeout_s=0.05)
        with pytest.raises(CallTimeout, match=r"within 0\.05 s"):
            reader.receive()


@pytest.mark.parametrize("follow", [True, False])
@pytest.mark.parametrize("start", ["oldest", 5])
def test_a_refusal_is_raised_at_once(node, consumer, follow, start):
    reader = consumer("no/topic", follow=follow, timeout_s=None, start=start)
    for _ in range(2):
        with pytest.raises(InvalidTopicName):
            reader.receive()


def test_a_server_that_restarts_is_followed(tmp_path):
    with Node(dir=tmp_path, port=0) as node:
        node.put("t", b"before")
        reader = Consumer(url(node), "t", follow=True)
        port = int(url(node).rpartition(":")[2])
        assert values(reader.receive()) == [b"before"]
        assert reader.receive(0.01) == []
    with Node(dir=tmp_path, port=port) as node:
        node.put("t", b"after")
        assert values(reader.receive()) == [b"after"]
        reader.close()
    assert reader.statistics().reconnect_count >= 1


# ---- ends ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("read", [iter, Consumer.batches, Consumer.columns])
def test_a_loop_ends_when_another_thread_closes_the_consumer(node, read):
    reader = Consumer(url(node), "t", follow=True)
    node.put("t", b"m")
    seen: list[object] = []

    def close_when_seen():
        wait_until(lambda: seen)
        reader.close()

    closer = threading.Thread(target=close_when_seen)
    closer.start()
    for each in read(reader):
        seen.append(each)  # noqa: PERF402 - the closer looks at it meanwhile
    closer.join()
    assert len(seen) == 1
    with pytest.raises(ConsumerClosed, match=r"start=position\(\)"):
        next(read(reader))


@pytest.mark.slow
def test_a_signal_handler_closes_a_consumer_wherever_it_has_interrupted_it(node):
    node.put_many("t", VALUES)
    files = "loop_thread.py", "futures/_base.py"
    assert close_at_each_place(lambda: Consumer(url(node), "t"), Consumer.receive, *files) > 10
    assert close_at_each_place(lambda: Consumer(url(node), "t"), Consumer.close, files[0]) > 5


def test_a_thread_that_waits_is_told_that_the_consumer_was_closed(node):
    reader = Consumer(url(node), "t", follow=True)
    closer = threading.Timer(0.05, reader.close)
    closer.start()
    with pytest.raises(ConsumerClosed):
        reader.receive()
    closer.join()


CALLS = pytest.mark.parametrize(
    ("call", "options"),
    [
        (Consumer.receive, {}),
        (Consumer.position, {}),
        (lambda reader: reader.seek(7), {}),
        (Consumer.__enter__, {}),
        (Consumer.receive, {"group": "g"}),
        (Consumer.position, {"group": "g"}),
        (Consumer.commit, {"group": "g"}),
    ],
)


@CALLS
def test_a_thread_that_waits_for_a_server_is_told_that_the_consumer_was_closed(
    caplog, call, options
):
    """However long the consumer itself would go on trying."""
    reader = Consumer(f"poe://127.0.0.1:{free_port()}", "t", timeout_s=30, **options)
    assert told_at_close(reader, call, caplog) == [ConsumerClosed]


async def test_a_task_that_waits_for_a_server_is_told_that_the_consumer_was_closed(caplog):
    reader = AsyncConsumer(f"poe://127.0.0.1:{free_port()}", "t", timeout_s=30)
    tasks = [asyncio.ensure_future(each) for each in (reader.position(), reader.receive())]
    await asyncio.to_thread(wait_until, lambda: "trying again" in caplog.text)
    await reader.close()
    ends = await asyncio.wait_for(asyncio.gather(*tasks, return_exceptions=True), 20)
    assert [type(each) for each in ends] == [ConsumerClosed] * 2


def test_a_wait_that_is_interrupted_loses_nothing(node):
    with Consumer(url(node), "t", follow=True) as reader:
        interrupter = threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGINT))

        def receive_and_be_interrupted():
            interrupter.start()
            reader.receive()

        with pytest.raises(KeyboardInterrupt):
            receive_and_be_interrupted()
        interrupter.join()
        node.put("t", b"m")
        assert values(reader.receive()) == [b"m"]


@pytest.mark.parametrize(
    "call",
    [lambda c: c.receive(), lambda c: c.position(), lambda c: c.seek(0), list,
     lambda c: list(c.batches()), lambda c: list(c.columns()), lambda c: c.__enter__()],
)  # fmt: skip
def test_a_closed_consumer_says_so(node, call):
    reader = Consumer(url(node), "t")
    reader.close()
    reader.close()
    with pytest.raises(ConsumerClosed):
        call(reader)


@pytest.mark.slow
def test_the_thread_of_a_consumer_ends_with_it(node):
    node.put("t", b"m")
    reader = Consumer(url(node), "t", follow=True)
    assert values(reader.receive()) == [b"m"]
    (thread,) = (each for each in threading.enumerate() if each.name == "consumer of 't'")
    del reader
    gc.collect()
    thread.join(10)
    assert not thread.is_alive()


def test_a_consumer_that_cannot_begin_is_closed(consumers):
    before = set(threading.enumerate())
    reader = consumers(f"poe://127.0.0.1:{free_port()}", timeout_s=0, start="newest")
    with pytest.raises(ConnectFailed), reader:
        pass
    assert set(threading.enumerate()) <= before
    with pytest.raises(ConsumerClosed):
        reader.receive()


@pytest.mark.parametrize(
    "read",
    [Consumer.receive, list, lambda reader: list(reader.batches())],
    ids=["one", "loop", "batches"],
)
@pytest.mark.parametrize("left", [0, 1])
def test_a_forked_process_is_told_to_make_its_own(node, read, left):
    """Also where something is left of what the other process has fetched, and hands out."""
    node.put_many("t", [b"first", *[b"left"] * left])
    with Consumer(url(node), "t", batch=1) as reader:
        assert values(reader.receive()) == [b"first"]

        def go_on():
            with pytest.raises(ConsumerClosed, match="fork"):
                read(reader)
            reader.close()

        assert exit_code_of(fork(go_on)) == 0
        node.put("t", b"m")
        assert values(reader) == [*[b"left"] * left, b"m"]


@pytest.mark.parametrize("loop_of", [iter, Consumer.batches, Consumer.columns])
@pytest.mark.parametrize("count", [1, 3])
def test_a_loop_that_a_fork_has_copied_hands_nothing_out_and_does_not_just_end(
    node, loop_of, count
):
    node.put_many("t", VALUES[:count])
    with Consumer(url(node), "t", batch=1) as reader:
        loop = loop_of(reader)
        next(loop)
        before = reader.position()

        def go_on():
            with pytest.raises(ConsumerClosed, match="fork"):
                next(loop, None)
            assert reader.position() == before

        assert exit_code_of(fork(go_on)) == 0
        assert len(list(loop)) == (0 if loop_of is Consumer.columns else count - 1)


def test_the_statistics_are_a_copy(node, consumer):
    node.put_many("t", VALUES)
    reader = consumer()
    before = reader.statistics()
    assert len(list(reader)) == 10
    assert list(map(attrgetter("received_count"), (before, reader.statistics()))) == [0, 10]
