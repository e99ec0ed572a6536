"""What the frames mean: one class per message, each a value that encodes to and from bytes.

`encode` returns a whole frame, header included; `decode` takes the body of one, checks all of it
and raises before anything is done with it. A server passes what it receives to `decode_request`, a
client to `decode_reply` with the class it expects. Integers are big-endian.

Puts have a module of their own, `poe.protocol.put`, as have reading by ranges, work queues
(`poe.protocol.leases`) and control messages; the table is here.

Source: poe_protocol.erl.
"""

from dataclasses import dataclass
from struct import Struct
from typing import ClassVar, NamedTuple, Self, TypeVar

from poe.errors import CorruptRecord, PoeError, RemoteProtocolError
from poe.protocol.arguments import LIMIT_MAX, check_limit, check_pointer, topic_bytes
from poe.protocol.control import ControlReply, ControlRequest, ErrorReply
from poe.protocol.frames import (
    LEASE_REQUEST,
    POINTER_REQUEST,
    PUT_REQUEST,
    QUEUE_PUT_REQUEST,
    RANGE_REQUEST,
    SEQUENCED_PUT_REQUEST,
    TYPE_SIZE,
    frame_header,
)
from poe.protocol.leases import LeaseReply, LeaseRequest
from poe.protocol.put import PutReply, PutRequest, QueuePutRequest, SequencedPutRequest
from poe.protocol.ranges import IndexedReply, RangeRequest
from poe.protocol.records import Record, join_records, split_records
from poe.record import POINTER_BYTES

_LIMIT_SIZE = 4
_TOPIC_START = POINTER_BYTES + _LIMIT_SIZE
_pack_header = Struct(">IH").pack


class PointerRequest(NamedTuple):
    """Ask for up to `limit` records that follow `pointer`.

    A tuple: reads are the hottest path, and a frozen dataclass takes twice as long to make.

    Wire:
        pointer  u56   last pointer seen; 0 asks from the oldest record
        limit    u32   records, not bytes
        topic    rest  1 or more bytes

    Source: poe_protocol.erl, encode_pointer_request/3.
    """

    topic: bytes
    pointer: int
    limit: int

    def encode(self) -> bytes:
        """Return the frame.

        Raises:
            LocalProtocolError: empty topic, or a limit that does not fit 32 bits.
            PointerOutOfRange: the pointer does not fit 56 bits.
        """
        check_pointer(self.pointer)
        check_limit(self.limit)
        body = (
            self.pointer.to_bytes(POINTER_BYTES, "big")
            + self.limit.to_bytes(_LIMIT_SIZE, "big")
            + topic_bytes(self.topic)
        )
        return frame_header(POINTER_REQUEST, len(body)) + body

    @classmethod
    def decode(cls, body: memoryview) -> Self:
        """Parse a whole body.

        Raises:
            RemoteProtocolError: the body is too short to hold a topic.
        """
        if len(body) <= _TOPIC_START:
            msg = f"pointer request of {len(body)} bytes has no topic"
            raise RemoteProtocolError(msg)
        numbers = int.from_bytes(body[:_TOPIC_START], "big")
        # Not by `cls(…)`, which would be one more function of Python.
        fields = (bytes(body[_TOPIC_START:]), numbers >> _LIMIT_SIZE * 8, numbers & LIMIT_MAX)
        return tuple.__new__(cls, fields)


@dataclass(frozen=True, slots=True)
class DataReply:
    """Records that follow the pointer asked for; none where nothing does.

    Wire:
        records  rest  as they lie on disk, see `poe.protocol.records`

    Source: poe_protocol.erl, encode_data/1.
    """

    MESSAGE_TYPE: ClassVar[int] = 1

    records: list[Record]

    @classmethod
    def header(cls, records_size: int) -> bytes:
        """Return the 6 bytes to send before `records_size` bytes of a data file."""
        return _pack_header(TYPE_SIZE + records_size, cls.MESSAGE_TYPE)

    def encode(self) -> bytes:
        """Return the frame."""
        body = join_records(self.records)
        return self.header(len(body)) + body

    @classmethod
    def decode(cls, body: memoryview) -> Self:
        """Parse a whole body, up to the first damaged record; the messages are copies.

        Raises:
            CorruptRecord: the first record is damaged.
        """
        return cls(split_records(body))


Request = (
    PointerRequest | PutRequest | QueuePutRequest | RangeRequest | LeaseRequest | ControlRequest
)


class _Requests(dict[int, type[Request]]):
    def __missing__(self, message_type: int) -> type[Request]:
        msg = f"frame type {message_type} is no request; send type {', '.join(map(str, self))}"
        raise RemoteProtocolError(msg)


REQUESTS = _Requests(
    {
        POINTER_REQUEST: PointerRequest,
        PUT_REQUEST: PutRequest,
        SEQUENCED_PUT_REQUEST: SequencedPutRequest,
        RANGE_REQUEST: RangeRequest,
        LEASE_REQUEST: LeaseRequest,
        QUEUE_PUT_REQUEST: QueuePutRequest,
        ControlRequest.MESSAGE_TYPE: ControlRequest,
    }
)
"""What a server accepts; raises `RemoteProtocolError` of anything else.

Replies are left out: decoding one costs memory that nobody needs.
"""

ReplyT = TypeVar("ReplyT", DataReply, PutReply, IndexedReply, LeaseReply, ControlReply)


def decode_request(message_type: int, body: memoryview) -> Request:
    """Return the request that a frame holds.

    Raises:
        RemoteProtocolError: the type is no request's, or the body is malformed.
    """
    return REQUESTS[message_type].decode(body)


def decode_reply(
    reply_class: type[ReplyT], message_type: int, body: memoryview
) -> ReplyT | PoeError:
    """Return the reply that a frame holds, or the error that stands for it.

    Refusals of the server and damaged records are returned, not raised, so that only what breaks
    the stream is raised.

    Raises:
        RemoteProtocolError: the frame is neither, or its body is malformed.
    """
    if message_type == reply_class.MESSAGE_TYPE:
        try:
            return reply_class.decode(body)
        except CorruptRecord as error:
            return error
    if message_type == ErrorReply.MESSAGE_TYPE:
        return ErrorReply.decode(body).to_error()
    msg = f"frame type {message_type} came as the answer, not {reply_class.MESSAGE_TYPE}"
    raise RemoteProtocolError(msg)
