"""What is asked of an appendix server, and its special answers.

Messages are named tuples: to define a frozen dataclass takes each start ten times as long. Those
without fields stay such, since an empty tuple is false, and equal to any other. Those of the hot
path are plain slotted dataclasses, which are made fastest, and nobody but the receiver ever sees
them.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final, NamedTuple

from poe.actors import ActorRef
from poe.errors import PoeError
from poe.storage import Messages, PutKey


class Answer(Enum):
    """Answers that are neither a pointer nor data."""

    MOVED = "sealed meanwhile: ask the topic registry for the writer, then try again"


MOVED: Final = Answer.MOVED


@dataclass(slots=True)
class Put:
    """Append a batch; answers the pointer of its last message, or MOVED: it is not stored."""

    messages: Messages
    put_id: PutKey | None = None
    """Of a sequenced put: what is stored already is answered as it was the first time."""


class AgreedBatch(NamedTuple):
    """A batch of a replicated topic, as all its nodes store it."""

    place: int
    """In the stream that they agree on."""
    time_us: int
    messages: Messages
    put_id: PutKey | None


class Applied(NamedTuple):
    """What became of batches that nodes have agreed on."""

    outcomes: list[int | PoeError]
    """Of the first ones: the pointer of the last message, or why all nodes refuse it."""
    is_full: bool
    """Whether the rest is for the next segment, at all nodes; else the disk did not take it."""


@dataclass(slots=True)
class Apply:
    """Store what nodes have agreed on, in order; answers `Applied`."""

    batches: Sequence[AgreedBatch]


@dataclass(slots=True)
class AppendRecords:
    """Store records of another copy as they are; answers the pointer of the last one."""

    entries: bytes
    data: bytes


class SetPlace(NamedTuple):
    """Note up to which place a copy goes that was fetched, and is durable; answers None."""

    place: int
    puts: tuple[tuple[PutKey, int], ...] = ()


class PassPlace(NamedTuple):
    """Note that a copy goes up to a place where nothing is to be stored; answers None."""

    place: int


@dataclass(frozen=True, slots=True)
class FindPuts:
    """Answer all puts of producers that the segment knows of, with their pointers."""


@dataclass(frozen=True, slots=True)
class FindPlace:
    """Answer up to which place of its stream a segment of a replicated topic goes; 0: unknown."""


@dataclass(slots=True)
class Get:
    """Find records behind a pointer; answers a `FileSlice` or None."""

    pointer: int
    limit: int
    bytes_max: int


@dataclass(frozen=True, slots=True)
class GetRange:
    """Find records behind a pointer up to `last`; answers an `IndexedSlice` or None."""

    pointer: int
    last: int
    limit: int
    bytes_max: int


@dataclass(frozen=True, slots=True)
class GetSpan(GetRange):
    """Tell what `GetRange` would find; answers a `FileSlice` or None."""


class Ordinal(NamedTuple):
    """Answer the ordinal of the first record behind a pointer; where none is, the next one."""

    pointer: int


class PointerAt(NamedTuple):
    """Answer the pointer of the record with an ordinal, or of the first; None behind the last."""

    ordinal: int


@dataclass(slots=True)
class Next:
    """Read the one message behind a pointer; answers (pointer, message) or None."""

    pointer: int


class FindLastPut(NamedTuple):
    """Answer the `LastPut` of a producer, None where there is none, or MOVED."""

    producer: bytes


@dataclass(frozen=True, slots=True)
class FindProducers:
    """Answer pairs of a topic's producers and their `LastPut`s, the one that put last first."""

    count: int


class WaitFor(NamedTuple):
    """Answer True once something follows `pointer`, False after `timeout_s`, or MOVED."""

    pointer: int
    timeout_s: float


@dataclass(frozen=True, slots=True)
class Seal:
    """Take no more puts from now on; answers the newest pointer, None when empty."""


@dataclass(frozen=True, slots=True)
class Unseal:
    """Take puts again, unless its disk has failed; only the newest segment of a topic may.

    Answers None.
    """


@dataclass(frozen=True, slots=True)
class Sync:
    """Make everything appended so far durable (fsync); answers None."""


@dataclass(frozen=True, slots=True)
class Finish:
    """Take no more puts, and answer None once nobody waits for the disk, nor would at the end.

    What is about to be deleted is not synced for its own sake.
    """


@dataclass(frozen=True, slots=True)
class Describe:
    """Answer a `SegmentInfo`; wakes nothing."""


@dataclass(frozen=True, slots=True)
class SegmentInfo:
    """What is known of a segment without touching its files."""

    path: str
    role: str
    """w writer, r reader, h hibernating reader."""
    count: int
    size_bytes: int
    pointer_low: int | None
    pointer_high: int | None
    base: int | None
    """Ordinal of the first record; None of a topic that rests."""


@dataclass(frozen=True, slots=True)
class CheckLimits:
    """Cast at a check interval to who was put onto since the last one.

    A writer at its limit casts `LimitReached` back.
    """


class Touched(NamedTuple):
    """Cast to the topic registry at the first put since `CheckLimits`."""

    writer: ActorRef


@dataclass(frozen=True, slots=True)
class ReleaseWaiting:
    """Cast when the node is about to stop: answer everybody who waits for news."""


class ReleaseFiles(NamedTuple):
    """Cast to all appendix servers: descriptors are needed.

    Those that were used lately let theirs go only if it is urgent.
    """

    is_urgent: bool


class CopyDamaged(NamedTuple):
    """Cast to the topic registry: of a replicated topic, what is here is not what was stored."""

    topic: bytes
    why: str


class LimitReached(NamedTuple):
    """Cast to the topic registry: this topic needs a new segment."""

    topic: bytes
    writer: ActorRef
    """Who said so; nothing happens when it is the writer no more."""
