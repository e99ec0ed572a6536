"""The side file of a slab: a checksum for each batch of records that was written at once.

The hash inside a record has 32 bits, does not cover its own header, and fits the same record
anywhere else. The side file covers all bytes of a batch with 64 bits, seeded by the log and the
slab, and each entry is chained to the one before, so that lost, swapped and foreign entries are
found. Its last entry is also the flushed mark: what lies behind is being written, or was when the
writer ended.

Layout (big endian): the header of `formats/hashed.py` with magic "poe-sum" and a zero, the id of
the log, which is the same in all its slabs, and the address of the slab's first byte;
then entries of 48 bytes:
    end      u64      offset in the slab behind the batch
    last     u64      address of its last record; of its end where it has none
    count    u32      records
    flags    u32      see `Flag`
    data     u64      xxh3-64 of the batch, seeded
    index    u64      0: there is no index
    chain    u64      xxh3-64 of the 40 bytes before and the previous chain, seeded; the chain of
                      the header is its hash
The seed is xxh3-64 of log id and start.
"""

import struct
from enum import IntFlag
from typing import NamedTuple, Self

from poe.errors import FormatNotSupported, ReadFailed
from poe.storage.files import Files, OpenFile
from poe.storage.formats.hashed import FILE_HEADER_BYTES, HASH_BYTES, ChainedEntries, FileHeader
from poe.storage.formats.sum_file import SUM_MAGIC, chain_seed
from poe.storage.slab_log.slab_name import full_path, sum_path

_ENTRIES = ChainedEntries[tuple[int, ...]](struct.Struct(">QQIIQ8x"), tuple)
_ENTRIES_AT_ONCE = 1024


class Flag(IntFlag):
    """What an entry says beside its checksum."""

    NONE = 0
    CLEAN = 1
    """The writer was closed here; records behind come from another program."""
    SEALED = 2
    """The log goes on in the next slab."""
    SYNCED = 4
    """All before was durable when this was written."""
    ADOPTED = 8
    """The checksum was made later, from records found in the slab."""
    CORRUPT = 16
    """These bytes are known to be no records."""


class Entry(NamedTuple):
    """A batch of records in a slab; offsets in bytes."""

    begin: int
    end: int
    last: int
    """Address of the last record; of the end where there is none."""
    record_count: int
    flags: Flag
    data_hash: int


class Chain(NamedTuple):
    """What ties an entry to its place."""

    seed: int
    value: int

    def encode(self, entry: Entry) -> tuple[bytes, Self]:
        """Make the bytes of an entry and the chain that the next one continues."""
        fields = entry.end, entry.last, entry.record_count, entry.flags, entry.data_hash
        content, value = _ENTRIES.encode([fields], self.value, self.seed)
        return content, self._replace(value=value)

    def decode(self, data: bytes, begin: int) -> tuple[Entry, Self] | None:
        """Parse an entry whose batch begins at an offset; None where it does not belong here."""
        [found] = _ENTRIES.decode(data, self.value, self.seed)
        if not found.is_chained:
            return None
        end, last, count, flags, data_hash = found.entry
        entry = Entry(begin, end, last, count, Flag(flags), data_hash)
        return entry, self._replace(value=found.chain)


def encode_header(log_id: bytes, start: int) -> tuple[bytes, Chain]:
    """Make the header of a slab's side file, and the chain that its first entry continues."""
    header = FileHeader(log_id, start).encode(SUM_MAGIC)
    return header, _chain_behind(header, log_id, start)


class SumCursor:
    """Reads a side file forwards, entry by entry, also while a writer adds to it.

    Always: `at` is the offset in the side file behind the last entry that was read, `end` that in
    the slab behind its batch.
    """

    __slots__ = ("_chunk", "_file", "at", "chain", "end", "flags", "is_broken", "log_id")

    def __init__(self, file: OpenFile, log_id: bytes, chain: Chain) -> None:
        """Begin with the first entry; use `open`."""
        self._file = file
        self._chunk = b""
        self.log_id = log_id
        self.chain = chain
        self.at = FILE_HEADER_BYTES
        self.end = 0
        self.flags = Flag.NONE
        """Of the last entry."""
        self.is_broken = False
        """Whether the next entry is damaged; nothing can be said of what follows."""

    @classmethod
    def open(cls, files: Files, start: int) -> Self | None:
        """Open the side file of a slab; None where there is none or its header is damaged.

        Raises:
            ReadFailed: a later version of Poe wrote it.
            OSError: as reported by the file layer.
        """
        path = sum_path(start)
        try:
            file = files.open(path, "r")
        except FileNotFoundError:
            return None
        data = file.read_at(FILE_HEADER_BYTES, 0)
        try:
            header = FileHeader.decode(data, path, SUM_MAGIC)
        except FormatNotSupported as error:
            told = "a later version of Poe wrote it, use that"
            raise ReadFailed(full_path(files, path), told) from error
        if header is None or header.timestamp != start:
            return None
        log_id = header.store_id
        return cls(file, log_id, _chain_behind(data, log_id, start))

    def next(self, end_max: int = 2**64) -> Entry | None:
        """Read the next entry; None where there is none yet, or it is damaged.

        Should its batch end behind `end_max`, to which the slab goes, it counts as damaged.

        Raises:
            OSError: as reported by the file layer.
        """
        if self.is_broken:
            return None
        if len(self._chunk) < _ENTRIES.size_bytes:
            self._chunk = self._file.read_at(_ENTRIES.size_bytes * _ENTRIES_AT_ONCE, self.at)
            if len(self._chunk) < _ENTRIES.size_bytes:
                return None
        found = self.chain.decode(self._chunk[: _ENTRIES.size_bytes], self.end)
        if found is None or not self.end <= found[0].end <= end_max:
            self.is_broken = True
            return None
        entry, self.chain = found
        self._chunk = self._chunk[_ENTRIES.size_bytes :]
        self.at += _ENTRIES.size_bytes
        self.end, self.flags = entry.end, entry.flags
        return entry


def _chain_behind(header: bytes, log_id: bytes, start: int) -> Chain:
    return Chain(chain_seed(log_id, b"", start), int.from_bytes(header[-HASH_BYTES:], "big"))
