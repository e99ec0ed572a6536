"""Records that actors of the node read themselves, instead of a connection that sends them."""

from poe.errors import ReadFailed
from poe.protocol import IndexedRecords
from poe.storage import IndexedSlice


def read_records(topic: bytes, found: IndexedSlice) -> IndexedRecords:
    """Return the records that were found, read into memory.

    Raises:
        ReadFailed: the disk does not give them.
        CorruptRecord: the first one is damaged.
    """
    try:
        data = found.records.read()
    except OSError as error:
        where = f"records of topic {topic!r:.255}"
        raise ReadFailed(where, str(error)) from error
    return IndexedRecords.of(found.entries, memoryview(data), found.ordinal)
