"""Reads one topic by each way there is, and prints messages per second: the best of some rounds.

Run it with `python -m bench.consumer`. The server is a process of its own; the ways take turns, so
that a machine which is busy is so for all of them.
"""

import argparse
import asyncio
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from bench.processes import HOST, interrupt_once, poe
from poe import protocol
from poe.client import AsyncConsumer, Consumer

BATCH = 1000


def ways(port: int) -> dict[str, Callable[[], int]]:
    """What reads the whole topic and returns how many messages it has read, by name."""
    url = f"poe://{HOST}:{port}"

    def read() -> int:
        count = pointer = 0
        with protocol.socket(HOST, port) as socket:
            while records := socket.read("t", pointer, BATCH):
                count += len(records)
                pointer = records[-1][0]
        return count

    def columns() -> int:
        with Consumer(url, "t") as consumer:
            return sum(len(fetched.values) for fetched in consumer.columns())

    def batches() -> int:
        with Consumer(url, "t") as consumer:
            return sum(len(batch) for batch in consumer.batches())

    def messages() -> int:
        with Consumer(url, "t") as consumer:
            return sum(1 for _ in consumer)

    async def all_messages() -> int:
        async with AsyncConsumer(url, "t") as consumer:
            return sum([1 async for _ in consumer])

    return {
        "Socket.read": read,
        "Consumer.columns": columns,
        "Consumer.batches": batches,
        "for message in Consumer": messages,
        "async for message in AsyncConsumer": lambda: asyncio.run(all_messages()),
    }


def main() -> None:
    """Read as the command line says."""
    parser = argparse.ArgumentParser(prog="python -m bench.consumer", description=__doc__)
    parser.add_argument("--count", type=int, default=500_000, help="messages on the topic")
    parser.add_argument("--size", type=int, default=100, help="bytes of each")
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    interrupt_once()
    with tempfile.TemporaryDirectory(prefix="poe-bench-") as folder, poe(Path(folder)) as running:
        with protocol.socket(HOST, running.port) as socket:
            batches = ([b"x" * arguments.size] * BATCH for _ in range(arguments.count // BATCH))
            for _ in socket.write_batches("t", batches):
                pass
        best: dict[str, float] = {}
        for _ in range(arguments.rounds):
            for name, way in ways(running.port).items():
                begin_s = time.perf_counter()
                count = way()
                rate = count / (time.perf_counter() - begin_s)
                best[name] = max(best.get(name, 0.0), rate)
    for name, rate in best.items():
        print(f"{name:36} {rate:12,.0f} / s")


if __name__ == "__main__":
    main()
