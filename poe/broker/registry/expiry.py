"""Decides which segments have been kept long enough; the topic registry deletes them.

It looks at nothing but what is known of the segments, and the time. Where there is an archive, a
segment stays until the archiver has said that it holds all of it.
"""

from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from poe.actors import ActorRef
from poe.broker.appendix.hybrid_clock import JumpWatch
from poe.storage import Segment

_TICK_MAX_S = 600.0


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


@dataclass(frozen=True, slots=True)
class Expiring:
    """Cast to the archiver at each look: what waits for it."""

    segments: tuple[ExpiringSegment, ...]


@dataclass(frozen=True, slots=True)
class Archived:
    """Cast to the topic registry: which of the segments that it has told last are archived."""

    keys: frozenset[tuple[bytes, int]]


class Expiry:
    """Chooses what goes, in a look at each topic between `begin` and `end`.

    `has_archive` tells whether a topic is archived, and `archived` the segments that are.
    """

    __slots__ = (
        "_has_archive",
        "_is_careful",
        "_is_over",
        "_jumps",
        "_max_age_s",
        "_waiting",
        "archived",
    )

    def __init__(
        self, max_age_s: float | None, jumps: JumpWatch, has_archive: Callable[[bytes], bool]
    ) -> None:
        self.archived: AbstractSet[tuple[bytes, int]] = frozenset()
        self._has_archive = has_archive
        self._max_age_s = max_age_s
        self._jumps = jumps
        self._is_careful = False
        self._is_over = True
        self._waiting: list[ExpiringSegment] = []

    @property
    def tick_s(self) -> float | None:
        """Seconds between looks; None: everything is kept for ever."""
        return None if self._max_age_s is None else min(self._max_age_s / 10, _TICK_MAX_S)

    def begin(self, now_us: int, monotonic_s: float) -> int:
        """Begin a look, and tell the pointer from which on everything is kept.

        After a jump of the clock one segment of each topic is chosen.
        """
        assert self._max_age_s is not None
        # Should the clock be wrong, there is time to set it right before all is gone.
        self._is_careful = self._jumps.has_jumped(now_us, monotonic_s)
        self._is_over = True
        self._waiting = []
        return now_us - int(min(self._max_age_s * 1_000_000, now_us))

    def choose(self, topic: bytes, old: Sequence[tuple[ActorRef, Segment]]) -> list[ActorRef]:
        """Tell which of the segments of a topic that are too old go now; they come oldest first."""
        chosen = []
        has_archive = self._has_archive(topic)
        for ref, segment in old:
            if not has_archive or segment.pointer_low is None:
                chosen.append(ref)
                continue
            extent = segment.pointer_low, segment.last_pointer, segment.count
            expiring = ExpiringSegment(topic, segment.timestamp, *extent)
            if expiring.key in self.archived:
                chosen.append(ref)
            else:
                self._waiting.append(expiring)
        if self._is_careful:
            del chosen[1:]
        self._is_over = self._is_over and not chosen
        return chosen

    def end(self) -> Expiring | None:
        """End a look, and tell what waits for the archive."""
        # What waits is in no danger: a clock is trusted again while the archiver works.
        if self._is_over:
            self._jumps.trust()
        return Expiring(tuple(self._waiting)) if self._waiting else None
