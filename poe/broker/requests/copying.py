"""Copies what one put has stored onto another topic, as a sequenced put: from file to file.

The records are read as a consumer would, compared with their index entries, and stored with other
pointers. No message is looked at by itself.
"""

from typing import NamedTuple

import numpy as np

from poe.broker.appendix.message import GetRange
from poe.broker.requests.request_handler import RequestHandler
from poe.broker.requests.slices import read_records
from poe.errors import RangeGone, RemoteProtocolError
from poe.protocol import FRAME_MAX, RANGE_COUNT_MAX, IndexedRecords
from poe.storage import PutKey, RecordBatch


class Copy(NamedTuple):
    """What to copy: the records of `source` with the pointers `pointer` + 1 to `last`."""

    source: bytes
    pointer: int
    last: int
    topic: bytes
    put_id: PutKey


async def copy(handler: RequestHandler, wanted: Copy) -> int:
    """Copy records, all or none, and return the pointer of the last one on its new topic.

    The pointers of a put are consecutive, so it is seen whether all of it is there. What was copied
    by the same put before is not copied again.

    Raises:
        RemoteProtocolError: no pointers, or more records or bytes than a put can have.
        RangeGone: one of the pointers is not there.
        Overloaded: the memory of the node is used up.
        PoeError: as a read of the one topic and a put onto the other.
    """
    source, pointer, last, topic, put_id = wanted
    count = last - pointer
    if not 0 < count <= RANGE_COUNT_MAX:
        msg = f"{count} records are to be copied; copy 1 to {RANGE_COUNT_MAX} at a time"
        raise RemoteProtocolError(msg)
    frame_max = FRAME_MAX if handler.room is None else handler.room.frame_max
    parts: list[IndexedRecords] = []
    size = 0
    while pointer < last:
        found = await handler.get_range(source, GetRange(pointer, last, count, frame_max))
        if found is None:
            break
        size += found.records.length
        if size > frame_max:
            msg = f"records to be copied have more than {frame_max} bytes (frame_max); copy fewer"
            raise RemoteProtocolError(msg)
        if handler.room is not None:
            handler.room.hold(2 * found.records.length)  # as read, and as they will be written
        parts.append(read_records(source, found))
        pointer = found.records.last_pointer
    if sum(map(len, parts)) != count:
        raise RangeGone(source, last - count, last)
    handler.permissions.wrote(size)
    return await handler.put(topic, _batch(parts), None, put_id)


def _batch(parts: list[IndexedRecords]) -> RecordBatch:
    data = bytearray()
    starts = [np.zeros(1, np.uint64)]
    for part in parts:
        starts.append(part.starts[1:] + np.uint64(len(data)))
        data += part.data
    return RecordBatch(data, np.concatenate(starts))
