"""The messages of one put request: join them into bytes, and split bytes into views of messages.

Nothing here loops over messages of equal size: the length fields of such a batch stand at equal
distances, so one comparison checks all of them. Where the sizes differ the chain of lengths has to
be walked, since each length says where the next one is.

Layout of a batch (big-endian), per message:
    length   u32   1 or more
    message  bytes
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, repeat
from struct import Struct
from struct import error as StructError  # noqa: N812 - the name says nothing without its module
from typing import Any, overload

import numpy as np
import numpy.typing as npt

from poe.errors import LocalProtocolError, RemoteProtocolError

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
        raise
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
            size = memoryview(message).nbytes
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
