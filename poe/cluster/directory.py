"""Which queues a cluster has, as one node knows it: records that all nodes join into the same.

Pure. A queue that was deleted stays as a record, so that no node that was away brings it back. Of
one that was made anew the last deletion stays, too: it is told before the record, so that a node
that was away lets go of what it has of the former queue, which is another one.
"""

from collections.abc import Iterable, Sequence
from typing import Final

import msgpack  # type: ignore[import-untyped]  # it ships no type hints
from xxhash import xxh3_64_intdigest

from poe.cluster.queue_record import QueueRecord, winner
from poe.errors import GroupFull

QUEUES_MAX: Final = 10_000
"""Records, those of deleted queues counted; behind that, deletions are forgotten oldest first."""


class Directory:
    """Records by name; always one a name, and at most `QUEUES_MAX`."""

    __slots__ = ("_digest", "_ended", "_records")

    def __init__(self, records: Iterable[QueueRecord] = ()) -> None:
        self._records: dict[bytes, QueueRecord] = {}
        self._ended: dict[bytes, QueueRecord] = {}
        """The last deletions of queues that were made anew."""
        self._digest: int | None = None
        self.join(records)

    def __len__(self) -> int:
        return len(self._records)

    def find(self, name: bytes) -> QueueRecord | None:
        """Return the record of a queue that there is; None: there is none."""
        record = self._records.get(name)
        return None if record is None or record.deleted_us else record

    def get(self, name: bytes) -> QueueRecord | None:
        """Return a record, of a queue that was deleted, too."""
        return self._records.get(name)

    def names(self) -> list[bytes]:
        """Return the queues that there are, sorted."""
        return sorted(name for name, each in self._records.items() if not each.deleted_us)

    def records(self) -> list[QueueRecord]:
        """Return all records, sorted by name."""
        return [self._records[name] for name in sorted(self._records)]

    def as_told(self, records: Iterable[QueueRecord]) -> list[QueueRecord]:
        """Return records as they are told and written: those of queues made anew behind the end."""
        told: list[QueueRecord] = []
        for each in records:
            ended = None if each.deleted_us else self._ended.get(each.name)
            told += [each] if ended is None else [ended, each]
        return told

    def join(self, records: Iterable[QueueRecord]) -> list[QueueRecord]:
        """Take what another node knows, and return the records that this has changed.

        What there is no room for is left out.
        """
        changed = []
        for each in records:
            known = self._records.get(each.name)
            if known is None and not self._has_place(each):
                continue
            wins = each if known is None else winner(known, each)
            if wins != known:
                self._records[each.name] = wins
                if wins.deleted_us:
                    self._ended.pop(each.name, None)
                elif known is not None and known.deleted_us:
                    self._ended[each.name] = known
                changed.append(wins)
        if changed:
            self._digest = None
        return changed

    def check_room(self, name: bytes) -> None:
        """Refuse one queue too many.

        Raises:
            GroupFull: there is no room for another record.
        """
        is_new = name not in self._records
        if is_new and not self._has_place(QueueRecord(name, 1)):
            raise GroupFull("queues", "queues_max", QUEUES_MAX)

    def beyond(self, records: Sequence[QueueRecord]) -> list[QueueRecord]:
        """Return the records that another node has not, or has otherwise, and would take."""
        theirs = {each.name: each for each in records}
        return [each for each in self.records() if theirs.get(each.name) != each]

    def digest(self) -> int:
        """Return a hash of all records, the same for the same."""
        if self._digest is None:
            self._digest = xxh3_64_intdigest(msgpack.packb(self.records()))
        return self._digest

    def _has_place(self, record: QueueRecord) -> bool:
        """Return whether one more record may be known; for it the oldest deletion is let go.

        The oldest may be this one itself: nodes that know of different ones come to the same.
        """
        if len(self._records) < QUEUES_MAX:
            return True
        deleted = [each for each in (record, *self._records.values()) if each.deleted_us]
        oldest = min(deleted, key=lambda each: (each.deleted_us, each.name), default=record)
        if oldest is record:
            return False
        del self._records[oldest.name]
        self._digest = None
        return True
