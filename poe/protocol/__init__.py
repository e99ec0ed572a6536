"""The socket protocol: bytes to messages and back, and a thin blocking client beside it.

The codec never sees a socket, an event loop or an actor, so that server, blocking client and
asyncio client share it. `poe.protocol.wire` is the one module here that does I/O.
"""

from poe.protocol.arguments import topic_bytes
from poe.protocol.client import FOLLOW_WAIT_S, Socket, read, socket, write
from poe.protocol.control import ControlReply, ControlRequest, ErrorReply
from poe.protocol.described_topic import DescribedPartition, DescribedTopic
from poe.protocol.frames import FRAME_MAX, FrameReader, frame_header
from poe.protocol.leases import Done, Failed, Lease, LeaseReply, LeaseRequest
from poe.protocol.messages import (
    DataReply,
    PointerRequest,
    Request,
    decode_reply,
    decode_request,
)
from poe.protocol.put import (
    JoinedBatch,
    LastPut,
    Messages,
    PutId,
    PutReply,
    PutRequest,
    QueuePutRequest,
    SequencedPutRequest,
)
from poe.protocol.ranges import (
    RANGE_BYTES,
    RANGE_COUNT_MAX,
    IndexedRecords,
    IndexedReply,
    RangeRequest,
    Span,
)
from poe.protocol.records import Record
from poe.protocol.removed import Removed
from poe.protocol.wire import IN_FLIGHT_MAX

__all__ = [
    "FOLLOW_WAIT_S",
    "FRAME_MAX",
    "IN_FLIGHT_MAX",
    "RANGE_BYTES",
    "RANGE_COUNT_MAX",
    "ControlReply",
    "ControlRequest",
    "DataReply",
    "DescribedPartition",
    "DescribedTopic",
    "Done",
    "ErrorReply",
    "Failed",
    "FrameReader",
    "IndexedRecords",
    "IndexedReply",
    "JoinedBatch",
    "LastPut",
    "Lease",
    "LeaseReply",
    "LeaseRequest",
    "Messages",
    "PointerRequest",
    "PutId",
    "PutReply",
    "PutRequest",
    "QueuePutRequest",
    "RangeRequest",
    "Record",
    "Removed",
    "Request",
    "SequencedPutRequest",
    "Socket",
    "Span",
    "decode_reply",
    "decode_request",
    "frame_header",
    "read",
    "socket",
    "topic_bytes",
    "write",
]
