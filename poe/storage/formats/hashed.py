"""Turn what files hold beside the data into bytes that tell by hashes whether they were changed.

Such a file begins with a header, which names what it is of. Behind it come pieces, each with a hash
that also covers what ties the piece to its place: the id of its store, or the hash of the piece
before it, so that one that is lost, swapped or comes from elsewhere is noticed. Files are written
at their end: a last piece may be torn, or follow one that a power cut has taken.

Layout of the header (64 bytes, big endian):
    magic          8 bytes  which file it is
    version        u16      1
    feature flags  u16      low byte: who does not know a bit must not write; high byte: may ignore;
                            0x0100: the field `base` tells of it
    hash id        u8       1 = xxh3-64
    reserved       3 bytes
    after pointer  u64      of sums: of the last message before the segment, while that may not be
                            durable; else 0
    store id       16 bytes of a slab: id of the log
    timestamp      u64      of the segment, 0 of the files of a whole store; of a slab: its address
    base           u64      of sums: ordinal of a segment's first record; nothing without its flag,
                            as in older versions
    hash           u64      of the bytes before
"""

import struct
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, Self, TypeVar

from xxhash import xxh3_64_digest, xxh3_64_intdigest

from poe.errors import FormatNotSupported
from poe.record import POINTER_MAX

HASH_BYTES = 8
FILE_HEADER_BYTES = 64

_HEADER = struct.Struct(">8sHHB3xQ16sQQ")
_VERSION = 1
_HASH_ID = 1
_REQUIRED_FEATURES = 0x00FF
_HAS_BASE = 0x0100
_HASH = struct.Struct(">Q")


@dataclass(frozen=True, slots=True)
class FileHeader:
    """Whose file it is."""

    store_id: bytes
    timestamp: int
    after_pointer: int = 0
    """Of the last message before the segment, where that was not durable yet; else 0."""

    base: int | None = None
    """Ordinal of the first record of a segment; None where the header does not tell."""

    def encode(self, magic: bytes) -> bytes:
        """Encode it."""
        features = 0 if self.base is None else _HAS_BASE
        fields = self.after_pointer, self.store_id, self.timestamp, self.base or 0
        return seal(_HEADER.pack(magic, _VERSION, features, _HASH_ID, *fields))

    @classmethod
    def decode(cls, content: bytes, path: str, magic: bytes) -> Self | None:
        """Decode the beginning of a file; None when it is damaged, or another file's.

        Raises:
            FormatNotSupported: it is sound, and written by a newer version.
        """
        head = content[: _HEADER.size]
        if seal(head) != content[:FILE_HEADER_BYTES]:
            return None
        found_magic, version, features, hash_id, *fields = _HEADER.unpack(head)
        if found_magic != magic:
            return None
        if version != _VERSION or hash_id != _HASH_ID or features & _REQUIRED_FEATURES:
            raise FormatNotSupported(path, f"version {version}, features {features:#06x}")
        after_pointer, store_id, timestamp, base = fields
        # No topic has more messages than there are pointers.
        is_told = features & _HAS_BASE and base <= POINTER_MAX
        return cls(store_id, timestamp, after_pointer, base if is_told else None)

    @classmethod
    def of_segment(cls, path: str, store_id: bytes, base: int | None = None) -> Self:
        """Return the one that the files of a segment should have; `path` is less `_data`."""
        return cls(store_id, int(path.rpartition("/")[2]), base=base)

    def or_found(self, content: bytes, path: str, magic: bytes) -> tuple["FileHeader", bool]:
        """Return the header of a file, and whether it is there and of this segment, else this one.

        A folder that was copied from another store goes on under the id of that one.

        Raises:
            FormatNotSupported: a newer version has written it.
        """
        found = self.decode(content, path, magic)
        if found is None or found.timestamp != self.timestamp:
            return self, False
        return found, True


def seal(piece: bytes, tie: bytes = b"") -> bytes:
    """Return a piece with its hash, which covers what ties it to its place, too."""
    return piece + xxh3_64_digest(tie + piece)


def unseal(
    content: bytes, tie: bytes, head: struct.Struct, size_of: Callable[[tuple[Any, ...]], int]
) -> Iterator[bytes]:
    """Yield the pieces that `seal` has made of any size, up to the first that is not whole.

    Args:
        content: the pieces, less the header of their file.
        tie: what all of them are tied to.
        head: the fields with which each begins.
        size_of: tells the bytes of a piece, less its hash, by these fields.
    """
    at = 0
    while at + head.size + HASH_BYTES <= len(content):
        end = at + size_of(head.unpack_from(content, at))
        piece = content[at:end]
        if content[at : end + HASH_BYTES] != seal(piece, tie):
            return
        yield piece
        at = end + HASH_BYTES


Entry = TypeVar("Entry", bound=tuple[Any, ...])


class Found(NamedTuple, Generic[Entry]):
    """An entry as it lies in a file."""

    entry: Entry
    chain: int
    is_chained: bool
    """Whether it is as it was written, and follows the entry before it as that lies there."""


class ChainedEntries(Generic[Entry]):
    """Entries of one size, each chained to the one before; behind a bad one comes the next.

    The chain of an entry is the hash of its fields and of the chain before; the first one's is of
    what the file is about.
    """

    __slots__ = ("_fields", "_is_chain_first", "_make", "size_bytes")

    def __init__(
        self,
        fields: struct.Struct,
        make: Callable[[Iterable[Any]], Entry],
        *,
        is_chain_first: bool = False,
    ) -> None:
        """Describe entries: their fields, and whether these are hashed behind the chain before."""
        self._fields = fields
        self._make = make
        self._is_chain_first = is_chain_first
        self.size_bytes = fields.size + HASH_BYTES

    def encode(self, entries: Iterable[Entry], chain: int, seed: int = 0) -> tuple[bytes, int]:
        """Encode entries that follow the one with this chain; return them and the last chain."""
        parts = []
        for entry in entries:
            head = self._fields.pack(*entry)
            chain = self._link(head, chain, seed)
            parts += [head, _HASH.pack(chain)]
        return b"".join(parts), chain

    def decode(self, content: bytes, chain: int, seed: int = 0) -> list[Found[Entry]]:
        """Decode the whole entries in some bytes; the first follows the one with this chain."""
        found = []
        for at in range(0, len(content) - self.size_bytes + 1, self.size_bytes):
            head = content[at : at + self._fields.size]
            expected = self._link(head, chain, seed)
            (chain,) = _HASH.unpack_from(content, at + self._fields.size)
            entry = self._make(self._fields.unpack(head))
            found.append(Found(entry, chain, expected == chain))
        return found

    def _link(self, head: bytes, chain: int, seed: int) -> int:
        before = _HASH.pack(chain)
        hashed = before + head if self._is_chain_first else head + before
        return xxh3_64_intdigest(hashed, seed)
