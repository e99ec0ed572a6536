"""Looking at what a node holds of a queue, without handing it out."""

from poe.broker.requests.queue_messages import Browsed, BrowseQueue, HeldRecords
from poe.cluster.identity import StreamId
from poe.cluster.queue.copies import Copies
from poe.record import POINTER_MAX


def unit_of(queue: bytes, stream: StreamId) -> bytes:
    """Return the name of a stream, as leases have it."""
    return b"%b@%b" % (queue, str(stream).encode())


def browse(queue: bytes, copies: Copies, wanted: BrowseQueue) -> Browsed:
    """Return the first messages behind a place, of one stream; streams follow by their names."""
    unit, pointer = wanted.after
    units = sorted((unit_of(queue, stream), stream) for stream in copies.streams())
    for name, stream in units:
        if name < unit:
            continue
        after = pointer if name == unit else 0
        found = copies.find(stream, after, POINTER_MAX, wanted.limit, wanted.bytes_max)
        if found is not None:
            return Browsed(name, found.last, HeldRecords(found.entries, found.records))
    return Browsed(b"", 0)
