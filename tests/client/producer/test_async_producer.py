import asyncio
import socket
from functools import partial

import pytest

import poe
from poe.client import AsyncProducer, Buffered, Sent
from poe.errors import BrokerDown, BufferFull, OptionError, ProducerClosed
from tests.client.producer.test_producer import messages
from tests.ports import free_port

pytestmark = pytest.mark.slow


async def test_each_way_to_produce_can_be_awaited(node, url):
    async with AsyncProducer(url, linger_s=60.0) as producer:
        sent = await producer.produce_sync("ways", [b"a", b"b"])
        assert isinstance(sent, Sent)
        delivery = await producer.produce_async("ways", b"c")
        assert (await delivery).count == 1
        batched = await producer.produce_async_batched("ways", b"d")
        assert await producer.batch("ways", b"e") == Buffered(0, 2)
        assert await producer.flush(5)
        assert batched.done()
        assert (await producer.prepare("ways")).state == "ready"
        assert (await producer.pick("ways")).state == "ready"
        assert len((await producer.metadata("ways")).partitions) == 1
        assert (await producer.info("ways")).buffered_count == 0
        assert (await producer.statistics())["messages_delivered"] == 5
    assert messages(node, "ways") == [b"a", b"b", b"c", b"d", b"e"]


async def test_a_thousand_tasks_share_requests(node, url):
    async with AsyncProducer(url) as producer:
        await producer.prepare("many")

        async def produce(name):
            return [await producer.produce_sync("many", b"%d %d" % (name, i)) for i in range(3)]

        results = await asyncio.gather(*map(produce, range(1000)))
        statistics = await producer.statistics()
    pointers = [sent.pointer for each in results for sent in each]
    assert len(set(pointers)) == 3000
    assert statistics["batches_sent"] < 300
    by_task: dict[int, list[int]] = {}
    for message in messages(node, "many"):
        name, number = map(int, message.split())
        by_task.setdefault(name, []).append(number)
    assert set(map(tuple, by_task.values())) == {(0, 1, 2)}


async def test_a_call_that_is_cancelled_before_it_was_sent_is_withdrawn(tmp_path):
    port = free_port()
    async with AsyncProducer(f"poe://127.0.0.1:{port}") as producer:
        with pytest.raises(BrokerDown):
            await producer.prepare("t", timeout_s=0.05)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await producer.produce_sync("t", b"never")
        with pytest.raises(BrokerDown):
            await producer.produce_sync("t", b"never", timeout_s=0.05)
        kept = await producer.produce_async("t", b"kept")
        with poe.Node(dir=tmp_path / "data", port=port) as node:
            await kept
            assert messages(node, "t") == [b"kept"]


async def test_a_full_buffer_is_waited_for_without_blocking_the_loop(tmp_path):
    port = free_port()
    async with AsyncProducer(f"poe://127.0.0.1:{port}", buffer_count=2) as producer:
        await producer.produce_async("t", [b"a", b"b"])
        waiting = asyncio.create_task(producer.produce_async("t", b"c"))
        await asyncio.sleep(0)
        assert not waiting.done()
        with poe.Node(dir=tmp_path / "data", port=port) as node:
            await (await asyncio.wait_for(waiting, 10))
            assert messages(node, "t") == [b"a", b"b", b"c"]


async def test_a_full_buffer_is_an_error_in_the_end():
    url = f"poe://127.0.0.1:{free_port()}"
    async with AsyncProducer(url, buffer_count=1, block_timeout_s=0.05) as producer:
        await producer.produce_async("t", b"a")
        with pytest.raises(BufferFull):
            await producer.produce_async("t", b"b")
        assert len(await producer.close(0.0)) == 1
        with pytest.raises(ProducerClosed):
            await producer.produce_async("t", b"c")


async def test_a_server_that_listens_and_never_answers_hangs_nobody():
    with socket.create_server(("127.0.0.1", 0)) as listening:
        producer = AsyncProducer(f"poe://127.0.0.1:{listening.getsockname()[1]}")
        await producer.produce_async("t", b"a")
        assert not await producer.flush(0.05)
        assert len(await producer.close(0.05)) == 1


@pytest.mark.parametrize("timeout_s", [float("nan"), -1, "1", True])
async def test_what_is_no_time_is_refused_before_anything_is_taken(timeout_s):
    async with AsyncProducer(f"poe://127.0.0.1:{free_port()}", close_timeout_s=0.0) as producer:
        for call in (
            partial(producer.produce_sync, "t", b"a"),
            partial(producer.prepare, "t"),
            partial(producer.metadata, "t"),
            producer.flush,
            producer.close,
        ):
            with pytest.raises(OptionError, match="timeout_s"):
                await call(timeout_s=timeout_s)
        assert await producer.close() == []


@pytest.mark.parametrize("timeout_s", [float("inf"), 1e300, pytest.param(10**400, id="huge")])
async def test_a_time_may_be_as_long_as_it_likes(url, timeout_s):
    producer = AsyncProducer(url)
    assert (await producer.prepare("t", timeout_s=timeout_s)).state == "ready"
    assert (await producer.metadata("t", timeout_s=timeout_s)).partitions
    assert (await producer.produce_sync("t", b"a", timeout_s=timeout_s)).count == 1
    await producer.produce_async("t", b"b")
    assert await producer.flush(timeout_s)
    assert await producer.close(timeout_s) == []
