"""A store at work: steps that are made up beforehand, and done by a victim without a server.

The steps are those of the broker on a `Store`: puts, rotation, hibernation, expiry, a clean stop.
Since they depend on random numbers only, the checker's side knows what is sent before the victim
sends it, and the victim has to tell no more than which puts it has acknowledged.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from random import Random
from typing import Literal

from poe.storage import Files, SegmentOptions, Store, decode_records
from torture.checker import Journal, Put, Record, Sender

START_US = 1_700_000_000_000_000
_STEP_US = 1_000_000
Ack = Literal["memory", "flushed", "fsync"]
Acked = Callable[[Put, int], None]
"""Is told of each acknowledgement: the put, and the pointer of its last message."""


@dataclass(frozen=True, slots=True)
class Step:
    """Something to do with a topic."""

    kind: Literal["put", "rotate", "hibernate", "reopen"]
    topic: bytes
    put: Put | None = None


def make_steps(
    random: Random, journal: Journal, count: int, topics: int = 2, length_max: int = 120
) -> list[Step]:
    """Make up steps; their puts are noted."""
    sender = Sender(journal, random)
    steps: list[Step] = []
    for _ in range(count):
        topic = b"t%d" % random.randrange(topics)
        chance = random.random()
        if chance < 0.8:
            steps.append(Step("put", topic, sender.begin(topic, length_max=length_max)))
        elif chance < 0.9:
            steps.append(Step("rotate", topic))
        elif chance < 0.98:
            steps.append(Step("hibernate", topic))
        else:
            steps.append(Step("reopen", topic))
    return steps


def do_steps(files: Files, steps: list[Step], ack: Ack, acked: Acked, now_us: int) -> Store:
    """Do steps on a store; tell each acknowledgement. The store is open afterwards.

    Every other put onto a topic has a number, and is put again at once, which changes nothing.
    """
    options = SegmentOptions(ack=ack)
    store = open_store(files, options)
    producer = now_us.to_bytes(16, "big")
    counts: Counter[bytes] = Counter()
    for step in steps:
        now_us += _STEP_US
        if step.kind == "reopen":
            store.close()
            store = open_store(files, options)
            continue
        segments = store.topics.get(step.topic)
        if step.kind == "put":
            assert step.put is not None
            segment = segments[-1] if segments else store.create_segment(step.topic, now_us)
            sequence, is_plain = divmod(counts[step.topic], 2)
            key = None if is_plain else (producer, 0, sequence)
            pointer = segment.append(step.put.messages, now_us, key)
            if key is not None:
                assert segment.append([b"again"], now_us, key) == pointer
            counts[step.topic] += 1
            if ack == "fsync":
                segment.sync()
            acked(step.put, pointer)
        elif segments and step.kind == "rotate" and segments[-1].count:
            store.create_segment(step.topic, now_us)
        elif segments and step.kind == "hibernate":
            segments[-1].hibernate()
    return store


def open_store(files: Files, options: SegmentOptions) -> Store:
    """Open a store as the broker does: the newest segment of each topic is its writer."""
    store = Store.open(files, options)
    for segments in store.topics.values():
        segments[-1].unseal()
    return store


def read_store(store: Store) -> dict[bytes, list[Record]]:
    """Read all of a store in slices, as connections do."""
    return {topic: list(read_topic(store, topic)) for topic in store.topics}


def read_topic(store: Store, topic: bytes) -> Iterator[Record]:
    """Read one topic."""
    for segment in store.topics[topic]:
        pointer = 0
        while (found := segment.read(pointer, 1000, 1 << 26)) is not None:
            yield from decode_records(found.read())
            pointer = found.last_pointer
