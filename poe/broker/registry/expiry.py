"""Decides which segments have been kept long enough; the topic registry deletes them.

It looks at nothing but what is known of the segments, and the time. Where there is an archive, a
segment stays until the archiver has said that it holds all of it.
"""

from collections.abc import Callable, Iterable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from itertools import takewhile
from typing import NamedTuple, TypeAlias

from poe.actors import ActorRef
from poe.broker.appendix.hybrid_clock import JumpWatch
from poe.broker.registry.topic_settings import Retention
from poe.storage import Segment

_TICK_MIN_S = 0.01
"""Who asks for less would have the node do nothing else."""
_TICK_MAX_S = 600.0
_SOON = 0.9
"""What is so much of `max_age` old, or beyond so much of `max_bytes`, is archived with what is due:
ten starts of Spark in the time that messages are kept are enough."""

Sealed: TypeAlias = tuple[ActorRef, Segment]
"""A segment that is not written to, and who serves it."""

Measure: TypeAlias = tuple[int, int]
"""The newest pointer of a segment, and its bytes."""


@dataclass(frozen=True, slots=True)
class ExpiringSegment:
    """A segment that is to be deleted as soon as it is archived."""

    topic: bytes
    timestamp: int
    first: int
    last: int
    count: int

    @property
    def key(self) -> tuple[bytes, int]:
        """Which segment it is."""
        return self.topic, self.timestamp


class Expiring(NamedTuple):
    """Cast to the archiver at each look: what waits for it."""

    segments: tuple[ExpiringSegment, ...]


class Archived(NamedTuple):
    """Cast to the topic registry: which of the segments that it has told last are archived."""

    keys: frozenset[tuple[bytes, int]]


UnreadFloor: TypeAlias = Callable[[str, bytes], int | None]
"""Tells up to which pointer a group has read a partition, 0 where it has read nothing; None where
there is no such group, or it does not read the topic: then nothing is kept for it."""


def no_group(_group: str, _topic: bytes) -> None:
    """Tell that there is no group."""
    return


class Expiry:
    """Chooses what goes, in a look at each topic between `begin` and `end`.

    `has_archive` tells whether a topic is archived, `archived` the segments that are, and
    `unread_floor` how far groups have read.
    """

    __slots__ = (
        "_has_archive",
        "_is_careful",
        "_is_over",
        "_jumps",
        "_now_us",
        "_unread_floor",
        "_waiting",
        "archived",
    )

    def __init__(
        self,
        jumps: JumpWatch,
        has_archive: Callable[[bytes], bool],
        unread_floor: UnreadFloor = no_group,
    ) -> None:
        self.archived: AbstractSet[tuple[bytes, int]] = frozenset()
        self._has_archive = has_archive
        self._unread_floor = unread_floor
        self._jumps = jumps
        self._now_us = 0
        self._is_careful = False
        self._is_over = True
        # By their keys: between two looks a topic may be chosen from again and again.
        self._waiting: dict[tuple[bytes, int], ExpiringSegment] = {}

    def begin(self, now_us: int, monotonic_s: float) -> None:
        """Begin a look; after a jump of the clock one segment of each topic is too old at most."""
        # Should the clock be wrong, there is time to set it right before all is gone.
        self._is_careful = self._jumps.has_jumped(now_us, monotonic_s)
        self._now_us = now_us
        self._is_over = True
        self._waiting = {}

    def oldest_us(self, max_age_s: float) -> int:
        """Return the pointer from which on messages are not too old."""
        return _oldest_us(self._now_us, max_age_s)

    def choose(
        self,
        topic: bytes,
        retention: Retention,
        sealed: Sequence[Sealed],
        writer_bytes: int,
        *,
        are_groups_elsewhere: bool = False,
    ) -> list[ActorRef]:
        """Return which segments of a topic go now.

        Args:
            topic: its name.
            retention: how long they are kept.
            sealed: all but the writer, oldest first.
            writer_bytes: what that holds.
            are_groups_elsewhere: whether groups of it may be those of other nodes.
        """
        measures = [(segment.last_pointer, segment.size_bytes) for _, segment in sealed]
        count = _count_due(retention, self._now_us, measures, writer_bytes)
        if count and retention.keep_unread:
            floor = self.unread_floor(topic, retention, are_groups_elsewhere=are_groups_elsewhere)
            if floor is not None:
                cap = retention.keep_unread_bytes
                count = _count_read(count, floor, cap, measures, writer_bytes)
        chosen = []
        has_archive = self._has_archive(topic)
        for ref, segment in sealed[:count]:
            if not has_archive or segment.pointer_low is None:
                chosen.append(ref)
                continue
            extent = segment.pointer_low, segment.last_pointer, segment.count
            expiring = ExpiringSegment(topic, segment.timestamp, *extent)
            if expiring.key in self.archived:
                chosen.append(ref)
            else:
                self._waiting[expiring.key] = expiring
        if self._is_careful:
            # What is too much is so whatever the time is.
            over_count = _count_over(retention.max_bytes, measures, writer_bytes)
            over = {ref for ref, _ in sealed[:over_count]}
            chosen = [ref for ref in chosen if ref in over] or chosen[:1]
        self._is_over = self._is_over and not chosen
        return chosen

    def end(self) -> Expiring | None:
        """End a look, and tell what waits for the archive."""
        # What waits is in no danger: a clock is trusted again while the archiver works.
        if self._is_over:
            self._jumps.trust()
        return Expiring(tuple(self._waiting.values())) if self._waiting else None

    def unread_floor(
        self, topic: bytes, retention: Retention, *, are_groups_elsewhere: bool
    ) -> int | None:
        """Return up to where the groups have read for which messages are kept; None: all may go.

        Groups that may be `elsewhere`, at a node which alone knows how far they are, have read
        nothing as far as this one can tell.
        """
        floors = [self._unread_floor(group, topic) for group in retention.keep_unread]
        if are_groups_elsewhere:
            floors = [each or 0 for each in floors]
        return min((each for each in floors if each is not None), default=None)


def count_soon_due(
    retention: Retention, now_us: int, sealed: Sequence[Measure], writer_bytes: int
) -> int:
    """Return how many segments, oldest first, are too old or too many, or soon will be.

    So many are archived. For what is unread they may have to wait, which is no matter then.
    """
    age_s, limit = retention.max_age_s, retention.max_bytes
    sooner = retention._replace(
        max_age_s=None if age_s is None else age_s * _SOON,
        max_bytes=None if limit is None else int(limit * _SOON),
    )
    return _count_due(sooner, now_us, sealed, writer_bytes)


def tick_s(retentions: Iterable[Retention]) -> float | None:
    """Return the seconds between looks; None: everything is kept for ever."""
    limited = [each for each in retentions if not each.is_endless]
    ages = (each.max_age_s for each in limited if each.max_age_s is not None)
    if not limited:
        return None
    return max(_TICK_MIN_S, min([*(age_s / 10 for age_s in ages), _TICK_MAX_S]))


def _oldest_us(now_us: int, max_age_s: float) -> int:
    """Return the pointer from which on messages are not too old."""
    return now_us - int(min(max_age_s * 1_000_000, now_us))


def _count_due(
    retention: Retention, now_us: int, sealed: Sequence[Measure], writer_bytes: int
) -> int:
    """Return how many segments, oldest first, are too old, or too many."""
    age_s = retention.max_age_s
    oldest_us = 0 if age_s is None else _oldest_us(now_us, age_s)
    old = takewhile(lambda each: each[0] < oldest_us, sealed)
    return max(sum(1 for _ in old), _count_over(retention.max_bytes, sealed, writer_bytes))


def _count_read(
    due_count: int, floor: int, cap: int | None, sealed: Sequence[Measure], writer_bytes: int
) -> int:
    """Return how many of those that are due all groups have read, or there is no room for."""
    read_count = sum(last_pointer <= floor for last_pointer, _ in sealed[:due_count])
    return min(due_count, max(read_count, _count_over(cap, sealed, writer_bytes)))


def _count_over(limit: int | None, sealed: Sequence[Measure], writer_bytes: int) -> int:
    """Return how many segments have to go so that what stays is within a limit; None sets none."""
    if limit is None:
        return 0
    surplus_bytes = writer_bytes + sum(size_bytes for _, size_bytes in sealed) - limit
    count = 0
    for _, size_bytes in sealed:
        if surplus_bytes <= 0:
            break
        surplus_bytes -= size_bytes
        count += 1
    return count
