"""Work queues on the wire: leases on ranges of a topic, and what became of them.

A member of a group in mode `shared` asks for messages and says in the same request what it has done
with those that it had. The messages come as they do for a range request: from the file to the
socket, none of them an object. Integers are big-endian.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from struct import Struct
from typing import Any, ClassVar, Literal, NamedTuple, NoReturn, Self

import msgpack  # type: ignore[import-untyped]  # it ships no type hints

from poe.errors import LocalProtocolError, RemoteProtocolError
from poe.protocol.arguments import LIMIT_MAX
from poe.protocol.frames import LEASE_REQUEST, frame_header
from poe.protocol.maps import counting
from poe.protocol.ranges import IndexedRecords, IndexedReply
from poe.record import ENTRY_BYTES, POINTER_MAX

LEASE_SIZE_MAX = 256 * 1024
"""Bytes in the body of a lease request."""
LEASE_COUNT_MAX = 4096
"""Leases, or ranges of one, that a request tells of."""
LEASE_NESTED_MAX = 20_000
"""Arrays in all of a lease request; of ranges between pointers of our time, it has no room for so
many. Of 80,000 short ones, one request held all others up for a seventh of a second."""
RETRY_S_MAX = 30 * 24 * 3600
"""Seconds before a message is tried again, at most."""
EXTEND_S_MAX = 24 * 3600
"""Seconds that a lease is asked to be held for, at most; a group may hold it for less."""
MEMBER_BYTES = 16
"""Of the id of a member, which each process draws anew."""

_U64_MAX = 2**64 - 1
_SIZE = Struct(">I")

_pack = msgpack.Packer().pack  # one for all: to make one costs as much as to pack

Verdict = Literal["retry", "dead", "release"]
"""What is to become of messages that were not done: try again and count it, never try again, or
give them back uncounted."""
VERDICTS: tuple[Verdict, ...] = ("retry", "dead", "release")


class Done(NamedTuple):
    """What of a lease is done."""

    lease: int
    ranges: Sequence[tuple[int, int]] | None = None
    """Each without its first pointer and with its last, `(after, last]`; None: all of the lease."""


class Failed(NamedTuple):
    """A range of a lease that was not done."""

    lease: int
    after: int
    last: int
    verdict: Verdict = "retry"
    delay_s: float | None = None
    """Not before that; None: as the group's back-off says."""
    reason: str = ""


class LeaseRequest(NamedTuple):
    """Tell what became of earlier leases, and ask for another one.

    Wire:
        msgpack array of these fields; `done` and `failed` are arrays of arrays
    """

    group: str
    member: bytes
    limit: int
    """Messages at most; 0 asks for none, which only tells."""
    bytes_max: int
    """Bytes of records at most, though one message always comes."""
    wait_s: float = 0.0
    """How long to wait for messages where there are none."""
    done: Sequence[Done] = ()
    failed: Sequence[Failed] = ()

    def encode(self) -> bytes:
        """Return the frame.

        Raises:
            LocalProtocolError: a value is out of range, or the request too large.
        """
        try:
            body: bytes = msgpack.packb(tuple(self))
            _check(self, len(body))
        except (TypeError, ValueError, OverflowError) as error:
            msg = f"lease request cannot be sent: {error}"
            raise LocalProtocolError(msg) from error
        return frame_header(LEASE_REQUEST, len(body)) + body

    @classmethod
    def decode(cls, body: memoryview) -> Self:
        """Parse a whole body.

        Raises:
            RemoteProtocolError: it is too large, or not what it should be.
        """
        if len(body) > LEASE_SIZE_MAX:
            msg = f"lease request of {len(body)} bytes is refused; send at most {LEASE_SIZE_MAX}"
            raise RemoteProtocolError(msg)
        # Each array takes a byte at least, so a short body need not have them counted.
        hook = counting(LEASE_NESTED_MAX) if len(body) > LEASE_NESTED_MAX else None
        try:
            fields = msgpack.unpackb(
                body, use_list=False, max_array_len=LEASE_COUNT_MAX, list_hook=hook
            )
            group, member, limit, bytes_max, wait_s, done, failed = fields
            done = tuple(map(Done._make, done)) if done else ()
            failed = tuple(map(Failed._make, failed)) if failed else ()
            request = cls(group, member, limit, bytes_max, wait_s, done, failed)
            _check(request, len(body))
        except (TypeError, ValueError, msgpack.UnpackException) as error:
            msg = f"lease request is malformed: {str(error) or type(error).__name__}"
            raise RemoteProtocolError(msg) from error
        return request


def _check(request: LeaseRequest, size: int) -> None:
    """Refuse what no honest client sends.

    Raises:
        ValueError: says what.
    """
    group, member, limit, bytes_max, wait_s, done, failed = request
    if type(group) is not str or not group:
        _refuse("group", group, "text")
    if type(member) is not bytes or len(member) != MEMBER_BYTES:
        _refuse("member", member, f"{MEMBER_BYTES} bytes")
    if type(limit) is not int or not 0 <= limit <= LIMIT_MAX:
        _refuse("limit", limit, f"a whole number from 0 to {LIMIT_MAX}")
    if type(bytes_max) is not int or not 0 <= bytes_max <= LIMIT_MAX:
        _refuse("bytes_max", bytes_max, f"a whole number from 0 to {LIMIT_MAX}")
    _check_seconds("wait_s", wait_s)
    if len(done) + len(failed) > LEASE_COUNT_MAX or size > LEASE_SIZE_MAX:
        msg = f"it tells of too much; send {LEASE_COUNT_MAX} leases, {LEASE_SIZE_MAX} bytes at most"
        raise ValueError(msg)
    for lease, ranges in done:
        _check_lease(lease)
        for after, last in () if ranges is None else ranges:
            _check_range(after, last)
    for each in failed:
        _check_failed(each)


def _check_failed(failed: Failed) -> None:
    _check_lease(failed.lease)
    _check_range(failed.after, failed.last)
    if failed.verdict not in VERDICTS:
        _refuse("verdict", failed.verdict, ", ".join(VERDICTS))
    if failed.delay_s is not None:
        _check_seconds("delay_s", failed.delay_s)
    if type(failed.reason) is not str:
        _refuse("reason", failed.reason, "text")


def _check_lease(lease: object) -> None:
    if type(lease) is not int or not 0 <= lease <= _U64_MAX:
        _refuse("lease", lease, "the number of one")


def _check_range(after: object, last: object) -> None:
    is_range = type(after) is int and type(last) is int and 0 <= after < last <= POINTER_MAX
    if not is_range:
        _refuse("range", (after, last), "two pointers, the first one less")


def _check_seconds(name: str, value: object) -> None:
    is_number = type(value) is int or type(value) is float
    if not is_number or not 0 <= value < math.inf:  # type: ignore[operator]
        _refuse(name, value, "seconds, 0 or more")


def _refuse(name: str, value: object, allowed: str) -> NoReturn:
    msg = f"{name} is {value!r:.60}; send {allowed}"
    raise ValueError(msg)


class Lease(NamedTuple):
    """What was leased, and until when; `id` 0: nothing came in time."""

    id: int = 0
    topic: bytes = b""
    """That of the partition."""
    after: int = 0
    last: int = 0
    """It is of the messages with pointers greater than `after`, up to `last`."""
    attempts: int = 0
    """How often they were tried before, and were not done."""
    left_s: float = 0.0
    """Until it ends by itself."""
    lost: tuple[int, ...] = ()
    """Leases that the request told of, and that the member does not hold any more."""
    why: str = ""
    """Where nothing came: what keeps messages back, a limit or a pause; else empty."""


@dataclass(frozen=True, slots=True, eq=False)
class LeaseReply:
    """A lease with its messages.

    Wire:
        size     u32
        lease    size bytes, a msgpack array of the fields of `Lease`
        records  rest, the body of an `IndexedReply`
    """

    MESSAGE_TYPE: ClassVar[int] = 8

    lease: Lease
    records: IndexedRecords

    @classmethod
    def head(cls, lease: Lease, entries: bytes, records_size: int, ordinal: int = 0) -> bytes:
        """Return what to send before `records_size` bytes of a data file."""
        packed: bytes = _pack(lease)
        prefix = IndexedReply.prefix(len(entries) // ENTRY_BYTES, ordinal)
        size = len(packed)
        body_size = _SIZE.size + size + len(prefix) + len(entries) + records_size
        header = frame_header(cls.MESSAGE_TYPE, body_size)
        return b"".join((header, _SIZE.pack(size), packed, prefix, entries))

    @classmethod
    def decode(cls, body: memoryview) -> Self:
        """Parse a whole body.

        Raises:
            RemoteProtocolError: it is malformed.
            CorruptRecord: the first record is damaged.
        """
        size = _SIZE.unpack_from(body)[0] if len(body) >= _SIZE.size else len(body)
        try:
            fields: Any = msgpack.unpackb(body[_SIZE.size : _SIZE.size + size], use_list=False)
            lease = Lease._make(fields)
            if not _is_lease(lease):
                _refuse("lease", tuple(lease), "one")
        except (TypeError, ValueError, msgpack.UnpackException) as error:
            msg = f"lease reply of {len(body)} bytes is malformed"
            raise RemoteProtocolError(msg) from error
        return cls(lease, IndexedReply.decode(body[_SIZE.size + size :]).records)


def _is_lease(lease: Lease) -> bool:
    """Return whether the fields are what they should be; who works with them takes them for it."""
    id_, topic, after, last, attempts, left_s, lost, why = lease
    numbers = (id_, after, last, attempts, *lost)
    return (
        all(type(each) is int and 0 <= each <= _U64_MAX for each in numbers)
        and type(topic) is bytes
        and type(left_s) in {int, float}
        and math.isfinite(left_s)
        and type(why) is str
    )
