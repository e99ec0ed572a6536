"""Turn what was stored of sequenced puts into the bytes of a segment's `_seq` file, and back.

A receipt is written before the data that it is about, so that a message is never there without it;
one whose data did not follow counts for nothing. Only segments of topics with sequenced puts have
this file. It begins with what the segment before knew, so the newest one tells all.

Receipts are chained like sums: up to the first that a power cut has torn or taken, none is missing.
How far into the data that goes is told by where the last of them ends, or by a cover: that is a
receipt of no put, which says that what lies before it in the data has all its receipts. There is
one wherever a sync ends in what was put without a sequence.

It begins with the header of `hashed.py`, with magic "poe-seq" and a zero; no base.

Of a replicated topic each batch has a receipt, which also tells its place in the stream that the
nodes agree on: so a node knows what of the stream its data holds, whatever has befallen it.

Layout of a receipt (72 bytes, big endian):
    producer   16 bytes
    epoch      u32
    sequence   u32
    kind       u32      1 put, 2 put into an earlier segment, 3 cover, 4 place alone
    size       u32      bytes of the records; 0 of other kinds, and of a place without any
    pointer    u64      of the last message; 0 of a cover
    end        u64      data offset behind the records; of an earlier segment's 0
    data hash  u64      of the records; 0 where size is 0
    place      u64      of the batch in the stream of a replicated topic; 0 of other topics
    chain      u64      hash of the chain of the receipt before and of the bytes before
"""

import struct
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeAlias

from xxhash import xxh3_64_intdigest

from poe.storage.files import Files, OpenFile
from poe.storage.formats.hashed import FILE_HEADER_BYTES, ChainedEntries, FileHeader, Found
from poe.storage.formats.sum_file import hash_of, seed_of
from poe.storage.replacement import replace_file

RECEIPT_MAGIC = b"poe-seq\0"


PutKey: TypeAlias = tuple[bytes, int, int]
"""Producer (16 bytes), epoch and sequence (32 bits each) of a put."""


class ReceiptKind:
    """What a receipt is of."""

    PUT: Final = 1
    EARLIER: Final = 2
    """A put into an earlier segment."""

    COVER: Final = 3
    PLACE: Final = 4
    """A batch of a replicated topic that no producer has numbered, or that nothing is stored of."""


class Receipt(NamedTuple):
    """What tells of a put that it is stored."""

    producer: bytes
    epoch: int
    sequence: int
    kind: int
    size_bytes: int
    pointer: int
    end: int
    data_hash: int
    place: int = 0

    @property
    def put(self) -> PutKey:
        """Which put it is of."""
        return self[:3]


RECEIPTS = ChainedEntries(struct.Struct(">16sIIIIQQQQ"), Receipt._make, is_chain_first=True)
FoundReceipt: TypeAlias = Found[Receipt]


PLACE_UNKNOWN: Final = 2**64 - 1
"""Place of a copy that is being fetched from another node: its data goes further than is told."""
_NO_PUT: Final = (bytes(16), 0, 0)


def receipt_of(
    put: PutKey | None, pointer: int, end: int, data: bytes | memoryview, place: int = 0
) -> Receipt:
    """Make the receipt of a batch whose records are about to end at an offset."""
    kind = ReceiptKind.PLACE if put is None else ReceiptKind.PUT
    data_hash = xxh3_64_intdigest(data)
    return Receipt(*(put or _NO_PUT), kind, len(data), pointer, end, data_hash, place)


def place_alone(place: int, pointer: int, end: int = 0) -> Receipt:
    """Make what tells a place of a replicated topic: of its data before `end`, or before it."""
    return Receipt(*_NO_PUT, ReceiptKind.PLACE, 0, pointer, end, 0, place)


def earlier_receipt(put: PutKey, pointer: int) -> Receipt:
    """Make the receipt of a put that an earlier segment holds."""
    return Receipt(*put, ReceiptKind.EARLIER, 0, pointer, 0, 0)


def cover(end: int) -> Receipt:
    """Make what says that all data before an offset has its receipts."""
    return Receipt(*_NO_PUT, ReceiptKind.COVER, 0, 0, end, 0)


@dataclass(frozen=True, slots=True)
class FoundReceipts:
    """What lies in a `_seq` file."""

    content: bytes
    header: FileHeader
    """The one that it should have."""

    has_header: bool
    seed: int
    receipts: list[FoundReceipt]

    @property
    def reach(self) -> int:
        """Up to where in the data the last receipt goes."""
        ends = (each.entry.end for each in reversed(self.receipts) if each.is_chained)
        return next(ends, 0)

    @property
    def damaged_count(self) -> int:
        """Return how many receipts are not what was written, before the last one that is."""
        sound = [number for number, each in enumerate(self.receipts) if each.is_chained]
        return sound[-1] + 1 - len(sound) if sound else 0

    @property
    def torn_bytes(self) -> int:
        """Return how many bytes lie behind the last receipt that is what was written."""
        sound = [number for number, each in enumerate(self.receipts, 1) if each.is_chained]
        return (
            len(self.content)
            - FILE_HEADER_BYTES
            - RECEIPTS.size_bytes * (sound[-1] if sound else 0)
        )


class TrustedReceipts(NamedTuple):
    """What of the receipts that were found can be trusted."""

    receipts: list[Receipt]
    reach: int
    """Up to this offset of the data no receipt is missing."""

    damaged_count: int
    """Receipts that were written, and are not what was written."""


def read_receipts(files: Files, path: str, store_id: bytes) -> FoundReceipts | None:
    """Read the receipts of a segment; None where it has no such file.

    Raises:
        FormatNotSupported: a newer version has written them.
        OSError: as reported by the file layer.
    """
    try:
        file = files.open(path + "_seq", "r")
    except FileNotFoundError:
        return None
    content = file.read_at(file.size(), 0)
    expected = FileHeader.of_segment(path, store_id)
    header, has_header = expected.or_found(content, path + "_seq", RECEIPT_MAGIC)
    seed = seed_of(path, header.store_id)
    receipts = RECEIPTS.decode(content[FILE_HEADER_BYTES:], seed)
    return FoundReceipts(content, header, has_header, seed, receipts)


def make_receipts(files: Files, path: str, store_id: bytes, receipts: list[Receipt]) -> None:
    """Make the `_seq` file of a segment that has none: whole, so that it is never torn.

    Raises:
        OSError: as reported by the file layer.
    """
    _write_anew(files, path, FileHeader.of_segment(path, store_id), receipts)


def trust(
    found: FoundReceipts, data: OpenFile, end: int | None, synced_end: int | None
) -> TrustedReceipts:
    """Find out which receipts count.

    Args:
        found: what lies in the file.
        data: the data file.
        end: where the data ends, once that is known; receipts that end behind it are of data that
            did not follow.
        synced_end: after a power cut, so much of the data was synced, with its receipts: there one
            that is not as it was written is damaged, and behind it torn, as the rest is. None where
            the power was not cut: only the last ones can be torn.
    """
    receipts: list[Receipt] = []
    reach = told = damaged_count = doubtful_count = 0
    for receipt, _, is_chained in found.receipts:
        if not is_chained:
            if synced_end is not None and told >= synced_end:
                break
            doubtful_count += 1
            continue
        damaged_count += doubtful_count
        doubtful_count = 0
        told = max(told, receipt.end)  # of data that is cut off, too
        if end is None or receipt.end <= end:
            receipts.append(receipt)
            reach = receipt.end
    if synced_end is not None and told < synced_end:
        damaged_count += doubtful_count
    # Only of the last one can the data have failed to follow: the next one takes its place.
    if receipts and receipts[-1].end > (synced_end or 0):
        last = receipts[-1]
        start = last.end - last.size_bytes
        if last.size_bytes and hash_of(data, start, last.end) != last.data_hash:
            receipts.pop()
            reach = start
    return TrustedReceipts(receipts, max(reach, synced_end or 0), damaged_count)


def settle(files: Files, path: str, found: FoundReceipts, receipts: list[Receipt]) -> None:
    """Make the file hold exactly these receipts, durably.

    Raises:
        OSError: as reported by the file layer.
    """
    content = found.header.encode(RECEIPT_MAGIC) + RECEIPTS.encode(receipts, found.seed)[0]
    if not found.content.startswith(content):
        _write_anew(files, path, found.header, receipts)
        return
    file = files.open(path + "_seq", "r+")
    if len(found.content) != len(content):
        file.truncate(len(content))
    file.sync()


def _write_anew(files: Files, path: str, header: FileHeader, receipts: list[Receipt]) -> None:
    content, _ = RECEIPTS.encode(receipts, seed_of(path, header.store_id))
    replace_file(files, path + "_seq", header.encode(RECEIPT_MAGIC) + content)
