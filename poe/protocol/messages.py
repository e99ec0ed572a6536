"""What the frames mean: one class per message, each a value that encodes to and from bytes.

`encode` returns a whole frame, header included; `decode` takes the body of one, checks all of it
and raises before anything is done with it. A server passes what it receives to `decode_request`, a
client to `decode_reply` with the class it expects. Integers are big-endian.

The control messages have a module of their own, `poe.protocol.control`, and reading by ranges has
`poe.protocol.ranges`; the table is here.

Source: poe_protocol.erl.
"""

from dataclasses import dataclass
from struct import Struct
from typing import ClassVar, NamedTuple, Self, TypeVar

from poe.errors import CorruptRecord, PoeError, RemoteProtocolError
from poe.protocol.arguments import LIMIT_MAX, check_limit, check_pointer, topic_bytes
from poe.protocol.batch import Messages, copy_batch, join_batch, memory_of, split_batch
from poe.protocol.control import ControlReply, ControlRequest, ErrorReply
from poe.protocol.frames import FRAME_MAX, TYPE_SIZE, frame_header
from poe.protocol.put_id import PUT_ID_SIZE, PutId
from poe.protocol.ranges import IndexedReply, RangeRequest
from poe.protocol.records import Record, join_records, split_records
from poe.record import POINTER_BYTES

_LIMIT_SIZE = 4
_TOPIC_START = POINTER_BYTES + _LIMIT_SIZE
_TOPIC_LENGTH_SIZE = 4
_pack_header = Struct(">IH").pack
_pack_put_header = Struct(">IHI").pack
_pack_u32 = Struct(">I").pack
_unpack_u32 = Struct(">I").unpack_from


class _PointerFields(NamedTuple):
    # A base of its own, since a named tuple takes no class variables.
    topic: bytes
    pointer: int
    limit: int


class PointerRequest(_PointerFields):
    """Ask for up to `limit` records that follow `pointer`.

    A tuple: reads are the hottest path, and a frozen dataclass takes twice as long to make.

    Wire:
        pointer  u56   last pointer seen; 0 asks from the oldest record
        limit    u32   records, not bytes
        topic    rest  1 or more bytes

    Source: poe_protocol.erl, encode_pointer_request/3.
    """

    __slots__ = ()

    MESSAGE_TYPE: ClassVar[int] = 0

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
        return frame_header(self.MESSAGE_TYPE, len(body)) + body

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


class _PutFields(NamedTuple):
    topic: bytes
    messages: Messages
    put_id: PutId | None = None


class PutRequest(_PutFields):
    """Append messages to a topic: all of them, in order, or none.

    A tuple, as `PointerRequest`. After `decode` the messages are views into the body: a row each of
    a 2-D array where all sizes are equal.

    Wire:
        topic length  u32   1 or more
        topic         bytes
        messages      rest  see `poe.protocol.batch`

    Source: poe_protocol.erl, encode_put_request/2.
    """

    __slots__ = ()

    MESSAGE_TYPE: ClassVar[int] = 2

    def encode(self, frame_max: int = FRAME_MAX) -> bytes:
        """Return the frame.

        Raises:
            LocalProtocolError: empty topic, no messages, an empty message, too many of them, or a
                frame beyond `frame_max`.
        """
        topic = topic_bytes(self.topic)
        head_size = TYPE_SIZE + _TOPIC_LENGTH_SIZE + len(topic)
        batch = join_batch(self.messages, frame_max - head_size)
        length = head_size + len(batch)
        return _pack_put_header(length, self.MESSAGE_TYPE, len(topic)) + topic + batch

    @classmethod
    def decode(cls, body: memoryview) -> Self:
        """Parse and check a whole body; nothing is copied but the topic.

        Raises:
            RemoteProtocolError: any length that is 0 or does not add up, or no message.
        """
        if len(body) < _TOPIC_LENGTH_SIZE:
            msg = f"put request of {len(body)} bytes has no topic"
            raise RemoteProtocolError(msg)
        topic_end = _TOPIC_LENGTH_SIZE + _unpack_u32(body)[0]
        if not _TOPIC_LENGTH_SIZE < topic_end <= len(body):
            msg = (
                f"topic of {topic_end - _TOPIC_LENGTH_SIZE} bytes in a put request of "
                f"{len(body)} bytes"
            )
            raise RemoteProtocolError(msg)
        return cls(bytes(body[_TOPIC_LENGTH_SIZE:topic_end]), split_batch(body[topic_end:]))

    @property
    def memory_bytes(self) -> int:
        """About how many bytes of memory the messages take."""
        return memory_of(self.messages)

    def copied(self) -> Self:
        """Return the request with messages of its own, in place of views into received bytes."""
        return type(self)(self.topic, copy_batch(self.messages), self.put_id)


class SequencedPutRequest(PutRequest):
    """A put request with a number, `put_id`: stored once, however often it is sent.

    Wire:
        put id  24 bytes, see `PutId`
        put     rest  the body of a `PutRequest`
    """

    __slots__ = ()

    MESSAGE_TYPE: ClassVar[int] = 4

    def encode(self, frame_max: int = FRAME_MAX) -> bytes:
        """Return the frame.

        Raises:
            LocalProtocolError: a put id out of range, or as for a `PutRequest`.
        """
        assert self.put_id is not None
        topic = self.topic
        if type(topic) is not bytes or not topic:
            topic = topic_bytes(topic)
        head = self.put_id.encode() + _pack_u32(len(topic)) + topic
        batch = join_batch(self.messages, frame_max - TYPE_SIZE - len(head))
        return frame_header(self.MESSAGE_TYPE, len(head) + len(batch)) + head + batch

    @classmethod
    def decode(cls, body: memoryview) -> Self:
        """Parse and check a whole body; nothing is copied but put id and topic.

        Raises:
            RemoteProtocolError: it is too short for a put id, or as for a `PutRequest`.
        """
        if len(body) < PUT_ID_SIZE:
            msg = f"sequenced put request of {len(body)} bytes has no put id"
            raise RemoteProtocolError(msg)
        topic, messages, _ = PutRequest.decode(body[PUT_ID_SIZE:])
        return cls(topic, messages, PutId.decode(body[:PUT_ID_SIZE]))


def put_frame(topic: bytes, messages: Messages, put_id: PutId | None, frame_max: int) -> bytes:
    """Return the frame that puts messages onto a topic; with a number, if one is given.

    Raises:
        LocalProtocolError: as `PutRequest.encode`.
    """
    if put_id is None:
        return PutRequest(topic, messages).encode(frame_max)
    return SequencedPutRequest(topic, messages, put_id).encode(frame_max)


@dataclass(frozen=True, slots=True)
class PutReply:
    """A put request was done.

    Wire:
        pointer  u56   of the last message

    Source: poe_protocol.erl, encode_put_reply/1.
    """

    MESSAGE_TYPE: ClassVar[int] = 3

    pointer: int

    @staticmethod
    def frame(pointer: int) -> bytes:
        """Return the frame for a pointer, without making the value first."""
        return _PUT_REPLY_HEADER + pointer.to_bytes(POINTER_BYTES, "big")

    def encode(self) -> bytes:
        """Return the frame."""
        return self.frame(self.pointer)

    @classmethod
    def decode(cls, body: memoryview) -> Self:
        """Parse a whole body.

        Raises:
            RemoteProtocolError: the body is not 7 bytes.
        """
        if len(body) != POINTER_BYTES:
            msg = f"put reply of {len(body)} bytes, not {POINTER_BYTES}"
            raise RemoteProtocolError(msg)
        return cls(int.from_bytes(body, "big"))


_PUT_REPLY_HEADER = frame_header(PutReply.MESSAGE_TYPE, POINTER_BYTES)


Request = PointerRequest | PutRequest | RangeRequest | ControlRequest

REQUESTS: dict[int, type[Request]] = {
    PointerRequest.MESSAGE_TYPE: PointerRequest,
    PutRequest.MESSAGE_TYPE: PutRequest,
    SequencedPutRequest.MESSAGE_TYPE: SequencedPutRequest,
    RangeRequest.MESSAGE_TYPE: RangeRequest,
    ControlRequest.MESSAGE_TYPE: ControlRequest,
}
"""What a server accepts. Replies are left out: decoding one costs memory that nobody needs."""

ReplyT = TypeVar("ReplyT", DataReply, PutReply, IndexedReply, ControlReply)


def decode_request(message_type: int, body: memoryview) -> Request:
    """Return the request that a frame holds.

    Raises:
        RemoteProtocolError: the type is no request's, or the body is malformed.
    """
    request_class = REQUESTS.get(message_type)
    if request_class is None:
        msg = f"frame type {message_type} is no request; send type {', '.join(map(str, REQUESTS))}"
        raise RemoteProtocolError(msg)
    return request_class.decode(body)


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
