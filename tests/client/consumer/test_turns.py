"""How partitions take turns, whatever they are read from."""

import asyncio

from poe.client.consumer.source import Fetched
from poe.client.consumer.turns import Turns


class Reader:
    """Has one message, and then nothing."""

    def __init__(self, partition):
        self.partition = partition
        self.is_read = False

    async def read(self):
        if self.is_read:
            return None
        self.is_read = True
        return Fetched(self.partition, [1], [0], [b"value"])

    async def close(self):
        pass


async def test_a_turn_costs_the_same_however_many_partitions_have_something(monkeypatch):
    waited_for = 0
    wait = asyncio.wait

    async def count(futures, **options):
        nonlocal waited_for
        waited_for += len(futures)
        return await wait(futures, **options)

    monkeypatch.setattr(asyncio, "wait", count)
    turns: Turns[Reader] = Turns()
    for partition in range(500):
        turns.add(Reader(partition))
    read = set()
    while (turn := await turns.next()) is not None:
        read.add(turn.fetched.partition)
    assert read == set(range(500))
    assert waited_for < 20 * 500
    await turns.close()
