"""Which put of which producer a request is, so that one that is sent again is known."""

from struct import Struct
from typing import NamedTuple, Self

from poe.errors import LocalProtocolError
from poe.protocol.arguments import LIMIT_MAX

PRODUCER_SIZE = 16
"""Bytes of a producer's name."""
PUT_ID_SIZE = PRODUCER_SIZE + 8

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
