"""In which order a topic's messages of a downtime came, over all of its partitions."""

from collections import deque
from collections.abc import Iterable, Iterator
from typing import Protocol

from poe.client.producer.delivery import Delivery, Gathering
from poe.client.producer.payload import Message
from poe.errors import PoeError

_PARTS_MAX = 10_000
"""More than the partitions of a call."""


class Holder(Protocol):
    """What holds messages: a queue, or the calls without a partition."""

    partition: int

    def drop(self, count: int, why: PoeError, *, newest: bool) -> list[bytes | Message]:
        """Take out that many messages."""
        ...


class DowntimeOrder:
    """Who has got how many messages, call by call; any thread may use it.

    It does not hear of what leaves otherwise, as when a call is withdrawn: then the next message of
    the same partition is dropped for it.
    """

    def __init__(self, count_max: int) -> None:
        self.count_max = count_max
        """Messages that may wait."""
        # Of what is held each message has one at most; the others are of calls withdrawn since.
        self._entries: deque[tuple[Holder, int]] = deque(maxlen=count_max + _PARTS_MAX)

    def begin(self, held: Iterable[tuple[Holder, int]]) -> None:
        """Take note of what there was before the downtime."""
        # In one step: who drops meanwhile must not find it empty, and drop nothing.
        self._entries = deque(held, maxlen=self._entries.maxlen)

    def add(self, delivery: Delivery, unplaced: Holder) -> None:
        """Take note of a call."""
        outcome = delivery.outcome
        if isinstance(outcome, Gathering):
            for part in outcome.parts:
                self.add(part, unplaced)
        else:
            self._entries.append((getattr(outcome, "queue", unplaced), delivery.count))

    def drop(
        self, count: int, why: PoeError, *, newest: bool
    ) -> Iterator[tuple[int, list[bytes | Message]]]:
        """Drop the oldest or newest messages; yield partitions, and what they had."""
        while count > 0 and self._entries:
            try:
                holder, held_count = self._entries.pop() if newest else self._entries.popleft()
            except IndexError:  # another thread was faster
                return
            if held_count > count:
                rest = holder, held_count - count
                (self._entries.append if newest else self._entries.appendleft)(rest)
            gone = holder.drop(min(count, held_count), why, newest=newest)
            count -= len(gone)
            yield holder.partition, gone
