"""Measures the producer against a server in a process of its own: 100-byte messages, one process.

A call with a message each, a call with a list of 1000, one call after the other with an answer
each, and 1000 tasks that each wait for their answers; the last two beside confluent-kafka and
aiokafka, which do the same to librdkafka's mock of a broker, a faster one than any that stores
something. How fast one call comes after the other depends on how soon a machine wakes a thread,
where a thread has to be woken (docs/decisions/0023).
"""

import asyncio
import contextlib
import importlib
import importlib.util
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

from bench import rounds
from bench.build import ROOT
from bench.processes import poe, started
from bench.row import Sample
from poe.client import AsyncProducer, Producer

MESSAGE = b"x" * 100
LIST_COUNT = 1000
TASKS = 1000

Send = Callable[[bytes], Awaitable[object]]


def measure_rounds(count: int, *, quick: bool) -> Iterator[list[Sample]]:
    """Load one server, round by round."""
    seconds = 0.2 if quick else 2.0
    with (
        tempfile.TemporaryDirectory(prefix="poe-bench-") as folder,
        poe(Path(folder)) as running,
        kafka_mock() as bootstrap,
    ):
        url = f"poe://127.0.0.1:{running.port}"
        for _ in range(count):
            with Producer(url) as producer:
                producer.prepare("bench")
                samples = [
                    *enqueued(producer, seconds),
                    *one_by_one(producer, bootstrap, seconds),
                ]
            yield [*samples, *asyncio.run(concurrent(url, bootstrap, seconds))]


def enqueued(producer: Producer, seconds: float) -> Iterator[Sample]:
    """Calls that do not wait, until all is acknowledged."""
    name = "produce_async_batched, a message per call"
    yield Sample.at_least(name, rate(producer, MESSAGE, seconds), "msg/s", 400_000)
    name = f"produce_async_batched, {LIST_COUNT} messages per call"
    many = rate(producer, [MESSAGE] * LIST_COUNT, seconds) * LIST_COUNT
    yield Sample.at_least(name, many, "msg/s", 1_500_000)


def rate(producer: Producer, data: object, seconds: float) -> float:
    """Calls per second, the wait for the last answer included."""
    produce = producer.produce_async_batched
    calls_count = 1000 if isinstance(data, bytes) else 10  # between two looks at the clock
    count = 0
    begun = now = time.perf_counter()
    while now - begun < seconds:
        for _ in range(calls_count):
            produce("bench", data)
        count += calls_count
        now = time.perf_counter()
    assert producer.flush(30)
    return count / (time.perf_counter() - begun)


def one_by_one(producer: Producer, bootstrap: str, seconds: float) -> Iterator[Sample]:
    """Calls that wait, one after the other."""
    name = "produce_sync, one at a time"
    ours = waiting_rate(lambda: producer.produce_sync("bench", MESSAGE), seconds)
    yield Sample.at_least(name, ours, "msg/s", 15_000)
    if bootstrap:
        confluent_kafka: Any = importlib.import_module("confluent_kafka")  # it may be missing
        peer = confluent_kafka.Producer({"bootstrap.servers": bootstrap, "linger.ms": 0})

        def produce_and_wait() -> None:
            peer.produce("bench", MESSAGE)
            peer.flush()

        produce_and_wait()  # connects
        theirs = waiting_rate(produce_and_wait, seconds)
        # 15 000 beside the 12 900 that were measured of it.
        yield Sample.at_least(f"{name}, beside", ours / theirs, "× confluent-kafka's", 1.16)


def waiting_rate(call: Callable[[], object], seconds: float) -> float:
    """Calls per second, one after the other."""
    count = 0
    begun = now = time.perf_counter()
    while now - begun < seconds:
        for _ in range(100):
            call()
        count += 100
        now = time.perf_counter()
    return count / (now - begun)


async def concurrent(url: str, bootstrap: str, seconds: float) -> list[Sample]:
    """1000 tasks that each send and wait, again and again."""
    async with AsyncProducer(url) as producer:
        await producer.prepare("bench")
        ours = await waits_rate(lambda data: producer.produce_sync("bench", data), seconds)
    name = f"asyncio, {TASKS} concurrent produce_sync"
    samples = [Sample.at_least(name, ours, "msg/s", 49_000)]  # twice aiokafka's elsewhere
    if not bootstrap:
        return samples
    aiokafka: Any = importlib.import_module("aiokafka")  # only here: it may not be installed

    peer = aiokafka.AIOKafkaProducer(bootstrap_servers=bootstrap)
    await peer.start()
    theirs = await waits_rate(lambda data: peer.send_and_wait("bench", data), seconds)
    await peer.stop()
    samples.append(Sample.at_least(f"{name}, beside", ours / theirs, "× aiokafka's", 2))
    return samples


async def waits_rate(send: Send, seconds: float) -> float:
    """Messages per second of all tasks together."""
    end = time.perf_counter() + seconds

    async def again_and_again() -> int:
        count = 0
        while time.perf_counter() < end:
            await send(MESSAGE)
            count += 1
        return count

    begun = time.perf_counter()
    counts = await asyncio.gather(*(again_and_again() for _ in range(TASKS)))
    return sum(counts) / (time.perf_counter() - begun)


@contextlib.contextmanager
def kafka_mock() -> Iterator[str]:
    """Run the mock in a process of its own; yields its address, empty where it cannot run."""
    if not all(map(importlib.util.find_spec, ("aiokafka", "confluent_kafka"))):
        yield ""
        return
    command = [sys.executable, "-m", "bench.kafka_mock"]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with started(command, cwd=ROOT, **pipes) as process:
        assert process.stdout is not None
        yield process.stdout.readline().removeprefix("ready on ").strip()


if __name__ == "__main__":
    rounds.main(measure_rounds)
