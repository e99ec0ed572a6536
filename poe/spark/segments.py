"""What a read asks of the place where messages are: a server, its folder, or an archive."""

from collections.abc import Iterator
from typing import Protocol

import pyarrow as pa

from poe.protocol import Removed, Span
from poe.spark.arrow_batches import ArrowBatches, Place
from poe.spark.planning import SegmentRange
from poe.spark.read_options import ReadOptions


class Segments(Protocol):
    """Topics and their segments; an object is for one thread."""

    def look(self, options: ReadOptions) -> None:
        """Have a read that begins see all that is there, whichever of several servers has it.

        Raises:
            PoeError: none of them can be asked.
        """
        ...

    def expect(self, topic: str, pointer: int) -> None:
        """Take that a topic has a pointer, or had it: who does not know it yet is waited for."""
        ...

    def topics(self) -> list[str]:
        """Return the names of all topics, sorted; of those that are text."""
        ...

    def partitions(self, topic: str) -> list[str]:
        """Return the topics that hold the partitions of a topic; itself, where nobody knows."""
        ...

    def place(self, topic: str) -> Place:
        """Return which partition of its topic this one is, and whether that has envelopes."""
        ...

    def segments(self, topic: str, after: int = 0) -> list[SegmentRange]:
        """Return the segments of a topic, oldest first, also those that hold nothing.

        Those that hold nothing behind the pointer `after` may be told as if they held nothing.

        Raises:
            UnknownTopic: there is none of that name.
        """
        ...

    def removed(self, topic: str, pointer: int) -> Removed:
        """Return what was removed of a topic from a pointer on; the topic need not exist any more.

        What `segments` was told before is still there, or is told here.
        """
        ...

    def follows(self, topic: str, after: int) -> bool:
        """Tell, at little cost, whether something is stored behind the pointer `after`."""
        ...

    def span(self, whole: SegmentRange, count: int, bytes_max: int) -> Span | None:
        """Return what so many records and bytes at most of a range cover; one record always.

        None where nothing is left of the range.
        """
        ...

    def batches(
        self, whole: SegmentRange, batches: ArrowBatches
    ) -> Iterator[tuple[int, pa.RecordBatch]]:
        """Yield a range in batches, each with its last pointer; ends early where it is gone."""
        ...

    def close(self) -> None:
        """Let go of a connection; it may be used again."""
        ...
