"""What a replica asks of the same partition's replica at another node, as bytes; pure.

Layout of a question: msgpack [version: 1, stream, operation, arguments …]; of an answer: msgpack
[version: 1, error or "", fields …]. The entries and records of a segment travel as they lie in it;
puts of a producer that follow one another as [producer, epoch, number of the first, pointers],
8 bytes each: of 10 000 producers there are 64 each, and all are to have room in one answer.
"""

import struct
from collections.abc import Iterable, Iterator
from typing import Any, Final, NamedTuple

import msgpack  # type: ignore[import-untyped]  # it ships no type hints

from poe.errors import RemoteProtocolError
from poe.storage import PutKey

READ_BYTES_MAX: Final = 4 * 1024 * 1024
"""Of records in one answer, unless one alone is larger."""
_VERSION: Final = 1
CLOCK_STREAM: Final = "*clock"
"""What the clock of a node is asked by; no stream is called so."""


class DescribeCopy(NamedTuple):
    """Say what the copy holds; answered by `CopyDescription`."""

    stream: str


class ReadCopy(NamedTuple):
    """Send records behind `after` up to `last`; answered by `CopyRecords`."""

    stream: str
    after: int
    last: int


class HashCopy(NamedTuple):
    """Say what the first bytes of a segment hash to; answered by `CopyHash`."""

    stream: str
    timestamp: int
    size_bytes: int


class KnowsRecord(NamedTuple):
    """Say whether the node has done what a record of the catalog says; answered by `Whether`."""

    key: str
    revision: int


class HasTopic(NamedTuple):
    """Say whether the node has a topic of its own alone by a name; answered by `Whether`."""

    topic: str
    """In hexadecimal."""


class TellTime(NamedTuple):
    """Say what time it is; answered by `Time`."""

    stream: str
    """No stream, but who is asked: `CLOCK_STREAM`."""


Question = DescribeCopy | ReadCopy | HashCopy | KnowsRecord | HasTopic | TellTime
_OPERATIONS: Final = {
    "describe": (DescribeCopy, 1),
    "read": (ReadCopy, 3),
    "hash": (HashCopy, 3),
    "knows": (KnowsRecord, 2),
    "has": (HasTopic, 1),
    "time": (TellTime, 1),
}
"""Which question each is, and how many fields it has."""
_NAMES: Final = {kind: name for name, (kind, _) in _OPERATIONS.items()}


class CopySegment(NamedTuple):
    """A segment of a copy."""

    timestamp: int
    base: int
    messages: int
    size_bytes: int
    last_pointer: int
    """Of its last message; of one without, less than any."""


class CopyDescription(NamedTuple):
    """What a copy holds, all at one moment."""

    place: int
    """Up to which of its stream."""

    segments: tuple[CopySegment, ...]
    puts: tuple[tuple[PutKey, int], ...]
    """What is known of producers, and the pointers of their puts."""


class CopyRecords(NamedTuple):
    """Records of a copy."""

    entries: bytes
    data: bytes


class CopyHash(NamedTuple):
    """What the bytes of a segment hash to; empty where it has not got so many."""

    digest: bytes


class Whether(NamedTuple):
    """Whether it is so."""

    is_so: bool


class Time(NamedTuple):
    """What time it is at a node, in microseconds since the epoch."""

    now_us: int


PeerAnswer = CopyDescription | CopyRecords | CopyHash | Whether | Time


def encode_question(question: Question) -> bytes:
    """Encode a question."""
    packed: bytes = msgpack.packb([_VERSION, _NAMES[type(question)], *question])
    return packed


def decode_question(payload: bytes) -> Question:
    """Decode a question.

    Raises:
        RemoteProtocolError: it is none.
    """
    fields = _unpack(payload, "question of a replica")
    operation = fields[0] if fields and isinstance(fields[0], str) else ""
    kind, count = _OPERATIONS.get(operation, (None, 0))
    if kind is None or len(fields) - 1 != count:
        msg = f"question {fields[:1]!r} of a replica is not known"
        raise RemoteProtocolError(msg)
    stream, *numbers = fields[1:]
    if not isinstance(stream, str) or not all(_is_number(each) for each in numbers):
        msg = f"question {fields[0]!r} of a replica has wrong arguments"
        raise RemoteProtocolError(msg)
    question: Question = kind(stream, *numbers)
    return question


def encode_answer(answer: PeerAnswer) -> bytes:
    """Encode an answer."""
    fields: list[Any] = [*answer]
    if isinstance(answer, CopyDescription):
        fields[-1] = _packed_puts(answer.puts)
    packed: bytes = msgpack.packb([_VERSION, "", *fields])
    return packed


def _packed_puts(puts: Iterable[tuple[PutKey, int]]) -> list[list[object]]:
    """Return runs of puts of which each has the number that follows."""
    runs: list[tuple[PutKey, list[int]]] = []
    following: PutKey | None = None
    for key, pointer in puts:
        if key != following:
            runs.append((key, []))
        runs[-1][1].append(pointer)
        producer, epoch, number = key
        following = producer, epoch, number + 1
    return [[*first, struct.pack(f">{len(pointers)}Q", *pointers)] for first, pointers in runs]


def _unpacked_puts(runs: Iterable[Any]) -> Iterator[tuple[PutKey, int]]:
    for producer, epoch, first, packed in runs:
        for number, (pointer,) in enumerate(struct.iter_unpack(">Q", packed), first):
            yield (producer, epoch, number), pointer


def encode_error(why: str) -> bytes:
    """Encode that a question cannot be answered."""
    packed: bytes = msgpack.packb([_VERSION, why])
    return packed


def decode_description(payload: bytes) -> CopyDescription:
    """Decode the answer to `DescribeCopy`.

    Raises:
        RemoteProtocolError: it is none, or says why there is none.
    """
    place, segments, puts = _answer(payload, 3)
    try:
        told = tuple(CopySegment(*each) for each in segments)
        known = tuple(_unpacked_puts(puts))
    except (TypeError, ValueError, struct.error) as error:
        msg = f"description of a copy: {error}"
        raise RemoteProtocolError(msg) from error
    numbers = [place, *(number for each in told for number in each)]
    numbers += [number for (_, *others), _ in known for number in others]
    if not all(map(_is_number, numbers)) or not all(isinstance(key[0], bytes) for key, _ in known):
        msg = "description of a copy has wrong fields"
        raise RemoteProtocolError(msg)
    return CopyDescription(place, told, known)


def decode_records(payload: bytes) -> CopyRecords:
    """Decode the answer to `ReadCopy`.

    Raises:
        RemoteProtocolError: as `decode_description`.
    """
    entries, data = _answer(payload, 2)
    if not isinstance(entries, bytes) or not isinstance(data, bytes):
        msg = "records of a copy are no bytes"
        raise RemoteProtocolError(msg)
    return CopyRecords(entries, data)


def decode_hash(payload: bytes) -> CopyHash:
    """Decode the answer to `HashCopy`.

    Raises:
        RemoteProtocolError: as `decode_description`.
    """
    (digest,) = _answer(payload, 1)
    if not isinstance(digest, bytes):
        msg = "hash of a copy is no bytes"
        raise RemoteProtocolError(msg)
    return CopyHash(digest)


def decode_known(payload: bytes) -> bool:
    """Decode the answer to `KnowsRecord`, or `HasTopic`.

    Raises:
        RemoteProtocolError: as `decode_description`.
    """
    return _answer(payload, 1)[0] is True


def decode_time(payload: bytes) -> int:
    """Decode the answer to `TellTime`.

    Raises:
        RemoteProtocolError: as `decode_description`.
    """
    (now_us,) = _answer(payload, 1)
    if not _is_number(now_us):
        msg = "time of a node is no number"
        raise RemoteProtocolError(msg)
    return int(now_us)


def _answer(payload: bytes, count: int) -> list[Any]:
    why, *fields = _unpack(payload, "answer of a replica") or ["it is empty"]
    if why:
        raise RemoteProtocolError(str(why))
    if len(fields) != count:
        msg = f"answer of a replica has {len(fields)} fields, not {count}"
        raise RemoteProtocolError(msg)
    return fields


def _unpack(payload: bytes, what: str) -> list[Any]:
    try:
        fields = msgpack.unpackb(payload)
    except (ValueError, msgpack.UnpackException) as error:
        msg = f"{what} of {len(payload)} bytes: {error}"
        raise RemoteProtocolError(msg) from error
    if not isinstance(fields, list) or not fields or fields[0] != _VERSION:
        msg = f"{what} of {len(payload)} bytes is of no version that is known here"
        raise RemoteProtocolError(msg)
    return fields[1:]


def _is_number(value: object) -> bool:
    return type(value) is int and 0 <= value < 2**64
