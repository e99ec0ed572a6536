"""Which queues a cluster has, or groups a queue, as one node knows it; all come to the same.

Pure. What was deleted stays as a record, so that no node that was away brings it back. Of what was
made anew the last deletion stays, too: it is told before the record, so that a node that was away
lets go of what it has of the former one, which is another one.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Final, Generic

import msgpack  # type: ignore[import-untyped]  # it ships no type hints
from xxhash import xxh3_64_intdigest

from poe.cluster.queue_record import AnyRecord, winner

QUEUES_MAX: Final = 10_000
"""Queues of a cluster, deleted ones counted; behind that, deletions are forgotten oldest first."""


class Directory(Generic[AnyRecord]):
    """Records by name; always one a name, and at most `count_max`.

    `let_go` is called with each deletion that is forgotten to make room.
    """

    __slots__ = ("_count_max", "_digest", "_ended", "_let_go", "_records")

    def __init__(
        self,
        records: Iterable[AnyRecord] = (),
        *,
        count_max: int = QUEUES_MAX,
        let_go: Callable[[AnyRecord], object] = lambda _record: None,
    ) -> None:
        self._count_max = count_max
        self._let_go: Callable[[AnyRecord], object] = let_go
        self._records: dict[bytes | str, AnyRecord] = {}
        self._ended: dict[bytes | str, AnyRecord] = {}
        """The last deletions of what was made anew."""
        self._digest: int | None = None
        self.join(records)

    def __len__(self) -> int:
        return len(self._records)

    def find(self, name: bytes | str) -> AnyRecord | None:
        """Return the record of what there is; None: there is none."""
        record = self._records.get(name)
        return None if record is None or record.deleted_us else record

    def get(self, name: bytes | str) -> AnyRecord | None:
        """Return a record, of what was deleted, too."""
        return self._records.get(name)

    def ended(self, name: bytes | str) -> AnyRecord | None:
        """Return the last deletion of what was made anew."""
        return self._ended.get(name)

    def there(self) -> list[AnyRecord]:
        """Return the records of what there is, sorted by name."""
        return [each for each in self.records() if not each.deleted_us]

    def records(self) -> list[AnyRecord]:
        """Return all records, sorted by name."""
        return [self._records[name] for name in sorted(self._records)]

    def as_told(self, records: Iterable[AnyRecord]) -> list[AnyRecord]:
        """Return records as they are told and written: those of what was made anew behind its end.

        Else who has missed that would take what it knows of the former one for what is known of it.
        """
        told: list[AnyRecord] = []
        for each in records:
            ended = None if each.deleted_us else self._ended.get(each.name)
            told += [each] if ended is None else [ended, each]
        return told

    def join(self, records: Iterable[AnyRecord]) -> list[AnyRecord]:
        """Take what another node knows, and return the records that this has changed.

        What there is no room for is left out.
        """
        changed = []
        for each in records:
            known = self._records.get(each.name)
            if known is None and not self._make_room(each):
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

    def has_room_for(self, name: bytes | str) -> bool:
        """Return whether there may be something of a name; a deletion makes room for it."""
        is_full = len(self._records) >= self._count_max
        return not is_full or name in self._records or any(map(_is_deleted, self._records.values()))

    def beyond(self, records: Sequence[AnyRecord]) -> list[AnyRecord]:
        """Return the records that another node has not, or has otherwise, and would take."""
        theirs = {each.name: each for each in records}
        return [each for each in self.records() if theirs.get(each.name) != each]

    def digest(self) -> int:
        """Return a hash of all records, the same for the same."""
        if self._digest is None:
            self._digest = xxh3_64_intdigest(msgpack.packb(self.records()))
        return self._digest

    def _make_room(self, record: AnyRecord) -> bool:
        """Return whether one more record may be known; for it the oldest deletion is let go.

        The oldest may be this one itself: nodes that know of different ones come to the same.
        """
        if len(self._records) < self._count_max:
            return True
        deleted = [each for each in self._records.values() if each.deleted_us]
        if record.deleted_us:
            deleted.append(record)
        oldest = min(deleted, key=lambda each: (each.deleted_us, each.name), default=record)
        if oldest is record:
            return False
        del self._records[oldest.name]
        self._digest = None
        self._let_go(oldest)
        return True


def _is_deleted(record: AnyRecord) -> bool:
    return bool(record.deleted_us)
