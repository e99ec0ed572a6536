"""Ctrl-C leaves a producer at once while no broker is there, and the log tells what is left."""

import asyncio
import signal
import sys
import threading
import time

import pytest

from poe.actors import LoopSystem
from poe.client import AsyncProducer, Producer
from poe.client.producer import producer_core
from poe.testing import broker
from tests.waiting import wait_until


def is_in(ident, name):
    """Tell whether a thread is in a function of this name."""
    frame = sys._current_frames().get(ident)  # noqa: SLF001 - there is no other way
    while frame is not None:
        if frame.f_code.co_name == name:
            return True
        frame = frame.f_back
    return False


def told(caplog):
    return [record.getMessage() for record in caplog.records if "not delivered" in record.msg]


@pytest.mark.parametrize("kind", [KeyboardInterrupt, asyncio.CancelledError])
def test_an_interrupt_in_the_block_does_not_wait_for_the_broker(away, caplog, kind):
    def program():
        with Producer(away.url, close_timeout_s=100.0, reconnect_max_s=0.1) as producer:
            producer.produce_async("t", b"one")
            producer.produce_async("u", [b"two", b"three"])
            raise kind

    began_s = time.monotonic()
    with pytest.raises(kind):
        program()
    assert time.monotonic() - began_s < 50
    assert told(caplog) == [
        "topic b't': 1 messages were not delivered",
        "topic b'u': 2 messages were not delivered",
    ]


async def test_a_task_that_is_cancelled_leaves_at_once_too(away, caplog):
    async def produce():
        async with AsyncProducer(away.url, close_timeout_s=100.0) as producer:
            await producer.produce_async("t", b"one")
            begun.set()
            await asyncio.Event().wait()

    begun = asyncio.Event()
    task = asyncio.create_task(produce())
    await begun.wait()
    began_s = time.monotonic()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert time.monotonic() - began_s < 50
    assert told(caplog) == ["topic b't': 1 messages were not delivered"]


async def test_who_is_cancelled_while_it_closes_tells_what_is_left(away, caplog):
    producer = AsyncProducer(away.url)
    await producer.produce_async("t", b"one")
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.2):
            await producer.close(timeout_s=100.0)
    assert told(caplog) == ["topic b't': 1 messages were not delivered"]
    assert await producer.close() == []


class SlowSink:
    """Takes its time to let go of what it holds: the end of its producer waits for it."""

    def __init__(self):
        self.is_closing = threading.Event()
        self.may_close = threading.Event()

    def add(self, *_):
        """Take nothing."""

    set = observe = add

    def close(self):
        self.is_closing.set()
        self.may_close.wait(20)


async def test_who_is_cancelled_while_the_rest_ends_tells_what_is_left_too(away, caplog):
    sink = SlowSink()
    producer = AsyncProducer(away.url, metrics=[sink])
    await producer.produce_async("t", b"one")
    closing = asyncio.create_task(producer.close(timeout_s=0))
    assert await asyncio.to_thread(sink.is_closing.wait, 20)
    closing.cancel()
    await asyncio.sleep(0)
    sink.may_close.set()
    with pytest.raises(asyncio.CancelledError):
        await closing
    assert told(caplog) == ["topic b't': 1 messages were not delivered"]


def test_the_end_of_a_program_whose_task_still_closes_tells_what_is_left(away, caplog):
    """`asyncio.run` cancels all tasks at its end, not only the one that closes."""
    sink = SlowSink()
    tasks = []

    async def program():
        producer = AsyncProducer(away.url, metrics=[sink])
        await producer.produce_async("t", b"one")
        tasks.append(asyncio.create_task(producer.close(timeout_s=0)))
        tasks.append(asyncio.create_task(let_close_when_cancelled()))
        assert await asyncio.to_thread(sink.is_closing.wait, 20)

    async def let_close_when_cancelled():
        try:
            await asyncio.Event().wait()
        finally:
            sink.may_close.set()

    asyncio.run(program())
    assert told(caplog) == ["topic b't': 1 messages were not delivered"]


@pytest.mark.parametrize("count", [1, 2, 3])
async def test_who_is_cancelled_again_and_again_while_the_rest_ends_tells_it_too(
    away, caplog, count
):
    """As by a cancel scope of anyio."""
    sink = SlowSink()
    producer = AsyncProducer(away.url, metrics=[sink])
    await producer.produce_async("t", b"one")
    closing = asyncio.create_task(producer.close(timeout_s=0))
    assert await asyncio.to_thread(sink.is_closing.wait, 20)
    for _ in range(count):
        closing.cancel()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
    sink.may_close.set()
    with pytest.raises(asyncio.CancelledError):
        await closing
    await asyncio.to_thread(wait_until, lambda: told(caplog), 20)
    assert told(caplog) == ["topic b't': 1 messages were not delivered"]


def test_ctrl_c_while_the_block_closes_ends_it(away, caplog):
    """The block has come to its end by itself; its user does not want to wait any longer."""
    ident = threading.get_ident()
    producer = Producer(away.url, close_timeout_s=100.0)
    producer.produce_async("t", b"one")

    def interrupt():
        wait_until(lambda: is_in(ident, "flush"))
        signal.pthread_kill(ident, signal.SIGINT)

    threading.Thread(target=interrupt).start()
    began_s = time.monotonic()
    with pytest.raises(KeyboardInterrupt), producer:
        pass
    assert time.monotonic() - began_s < 50
    assert told(caplog) == ["topic b't': 1 messages were not delivered"]


def test_ctrl_c_while_the_rest_ends_tells_what_is_left_too(away, caplog, monkeypatch):
    def stop(*_arguments, **_more):
        raise KeyboardInterrupt  # as if it came just then

    producer = Producer(away.url)
    producer.produce_async("t", b"one")
    monkeypatch.setattr(LoopSystem, "stop", stop)
    with pytest.raises(KeyboardInterrupt):
        producer.close(timeout_s=0)
    assert told(caplog) == ["topic b't': 1 messages were not delivered"]


def test_with_its_broker_a_producer_that_is_interrupted_delivers_what_it_has_taken(caplog):
    def program(url):
        with Producer(url, linger_s=60.0) as producer:
            producer.produce_sync("t", b"first")
            producer.produce_async_batched("t", b"second")
            raise KeyboardInterrupt

    with broker() as serving:
        with pytest.raises(KeyboardInterrupt):
            program(serving.url)
        assert [each.value for each in serving.collected("t")] == [b"first", b"second"]
    assert told(caplog) == []


def test_a_block_that_ends_in_a_downtime_logs_what_is_lost(away, caplog):
    with Producer(away.url, close_timeout_s=0.1) as producer:
        producer.produce_async("t", b"lost")
    assert told(caplog) == ["topic b't': 1 messages were not delivered"]


@pytest.mark.parametrize(
    ("options", "limit"),
    [
        ({}, 1),
        ({"partitions": {"t": 3}}, 3),
        ({"ordered": False}, None),
    ],
)
def test_the_topic_tells_how_many_workers_it_can_use(caplog, options, limit):
    with broker() as serving, Producer(serving.url, workers=2, **options) as producer:
        assert producer.info("t").workers_limit is None, "nothing is known yet"
        producer.produce_sync("t", b"x")
        info = producer.info("t")
        assert info.workers_limit == limit
        wait_until(lambda: len(producer.info("t").workers) == min(2, limit or 2))
    warned = [record.getMessage() for record in caplog.records if "can be of use" in record.msg]
    assert len(warned) == (limit == 1)
    if warned:
        assert warned[0].startswith("topic b't': of 2 workers 1 can be of use")


class Interrupted(set[int]):
    """The threads that call callbacks; an interrupt comes when one more of them is noted."""

    def add(self, ident):
        super().add(ident)
        if threading.current_thread() is threading.main_thread():
            raise KeyboardInterrupt


def test_a_thread_that_is_interrupted_before_it_waits_may_wait_again(monkeypatch):
    with broker() as serving, Producer(serving.url) as producer:
        producer.produce_sync("t", b"first")
        with monkeypatch.context() as patch:
            patch.setattr(producer_core, "callback_threads", threads := Interrupted())
            with pytest.raises(KeyboardInterrupt):
                producer.produce_sync("t", b"interrupted")
        assert not threads
