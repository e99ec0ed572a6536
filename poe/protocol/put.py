"""A put on the wire: which put it is, its messages, the request that carries them, and the reply.

Nothing here loops over messages of equal size: the length fields of such a batch stand at equal
distances, so one comparison checks all of them. Where the sizes differ the chain of lengths has to
be walked, since each length says where the next one is.

Layout of a batch (big-endian), per message:
    length   u32   1 or more
    message  bytes

Source: poe_protocol.erl.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, repeat
from struct import Struct
from struct import error as StructError  # noqa: N812 - the name says nothing without its module
from typing import Any, ClassVar, Final, NamedTuple, Self, overload

import numpy as np
import numpy.typing as npt

from poe.errors import LocalProtocolError, RemoteProtocolError
from poe.protocol.arguments import LIMIT_MAX, topic_bytes
from poe.protocol.frames import (
    FRAME_MAX,
    PUT_REQUEST,
    QUEUE_PUT_REQUEST,
    SEQUENCED_PUT_REQUEST,
    TYPE_SIZE,
    frame_header,
)
from poe.record import POINTER_BYTES

BATCH_COUNT_MAX = 1 << 18
"""Messages in one put request: a view costs 184 bytes, however short its message is."""

LENGTH_SIZE = 4
_OBJECT_BYTES = 184
"""What a message costs in memory beside its bytes where the sizes differ."""

Messages = npt.NDArray[np.uint8] | Sequence[bytes | memoryview]
"""A 2-D array with a message per row where all sizes are equal, else one bytes-like each."""

_ONE_MESSAGE = (str, bytes, bytearray, memoryview)
_LENGTH = Struct(">I")
_pack_length = _LENGTH.pack
_unpack_length = _LENGTH.unpack_from
_LENGTH_FIELD = np.dtype((np.void, LENGTH_SIZE))
_BYTE = np.dtype(np.uint8)

_TOPIC_LENGTH_SIZE = 4
_pack_put_header = Struct(">IHI").pack

PRODUCER_SIZE = 16
"""Bytes of a producer's name."""
PUT_ID_SIZE = PRODUCER_SIZE + 8
DELAYED_PREFIX: Final = b"poe.delayed"
"""Begin of the names under which nodes put delayed messages: a number of a client's among a node's
own would have it take messages for stored that are not."""
DELAYED_PRODUCER: Final = DELAYED_PREFIX.ljust(PRODUCER_SIZE, b"\0")
"""That of a node on its own topics."""

_QUEUE_PUT = Struct(">BI")
_COPIES_MAX = 255
_PUT_ID = Struct(f">{PRODUCER_SIZE}sII")


class PutId(NamedTuple):
    """The number of a put, for `write` and `put_many`: stored once, however often it is sent.

    Put again with the same number what was not answered: a server that has stored it answers as it
    did or would have done the first time.

    Wire:
        producer  16 bytes
        epoch     u32
        sequence  u32
    """

    producer: bytes
    """16 bytes that nobody else uses on the topic, such as those of a random UUID."""

    epoch: int
    """0 to 2^32 - 1. Who begins a greater one than before shuts out whoever still puts in that."""

    sequence: int
    """0 for the first put onto the topic in an epoch, then 1 more each time; to 2^32 - 1."""

    def encode(self) -> bytes:
        """Return the bytes.

        Raises:
            LocalProtocolError: a field is out of range.
        """
        check_producer(self.producer)
        for name, value in (("epoch", self.epoch), ("sequence", self.sequence)):
            if type(value) is not int or not 0 <= value <= LIMIT_MAX:
                msg = f"{name} of a put is {value!r}; use 0 to {LIMIT_MAX}"
                raise LocalProtocolError(msg)
        return _PUT_ID.pack(*self)

    @classmethod
    def decode(cls, content: memoryview) -> Self:
        """Parse `PUT_ID_SIZE` bytes."""
        return cls._make(_PUT_ID.unpack(content))


class LastPut(NamedTuple):
    """The newest put of a producer that is stored."""

    epoch: int
    sequence: int
    pointer: int
    """Of its last message."""


def check_producer(producer: object) -> bytes:
    """Return the name of a producer.

    Raises:
        LocalProtocolError: it is none.
    """
    if not isinstance(producer, bytes) or len(producer) != PRODUCER_SIZE:
        msg = f"producer of a put is {producer!r}; use {PRODUCER_SIZE} bytes, such as uuid4().bytes"
        raise LocalProtocolError(msg)
    return producer


def check_client_producer(producer: bytes) -> None:
    """Refuse a put of a client that is numbered as one of the node's.

    Raises:
        RemoteProtocolError: it is.
    """
    if producer.startswith(DELAYED_PREFIX):
        msg = "producer poe.delayed is the node's own; use 16 random bytes"
        raise RemoteProtocolError(msg)


class PutRequest(NamedTuple):
    """Append messages to a topic: all of them, in order, or none.

    A tuple, as `PointerRequest`. After `decode` the messages are views into the body: a row each of
    a 2-D array where all sizes are equal.

    Wire:
        topic length  u32   1 or more
        topic         bytes
        messages      rest  a batch, see above

    Source: poe_protocol.erl, encode_put_request/2.
    """

    topic: bytes
    messages: Messages
    put_id: PutId | None = None

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
        return _pack_put_header(length, PUT_REQUEST, len(topic)) + topic + batch

    @classmethod
    def decode(cls, body: memoryview) -> Self:
        """Parse and check a whole body; nothing is copied but the topic.

        Raises:
            RemoteProtocolError: any length that is 0 or does not add up, or no message.
        """
        if len(body) < _TOPIC_LENGTH_SIZE:
            msg = f"put request of {len(body)} bytes has no topic"
            raise RemoteProtocolError(msg)
        topic_end = _TOPIC_LENGTH_SIZE + _unpack_length(body)[0]
        if not _TOPIC_LENGTH_SIZE < topic_end <= len(body):
            msg = (
                f"topic of {topic_end - _TOPIC_LENGTH_SIZE} bytes in a put request of "
                f"{len(body)} bytes"
            )
            raise RemoteProtocolError(msg)
        messages = split_batch(body[topic_end:])
        # As in `PointerRequest.decode`.
        return tuple.__new__(cls, (bytes(body[_TOPIC_LENGTH_SIZE:topic_end]), messages, None))

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

    def encode(self, frame_max: int = FRAME_MAX) -> bytes:
        """Return the frame.

        Raises:
            LocalProtocolError: a put id out of range, or as for a `PutRequest`.
        """
        assert self.put_id is not None
        topic = self.topic
        if type(topic) is not bytes or not topic:
            topic = topic_bytes(topic)
        head = self.put_id.encode() + _pack_length(len(topic)) + topic
        batch = join_batch(self.messages, frame_max - TYPE_SIZE - len(head))
        return frame_header(SEQUENCED_PUT_REQUEST, len(head) + len(batch)) + head + batch

    @classmethod
    def decode(cls, body: memoryview) -> Self:
        """Parse and check a whole body; nothing is copied but put id and topic.

        Raises:
            RemoteProtocolError: it is too short for a put id, that is one of the node's, or as for
                a `PutRequest`.
        """
        if len(body) < PUT_ID_SIZE:
            msg = f"sequenced put request of {len(body)} bytes has no put id"
            raise RemoteProtocolError(msg)
        put_id = PutId.decode(body[:PUT_ID_SIZE])
        check_client_producer(put_id.producer)
        topic, messages, _ = PutRequest.decode(body[PUT_ID_SIZE:])
        return cls(topic, messages, put_id)


class QueuePutRequest(NamedTuple):
    """Put messages onto a queue across nodes, which is made where there is none: all, or none.

    The reply is a `PutReply`, when they are on so many nodes, or an error.

    Wire:
        copies    u8
        deadline  u32   milliseconds
        put       rest  the body of a `PutRequest`
    """

    topic: bytes
    messages: Messages
    copies: int = 0
    """On how many nodes they are to be; 0: on as many as the queue has."""
    deadline_s: float = 0.0
    """How long to look for nodes that take them; 0: as the server does."""

    def encode(self, frame_max: int = FRAME_MAX) -> bytes:
        """Return the frame.

        Raises:
            LocalProtocolError: a number out of range, or as for a `PutRequest`.
        """
        deadline_ms = round(self.deadline_s * 1000)
        if not (0 <= self.copies <= _COPIES_MAX and 0 <= deadline_ms <= LIMIT_MAX):
            msg = f"{self.copies} copies within {self.deadline_s} s cannot be asked for"
            raise LocalProtocolError(msg)
        topic = topic_bytes(self.topic)
        head = _QUEUE_PUT.pack(self.copies, deadline_ms) + _pack_length(len(topic)) + topic
        batch = join_batch(self.messages, frame_max - TYPE_SIZE - len(head))
        return frame_header(QUEUE_PUT_REQUEST, len(head) + len(batch)) + head + batch

    @classmethod
    def decode(cls, body: memoryview) -> Self:
        """Parse and check a whole body; nothing is copied but the topic.

        Raises:
            RemoteProtocolError: it is too short, or as for a `PutRequest`.
        """
        if len(body) < _QUEUE_PUT.size:
            msg = f"queue put request of {len(body)} bytes has no deadline"
            raise RemoteProtocolError(msg)
        copies, deadline_ms = _QUEUE_PUT.unpack_from(body)
        topic, messages, _ = PutRequest.decode(body[_QUEUE_PUT.size :])
        return cls(topic, messages, copies, deadline_ms / 1000)

    @property
    def memory_bytes(self) -> int:
        """About how many bytes of memory the messages take."""
        return memory_of(self.messages)

    def copied(self) -> Self:
        """Return the request with messages of its own, in place of views into received bytes."""
        return self._replace(messages=copy_batch(self.messages))


PUTS: Final = (PutRequest, QueuePutRequest)
"""Requests that carry messages."""


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


# ---- the messages of a put ----


class JoinedBatch(Sequence[memoryview]):
    """Messages in the layout of a batch already, made by who holds them in columns.

    Writing it takes no loop over messages; who receives it checks what it says.
    """

    __slots__ = ("_count", "data")

    def __init__(self, data: bytes, count: int) -> None:
        self.data = data
        self._count = count

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[memoryview]:
        return iter(walk_batch(memoryview(self.data)))

    @overload
    def __getitem__(self, index: int) -> memoryview: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[memoryview]: ...

    def __getitem__(self, index: int | slice) -> memoryview | Sequence[memoryview]:
        return list(self)[index]


def join_batch(messages: Messages | Iterable[bytes], size_max: int) -> bytes:
    """Return the batch that holds the messages in order.

    Raises:
        LocalProtocolError: no message, an empty one, more than `BATCH_COUNT_MAX`, a batch of more
            than `size_max` bytes, or something that is no sequence of bytes-likes.
    """
    if isinstance(messages, JoinedBatch):
        _check_outgoing(len(messages), len(messages.data), size_max)
        return messages.data
    parts = messages
    try:
        parts = list(messages)
        sizes = list(map(len, parts))
        if 0 in sizes or not sizes:
            check_messages(messages if isinstance(messages, _ONE_MESSAGE) else parts)
        size = sum(sizes) + LENGTH_SIZE * len(sizes)
        _check_outgoing(len(sizes), size, size_max)
        batch = _join(parts, sizes)
    except TypeError:
        check_messages(messages if isinstance(messages, _ONE_MESSAGE) else parts)
        # Bytes with gaps between them, such as a column of an array, are joined as copies alone.
        batch = _join([bytes(memoryview(part)) for part in parts], sizes)
    if len(batch) != size:
        # The len() of a view counts items, which may be wider than a byte.
        msg = "messages must be bytes-likes of one-byte items; convert them with bytes()"
        raise LocalProtocolError(msg)
    return batch


def check_messages(messages: object) -> list[Any]:
    """Return messages as a list of bytes-likes, or say what is wrong with them.

    A node in the same process refuses with these words, too.

    Raises:
        LocalProtocolError: no sequence of bytes-likes, an empty one, or one of an empty message.
    """
    kind = type(messages).__name__
    if isinstance(messages, _ONE_MESSAGE):
        msg = f"messages is one {kind}; put it into a list"
        raise LocalProtocolError(msg)
    if not isinstance(messages, Iterable):
        msg = f"messages is of type {kind}; use a list of bytes"
        raise LocalProtocolError(msg)
    parts = list(messages)
    if not parts:
        msg = "messages is empty; put 1 message or more"
        raise LocalProtocolError(msg)
    for index, message in enumerate(parts):
        try:
            # Of a number without length, such as one of numpy's, `bytes` makes so many zeros.
            size = len(message) and memoryview(message).nbytes
        except TypeError as error:
            msg = f"messages[{index}] is of type {type(message).__name__}; use bytes"
            raise LocalProtocolError(msg) from error
        if not size:
            msg = f"messages[{index}] is empty; a message has 1 byte or more"
            raise LocalProtocolError(msg)
    return parts


def split_batch(batch: memoryview) -> npt.NDArray[np.uint8] | list[memoryview]:
    """Return the messages as views into `batch`: rows of one array where all sizes are equal.

    Raises:
        RemoteProtocolError: no message, an empty one, more than `BATCH_COUNT_MAX`, or lengths that
            do not add up to the batch exactly.
    """
    size = len(batch)
    if size < LENGTH_SIZE:
        msg = f"put request holds no message, only {size} bytes after its topic"
        raise RemoteProtocolError(msg)
    (length,) = _unpack_length(batch, 0)
    stride = LENGTH_SIZE + length
    count, rest = divmod(size, stride)
    if rest or not length:
        return walk_batch(batch)
    lengths = np.ndarray((count,), _LENGTH_FIELD, batch, 0, (stride,))
    # Comparing the fields' bytes takes a quarter of the time of reading them as numbers.
    if lengths.tobytes() != _pack_length(length) * count:
        return walk_batch(batch)
    if count > BATCH_COUNT_MAX:
        raise RemoteProtocolError(_too_many(count))
    return np.ndarray((count, length), _BYTE, batch, LENGTH_SIZE, (stride, 1))


def copy_batch(messages: Messages) -> Messages:
    """Return the messages in memory of their own."""
    if isinstance(messages, np.ndarray):
        return messages.copy()
    return list(map(bytes, messages))


def memory_of(messages: Messages) -> int:
    """Return about how many bytes of memory the messages take."""
    if isinstance(messages, np.ndarray):
        return messages.nbytes
    return sum(map(len, messages)) + _OBJECT_BYTES * len(messages)


def _join(parts: list[bytes], sizes: list[int]) -> bytes:
    if len(set(sizes)) == 1:
        # All length fields are the same bytes, so they can be the separator of a join.
        return _pack_length(sizes[0]).join([b"", *parts])
    return b"".join(chain.from_iterable(zip(map(_pack_length, sizes), parts, strict=True)))


def _check_outgoing(count: int, size: int, size_max: int) -> None:
    if count > BATCH_COUNT_MAX:
        raise LocalProtocolError(_too_many(count))
    if size > size_max:
        msg = (
            f"messages make a batch of {size} bytes, at most {size_max} fit into a frame "
            "(frame_max); split them over several writes"
        )
        raise LocalProtocolError(msg)


def walk_batch(batch: memoryview) -> list[memoryview]:
    """Return the messages of any sizes, by following the chain of lengths.

    It takes 0.12 us a message, most of it for the slice.

    Raises:
        RemoteProtocolError: as `split_batch`.
    """
    end = len(batch)
    offset = 0
    messages: list[memoryview] = []
    append = messages.append
    try:
        for _ in repeat(None, BATCH_COUNT_MAX):
            start = offset + LENGTH_SIZE
            offset = start + _unpack_length(batch, offset)[0]
            # A slice ends with the batch, so a length that lies costs no memory.
            append(batch[start:offset])
            if offset >= end:
                break
    except StructError:
        msg = f"put request ends with {end - offset} bytes, too few for a length"
        raise RemoteProtocolError(msg) from None
    if offset > end:
        msg = f"lengths of a put request add up to {offset} bytes, but {end} were sent"
        raise RemoteProtocolError(msg)
    if offset < end:
        raise RemoteProtocolError(_too_many(BATCH_COUNT_MAX + 1))
    if not all(messages):
        msg = f"message {list(map(len, messages)).index(0)} of a put request is empty"
        raise RemoteProtocolError(msg)
    return messages


def _too_many(count: int) -> str:
    return f"put request of {count} messages is refused; use at most {BATCH_COUNT_MAX}"
