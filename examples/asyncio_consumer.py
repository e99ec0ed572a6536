"""Follow a topic with asyncio: messages arrive as they are put, without polling.

A node, a producer task and a consumer task run in one program here; with a server elsewhere only
the address changes. The consumer starts before the topic exists.
"""

import asyncio
import tempfile

import poe
from poe.client import connect

TOPIC = "ticks"
TICKS_COUNT = 500


async def produce(host: str, port: int) -> None:
    """Put ticks, several requests under way at a time."""
    async with await connect(host, port) as socket:
        writes = [socket.write(TOPIC, [b"tick %d" % number]) for number in range(TICKS_COUNT)]
        pointers = await asyncio.gather(*writes)
    print(f"producer: {len(pointers)} ticks acknowledged")


async def consume(host: str, port: int) -> list[bytes]:
    """Take ticks as they come until all are there."""
    messages = []
    # A socket of its own: while `follow` waits for news, it keeps the replies behind it waiting.
    async with await connect(host, port) as socket:
        async for _pointer, message in socket.follow(TOPIC):
            messages.append(message)
            if len(messages) == TICKS_COUNT:
                break
    return messages


async def main(host: str, port: int) -> None:
    """Run both at the same time, the consumer first."""
    async with asyncio.timeout(30):
        consumer = asyncio.create_task(consume(host, port))
        await produce(host, port)
        messages = await consumer
    print(f"consumer: {len(messages)} ticks, from {messages[0]!r} to {messages[-1]!r}")
    assert messages == [b"tick %d" % number for number in range(TICKS_COUNT)]
    print("every tick once, in order")


with tempfile.TemporaryDirectory() as folder, poe.Node(dir=folder, port=0) as node:
    assert node.address is not None
    asyncio.run(main(*node.address))
