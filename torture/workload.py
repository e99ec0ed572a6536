"""A store at work: steps that are made up beforehand, and done by a victim without a server.

The steps are those of the broker on a `Store`: puts, syncs that take their time, rotation,
hibernation, a clean stop.
Since they depend on random numbers only, the checker's side knows what is sent before the victim
sends it, and the victim has to tell no more than which puts it has acknowledged.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from random import Random
from typing import Literal

from poe.storage import Files, Segment, SegmentOptions, Store, decode_records
from torture.checker import Journal, Put, Record, Sender

START_US = 1_700_000_000_000_000
_STEP_US = 1_000_000
_PLAIN_TOPIC = b"t0"
"""Without sequenced puts, for whose sake a full segment is synced before the next one begins."""

Ack = Literal["memory", "flushed", "fsync"]
Acked = Callable[[Put, int], None]
"""Is told of each acknowledgement: the put, and the pointer of its last message."""


@dataclass(frozen=True, slots=True)
class Step:
    """Something to do with a topic."""

    kind: Literal["put", "sync", "rotate", "hibernate", "reopen"]
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
        if chance < 0.7:
            steps.append(Step("put", topic, sender.begin(topic, length_max=length_max)))
        elif chance < 0.8:
            steps.append(Step("sync", topic))
        elif chance < 0.9:
            steps.append(Step("rotate", topic))
        elif chance < 0.98:
            steps.append(Step("hibernate", topic))
        else:
            steps.append(Step("reopen", topic))
    return steps


def do_steps(files: Files, steps: list[Step], ack: Ack, acked: Acked, now_us: int) -> Store:
    """Do steps on a store; tell each acknowledgement. The store is open afterwards.

    Every other put onto all topics but one has a number, and is put again at once, which changes
    nothing. A sync that a step has begun ends in the next step of its topic that cannot go on
    without: as in a group commit, puts come in between. With `fsync` it is the end of one that
    acknowledges.
    """
    victim = _Victim(files, ack, acked, now_us)
    for step in steps:
        victim.do(step)
    victim.end_syncs(victim.store.topics)
    return victim.store


class _Victim:
    """A store, and what is under way in it."""

    def __init__(self, files: Files, ack: Ack, acked: Acked, now_us: int) -> None:
        self._files = files
        self._options = SegmentOptions(ack=ack)
        self._acked = acked
        self._now_us = now_us
        self._producer = now_us.to_bytes(16, "big")
        self._counts: Counter[bytes] = Counter()
        self._syncs: dict[bytes, _Sync] = {}
        self.store = open_store(files, self._options)

    def do(self, step: Step) -> None:
        self._now_us += _STEP_US
        segments = self.store.topics.get(step.topic, [])
        if step.kind == "put":
            assert step.put is not None
            self._put(step.put)
            return
        self.end_syncs(self.store.topics if step.kind == "reopen" else [step.topic])
        if step.kind == "reopen":
            self.store.close()
            self.store = open_store(self._files, self._options)
        elif segments and step.kind == "sync":
            for segment in segments:
                if segment.durability.is_locked:
                    segment.sync()
            self._syncs.setdefault(step.topic, _Sync()).begin(segments[-1])
        elif segments and step.kind == "rotate" and segments[-1].count:
            self.store.create_segment(step.topic, self._now_us)
        elif segments and step.kind == "hibernate":
            segments[-1].hibernate()

    def end_syncs(self, topics: Iterable[bytes]) -> None:
        """End the syncs of some topics, and do those for which puts wait."""
        for topic in topics:
            sync = self._syncs.pop(topic, None)
            if sync is not None:
                sync.end(self._acked)
                if sync.waiting:
                    sync.begin(self.store.topics[topic][-1])
                    sync.end(self._acked)

    def _put(self, put: Put) -> None:
        topic = put.topic
        segment = writer_of(self.store, topic, self._now_us)
        sequence, is_plain = divmod(self._counts[topic], 2)
        is_plain = is_plain or topic == _PLAIN_TOPIC
        key = None if is_plain else (self._producer, 0, sequence)
        pointer = segment.append(put.messages, self._now_us, key)
        if key is not None:
            assert segment.append([b"again"], self._now_us, key) == pointer
        self._counts[topic] += 1
        if self._options.ack != "fsync":
            self._acked(put, pointer)
            return
        sync = self._syncs.setdefault(topic, _Sync())
        sync.waiting.append((put, pointer))
        if self._counts[topic] % 3:
            self.end_syncs([topic])
        else:
            sync.begin(segment)


@dataclass(slots=True)
class _Sync:
    """What is under way of a topic: a sync, and the puts that it covers or that wait for it."""

    run: Callable[[], None] | None = None
    covered: list[tuple[Put, int]] = field(default_factory=list)
    waiting: list[tuple[Put, int]] = field(default_factory=list)

    def begin(self, segment: Segment) -> None:
        """Begin a sync for all that wait, unless one is under way."""
        if self.run is None:
            self.run = segment.begin_sync()
            self.covered, self.waiting = self.waiting, []

    def end(self, acked: Acked) -> None:
        """Do what was begun, and tell of what it covers."""
        if self.run is not None:
            self.run()
            self.run = None
        for put, pointer in self.covered:
            acked(put, pointer)
        self.covered = []


def open_store(files: Files, options: SegmentOptions) -> Store:
    """Open a store as the broker does: the newest segment of each topic is its writer."""
    store = Store.open(files, options)
    for topic in store.topics:
        segments = store.topics.get(topic)
        if segments:  # else what rested there was another topic's, and is put away now
            segments[-1].unseal()
    return store


def writer_of(store: Store, topic: bytes, now_us: int) -> Segment:
    """Return the segment that a topic's next put goes to, which is made where there is none."""
    segments = store.topics.get(topic)
    if segments and segments[-1].takes_puts:
        return segments[-1]
    return store.create_segment(topic, now_us)


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
