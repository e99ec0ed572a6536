"""The side file of a slab: a checksum for each batch of records that was written at once.

The hash inside a record has 32 bits, does not cover its own header, and fits the same record
anywhere else. The side file covers all bytes of a batch with 64 bits, seeded by the log and the
slab, and each entry is chained to the one before, so that lost, swapped and foreign entries are
found. Its last entry is also the flushed mark: what lies behind is being written, or was when the
writer ended.

Layout (big endian), a header of 64 bytes:
    magic    8 bytes  "poe-sum" and a zero
    version  u16      1
    flags    u16      0; an unknown bit in the low byte: do not write, in the high byte: ignore
    hash id  u8       1: xxh3-64
    unused   11       zeros
    log id   16       random, the same in all slabs of a log
    start    u64      address of the slab's first byte
    created  u64      0: not recorded
    hash     u64      xxh3-64 of what is before, seed 0
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

from xxhash import xxh3_64_intdigest

from poe.errors import ReadFailed
from poe.storage.files import Files, OpenFile
from poe.storage.slab_log.slab_name import full_path, sum_path

_HEADER = struct.Struct(">8sHHB11x16sQQ")
_ENTRY = struct.Struct(">QQIIQQ")
_HASH = struct.Struct(">Q")
HEADER_BYTES = _HEADER.size + _HASH.size
ENTRY_BYTES = _ENTRY.size + _HASH.size
_MAGIC = b"poe-sum\0"
_VERSION = 1
_HASH_ID = 1
_MUST_KNOW_FLAGS = 0x00FF
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
        body = _ENTRY.pack(
            entry.end, entry.last, entry.record_count, entry.flags, entry.data_hash, 0
        )
        value = self._link(body)
        return body + _HASH.pack(value), self._replace(value=value)

    def decode(self, data: bytes, begin: int) -> tuple[Entry, Self] | None:
        """Parse an entry whose batch begins at an offset; None where it does not belong here."""
        body = data[: _ENTRY.size]
        value = self._link(body)
        if data[_ENTRY.size :] != _HASH.pack(value):
            return None
        end, last, count, flags, data_hash, _ = _ENTRY.unpack(body)
        return Entry(begin, end, last, count, Flag(flags), data_hash), self._replace(value=value)

    def _link(self, body: bytes) -> int:
        return xxh3_64_intdigest(body + _HASH.pack(self.value), self.seed)


def encode_header(log_id: bytes, start: int) -> tuple[bytes, Chain]:
    """Make the header of a slab's side file, and the chain that its first entry continues."""
    body = _HEADER.pack(_MAGIC, _VERSION, 0, _HASH_ID, log_id, start, 0)
    value = xxh3_64_intdigest(body)
    return body + _HASH.pack(value), Chain(_seed(log_id, start), value)


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
        self.at = HEADER_BYTES
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
        data = file.read_at(HEADER_BYTES, 0)
        hash_ = xxh3_64_intdigest(data[: _HEADER.size])
        if data[_HEADER.size :] != _HASH.pack(hash_):
            return None
        magic, version, flags, hash_id, log_id, header_start, _ = _HEADER.unpack_from(data)
        if magic != _MAGIC or header_start != start:
            return None
        if (version, hash_id, flags & _MUST_KNOW_FLAGS) != (_VERSION, _HASH_ID, 0):
            raise ReadFailed(full_path(files, path), "a later version of Poe wrote it, use that")
        return cls(file, log_id, Chain(_seed(log_id, start), hash_))

    def next(self, end_max: int = 2**64) -> Entry | None:
        """Read the next entry; None where there is none yet, or it is damaged.

        Should its batch end behind `end_max`, to which the slab goes, it counts as damaged.

        Raises:
            OSError: as reported by the file layer.
        """
        if self.is_broken:
            return None
        if len(self._chunk) < ENTRY_BYTES:
            self._chunk = self._file.read_at(ENTRY_BYTES * _ENTRIES_AT_ONCE, self.at)
            if len(self._chunk) < ENTRY_BYTES:
                return None
        found = self.chain.decode(self._chunk[:ENTRY_BYTES], self.end)
        if found is None or not self.end <= found[0].end <= end_max:
            self.is_broken = True
            return None
        entry, self.chain = found
        self._chunk = self._chunk[ENTRY_BYTES:]
        self.at += ENTRY_BYTES
        self.end, self.flags = entry.end, entry.flags
        return entry


def _seed(log_id: bytes, start: int) -> int:
    return xxh3_64_intdigest(log_id + _HASH.pack(start))
