"""Messages that were found beyond what one lease takes: the next leases are cut from those.

To find a few messages costs more than to lease them, and the next lease mostly wants those behind.
Where they lie is kept, and not the file: when nobody reads the segment any more, as when it was
deleted, what was found in it is forgotten.
"""

from bisect import bisect_right
from weakref import ref

from poe.broker.appendix.message import GetRange
from poe.broker.groups.lease import Sought
from poe.record import ENTRY_BYTES
from poe.storage import FileSlice, IndexedSlice, OpenFile, decode_entry

_COUNT = 1024
"""Messages that are looked for at most, where fewer are wanted."""
_BYTES = 256 * 1024
_UNITS_MAX = 64
"""Of so many units it is kept what was found, which takes 12 KiB each."""


class _Found:
    """Messages of a unit, those before `at` of which are cut off already."""

    __slots__ = ("after", "at", "count", "end", "entries", "file", "number", "offset", "ordinal")

    def __init__(self, after: int, found: IndexedSlice) -> None:
        records = found.records
        self.after = after
        self.at = 0
        self.count = records.record_count
        self.end = records.offset + records.length
        self.entries = found.entries
        self.file = ref(records.file)
        self.number = records.number
        self.offset = records.offset
        self.ordinal = found.ordinal

    def cut(self, limit: int, bytes_max: int, file: OpenFile) -> IndexedSlice:
        """Cut the next messages off, one of them in any case."""
        at, offset = self.at, self.offset
        stop = min(at + limit, self.count)
        last, end = self._boundary(stop)
        if end - offset > bytes_max:
            fitting = range(at + 1, stop)
            room_end = offset + bytes_max
            fitting_count = bisect_right(
                fitting, room_end, key=lambda each: self._boundary(each)[1]
            )
            stop = at + max(1, fitting_count)
            last, end = self._boundary(stop)
        self.at, self.after, self.offset = stop, last, end
        records = FileSlice(file, offset, end - offset, stop - at, last, self.number + at)
        entries = self.entries[at * ENTRY_BYTES : stop * ENTRY_BYTES]
        return IndexedSlice(entries, records, self.ordinal + at)

    def _boundary(self, number: int) -> tuple[int, int]:
        """Return the pointer of the message before one, and where that message ends."""
        at = number * ENTRY_BYTES
        last, _ = decode_entry(self.entries[at - ENTRY_BYTES : at])
        if number == self.count:
            return last, self.end
        return last, decode_entry(self.entries[at : at + ENTRY_BYTES])[1]


class LookAhead:
    """Where the next messages of some units lie.

    Always: what it returns begins behind the pointer that is asked for, and leaves nothing out.
    """

    __slots__ = ("_found",)

    def __init__(self) -> None:
        self._found: dict[bytes, _Found] = {}

    @staticmethod
    def question(sought: Sought) -> GetRange:
        """Return what to look for, which of new messages is more than is wanted.

        It is enough for a number of leases of this size: the segment finds at once what lies behind
        the last message that it has found, which is where the next look begins then.
        """
        limit, bytes_max = sought.limit, sought.bytes_max
        if sought.returned is None and limit < _COUNT:
            limit, bytes_max = _COUNT - _COUNT % limit, max(bytes_max, _BYTES)
        return GetRange(sought.after, sought.last, limit, bytes_max)

    def take(self, sought: Sought) -> IndexedSlice | None:
        """Return what is wanted; None where it is to be looked for."""
        found = self._found.get(sought.unit)
        if found is None or sought.returned is not None:
            return None
        file = found.file()
        if file is None or found.after != sought.after or found.count - found.at < sought.limit:
            del self._found[sought.unit]
            return None
        return found.cut(sought.limit, sought.bytes_max, file)

    def share(self, sought: Sought, found: IndexedSlice) -> IndexedSlice:
        """Return what is wanted of what was found, and keep the rest in mind, if that may be."""
        records = found.records
        if records.record_count <= sought.limit and records.length <= sought.bytes_max:
            return found
        more = _Found(sought.after, found)
        if found.is_compared_once:
            if len(self._found) >= _UNITS_MAX:
                self._found.clear()
            self._found[sought.unit] = more
        return more.cut(sought.limit, sought.bytes_max, records.file)
