"""Reads topics as a stream: offsets and partitions in the driver, messages in the executors.

An offset is {topic: pointer}: everything up to the pointer was read. A topic that is not in it is
read from its oldest message, so topics that are made later, and match, join in by themselves.
"""

import contextlib
from collections.abc import Iterator, Sequence

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from poe.errors import DataLost, UnknownTopic
from poe.spark.planning import Limits, SegmentRange, admit, partitions, within
from poe.spark.range_reader import chosen_topics, read_ranges, report_lost
from poe.spark.read_options import ReadOptions
from poe.spark.segments import Segments, open_segments
from poe.storage import POINTER_MAX

Offset = dict[str, int]
"""Sorted by topic, since Spark compares offsets as text."""


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans each micro-batch of one query; `read` needs nothing of what the others remember."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema
        self._opened: Segments | None = None
        self._target: Offset | None = None
        self._newest: Offset = {}
        # Where nothing followed when last looked, so that what was deleted up to there was read.
        self._caught_up: Offset = {}

    def __getstate__(self) -> dict[str, object]:
        """Leave out the connection, which is the driver's."""
        return {**self.__dict__, "_opened": None}

    def initialOffset(self) -> Offset:  # noqa: N802 - Spark's name
        """Return where a new query begins: behind `startingPointer`, or before the oldest message.

        Raises:
            PoeError: the folder or the server cannot be read.
        """
        starting = self._options.starting_pointer
        offset = {}
        for topic in self._topics():
            stored = self._stored(topic, 0)
            if not stored:
                continue
            oldest, newest = stored[0].segment - 1, stored[-1].last
            offset[topic] = newest if starting == POINTER_MAX else max(starting, oldest)
        return offset

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        """Return one of the limits; `latestOffset` keeps both where two were given."""
        options = self._options
        if options.max_messages_per_trigger is not None:
            return ReadMaxRows(options.max_messages_per_trigger)
        if options.max_bytes_per_trigger is not None:
            return ReadMaxBytes(options.max_bytes_per_trigger)
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """Note what is stored now: the query ends there.

        Raises:
            PoeError: the folder or the server cannot be read.
        """
        stored = {topic: self._stored(topic, 0) for topic in self._topics()}
        self._target = {topic: ranges[-1].last for topic, ranges in stored.items() if ranges}

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:  # noqa: N802 - Spark's name
        """Return up to where the next micro-batch reads; `start` where nothing has come.

        Raises:
            DataLost: messages behind `start` were deleted, and that is a failure.
            PoeError: the folder or the server cannot be read.
        """
        backlogs = {}
        for topic in sorted({*filter(self._options.selects, start), *self._topics()}):
            backlog = self._backlog(topic, start.get(topic, 0))
            if backlog:
                backlogs[topic] = backlog
        newest = {topic: backlog[-1].last for topic, backlog in backlogs.items()}
        self._newest = _sorted({**start, **newest})
        if not backlogs:
            return start
        if isinstance(limit, ReadAllAvailable):
            return self._newest
        limits = Limits(
            self._options.max_messages_per_trigger or POINTER_MAX,
            self._options.max_bytes_per_trigger or POINTER_MAX,
        )
        return _sorted({**start, **admit(backlogs, limits, self._segments().span)})

    def reportLatestOffset(self) -> Offset:  # noqa: N802 - Spark's name
        """Return the newest pointers that were seen, for the progress of the query."""
        return self._newest

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        """Return what a micro-batch reads; each partition holds a tuple of ranges.

        Raises:
            DataLost: messages of it were deleted, and that is a failure.
            PoeError: the folder or the server cannot be read.
        """
        segments, options = self._segments(), self._options
        ranges: list[SegmentRange] = []
        for topic, last in end.items():
            after = start.get(topic, 0)
            if after < last:
                stored = self._stored(topic, after)
                self._check_kept(topic, after, stored)
                ranges += within(stored, after, last, segments.span)
        parts = partitions(
            ranges, segments.span, options.target_partition_bytes, options.min_partitions
        )
        return [InputPartition(part) for part in parts]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the messages of a partition."""
        return read_ranges(self._options, self._schema, partition.value)

    def stop(self) -> None:
        """Close the connection."""
        if self._opened is not None:
            self._opened.close()

    def _segments(self) -> Segments:
        if self._opened is None:
            self._opened = open_segments(self._options, is_known=False)
        return self._opened

    def _topics(self) -> list[str]:
        return chosen_topics(self._options, self._segments())

    def _stored(self, topic: str, after: int) -> list[SegmentRange]:
        """Return the segments of a topic; none where it does not exist, or not yet."""
        with contextlib.suppress(UnknownTopic):
            return self._segments().segments(topic, after)
        return []

    def _backlog(self, topic: str, after: int) -> list[SegmentRange]:
        """Return what of a topic is still to be read."""
        last = POINTER_MAX if self._target is None else self._target.get(topic, 0)
        segments = self._segments()
        is_known = self._caught_up.get(topic) == after
        # All segments are listed where the query begins, and when there is news.
        if is_known and not segments.follows(topic, after):
            return []
        stored = self._stored(topic, after)
        self._check_kept(topic, after, stored)
        if after >= last:
            return []
        backlog = within(stored, after, last, segments.span)
        if not backlog:
            self._caught_up[topic] = after
        return backlog

    def _check_kept(self, topic: str, after: int, stored: list[SegmentRange]) -> None:
        """Make sure that nothing behind a pointer was deleted before it was read.

        The oldest segment's timestamp tells up to where anything can have been; what of it was
        there, nobody knows any more.
        """
        oldest = stored[0].segment if stored else None
        is_kept = after == 0 or (oldest is not None and oldest <= after + 1)
        if not is_kept and self._caught_up.get(topic) != after:
            behind = None if oldest is None else oldest - 1
            report_lost(self._options, DataLost(topic.encode(), after + 1, behind))


def _sorted(offset: Offset) -> Offset:
    return dict(sorted(offset.items()))
