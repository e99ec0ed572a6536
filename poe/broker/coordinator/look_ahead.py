"""Messages that were found beyond what one lease takes: the next leases are cut from those.

To find a few messages costs more than to lease them, and the next lease mostly wants those behind.
Where they lie is kept, and not the file: when nobody reads the segment any more, as when it was
deleted, what was found in it is forgotten.
"""

from weakref import ref

import numpy as np

from poe.broker.appendix.message import GetRange
from poe.broker.groups.lease import Want
from poe.record import ENTRY_BYTES, decode_entries
from poe.storage import FileSlice, IndexedSlice, OpenFile

_COUNT = 512
"""Messages that are looked for where fewer are wanted."""
_BYTES = 128 * 1024
_UNITS_MAX = 64
"""Of so many units it is kept what was found, which takes 14 KiB each."""


class _Found:
    """Messages of a unit, those before `at` of which are cut off already."""

    __slots__ = (
        "after",
        "at",
        "count",
        "entries",
        "file",
        "number",
        "offsets",
        "ordinal",
        "pointers",
    )

    def __init__(self, after: int, found: IndexedSlice) -> None:
        records = found.records
        self.after = after
        self.at = 0
        self.count = records.record_count
        self.entries = found.entries
        self.file = ref(records.file)
        self.number = records.number
        self.ordinal = found.ordinal
        self.pointers, offsets = decode_entries(found.entries)
        self.offsets = np.append(offsets, np.uint64(records.offset + records.length))

    def cut(self, limit: int, bytes_max: int, file: OpenFile) -> IndexedSlice:
        """Cut the next messages off, one of them in any case."""
        at, offsets = self.at, self.offsets
        offset = int(offsets[at])
        stop = min(at + limit, self.count)
        if int(offsets[stop]) - offset > bytes_max:
            fitting = offsets[at + 1 : stop].searchsorted(np.uint64(offset + bytes_max), "right")
            stop = at + max(1, int(fitting))
        self.at, self.after = stop, int(self.pointers[stop - 1])
        length = int(offsets[stop]) - offset
        records = FileSlice(file, offset, length, stop - at, self.after, self.number + at)
        entries = self.entries[at * ENTRY_BYTES : stop * ENTRY_BYTES]
        return IndexedSlice(entries, records, self.ordinal + at)


class LookAhead:
    """Where the next messages of some units lie.

    Always: what it returns begins behind the pointer that is asked for, and leaves nothing out.
    """

    __slots__ = ("_found",)

    def __init__(self) -> None:
        self._found: dict[bytes, _Found] = {}

    @staticmethod
    def question(want: Want) -> GetRange:
        """Return what to look for, which of new messages is more than is wanted."""
        limit, bytes_max = want.limit, want.bytes_max
        if want.returned is None:
            limit, bytes_max = max(limit, _COUNT), max(bytes_max, _BYTES)
        return GetRange(want.after, want.last, limit, bytes_max)

    def take(self, want: Want) -> IndexedSlice | None:
        """Return what is wanted; None where it is to be looked for."""
        found = self._found.get(want.unit)
        if found is None or want.returned is not None:
            return None
        file = found.file()
        if file is None or found.after != want.after or found.count - found.at < want.limit:
            del self._found[want.unit]
            return None
        return found.cut(want.limit, want.bytes_max, file)

    def share(self, want: Want, found: IndexedSlice) -> IndexedSlice:
        """Return what is wanted of what was found, and keep the rest in mind."""
        records = found.records
        if records.record_count <= want.limit and records.length <= want.bytes_max:
            return found
        if len(self._found) >= _UNITS_MAX:
            self._found.clear()
        self._found[want.unit] = kept = _Found(want.after, found)
        return kept.cut(want.limit, want.bytes_max, records.file)
