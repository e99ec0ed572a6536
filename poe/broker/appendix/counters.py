"""What a node has done since it started: sums that only grow, for whoever makes rates of them.

On the hot path nothing is counted but what is read, by an addition or two. What is put is known by
the segments anyway: a topic notes what each held when it was taken over, and what it held when it
was let go.
"""

from collections import Counter
from typing import Any, Protocol


class _Holds(Protocol):
    """A segment, as far as it is counted."""

    count: int
    size_bytes: int

    @property
    def path(self) -> str:
        """Its files' path, less their suffixes."""
        ...


class TopicCounter:
    """What was put onto one partition, read of it, and refused; of the threads that run actors."""

    __slots__ = ("_put_bytes", "_put_count", "_taken", "read_bytes", "read_count", "refused")

    def __init__(self) -> None:
        self._put_count = self._put_bytes = 0
        self._taken: dict[str, tuple[_Holds, int, int]] = {}
        self.read_count = self.read_bytes = 0
        """Messages and their bytes with headers, each time that they were read."""
        self.refused: Counter[str] = Counter()
        """Requests of clients by the name of their error."""

    def take(self, segment: _Holds) -> None:
        """Count what is put onto a segment from now on."""
        self.let_go(segment.path)  # whose owner was killed could not
        self._taken[segment.path] = segment, segment.count, segment.size_bytes

    def let_go(self, path: str) -> None:
        """Count no more what is put onto a segment."""
        taken = self._taken.pop(path, None)
        if taken is not None:
            count, size_bytes = _grown(*taken)
            self._put_count += count
            self._put_bytes += size_bytes

    def as_map(self) -> dict[str, Any]:
        """Return the sums; bytes are those of records, 11 for each message more than its own."""
        grown = [_grown(*each) for each in self._taken.values()]
        return {
            "messages_in": self._put_count + sum(count for count, _ in grown),
            "bytes_in": self._put_bytes + sum(size for _, size in grown),
            "messages_out": self.read_count,
            "bytes_out": self.read_bytes,
            "refused": dict(self.refused),
        }


def _grown(segment: _Holds, count: int, size_bytes: int) -> tuple[int, int]:
    """Return what a segment holds more; what a failed sync has cut off was never acknowledged."""
    return max(segment.count - count, 0), max(segment.size_bytes - size_bytes, 0)


class SyncCount:
    """How many syncs of segments went well, and what the actors waited for them."""

    __slots__ = ("count", "time_us")

    def __init__(self) -> None:
        self.count = self.time_us = 0

    def add(self, seconds: float) -> None:
        """Count one that took so long."""
        self.count += 1
        self.time_us += int(seconds * 1_000_000)


class ScrubCount:
    """How far the scrubber is, and what it has found since the node has started."""

    __slots__ = ("compared", "damaged", "ended_us", "left")

    def __init__(self) -> None:
        self.compared = self.damaged = 0
        """Segments that were read again, and those of them that were not as they should be."""
        self.left = 0
        """Segments that this round has still to look at."""
        self.ended_us = 0
        """When the last round has ended, since the epoch; 0 before the first one has."""

    def as_map(self) -> dict[str, int]:
        """Return what msgpack can carry."""
        return {name: getattr(self, name) for name in self.__slots__}


class Counters:
    """The sums of a node: of its topics, and of itself."""

    __slots__ = ("refused", "scrub", "started_us", "syncs", "topics")

    def __init__(self) -> None:
        self.started_us = 0
        """When the node has started, since the epoch."""
        self.topics: dict[bytes, TopicCounter] = {}
        """Of the partitions that have, or had, appendix servers since the node has started."""
        self.refused: Counter[str] = Counter()
        """Requests of clients that are about no such topic, by the name of their error."""
        self.syncs = SyncCount()
        self.scrub = ScrubCount()

    def topic(self, name: bytes) -> TopicCounter:
        """Return the counter of a topic that is served from now on."""
        return self.topics.setdefault(name, TopicCounter())

    def forget(self, name: bytes) -> None:
        """Count a topic no more, which was deleted; what it was refused stays in the sum of all."""
        gone = self.topics.pop(name, None)
        if gone is not None:
            self.refused.update(gone.refused)

    def refuse(self, topic: bytes | None, error: Exception) -> None:
        """Count a request that was refused; of a topic that there is not, for the node."""
        counter = None if topic is None else self.topics.get(topic)
        (self if counter is None else counter).refused[type(error).__name__] += 1
