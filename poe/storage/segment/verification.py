"""Turn a range of a data file into the part of it that was compared with its sums, before a read.

Strategy: what this process wrote itself needs no comparing. What it found is hashed when it is
first asked for, whole entries of the sums at a time and a few MiB at most, so that no read takes
long; what was found sound is not hashed again (`verify="once"`), or each time (`"always"`). The
index is compared as a whole, before anything is looked up in it.
"""

from bisect import bisect_right
from collections.abc import Sequence
from itertools import pairwise

from poe.errors import CorruptRecord
from poe.storage.failure import reading
from poe.storage.files import Files, FileSlice, OpenFile
from poe.storage.formats.sum_file import Flag, SumEntry, hash_of
from poe.storage.recovery.recovery import read_sums
from poe.storage.recovery.survey import read_index_of
from poe.storage.segment.record_reader import RecordReader

BYTES_MAX = 4 << 20
"""Hashed for one read at most, but for the entry that it begins in: half a millisecond."""


class Verification:
    """What of a closed segment's data is known to be as it was written; `path` is less `_data`."""

    __slots__ = (
        "_ends",
        "_entries",
        "_files",
        "_is_verified",
        "_path",
        "_store_id",
        "is_once",
    )

    def __init__(self, files: Files, path: str, store_id: bytes, *, is_once: bool) -> None:
        self._files = files
        self._path = path
        self._store_id = store_id
        self.is_once = is_once
        """Whether what was found sound is not compared again."""
        # Of 100 000 segments that rest, empty lists would be megabytes.
        self._entries: Sequence[SumEntry] = ()
        self._ends: Sequence[int] = ()
        self._is_verified: bytes | bytearray = b""

    @property
    def is_over(self) -> bool:
        """Whether nothing is left to be compared."""
        return self.is_once and bool(self._is_verified) and all(self._is_verified)

    def open(self) -> None:
        """Read the sums and compare the index with them, unless that was done since `forget`.

        Raises:
            CorruptRecord: the index or the sums are not what was written, as its path tells.
            ReadFailed: a file cannot be read.
        """
        if self._entries:
            return
        with reading(self._path):
            sums = read_sums(self._files, self._path, self._store_id)
            index = self._files.open(self._path + "_index", "r")
            has_header = sums.has_header or sums.file is None
            if not has_header or not all(each.is_chained for each in sums.entries):
                raise CorruptRecord(self._path + "_sum", 0)
            entries = [each.entry for each in sums.entries]
            at = 0
            for entry in entries:
                index_bytes = read_index_of(entry, index, at)
                if index_bytes is None:
                    raise CorruptRecord(self._path + "_index", at)
                at += len(index_bytes)
        self._entries = entries
        self._ends = [entry.end for entry in entries]
        # An entry that covers nothing, as the last one does, is no read's to compare.
        covers_nothing = bytearray(end == start for start, end in pairwise([0, *self._ends]))
        self._is_verified = bytearray(self._is_verified) + covers_nothing[len(self._is_verified) :]

    def find(  # noqa: PLR0913, PLR0917 - a reader, and what it is asked for
        self,
        reader: RecordReader,
        pointer: int,
        limit: int,
        bytes_max: int,
        count: int,
        size_bytes: int,
    ) -> FileSlice | None:
        """Find records as `RecordReader.find` does, and no more than were compared with their sums.

        Raises:
            CorruptRecord: what lies there is not what was written.
            ReadFailed: a file cannot be read.
        """
        self.open()
        try:
            found = reader.find(pointer, limit, bytes_max, count, size_bytes)
        except CorruptRecord as error:
            if error.path.endswith("_data"):
                self.check(reader.file, error.offset, error.offset + 1)
            raise
        if found is None:
            return None
        end = found.offset + found.length
        sound_end = self.check(reader.file, found.offset, end)
        if sound_end == end:
            return found
        return reader.find(pointer, limit, sound_end - found.offset, count, size_bytes)

    def check(self, data: OpenFile, offset: int, end: int) -> int:
        """Compare data with its sums from an offset on; return up to where, `end` at most.

        Raises:
            CorruptRecord: what lies at `offset` is not what was written.
            ReadFailed: the data cannot be read.
        """
        with reading(self._path):
            room, known = BYTES_MAX, self._is_verified
            assert isinstance(known, bytearray)
            for number in range(bisect_right(self._ends, offset), len(self._ends)):
                start = self._ends[number - 1] if number else 0
                if start >= end:
                    break
                if known[number]:
                    continue
                if room <= 0:
                    return start
                room -= self._ends[number] - start
                entry = self._entries[number]
                is_marked = entry.flags & Flag.CORRUPT
                if is_marked or hash_of(data, start, entry.end) != entry.data_hash:
                    if start <= offset:
                        raise self._corrupt(number, start)
                    return start
                known[number] = self.is_once
        return end

    def _corrupt(self, number: int, start: int) -> CorruptRecord:
        """Say which pointers the records of an entry have, as far as the entries tell."""
        # No record has a pointer less than the timestamp; entries without records have none.
        before = int(self._path.rpartition("/")[2]) - 1
        for entry in self._entries[:number]:
            before = max(before, entry.last_pointer)
        pointer = self._entries[number].last_pointer
        return CorruptRecord(self._path + "_data", start, pointer, before + 1)

    def forget(self) -> None:
        """Let go of what was read; what was found sound is remembered."""
        self._entries = self._ends = ()
