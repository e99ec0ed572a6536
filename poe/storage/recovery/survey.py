"""Turn data, index and sums of a segment into what of them can be trusted; changes nothing.

Strategy: the sums are walked forwards. What an entry covers is sound when the data has its hash; an
index that has not is made from the data. An entry that is damaged itself leaves a gap, which is
bridged by reading the records in it, and is found sound behind it. See `recovery.py` for what
follows from it.
"""

from bisect import bisect_left
from dataclasses import dataclass, field
from itertools import pairwise, takewhile

import numpy as np
from xxhash import xxh3_64_intdigest

from poe.record import ENTRY_BYTES, POINTER_MAX, RECORD_HEADER_BYTES
from poe.storage.files import OpenFile
from poe.storage.formats.record import Numbers, decode_entry, encode_entries, encode_runs
from poe.storage.formats.sum_file import SUM_DATA_BYTES, Flag, FoundSum, SumEntry, hash_of
from poe.storage.recovery.scan import RecordPlaces, scan_records


def read_index_of(entry: SumEntry, index: OpenFile, at: int) -> bytes | None:
    """Read the index entries that an entry of the sums covers; None when they lack its hash."""
    wanted_bytes = entry.record_count * ENTRY_BYTES
    if at + wanted_bytes > index.size():
        return None  # before so much is read: sums may tell of any number
    index_bytes = index.read_at(wanted_bytes, at)
    return index_bytes if xxh3_64_intdigest(index_bytes) == entry.index_hash else None


def sums_of(
    data: OpenFile, pointers: Numbers, offsets: Numbers, end: int
) -> list[tuple[SumEntry, bytes]]:
    """Make the sums of records that lie back to back, each with its index entries."""
    made = []
    first, count = 0, len(pointers)
    while first < count:
        stop = int(offsets.searchsorted(offsets[first] + np.uint64(SUM_DATA_BYTES)))
        stop_offset = int(offsets[stop]) if stop < count else end
        index_bytes = encode_entries(pointers[first:stop], offsets[first:stop])
        made.append((
            SumEntry(
                stop_offset,
                int(pointers[stop - 1]),
                stop - first,
                Flag.ADOPTED,
                hash_of(data, int(offsets[first]), stop_offset),
                xxh3_64_intdigest(index_bytes),
            ),
            index_bytes,
        ))  # fmt: skip
        first = stop
    return made


@dataclass(slots=True)
class Survey:
    """What of a segment can be trusted, up to `end`; and which files must change for it.

    The first `kept_entries_count` entries of the sums stay, with `entries` behind them; so do the
    first `kept_count` records of the index, with `index_bytes` behind them.
    """

    data: OpenFile
    index: OpenFile | None
    size_bytes: int
    """Of the data file."""

    chain: int
    """Of the last entry that stays."""

    end: int = 0
    count: int = 0
    last_pointer: int = 0
    last_flags: int = 0
    kept_entries_count: int = 0
    kept_count: int = 0
    entries: list[SumEntry] = field(default_factory=list)
    index_bytes: bytearray = field(default_factory=bytearray)
    damage: list[str] = field(default_factory=list)
    is_short: bool = False
    """Whether the data ends inside of what an entry covers; no hash can tell of that part."""

    told_count: int = 0
    """Records in all, by durable entries that the data does not reach to; 0 where it does."""

    _is_index_aligned: bool = True
    """Whether record numbers are still those of the index file."""

    _are_entries_aligned: bool = True
    """Whether all entries so far are in the sum file as they are."""

    def walk(self, found: list[FoundSum], *, trusted_count: int, cut_from: int) -> None:
        """Look at all entries.

        Args:
            found: the entries of the sum file.
            trusted_count: so many at the beginning are not compared with the data.
            cut_from: where the data of an entry with this number, or a greater one, does not match,
                it is the end; what does not match before is marked.
        """
        is_suspicious = bool(found) and cut_from > 0 and not found[0].is_chained
        if is_suspicious and not self._any_fits(found):
            self.damage.append("the sums belong to another segment")
            return
        gap: list[SumEntry] = []
        for number, each in enumerate(found):
            is_usable = (
                each.is_chained
                and self.end <= each.entry.end <= self.size_bytes
                and each.entry.last_pointer <= POINTER_MAX
            )
            if not is_usable and number >= cut_from:
                return
            if each.is_chained and each.entry.end > self.size_bytes:
                self.damage.append(f"data ends at {self.size_bytes}, its sums at {each.entry.end}")
                self.is_short = True
                durable = (e.entry for e in found[number:cut_from] if e.is_chained)
                self.told_count = self.count + sum(entry.record_count for entry in durable)
                return
            if not is_usable:
                self.damage.append(f"entry {number} of the sums is damaged")
                gap.append(each.entry)
                continue
            if gap:
                self._bridge(gap, each.entry)
                gap = []
            if number < trusted_count:
                self._keep(each)
            elif not self._compare(each, is_cut=number >= cut_from):
                return

    def adopt(self, end: int, *, is_index_needed: bool) -> None:
        """Take in what looks like records behind the sums, up to an offset.

        Where `is_index_needed`, only what the index tells the same of.
        """
        places = scan_records(self.data, self.end, end, self.last_pointer)
        if is_index_needed:
            _cut_places(places, self._indexed_count(places))
        self._add_places(places)

    def _indexed_count(self, places: RecordPlaces) -> int:
        """Return how many of the records that come next are in the index."""
        if self.index is None or not places.pointers:
            return 0
        wanted = encode_places(places)
        at = self._place_in_index(wanted[:ENTRY_BYTES]) * ENTRY_BYTES
        found = self.index.read_at(len(wanted), at)
        starts = range(0, len(wanted), ENTRY_BYTES)
        same = (wanted[at : at + ENTRY_BYTES] == found[at : at + ENTRY_BYTES] for at in starts)
        return sum(takewhile(bool, same))

    def _place_in_index(self, entry: bytes) -> int:
        """Return which number an entry has in the index, or at least where it should be.

        Behind a bridge the index may count other records than we do.
        """
        assert self.index is not None
        if self._is_index_aligned:
            return self.count
        content = self.index.read_at(self.index.size() // ENTRY_BYTES * ENTRY_BYTES, 0)
        places = (np.frombuffer(content, f"S{ENTRY_BYTES}") == entry).nonzero()[0]
        return int(places[0]) if len(places) else self.count

    def _any_fits(self, found: list[FoundSum]) -> bool:
        """Return whether any entry behind the first has the hash of its data.

        Entries of another segment are chained to one another, but not to the segment.
        """
        return any(
            each.is_chained
            and before.entry.end < each.entry.end <= self.size_bytes
            and hash_of(self.data, before.entry.end, each.entry.end) == each.entry.data_hash
            for before, each in pairwise(found)
        )

    def _bridge(self, gap: list[SumEntry], entry: SumEntry) -> None:
        """Take in what damaged entries covered; `entry` is the sound one behind them."""
        end = gap_end = gap[-1].end
        is_known = self.end <= gap_end <= entry.end
        if not is_known or hash_of(self.data, gap_end, entry.end) != entry.data_hash:
            end = entry.end
        number = self._number_in_index(entry, gap_end, sum(each.record_count for each in gap))
        self._is_index_aligned = self._are_entries_aligned = False
        pointer_max = entry.last_pointer
        if end < entry.end:
            header = self.data.read_at(RECORD_HEADER_BYTES, end)
            pointer_max = (int.from_bytes(header, "big") & POINTER_MAX) - 1
        places = scan_records(self.data, self.end, end, self.last_pointer)
        if places.end < end or places.last_pointer > pointer_max:
            _cut_places(places, bisect_left(places.pointers, pointer_max))
        self._add_places(places)
        if self.end < end:
            data_hash = hash_of(self.data, self.end, end)
            count = number - self.count + (entry.record_count if end == entry.end else 0)
            self._mark(SumEntry(end, pointer_max, max(count, 1), 0, data_hash ^ 1, 0), None)

    def _number_in_index(self, entry: SumEntry, start: int, told_count: int) -> int:
        """Return the number of the first record of an entry behind damaged ones.

        The index tells it, whose entries have their hash. Where that is lost, too, it is what the
        damaged ones say of their records, the field of which is one of six.

        Args:
            entry: the sound one.
            start: where its data begins, as far as is known.
            told_count: how many records those before it say that they cover.
        """
        told = self.count + told_count
        if self.index is None:
            return told
        count = self.index.size() // ENTRY_BYTES
        numbers = range(min(self.count, count), count)
        found = bisect_left(numbers, start, key=self._offset_in_index) + numbers.start
        for number in (told, found):
            if read_index_of(entry, self.index, number * ENTRY_BYTES) is not None:
                return number
        return told

    def _offset_in_index(self, number: int) -> int:
        assert self.index is not None
        return decode_entry(self.index.read_at(ENTRY_BYTES, number * ENTRY_BYTES))[1]

    def _compare(self, found: FoundSum, *, is_cut: bool) -> bool:
        """Compare an entry with data and index; tell whether to go on."""
        entry = found.entry
        if self.end == entry.end and entry.record_count:
            return True  # the gap before it was bridged up to its end
        index_bytes = self._index_bytes_of(entry)
        if hash_of(self.data, self.end, entry.end) != entry.data_hash:
            if is_cut:
                return False
            if entry.flags & Flag.CORRUPT and index_bytes is not None:
                self.damage.append(_damage_of(self.end, entry))
                self._keep(found)
            else:
                self._mark(entry, index_bytes)
        elif index_bytes is not None:
            self._keep(found)
        else:
            self._is_index_aligned = self._is_index_aligned and self.index is not None
            places = scan_records(self.data, self.end, entry.end, self.last_pointer)
            index_bytes = encode_places(places)
            self._add(entry, index_bytes, found.chain)
        return True

    def _index_bytes_of(self, entry: SumEntry) -> bytes | None:
        """Read the index entries of an entry; None when they do not have its hash."""
        if self.index is None or not self._is_index_aligned:
            return None
        return read_index_of(entry, self.index, self.count * ENTRY_BYTES)

    def _mark(self, entry: SumEntry, index_bytes: bytes | None) -> None:
        """Mark an entry as corrupt.

        Should its part of the index be lost, too, index entries stand in for all its records, so
        that the record before it still ends where it ends, and those behind it keep their numbers.
        """
        self.damage.append(_damage_of(self.end, entry))
        if index_bytes is None:
            self._is_index_aligned = False
            index_bytes = self._stand_ins(entry)
            entry = entry._replace(
                record_count=len(index_bytes) // ENTRY_BYTES,
                index_hash=xxh3_64_intdigest(index_bytes),
            )
        self._add(entry._replace(flags=entry.flags | Flag.CORRUPT), index_bytes)

    def _stand_ins(self, entry: SumEntry) -> bytes:
        """Make index entries for as many records as an entry covers, with pointers they may have.

        No more than there is room for: what damaged entries say may be any number.
        """
        if not entry.record_count:
            return b""
        room = entry.end - self.end
        pointers_count = entry.last_pointer - self.last_pointer
        count = max(min(entry.record_count, room // RECORD_HEADER_BYTES, pointers_count), 1)
        return encode_runs([(entry.last_pointer - count + 1, self.end, count, room // count)])

    def _add_places(self, places: RecordPlaces) -> None:
        pointers = np.array(places.pointers, np.uint64)
        offsets = np.array(places.offsets, np.uint64)
        for entry, index_bytes in sums_of(self.data, pointers, offsets, places.end):
            self._add(entry, index_bytes)

    def _keep(self, found: FoundSum) -> None:
        """Go behind an entry whose index entries are in the file."""
        if self.index_bytes or not self._is_index_aligned:
            index_bytes = self._index_bytes_of(found.entry)
            assert index_bytes is not None
            self._add(found.entry, index_bytes, found.chain)
            return
        self.kept_count += found.entry.record_count
        self._add(found.entry, b"", found.chain)

    def _add(self, entry: SumEntry, index_bytes: bytes, chain: int | None = None) -> None:
        """Go behind an entry; with a `chain` it is in the file as it is."""
        self.index_bytes += index_bytes
        self.end = entry.end
        self.count += entry.record_count
        self.last_pointer = max(entry.last_pointer, self.last_pointer)
        self.last_flags = entry.flags
        self._are_entries_aligned = self._are_entries_aligned and chain is not None
        if chain is not None and self._are_entries_aligned:
            self.kept_entries_count += 1
            self.chain = chain
        else:
            self.entries.append(entry)


def _cut_places(places: RecordPlaces, count: int) -> None:
    """Leave the first records alone; what comes then has a pointer that cannot be."""
    if count < len(places.pointers):
        places.end = places.offsets[count]
        del places.pointers[count:], places.offsets[count:]


def _damage_of(start: int, entry: SumEntry) -> str:
    return (
        f"bytes {start} to {entry.end} of the data, {entry.record_count} messages up to pointer "
        f"{entry.last_pointer}, are not what was written"
    )


def encode_places(places: RecordPlaces) -> bytes:
    """Make the index entries of records."""
    pointers = np.array(places.pointers, np.uint64)
    return encode_entries(pointers, np.array(places.offsets, np.uint64))
