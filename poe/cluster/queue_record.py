"""What nodes agree on about a queue and its groups: records, of which one wins where two differ."""

from collections.abc import Mapping
from typing import Any, Final, Literal, NamedTuple, TypeVar

from poe.errors import OptionError
from poe.record import POINTER_MAX

NAME_BYTES_MAX: Final = 255
BYTES_MAX: Final = 256 * 1024 * 1024
MESSAGES_MAX: Final = 1 << 22
COPIES_MAX: Final = 64
TIME_MAX_US: Final = POINTER_MAX
"""Of a record; what comes from elsewhere with a later time is none."""

OnFull = Literal["busy", "drop-oldest"]
"""What a node does that has no room for a message: refuse it, or drop the oldest of the queue."""


class QueueRecord(NamedTuple):
    """A queue, as its first put made it."""

    name: bytes
    copies: int
    """On how many nodes each message is to be."""
    persist: bool = False
    """Whether a node's copies outlive its process."""
    bytes_max: int = BYTES_MAX
    """What the queue may take of each node's memory."""
    messages_max: int = MESSAGES_MAX
    """How many messages of it each node may hold."""
    on_full: OnFull = "busy"
    created_us: int = 0
    created_by: bytes = b""
    """A node's id."""
    deleted_us: int = 0
    """0: it is there."""

    def check(self) -> None:
        """See whether a queue may be so.

        Raises:
            OptionError: it may not.
        """
        _check("name", self.name, 1 <= len(self.name) <= NAME_BYTES_MAX, "1 to 255 bytes")
        _check("copies", self.copies, 1 <= self.copies <= COPIES_MAX, f"1 to {COPIES_MAX}")
        _check("bytes_max", self.bytes_max, self.bytes_max >= 1, "1 or more")
        _check("messages_max", self.messages_max, self.messages_max >= 1, "1 or more")
        is_known = self.on_full in ("busy", "drop-oldest")
        _check("on_full", self.on_full, is_known, "busy or drop-oldest")
        done_us = max(self.created_us, self.deleted_us)
        _check("created_us", done_us, done_us <= TIME_MAX_US, f"a time up to {TIME_MAX_US}")

    def deleted(self, now_us: int) -> "QueueRecord":
        """Return the record of the queue once it is deleted, which wins over this one."""
        return self._replace(deleted_us=_after(self.created_us, now_us))


class GroupRecord(NamedTuple):
    """A group of a queue, as its first member made it."""

    queue: bytes
    name: str
    options: Mapping[str, Any]
    """As `GroupOptions` has them, and `delivery`."""
    created_us: int = 0
    created_by: bytes = b""
    deleted_us: int = 0

    def deleted(self, now_us: int) -> "GroupRecord":
        """Return the record of the group once it is deleted, which wins over this one."""
        return self._replace(deleted_us=_after(self.created_us, now_us))


AnyRecord = TypeVar("AnyRecord", QueueRecord, GroupRecord)


def winner(one: AnyRecord, other: AnyRecord) -> AnyRecord:
    """Return which of two records of one name holds: that of what was done last.

    A deletion wins over all that is older than it, and what was made since over the deletion. All
    nodes come to the same, in whatever order they hear of them: records are ordered by it. To have
    the older of two win that were made on two sides of a split is not: a deletion would beat the
    older one, that the younger one, and this the deletion.
    """
    return max(one, other, key=_order)


def _order(record: QueueRecord | GroupRecord) -> tuple[int, int, bytes, str]:
    """Return what records of one name are ordered by; equal only where they are the same."""
    done_us = max(record.created_us, record.deleted_us)
    return done_us, record.deleted_us, record.created_by, repr(record)


def _after(created_us: int, now_us: int) -> int:
    # At one time a deletion wins.
    return min(max(now_us, created_us + 1), TIME_MAX_US)


def _check(key: str, value: object, is_right: bool, allowed: str) -> None:  # noqa: FBT001
    if not is_right:
        raise OptionError(key, value, allowed)
