"""Find a segment's files that belong elsewhere: to another segment, or to another topic.

Somebody has renamed or copied them. Strategy: the header of the sums names the segment, and their
first entry is chained to store, topic and segment. Where that does not fit, the data tells
whether the sums alone are at fault, which recovery mends: files that have come together fit one
another. Sums of another store are not foreign: they name the same topic and the same segment, as in
a folder that was restored.
"""

from collections.abc import Iterator, Sequence

from xxhash import xxh3_64_intdigest

from poe.record import RECORD_HEADER_BYTES, decode_header
from poe.storage.files import OpenFile
from poe.storage.formats.hashed import FILE_HEADER_BYTES, FileHeader
from poe.storage.formats.sum_file import SUM_MAGIC, SUMS, FoundSum, SumEntry, chain_seed, hash_of
from poe.storage.recovery.scan import scan_records
from poe.storage.recovery.survey import encode_places
from poe.topic_name import folder_bytes, names_of_folder

_ANY_FLAGS = range(32)
_CHAIN_BYTES = 8
_CHANGED_BYTES_MAX = 4
"""A chain that differs in more bytes was not damaged: it is another one."""


def owner_of(path: str, sum_file: OpenFile, entries: Sequence[FoundSum], data: OpenFile) -> str:
    """Return whose files a segment has, in words; empty where they are its own, or may be.

    Args:
        path: that the files have, less `_data`.
        sum_file: the sums.
        entries: what lies in them.
        data: the data file.

    Raises:
        FormatNotSupported: a newer version has written the sums.
        OSError: as reported by the file layer.
    """
    header = FileHeader.decode(sum_file.read_at(FILE_HEADER_BYTES, 0), path + "_sum", SUM_MAGIC)
    if header is None:
        return ""
    expected = FileHeader.of_segment(path, header.store_id)
    if header.timestamp != expected.timestamp:
        is_foreign = _fit(entries, data) or _is_of_other(header, expected.timestamp, entries, data)
        return f"segment {header.timestamp}" if is_foreign else ""
    if not entries or entries[0].is_chained:
        return ""
    return "another topic" if _is_of_other_topic(path, header, entries, data) else ""


def _fit(entries: Sequence[FoundSum], data: OpenFile) -> bool:
    """Return whether any of the entries has the hash of its data."""
    size_bytes, start = data.size(), 0
    for each in entries:
        end = each.entry.end
        if start < end <= size_bytes and hash_of(data, start, end) == each.entry.data_hash:
            return True
        start = end
    return False


def _is_of_other(
    header: FileHeader, timestamp: int, entries: Sequence[FoundSum], data: OpenFile
) -> bool:
    """Return whether data that no entry covers yet is that of the segment that the header names."""
    if any(each.entry.end for each in entries):
        return False
    record = data.read_at(RECORD_HEADER_BYTES, 0)
    _, pointer = decode_header(record)
    return not timestamp <= pointer < header.timestamp


def _is_of_other_topic(
    path: str, header: FileHeader, entries: Sequence[FoundSum], data: OpenFile
) -> bool:
    """Return whether the first entry is as it was written, but for another topic.

    What it should say is made from the data, since a first entry that is damaged looks alike.
    """
    found = entries[0]
    places = scan_records(data, 0, min(found.entry.end, data.size()), 0)
    if places.end != found.entry.end:
        return False
    made = SumEntry(
        places.end,
        places.last_pointer,
        len(places.pointers),
        0,
        hash_of(data, 0, places.end),
        xxh3_64_intdigest(encode_places(places)),
    )
    if found.entry._replace(flags=0) != made:
        return False
    ours = [
        SUMS.encode([made._replace(flags=flags)], seed)[1]
        for seed in _seeds(path, header)
        for flags in (found.entry.flags, *_ANY_FLAGS)
    ]
    if found.chain in ours:
        return False
    # An entry behind it is chained to what the chain was; else it may itself be what is damaged.
    if len(entries) > 1 and entries[1].is_chained:
        return True
    changes = (_changed_bytes(found.chain ^ each) for each in ours)
    return found.chain != 0 and min(changes) > _CHANGED_BYTES_MAX


def _seeds(path: str, header: FileHeader) -> Iterator[int]:
    """Yield what the first entry may be chained to: the folder of a topic may have been renamed."""
    name = path.split("/")[-2]
    for each in names_of_folder(name):
        yield chain_seed(header.store_id, folder_bytes(each), header.timestamp)


def _changed_bytes(difference: int) -> int:
    return _CHAIN_BYTES - difference.to_bytes(_CHAIN_BYTES, "big").count(0)
