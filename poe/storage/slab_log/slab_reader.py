"""Reads the records of one slab, proves each by its checksums, and finds the way behind damage.

How far a slab can be read: to the last entry of its side file; to the end of the slab where there
is no side file, or another program has added to the slab after the writer was closed. It is never
read beyond the start of the next slab: an entry that goes there is taken for damaged.

Where a record is not good, reading goes on
1. behind it by its own length, if a good record begins there or the batch ends there; else
2. at the next batch, as the side file tells; or, where no side file covers it,
3. at the first place at which a good record begins.
"""

from collections import deque
from itertools import takewhile
from typing import Self

import numpy as np
from xxhash import xxh3_64_intdigest

from poe.storage.files import Files, OpenFile
from poe.storage.slab_log.errors import CorruptSlabRecord
from poe.storage.slab_log.record import (
    HEADER_BYTES,
    Window,
    decode,
    decode_checked,
    length_at,
)
from poe.storage.slab_log.slab_name import slab_path
from poe.storage.slab_log.slab_sum import Entry, Flag, SumCursor

_WINDOW_BYTES = 256 * 1024
_SEARCH_BYTES = 1 << 20


class SlabReader:
    """One slab, open for reading; one thread at a time may call it.

    Addresses are those of the whole log. No more than a batch, a message of `message_max` or a
    window of 256 KiB is in memory at a time, whichever is largest.
    """

    __slots__ = ("_cursor", "_file", "_message_max", "_path", "_size_max", "_unread", "start")

    def __init__(
        self, file: OpenFile, start: int, cursor: SumCursor | None, path: str, message_max: int
    ) -> None:
        """Read an open slab that begins at `start`; without a cursor no side file is believed."""
        self.start = start
        self._file = file
        self._cursor = cursor
        self._unread: deque[Entry] = deque()
        self._path = path
        self._message_max = message_max
        self._size_max = 2**64

    @classmethod
    def open(cls, files: Files, start: int, message_max: int) -> Self:
        """Open a slab and its side file.

        Raises:
            ReadFailed: a later version of Poe wrote it.
            OSError: as reported by the file layer.
        """
        # In this order, as the writer makes the side file first: should it be missing, then
        # because the slab has none.
        file = files.open(slab_path(start), "r")
        return cls(file, start, SumCursor.open(files, start), files.base, message_max)

    def is_summed(self) -> bool:
        """Whether it has a side file that is good so far."""
        return self._cursor is not None and not self._cursor.is_broken

    def end_at(self, next_start: int | None) -> bool:
        """Go no further than to where the next slab begins; None where there is none.

        Tell whether nothing behind was read yet. A power cut may leave more: what an earlier life
        has written, of which the one that began the next slab knew nothing.
        """
        if next_start is not None:
            self._size_max = next_start - self.start
        return self._cursor is None or self._cursor.end <= self._size_max

    def end(self) -> int:
        """Return the address up to which there is something to read.

        Raises:
            OSError: as reported by the file layer.
        """
        self._read_entries(self.start, is_all=True)
        if self._is_bounded():
            assert self._cursor is not None
            return self.start + self._cursor.end
        return self.start + max(self._size(), self._cursor.end if self._cursor else 0)

    def load(self, address: int) -> Window | None:
        """Read some good records from an address on; None where nothing good follows in this slab.

        Raises:
            CorruptSlabRecord: it is not good, and where to go on.
            OSError: as reported by the file layer.
        """
        while True:
            self._read_entries(address)
            if self._unread:
                return self._load_summed(address)
            if self._is_bounded():
                return None
            # Asked once: what is added from now on is not damage, though it was not there before.
            size = self._size()
            window = self.load_unsummed(address, size)
            next_ = None if window else self._next_good(address - self.start, size)
            # A writer marks the side file before it writes to the slab, so when none came until
            # now, what was read is no part of its work.
            if self._read_entries(address):
                continue
            if next_ is not None:
                raise CorruptSlabRecord(self._path, address, self.start + next_)
            return window

    def load_unsummed(self, address: int, size: int) -> Window | None:
        """Read some good records by their own hashes alone; None where the first is not good.

        `size` is that of the slab in bytes.

        Raises:
            OSError: as reported by the file layer.
        """
        offset = address - self.start
        if size <= offset:
            return None
        data = self._file.read_at(min(_WINDOW_BYTES, size - offset), offset)
        window = decode_checked(data, address)
        if not window.messages:
            window = self._load_one(offset, size)
        return window if window.messages else None

    def _size(self) -> int:
        return min(self._file.size(), self._size_max)

    def _is_bounded(self) -> bool:
        """Whether nothing but the entries says how far to read; they have all been read."""
        cursor = self._cursor
        return (
            cursor is not None
            and not cursor.is_broken
            and not cursor.flags & (Flag.CLEAN | Flag.SEALED)
        )

    def _read_entries(self, address: int, *, is_all: bool = False) -> bool:
        """Read entries of what lies from an address on, as many as make a window, or all there are.

        Tell whether there were any that had not been read yet.
        """
        offset, cursor = address - self.start, self._cursor
        while self._unread and self._unread[0].end <= offset:
            self._unread.popleft()
        is_new = False
        while cursor is not None and (is_all or cursor.end < offset + _WINDOW_BYTES):
            entry = cursor.next(self._size_max)
            if entry is None:
                break
            is_new = True
            if entry.end > max(entry.begin, offset):
                self._unread.append(entry)
        return is_new

    def _load_summed(self, address: int) -> Window:
        """Read the batches that the next entries tell of."""
        begin = self._unread[0].begin
        limit = max(begin + _WINDOW_BYTES, self._unread[0].end)
        entries = list(takewhile(lambda entry: entry.end <= limit, self._unread))
        data = self._file.read_at(entries[-1].end - begin, begin)
        good = list(takewhile(lambda entry: self._is_good(entry, data, begin), entries))
        if not good:
            return self._load_damaged(address, entries[0], data[: entries[0].end - begin])
        data = data[: good[-1].end - begin]
        window = decode(data, self.start + begin, sum(entry.record_count for entry in good))
        return window.from_address(self._path, address)

    def _is_good(self, entry: Entry, data: bytes, begin: int) -> bool:
        batch = memoryview(data)[entry.begin - begin : entry.end - begin]
        assert self._cursor is not None
        is_hash_right = xxh3_64_intdigest(batch, self._cursor.chain.seed) == entry.data_hash
        return is_hash_right and not entry.flags & Flag.CORRUPT

    def _load_damaged(self, address: int, entry: Entry, data: bytes) -> Window:
        """Read the good records of a batch that is damaged somewhere."""
        begin, end = self.start + entry.begin, self.start + entry.end
        at = begin
        while at < end:
            window = decode_checked(data[at - begin :], at)
            if at == begin and window.end == end:
                # Each record fits its own hash: one that belongs elsewhere is among them.
                break
            if address < window.end:
                return window.from_address(self._path, address)
            next_ = _behind(data, window.end - begin)
            at = end if next_ is None else begin + next_
            if address < at:
                raise CorruptSlabRecord(self._path, address, at)
        raise CorruptSlabRecord(self._path, address, end)

    def _load_one(self, offset: int, size: int) -> Window:
        """Read the record at an offset of a slab of a size; none where it is not good.

        Its length is believed as far as the slab and `message_max` go: it may be a damaged one that
        announces 4 GiB.
        """
        length = length_at(self._file.read_at(HEADER_BYTES, offset))
        is_possible = length <= min(self._message_max, size - offset - HEADER_BYTES)
        data = self._file.read_at(HEADER_BYTES + length, offset) if is_possible else b""
        return decode_checked(data, self.start + offset)

    def _next_good(self, offset: int, size: int) -> int | None:
        """Find where to go on behind a bad record that no side file covers."""
        next_ = offset + HEADER_BYTES + length_at(self._file.read_at(HEADER_BYTES, offset))
        if next_ == size:
            return None
        if next_ < size and self._load_one(next_, size).messages:
            return next_
        return self._search(offset + 1, size)

    def _search(self, begin: int, end: int) -> int | None:
        """Find the first place between two offsets at which a good record begins."""
        while end - begin >= HEADER_BYTES:
            chunk = self._file.read_at(min(_SEARCH_BYTES, end - begin), begin)
            count = len(chunk) - HEADER_BYTES + 1
            lengths = np.ndarray((count,), "<u4", chunk, 0, (1,))
            hashes = np.ndarray((count,), "<u4", chunk, 4, (1,))
            # Zeros are many in damaged files, and never a record.
            is_possible = (lengths <= self._message_max) & ((lengths > 0) | (hashes > 0))
            for at in np.flatnonzero(is_possible).tolist():
                next_ = begin + at + HEADER_BYTES + int(lengths[at])
                # Looked at before the whole is hashed, which would take minutes for random bytes.
                if (next_ == end or self._is_header(next_, end)) and (
                    self._load_one(begin + at, end).messages
                ):
                    return begin + at
            begin += count
        return None

    def _is_header(self, offset: int, end: int) -> bool:
        """Whether what lies there could be the header of a record."""
        if end - offset < HEADER_BYTES:
            return False
        return length_at(self._file.read_at(HEADER_BYTES, offset)) <= self._message_max


def _behind(data: bytes, offset: int) -> int | None:
    """Follow the length of a bad record in a batch; None where it leads to nothing good."""
    next_ = offset + HEADER_BYTES + length_at(data[offset : offset + HEADER_BYTES])
    is_good = next_ == len(data) or bool(decode_checked(data[next_:], 0).messages)
    return next_ if is_good else None
