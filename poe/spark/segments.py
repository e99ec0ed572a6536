"""Where messages are read from: a server, or the files in its folder; both look the same here."""

from collections.abc import Iterator
from typing import Protocol

import pyarrow as pa

from poe.protocol import Removed, Span
from poe.spark.arrow_batches import ArrowBatches
from poe.spark.broker_segments import BrokerSegments
from poe.spark.folder_segments import FolderSegments
from poe.spark.planning import SegmentRange
from poe.spark.read_options import ReadOptions


class Segments(Protocol):
    """Topics and their segments; an object is for one thread."""

    def topics(self) -> list[str]:
        """Return the names of all topics, sorted; of those that are text."""
        ...

    def segments(self, topic: str, after: int = 0) -> list[SegmentRange]:
        """Return the segments of a topic, oldest first, also those that hold nothing.

        Those that hold nothing behind the pointer `after` may be told as if they held nothing.

        Raises:
            UnknownTopic: there is none of that name.
        """
        ...

    def removed(self, topic: str, pointer: int) -> Removed:
        """Tell what was removed of a topic from a pointer on; the topic need not exist any more.

        What `segments` was told before is still there, or is told here.
        """
        ...

    def follows(self, topic: str, after: int) -> bool:
        """Tell, at little cost, whether something is stored behind the pointer `after`."""
        ...

    def span(self, whole: SegmentRange, count: int, bytes_max: int) -> Span | None:
        """Tell what so many records and bytes at most of a range cover; one record always.

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


def open_segments(options: ReadOptions, *, is_known: bool) -> Segments:
    """Return where to read from.

    Args:
        options: of the read.
        is_known: whether the place has been read from before; so that a server which is away is
            waited for, while one that never was there is an error at once.

    Raises:
        OptionError: the path is no server's folder.
        ReadFailed: there is no such archive.
    """
    stored: Segments | None = None
    if options.path is not None:
        stored = FolderSegments(options.path)
    elif options.archive is None or options.host is not None or options.port is not None:
        stored = BrokerSegments(
            options.host or "127.0.0.1",
            options.port or 5555,
            retry_timeout_s=options.retry_timeout,
            is_known=is_known,
        )
    if options.archive is not None:
        # It loads pandas by way of pyarrow.dataset: 0.2 s for each of the processes that Spark
        # starts to plan and to read, which most reads do not need.
        from poe.spark.archived_segments import ArchivedSegments  # noqa: PLC0415

        return ArchivedSegments(options.archive, stored)
    assert stored is not None
    return stored
