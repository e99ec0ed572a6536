"""Turn checksums of a segment's batches into the bytes of its `_sum` file, and back.

An entry covers what was flushed since the one before: one batch, or several. Strategy: hashes lie
beside the data, so that data and index stay as they are and can be sent as they are. Each entry is
chained to the one before and the first to store, topic and segment, so that entries that were lost,
swapped or come from elsewhere are noticed. Entries have one size: behind a bad one comes the next.

Layout of the header (64 bytes, big endian):
    magic          8 bytes  "poe-sum" and a zero
    version        u16      1
    feature flags  u16      low byte: who does not know a bit must not write; high byte: may ignore
    hash id        u8       1 = xxh3-64
    reserved       3 bytes
    after pointer  u64      of the last message before the segment, while that may not be durable;
                            else 0
    store id       16 bytes
    timestamp      u64      of the segment
    created        u64      microseconds since the epoch; 0 where nobody knows
    hash           u64      of the bytes before

Layout of an entry (48 bytes, big endian):
    end            u64      data offset behind the batches
    last pointer   u64      0 while there is no record
    record count   u32
    flags          u32      see `Flag`
    data hash      u64      of the data bytes between the entry before and this one
    index hash     u64      of their index entries
    chain          u64      hash of the bytes before and of the previous chain
"""

import struct
from dataclasses import dataclass
from typing import Final, NamedTuple, Self

from xxhash import xxh3_64, xxh3_64_intdigest

from poe.errors import FormatNotSupported
from poe.storage.files import OpenFile
from poe.topic_name import folder_bytes

SUM_HEADER_BYTES = 64
SUM_ENTRY_BYTES = 48
SUM_DATA_BYTES = 64 * 1024
"""An entry is closed as soon as it covers so many bytes: what damage costs, at most, where batches
are smaller."""

_HEADER = struct.Struct(">8sHHB3xQ16sQQ")
_HASH = struct.Struct(">Q")
_ENTRY = struct.Struct(">QQIIQQ")
_CHUNK_BYTES = 1 << 20
_NOTHING = xxh3_64_intdigest(b"")
SUM_MAGIC = b"poe-sum\0"
_VERSION = 1
_HASH_ID = 1
_REQUIRED_FEATURES = 0x00FF


class Flag:
    """The flags of an entry; they may be combined."""

    CLEAN: Final = 1
    """Written by a clean close, behind a sync: what another program appends later is not ours."""

    SEALED: Final = 2
    """By its writer, who was not killed."""

    EARLIER_SYNCED: Final = 4
    """All earlier entries, and their data, were durable before this one was written; and with them
    the segments before this one."""

    ADOPTED: Final = 8
    """The hashes were made later, from what lay on disk."""

    CORRUPT: Final = 16
    """The data is known not to match."""


@dataclass(frozen=True, slots=True)
class SumHeader:
    """Whose sums these are."""

    store_id: bytes
    timestamp: int
    created_us: int = 0
    after_pointer: int = 0
    """Of the last message before the segment, where that was not durable yet; else 0."""

    def encode(self, magic: bytes = SUM_MAGIC) -> bytes:
        """Encode it."""
        head = _HEADER.pack(
            magic,
            _VERSION,
            0,
            _HASH_ID,
            self.after_pointer,
            self.store_id,
            self.timestamp,
            self.created_us,
        )
        return head + _HASH.pack(xxh3_64_intdigest(head))

    @classmethod
    def decode(cls, content: bytes, path: str, expected: bytes = SUM_MAGIC) -> Self | None:
        """Decode the beginning of a file; None when it is damaged.

        Raises:
            FormatNotSupported: it is sound, and written by a newer version.
        """
        head = content[: _HEADER.size]
        if content[_HEADER.size : SUM_HEADER_BYTES] != _HASH.pack(xxh3_64_intdigest(head)):
            return None
        magic, version, features, hash_id, *fields = _HEADER.unpack(head)
        if magic != expected:
            return None
        if version != _VERSION or hash_id != _HASH_ID or features & _REQUIRED_FEATURES:
            raise FormatNotSupported(path, f"version {version}, features {features:#06x}")
        after_pointer, store_id, timestamp, created_us = fields
        return cls(store_id, timestamp, created_us, after_pointer)

    @classmethod
    def of_segment(cls, path: str, store_id: bytes) -> Self:
        """Return the one that the files of a segment should have; `path` is less `_data`."""
        return cls(store_id, int(path.rpartition("/")[2]))

    def or_found(
        self, content: bytes, path: str, expected: bytes = SUM_MAGIC
    ) -> tuple["SumHeader", bool]:
        """Return the header of a file, and whether it is there and of this segment, else this one.

        A folder that was copied from another store goes on under the id of that one.

        Raises:
            FormatNotSupported: a newer version has written it.
        """
        found = self.decode(content, path, expected)
        if found is None or found.timestamp != self.timestamp:
            return self, False
        return found, True


class SumEntry(NamedTuple):
    """The sums of the batches between the entry before and this one."""

    end: int
    last_pointer: int
    record_count: int
    flags: int
    data_hash: int
    index_hash: int


class FoundEntry(NamedTuple):
    """An entry as it lies in a file."""

    entry: SumEntry
    chain: int
    is_chained: bool
    """Whether it is as it was written, and follows the entry before it as that lies there."""


class SumState(NamedTuple):
    """Where the next entry goes, and what it is chained to."""

    size_bytes: int
    """Of the whole entries, and the header."""

    chain: int
    flags: int
    """Of the last entry; 0 where there is none."""


def chain_seed(store_id: bytes, topic: bytes, timestamp: int) -> int:
    """Tell what the first entry of a segment is chained to."""
    return xxh3_64_intdigest(store_id + _HASH.pack(timestamp) + topic)


def seed_of(path: str, store_id: bytes) -> int:
    """Tell what the first entry of a segment is chained to, by its path less `_data`."""
    folder, _, timestamp = path.rpartition("/")
    return chain_seed(store_id, folder_bytes(folder.rpartition("/")[2]), int(timestamp))


def encode_sums(entries: list[SumEntry], chain: int) -> tuple[bytes, int]:
    """Encode entries that follow the one with this chain; return them and the last chain."""
    parts = []
    for entry in entries:
        head = _ENTRY.pack(*entry)
        chain = xxh3_64_intdigest(head + _HASH.pack(chain))
        parts += [head, _HASH.pack(chain)]
    return b"".join(parts), chain


def decode_sums(content: bytes, chain: int) -> list[FoundEntry]:
    """Decode the whole entries in some bytes; the first follows the one with this chain."""
    found = []
    for at in range(0, len(content) - SUM_ENTRY_BYTES + 1, SUM_ENTRY_BYTES):
        head = content[at : at + _ENTRY.size]
        expected = xxh3_64_intdigest(head + _HASH.pack(chain))
        (chain,) = _HASH.unpack_from(content, at + _ENTRY.size)
        found.append(FoundEntry(SumEntry._make(_ENTRY.unpack(head)), chain, expected == chain))
    return found


def closing(state: SumState, end: int, last_pointer: int) -> tuple[bytes, SumState]:
    """Encode that a segment was closed in good order, behind entries that are durable."""
    flags = Flag.CLEAN | Flag.SEALED | Flag.EARLIER_SYNCED
    content, chain = encode_sums([closing_entry(end, last_pointer, flags)], state.chain)
    return content, SumState(state.size_bytes + len(content), chain, flags)


def closing_entry(end: int, last_pointer: int, flags: int) -> SumEntry:
    """Return an entry that covers nothing and says how the entries before it came to be."""
    return SumEntry(end, last_pointer, 0, flags, _NOTHING, _NOTHING)


def hash_of(data: OpenFile, start: int, end: int) -> int:
    """Hash the bytes of a data file between two offsets."""
    hash_ = xxh3_64()
    for offset in range(start, end, _CHUNK_BYTES):
        chunk = data.read_at(min(_CHUNK_BYTES, end - offset), offset)
        if not chunk:
            break  # sums may tell of any end, however far behind that of the data
        hash_.update(chunk)
    return hash_.intdigest()
