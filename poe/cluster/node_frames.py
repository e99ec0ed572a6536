"""What nodes tell each other that is not of one queue: members, and which queues there are.

They travel as the frames of queues do, and are told from them by their kinds.

Wire: a msgpack array of the kind, a number, and
    64  members    entries of `MemberTable`
    65  records    of queues; whether it is an answer to such
    66  digest     a hash of the sender's directory of queues
"""

from collections.abc import Iterable
from typing import Any, Final, NamedTuple

import msgpack  # type: ignore[import-untyped]  # it ships no type hints

from poe.cluster.frames import take_flag, take_number, take_queue_record
from poe.cluster.members.table import Member, decode_members
from poe.cluster.queue_record import QueueRecord
from poe.errors import PoeError, RemoteProtocolError

NODE_KIND_MIN: Final = 64
RECORDS_MAX: Final = 1000
"""Of one frame."""
_MEMBERS, _RECORDS, _DIGEST = 64, 65, 66


class MembersTold(NamedTuple):
    """What the sender knows of members."""

    members: tuple[Member, ...]


class RecordsTold(NamedTuple):
    """What the sender knows of queues."""

    records: tuple[QueueRecord, ...]
    is_answer: bool
    """Whether it was asked for, and wants no answer itself."""


class DirectoryDigest(NamedTuple):
    """What the sender knows of queues, in short; who knows other things tells all of it."""

    digest: int


NodeFrame = MembersTold | RecordsTold | DirectoryDigest


def is_of_node(frame: bytes) -> bool:
    """Return whether a frame is one of this module, by its kind alone."""
    return len(frame) > 1 and frame[1] >= NODE_KIND_MIN


def is_of_members(frame: bytes) -> bool:
    """Return whether a frame tells of members, by its kind alone."""
    return len(frame) > 1 and frame[1] == _MEMBERS


def encode_members(members: Iterable[Member]) -> bytes:
    """Return entries of the table of members as a frame."""
    frame: bytes = msgpack.packb((_MEMBERS, [list(each) for each in members]))
    return frame


def encode_records(records: Iterable[QueueRecord], *, is_answer: bool) -> bytes:
    """Return records as a frame."""
    frame: bytes = msgpack.packb((_RECORDS, list(records), is_answer))
    return frame


def encode_digest(digest: int) -> bytes:
    """Return a hash of the directory as a frame."""
    frame: bytes = msgpack.packb((_DIGEST, digest))
    return frame


def decode(frame: bytes) -> NodeFrame:
    """Return what a peer has sent.

    Raises:
        RemoteProtocolError: it is no such frame.
    """
    try:
        value: Any = msgpack.unpackb(frame, use_list=False)
        match value:
            case (64, members):
                return _members(members)
            case (65, records, is_answer):
                if len(records) > RECORDS_MAX:
                    msg = f"{len(records)} records are too many; {RECORDS_MAX} are the most"
                    raise RemoteProtocolError(msg)
                return RecordsTold(tuple(map(take_queue_record, records)), take_flag(is_answer))
            case (66, digest):
                return DirectoryDigest(take_number(digest))
    except (PoeError, ValueError, TypeError, msgpack.UnpackException) as error:
        msg = f"a frame of a node cannot be read ({type(error).__name__}: {error})"
        raise RemoteProtocolError(msg[:200]) from error
    msg = "a frame of a node is of no known kind"
    raise RemoteProtocolError(msg)


def _members(value: Any) -> MembersTold:  # noqa: ANN401 - whatever came
    members = decode_members(value)
    if members is None:
        msg = "it holds no members"
        raise RemoteProtocolError(msg)
    return MembersTold(tuple(members))
