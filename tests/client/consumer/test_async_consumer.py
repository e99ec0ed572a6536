"""What only tasks can do to a consumer; the rest is in test_consumer.py."""

import asyncio

import pytest

from poe.client.consumer.async_consumer import AsyncConsumer
from poe.client.consumer.source import Received
from poe.errors import ConsumerClosed, InvalidTopicName
from tests.client.consumers import VALUES, url, values
from tests.waiting import wait_until


async def test_a_cancelled_receive_loses_nothing(node):
    async with AsyncConsumer(url(node), "t", follow=True, batch=1) as reader:
        received: list[Received] = []
        for turns, value in enumerate(VALUES):
            waiting = asyncio.create_task(reader.receive())
            node.put("t", value)
            # Cancelled before it has asked, while it waits, or when it was done before.
            for _ in range(turns):
                await asyncio.sleep(0)
            waiting.cancel()
            (outcome,) = await asyncio.gather(waiting, return_exceptions=True)
            if not isinstance(outcome, BaseException):
                received += outcome
        while len(received) < len(VALUES):
            received += await reader.receive()
    assert values(received) == VALUES


async def test_a_task_that_waits_is_told_that_the_consumer_was_closed(node):
    reader = AsyncConsumer(url(node), "t", follow=True)
    waiting = asyncio.create_task(reader.receive())
    await asyncio.sleep(0)
    await reader.close()
    with pytest.raises(ConsumerClosed):
        await waiting


def connection_count(node):
    return node.control("connections")["count"]


async def test_a_consumer_is_closed_though_whoever_closes_it_is_cancelled(node):
    """By anyio, of which Starlette is made, each time that it waits for something."""
    node.put("t", b"x")
    before = connection_count(node)
    reader = AsyncConsumer(url(node), "t", follow=True)
    await reader.receive()
    assert connection_count(node) > before
    closing = asyncio.create_task(reader.close())
    while not closing.done():
        await asyncio.sleep(0)
        closing.cancel()
    await asyncio.to_thread(wait_until, lambda: connection_count(node) == before, 20)


async def test_a_loop_ends_when_another_task_closes_the_consumer(node):
    node.put_many("t", VALUES)
    reader = AsyncConsumer(url(node), "t", follow=True)
    seen = []
    async for received in reader:
        seen.append(received.value)
        if len(seen) == len(VALUES):
            closing = asyncio.create_task(reader.close())
    await closing
    assert seen == VALUES
    assert list((await reader.position()).values()) == [received.pointer]


async def test_a_consumer_that_is_closed_in_its_own_loop_hands_out_no_more(node):
    node.put_many("t", VALUES)
    reader = AsyncConsumer(url(node), "t")
    seen = []
    async for received in reader:
        seen.append(received.value)
        if len(seen) == 3:
            await reader.close()
    assert seen == VALUES[:3]


async def test_many_consumers_share_a_loop(node):
    node.put_many("t", VALUES)
    readers = [AsyncConsumer(url(node), "t") for _ in range(20)]
    batches = await asyncio.gather(*(reader.receive() for reader in readers))
    assert all(values(batch) == VALUES for batch in batches)
    await asyncio.gather(*(reader.close() for reader in readers))


async def test_an_error_that_nobody_fetched_is_no_noise(node, caplog):
    """Closed before its error was looked at, a task would complain in the log."""
    async with AsyncConsumer(url(node), "no/topic", follow=True) as reader:
        assert await reader.receive(0) == []
        async with AsyncConsumer(url(node), "no/topic", follow=True) as later:
            with pytest.raises(InvalidTopicName):
                await later.receive()
    assert "never retrieved" not in caplog.text
