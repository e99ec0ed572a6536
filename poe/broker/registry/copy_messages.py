"""What a replica asks of the topic registry for its copy of a topic, and is told by it."""

from dataclasses import dataclass
from typing import TypeAlias

from poe.actors import ActorRef
from poe.topic_properties import TopicDescription


@dataclass(frozen=True, slots=True)
class InstallTopic:
    """Have a replicated topic be as its nodes have agreed; answer its description."""

    description: TopicDescription
    is_dry: bool = False
    """Whether it is only to be refused where it could not be so: nodes have yet to agree."""


@dataclass(frozen=True, slots=True)
class EnsureCopy:
    """Answer who writes the copy of a replicated topic's partition, and where that copy ends.

    `first_us` names its first segment where it has none; None: it is not made, and the answer may
    be None. The answer is a `CopyWriter`.
    """

    topic: bytes
    first_us: int | None = None
    base: int = 0
    """Ordinal of the first message of such a segment."""


@dataclass(frozen=True, slots=True)
class CopyWriter:
    """Who writes a copy, and where it ends."""

    ref: ActorRef
    last_pointer: int
    """Of its last message; one less than its first can have where there is none."""
    count: int
    """Messages in all of its segments."""

    timestamp: int
    """What names the segment that is written to."""

    segment_count: int
    """Messages in that."""

    base: int
    """Ordinal of the first of these: there were so many messages before it."""

    damage: str
    """What of the copy was found to be damaged; empty: nothing."""


@dataclass(frozen=True, slots=True)
class BeginSegment:
    """Begin the next segment of a copy behind its last message; answer a `CopyWriter`.

    So do all nodes at the same message. One with nothing in it stays.
    """

    topic: bytes


@dataclass(frozen=True, slots=True)
class TrimCopy:
    """Do what `Trim` does, to a copy; answer how many segments went."""

    topic: bytes
    pointer: int


@dataclass(frozen=True, slots=True)
class DropCopy:
    """Delete all segments of a copy, which is to be made anew; answer None."""

    topic: bytes


CopyRequest: TypeAlias = EnsureCopy | BeginSegment | TrimCopy | DropCopy


@dataclass(frozen=True, slots=True)
class TrimDue:
    """Cast to a replica: by its properties, its topic is to be trimmed up to this pointer."""

    pointer: int


@dataclass(frozen=True, slots=True)
class CopyFailed:
    """Cast to a replica: the files of its topic have failed, or are damaged."""

    why: str
