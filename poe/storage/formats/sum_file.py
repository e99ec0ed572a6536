"""Turn checksums of a segment's batches into the bytes of its `_sum` file, and back.

An entry covers what was flushed since the one before: one batch, or several. Strategy: hashes lie
beside the data, so that data and index stay as they are and can be sent as they are. Each entry is
chained to the one before and the first to store, topic and segment, so that entries that were lost,
swapped or come from elsewhere are noticed. Entries have one size: behind a bad one comes the next.

It begins with the header of `hashed.py`.

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
from typing import Final, NamedTuple, TypeAlias

from xxhash import xxh3_64, xxh3_64_intdigest

from poe.storage.files import OpenFile
from poe.storage.formats.hashed import ChainedEntries, Found
from poe.topic_name import folder_bytes

SUM_DATA_BYTES = 64 * 1024
"""An entry is closed as soon as it covers so many bytes: what damage costs, at most, where batches
are smaller."""

_HASH = struct.Struct(">Q")
_CHUNK_BYTES = 1 << 20
_NOTHING = xxh3_64_intdigest(b"")
SUM_MAGIC = b"poe-sum\0"


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


class SumEntry(NamedTuple):
    """The sums of the batches between the entry before and this one."""

    end: int
    last_pointer: int
    record_count: int
    flags: int
    data_hash: int
    index_hash: int


SUMS = ChainedEntries(struct.Struct(">QQIIQQ"), SumEntry._make)
FoundSum: TypeAlias = Found[SumEntry]


class SumState(NamedTuple):
    """Where the next entry goes, and what it is chained to."""

    size_bytes: int
    """Of the whole entries, and the header."""

    chain: int
    flags: int
    """Of the last entry; 0 where there is none."""


def chain_seed(store_id: bytes, topic: bytes, timestamp: int) -> int:
    """Return what the first entry of a segment is chained to."""
    return xxh3_64_intdigest(store_id + _HASH.pack(timestamp) + topic)


def seed_of(path: str, store_id: bytes) -> int:
    """Return what the first entry of a segment is chained to, by its path less `_data`."""
    folder, _, timestamp = path.rpartition("/")
    return chain_seed(store_id, folder_bytes(folder.rpartition("/")[2]), int(timestamp))


def closing(state: SumState, end: int, last_pointer: int) -> tuple[bytes, SumState]:
    """Encode that a segment was closed in good order, behind entries that are durable."""
    flags = Flag.CLEAN | Flag.SEALED | Flag.EARLIER_SYNCED
    content, chain = SUMS.encode([closing_entry(end, last_pointer, flags)], state.chain)
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
