"""What is to be put later, as it is kept in memory: by topic, in the order of its time.

Of what waits only place, time and size are known, in one number each: 48 bytes, for a million of
them wait in the memory of a few seconds' messages. Nothing here waits, reads a clock or a file.
"""

from bisect import bisect_right
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from heapq import heappop, heappush
from typing import Final, NamedTuple, TypeAlias

Entry: TypeAlias = int
"""A record that waits. Layout, highest bits first: u56 time, u56 pointer, u24 messages, u28 bytes.
So entries sort by time, and those of one time as they came."""

_SIZE_BITS: Final = 28
_COUNT_BITS: Final = 24
_POINTER_BITS: Final = 56
_BATCH_COUNT: Final = 1000
_BATCH_BYTES: Final = 1024 * 1024
_BLOCK_COUNT: Final = 1000
_NUMBERS_US: Final = 24 * 3600 * 1_000_000
"""A topic forgets producers that put nothing for a week; so one that was silent for a day begins
an epoch, which needs nobody to remember it."""


class Number(NamedTuple):
    """Which put of the delayer onto a topic it is."""

    epoch: int
    sequence: int


def entry(due_us: int, pointer: int, count: int, size_bytes: int) -> Entry:
    """Return what is known of a record that waits."""
    size_bytes = min(size_bytes, (1 << _SIZE_BITS) - 1)
    front = due_us << _POINTER_BITS | pointer
    return (front << _COUNT_BITS | count) << _SIZE_BITS | size_bytes


def due_us_of(waiting: Entry) -> int:
    """Return when a record is due."""
    return waiting >> (_POINTER_BITS + _COUNT_BITS + _SIZE_BITS)


def pointer_of(waiting: Entry) -> int:
    """Return where a record lies."""
    return waiting >> (_COUNT_BITS + _SIZE_BITS) & ((1 << _POINTER_BITS) - 1)


def count_of(waiting: Entry) -> int:
    """Return how many messages a record holds."""
    return waiting >> _SIZE_BITS & ((1 << _COUNT_BITS) - 1)


def size_bytes_of(waiting: Entry) -> int:
    """Return how large a record is."""
    return waiting & ((1 << _SIZE_BITS) - 1)


class Batch(NamedTuple):
    """What is put onto a topic at one time, in this order."""

    topic: bytes
    entries: tuple[Entry, ...]
    number: Number | None = None
    """None where it is not known yet: the topic is to be asked for the newest one."""

    is_written: bool = True
    """Whether the log says that it is being put."""


class Done(NamedTuple):
    """What is stored of a topic, up to a number."""

    topic: bytes
    number: Number
    entries: list[Entry]


@dataclass(slots=True)
class _Topic:
    """Always: at most one of its batches is being put; `begun` go before what waits."""

    entries: list[Entry] = field(default_factory=list)
    """A heap."""

    begun: deque[Batch] = field(default_factory=deque)
    next_number: Number | None = None
    put: Batch | None = None
    last_put_us: int = 0
    done: list[Entry] = field(default_factory=list)
    """Stored, but perhaps not on the disk yet."""

    done_number: Number | None = None

    @property
    def due_us(self) -> int | None:
        """When the next batch may be put; None while one is, or where there is none."""
        if self.put is not None or not (self.begun or self.entries):
            return None
        return 0 if self.begun else due_us_of(self.entries[0])


class Waiting:
    """All that waits; only the delayer changes it.

    Always: `messages_count` messages wait or are being put.
    """

    __slots__ = ("_alarms", "_needed", "_topics", "messages_count")

    def __init__(self) -> None:
        self.messages_count = 0
        self._topics: dict[bytes, _Topic] = {}
        self._alarms: list[tuple[int, bytes]] = []  # a heap; some are of what has changed since
        self._needed = _Needed()

    def __contains__(self, topic: bytes) -> bool:
        """Return whether something waits for a topic, or is about to be forgotten."""
        return topic in self._topics

    @property
    def topics_count(self) -> int:
        """Return for how many topics that holds."""
        return len(self._topics)

    # ---- what comes -----------------------------------------------------------------------------

    def add(self, topic: bytes, waiting: Entry) -> None:
        """Take a record; of all of them, the one with the greatest pointer."""
        self._needed.add(pointer_of(waiting))
        self.messages_count += count_of(waiting)
        known = self._topic(topic)
        heappush(known.entries, waiting)
        if known.entries[0] == waiting:
            self._alarm(topic, known)

    def restore(self, topic: bytes, begun: Iterable[Batch], waiting: list[Entry]) -> None:
        """Take what the log tells of a topic, of which nothing is known yet."""
        waiting.sort()
        known = self._topic(topic)
        known.entries = waiting
        known.begun.extend(begun)
        every = [*waiting, *(each for batch in known.begun for each in batch.entries)]
        self.messages_count += sum(map(count_of, every))
        self._alarm(topic, known)

    def need(self, pointers: Iterable[int]) -> None:
        """Take the pointers of all that was restored, sorted."""
        for pointer in pointers:
            self._needed.add(pointer)

    # ---- what is put ----------------------------------------------------------------------------

    def next_us(self) -> int | None:
        """Return when there is something to put; None where nothing waits."""
        while self._alarms:
            at_us, topic = self._alarms[0]
            known = self._topics.get(topic)
            if known is not None and known.due_us == at_us:
                return at_us
            heappop(self._alarms)
        return None

    def take(self, now_us: int) -> Batch | None:
        """Return what is to be put now, and is being put from now on."""
        due_us = self.next_us()
        if due_us is None or due_us > now_us:
            return None
        topic = heappop(self._alarms)[1]
        known = self._topics[topic]
        known.put = known.begun.popleft() if known.begun else self._cut(topic, known, now_us)
        return known.put

    def _cut(self, topic: bytes, known: _Topic, now_us: int) -> Batch:
        heap, entries, size_bytes = known.entries, [heappop(known.entries)], 0
        while heap and len(entries) < _BATCH_COUNT and due_us_of(heap[0]) <= now_us:
            size_bytes += size_bytes_of(entries[-1])
            if size_bytes + size_bytes_of(heap[0]) > _BATCH_BYTES:
                break
            entries.append(heappop(heap))
        if now_us - known.last_put_us > _NUMBERS_US:
            known.next_number = None
        return Batch(topic, tuple(entries), known.next_number, is_written=False)

    def stored(self, batch: Batch, next_number: Number | None, now_us: int) -> None:
        """Hear that a batch is stored, and which number the next one has."""
        known = self._end(batch)
        known.next_number, known.last_put_us = next_number, now_us
        self.messages_count -= sum(map(count_of, batch.entries))
        if batch.number is None:  # nothing of it could be read, nor ever will be
            self.release(Done(batch.topic, Number(0, 0), list(batch.entries)))
        else:
            known.done += batch.entries
            known.done_number = batch.number
        self._alarm(batch.topic, known)

    def refused(self, batch: Batch) -> None:
        """Hear that a batch could not be stored, and is to be tried again now.

        One that has a number stays as it is: the log may tell of it.
        """
        known = self._end(batch)
        if batch.number is None:
            self._give_back(batch, known)
        else:
            known.begun.appendleft(batch)
        self._alarm(batch.topic, known)

    def voided(self, batch: Batch) -> None:
        """Hear that a batch will never be stored under its number: it waits for another one."""
        known = self._end(batch)
        known.next_number = None
        self._give_back(batch, known)
        self._alarm(batch.topic, known)

    def _end(self, batch: Batch) -> _Topic:
        known = self._topics[batch.topic]
        known.put = None
        return known

    def _give_back(self, batch: Batch, known: _Topic) -> None:
        for each in batch.entries:
            heappush(known.entries, each)

    # ---- what is done ---------------------------------------------------------------------------

    def take_done(self) -> list[Done]:
        """Return what was stored since the last time; who asks releases it, or gives it back."""
        taken = []
        for topic, known in self._topics.items():
            if known.done_number is not None:
                taken.append(Done(topic, known.done_number, known.done))
                known.done, known.done_number = [], None
        return taken

    def release(self, done: Done) -> None:
        """Let records go that are stored for good."""
        for each in done.entries:
            self._needed.remove(pointer_of(each))

    def give_back(self, done: Done) -> None:
        """Hear that records may not be on the disk of their topic yet."""
        known = self._topic(done.topic)
        known.done = done.entries + known.done
        known.done_number = known.done_number or done.number

    def forget(self) -> None:
        """Let go of topics for which nothing waits any more."""
        idle = [
            topic
            for topic, known in self._topics.items()
            if known.put is None and not (known.entries or known.begun or known.done)
        ]
        for topic in idle:
            del self._topics[topic]

    def floor(self) -> int | None:
        """Return the oldest pointer that is needed; None where none is."""
        return self._needed.first()

    def _topic(self, topic: bytes) -> _Topic:
        return self._topics.setdefault(topic, _Topic())

    def _alarm(self, topic: bytes, known: _Topic) -> None:
        due_us = known.due_us
        if due_us is not None:
            heappush(self._alarms, (due_us, topic))


class _Needed:
    """Which pointers are needed: a number for each block of them, so it tells the oldest block.

    Always: `_first` rise, and `_counts` has how many of each block are needed.
    """

    __slots__ = ("_added_count", "_counts", "_first")

    def __init__(self) -> None:
        self._first: list[int] = []
        self._counts: list[int] = []
        self._added_count = 0

    def add(self, pointer: int) -> None:
        """Need one more, which is greater than all before."""
        if not self._first or self._added_count == _BLOCK_COUNT:
            self._first.append(pointer)
            self._counts.append(0)
            self._added_count = 0
        self._counts[-1] += 1
        self._added_count += 1

    def remove(self, pointer: int) -> None:
        """Need one less."""
        self._counts[bisect_right(self._first, pointer) - 1] -= 1
        while self._counts and not self._counts[0]:
            del self._counts[0], self._first[0]
            if not self._counts:
                self._added_count = 0

    def first(self) -> int | None:
        """Return the first pointer of the oldest block that is needed."""
        return self._first[0] if self._first else None
