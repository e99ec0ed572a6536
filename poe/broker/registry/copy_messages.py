"""What a replica asks of the topic registry for its copy of a topic, and is told by it."""

from dataclasses import dataclass
from typing import Final, NamedTuple, TypeAlias

from poe.actors import ActorRef
from poe.topic_properties import TopicDescription


class InstallTopic(NamedTuple):
    """Have a replicated topic be as its nodes have agreed; answer its description."""

    description: TopicDescription
    is_dry: bool = False
    """Whether it is only to be refused where it could not be so: nodes have yet to agree."""


class EnsureCopy(NamedTuple):
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


class BeginSegment(NamedTuple):
    """Begin the next segment of a copy behind its last message; answer a `CopyWriter`.

    So do all nodes at the same message. One with nothing in it stays.
    """

    topic: bytes


class TrimCopy(NamedTuple):
    """Do what `Trim` does, to a copy; answer how many segments went."""

    topic: bytes
    pointer: int


class DropCopy(NamedTuple):
    """Delete all segments of a copy, which is to be made anew; answer None."""

    topic: bytes


CopyRequest: TypeAlias = EnsureCopy | BeginSegment | TrimCopy | DropCopy


class TrimDue(NamedTuple):
    """Cast to a replica: by its properties, its topic is to be trimmed up to this pointer."""

    pointer: int


CLOCKS: Final = "clocks"
"""Name of the actor that compares this node's clock with those of others."""


@dataclass(frozen=True, slots=True)
class CompareClocks:
    """Cast to who knows other nodes: find out how far this node's clock is ahead of theirs."""


@dataclass(frozen=True, slots=True)
class ClocksCompared:
    """Cast to the topic registry: how far the clock is ahead is known now, and was not before."""


class CopyFailed(NamedTuple):
    """Cast to a replica: the files of its topic have failed, or are damaged."""

    why: str
