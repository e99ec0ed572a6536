"""Turn what is stored into the partitions of a read; no files and no sockets here."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SegmentRange:
    """The messages of one segment from the pointer `first` to `last`, both of them included."""

    topic: str
    segment: int
    """Timestamp of the segment."""

    first: int
    last: int
    count: int
    bytes: int
