"""Compare a closed segment with its sums, a piece at a time, without waking or disturbing it."""

from collections.abc import Iterator

from poe.errors import CorruptRecord
from poe.storage.failure import reading
from poe.storage.files import Files
from poe.storage.formats.receipt_file import read_receipts
from poe.storage.formats.sum_file import hash_of
from poe.storage.recovery.recovery import NO_STORE, open_maybe, read_sums
from poe.storage.recovery.survey import read_index_of


def scrub(files: Files, path: str) -> Iterator[int]:
    """Compare all data and the whole index of a segment with its sums; `path` is less `_data`.

    Nothing is compared where there are no sums, or no segment any more.

    Yields:
        The bytes that were read since the last time, in the order of 64 KiB, or of a larger batch.

    Raises:
        CorruptRecord: a file is not what was written, as its path tells; the rest is not looked at.
        FormatNotSupported: a newer version has written it.
        ReadFailed: a file cannot be read.
    """
    with reading(path):
        data = open_maybe(files, path + "_data")
        index = open_maybe(files, path + "_index")
        # Sums tell themselves which store they are of.
        sums = read_sums(files, path, NO_STORE)
        if data is None or index is None or sums.file is None:
            return
        if not sums.has_header or not all(each.is_chained for each in sums.entries):
            raise CorruptRecord(path + "_sum", 0)
        start = index_at = 0
        pointer_before = int(path.rpartition("/")[2]) - 1
        for entry, _, _ in sums.entries:
            index_bytes = read_index_of(entry, index, index_at)
            if index_bytes is None:
                raise CorruptRecord(path + "_index", index_at)
            if hash_of(data, start, entry.end) != entry.data_hash:
                pointers = entry.last_pointer, pointer_before + 1
                raise CorruptRecord(path + "_data", start, *pointers)
            yield entry.end - start + len(index_bytes)
            start = entry.end
            pointer_before = max(pointer_before, entry.last_pointer)
            index_at += len(index_bytes)
        receipts = read_receipts(files, path, NO_STORE)
        if receipts is not None:
            if not receipts.has_header or receipts.damaged_count or receipts.torn_bytes:
                raise CorruptRecord(path + "_seq", 0)
            yield len(receipts.content)
