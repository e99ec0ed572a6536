"""One lease: messages that a member holds for a while; and what all leases of a member come to."""

from collections.abc import Iterator
from typing import NamedTuple

from poe.broker.groups.failures import NONE_YET, Failures
from poe.broker.groups.ranges import Bounds, RangeSet
from poe.broker.groups.returned import Returned


class Sought(NamedTuple):
    """Which messages are to be looked for, to be handed to a member."""

    member: bytes
    unit: bytes
    after: int
    last: int
    limit: int
    """Messages at most."""
    bytes_max: int
    """Bytes at most, but one message in any case."""
    returned: Returned | None
    """What was handed out before, of which this is the begin; None: nothing of it was."""

    @property
    def failures(self) -> Failures:
        """Return what is known of failures of these messages."""
        return NONE_YET if self.returned is None else self.returned.failures


class Lease:
    """Messages that one member holds until a deadline: those with `after` < pointer <= `last`."""

    __slots__ = (
        "_rest",
        "after",
        "count",
        "deadline_us",
        "failures",
        "id",
        "is_alone",
        "last",
        "member",
        "since_us",
        "size_bytes",
        "unit",
    )

    def __init__(
        self, lease_id: int, sought: Sought, last: int, count: int, size_bytes: int
    ) -> None:
        self.id = lease_id
        self.member = sought.member
        self.unit = sought.unit
        self.after = sought.after
        self.last = last
        self.count = count
        """How many messages were handed out; of what is left, how many at most."""
        self.size_bytes = size_bytes
        self.failures = sought.failures
        self.is_alone = True
        """Whether its member has held nothing else since it was handed out."""
        self.since_us = 0
        self.deadline_us = 0
        self._rest: RangeSet | None = None

    @property
    def attempts(self) -> int:
        """Return how often its messages have failed already; 0: nothing is known of that.

        At least 1 where some of them may have: then each is to be acknowledged at once.
        """
        return self.failures.attempts or int(self.failures.limit is not None)

    @property
    def is_over(self) -> bool:
        """Return whether nothing of it is left."""
        return self._rest is not None and not self._rest

    @property
    def parts_count(self) -> int:
        """Return in how many ranges what is left of it lies."""
        return 1 if self._rest is None else len(self._rest)

    def left(self) -> Iterator[Bounds]:
        """Yield the ranges that are left of it."""
        return iter([(self.after, self.last)] if self._rest is None else self._rest)

    def take(self, after: int, last: int) -> list[Bounds]:
        """Take a range out; return the parts of it that were left until now."""
        rest = self._rest
        if rest is None:
            rest = self._rest = RangeSet()
            rest.add(self.after, self.last)
        parts = [(after, last)] if rest.holds(after, last) else rest.within(after, last)
        for part in parts:
            rest.remove(*part)
        return parts


class Hand:
    """What one member holds."""

    __slots__ = ("leases", "messages_count")

    def __init__(self) -> None:
        self.leases: dict[int, Lease] = {}
        self.messages_count = 0

    @property
    def is_bound(self) -> bool:
        """Return whether it holds a suspect, beside which it is to hold nothing."""
        leases = self.leases
        return len(leases) == 1 and next(iter(leases.values())).failures.is_suspect

    def take(self, lease: Lease) -> None:
        """Hold one more lease."""
        if self.leases:
            lease.is_alone = False
            if len(self.leases) == 1:
                next(iter(self.leases.values())).is_alone = False
        self.leases[lease.id] = lease
        self.messages_count += lease.count

    def drop(self, lease: Lease) -> None:
        """Hold a lease no more."""
        del self.leases[lease.id]
        self.messages_count -= lease.count
