"""Reads topics as a stream: offsets and partitions in the driver, messages in the executors.

An offset is {topic: pointer}: everything up to the pointer was read. A topic that is not in it is
read from its oldest message, or from where the query was told to begin, so topics that are made
later, and match, join in by themselves.
"""

import contextlib
import logging
from collections.abc import Iterator, Sequence
from difflib import get_close_matches

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

from poe.errors import DataLost, OptionError, PoeError, PropertyMismatch, UnknownTopic
from poe.spark.open_segments import open_segments
from poe.spark.planning import Limits, SegmentRange, admit, partitions, within
from poe.spark.range_reader import chosen_topics, read_ranges, report_lost
from poe.spark.read_options import ReadOptions
from poe.spark.segments import Segments
from poe.storage import POINTER_MAX

_log = logging.getLogger(__name__)

Offset = dict[str, int]
"""Sorted by topic, since Spark compares offsets as text."""


class RefusedStream(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Stands for a stream that cannot be: it raises the reason as soon as Spark asks something.

    A reader that cannot be made Spark tells as an error of its own (UnboundLocalError).
    """

    def __init__(self, reason: PoeError) -> None:
        self._reason = reason

    def initialOffset(self) -> Offset:  # noqa: N802 - Spark's name
        """Raise the reason."""
        raise self._reason

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        """Raise the reason."""
        raise self._reason

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """Raise the reason."""
        raise self._reason

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:  # noqa: ARG002, N802
        """Raise the reason."""
        raise self._reason

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:  # noqa: ARG002
        """Raise the reason."""
        raise self._reason

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:  # noqa: ARG002
        """Raise the reason."""
        raise self._reason


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans each micro-batch of one query; `read` needs nothing of what the others remember."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema
        self._opened: Segments | None = None
        self._is_available_now = False
        self._target: Offset | None = None
        self._is_to_look_for_missing = True
        self._newest: Offset = {}
        # Where nothing followed when last looked.
        self._caught_up: Offset = {}
        # By topic the last pointers of what was removed before the query began, or is told already.
        self._missed: dict[str, set[int]] = {}

    def __getstate__(self) -> dict[str, object]:
        """Leave out the connection, which is the driver's."""
        return {**self.__dict__, "_opened": None}

    def initialOffset(self) -> Offset:  # noqa: N802 - Spark's name
        """Return where a new query begins: behind `startingPointer`, or before the oldest message.

        Raises:
            PoeError: the folder or the server cannot be read.
        """
        if self._opened is None:
            # Of a new query, a server that is not there is an error at once; one that goes on from
            # its checkpoint has known it, and waits for it.
            self._open(is_known=False)
        self._take_aim()
        starting = self._options.starting_pointer
        offset = {}
        for topic in self._topics():
            stored = self._stored(topic, 0)
            if not stored:
                continue
            oldest, newest = stored[0].segment - 1, stored[-1].last
            offset[topic] = newest if starting == POINTER_MAX else max(starting, oldest)
            removed = self._segments().removed(topic, 0)
            self._missed[topic] = {last for _, last in removed.extents}
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
        """Have the query end at what is stored when Spark asks next.

        Only then it is known whether it is new, or goes on from a checkpoint.
        """
        self._is_available_now = True

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:  # noqa: N802 - Spark's name
        """Return up to where the next micro-batch reads; `start` where nothing has come.

        Raises:
            OptionError: a topic that was named never was, and that is a failure.
            DataLost: messages behind `start` were deleted, and that is a failure.
            PoeError: the folder or the server cannot be read.
        """
        self._look_for_missing(start)
        self._take_aim()
        backlogs = {}
        for topic in sorted({*filter(self._options.has_chosen, start), *self._topics()}):
            backlog = self._backlog(topic, start)
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
            after = self._after(topic, start)
            if after < last:
                segments.expect(topic, last)
                stored = self._stored(topic, after)
                self._check_kept(topic, start, last, stored)
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
        return self._opened or self._open(is_known=True)

    def _open(self, *, is_known: bool) -> Segments:
        """Begin to ask, and see what there is at all servers."""
        opened = open_segments(self._options, is_known=is_known)
        opened.look(self._options)
        self._opened = opened
        return opened

    def _take_aim(self) -> None:
        """Note what is stored now, where the query is to end there."""
        if self._is_available_now and self._target is None:
            stored = {topic: self._stored(topic, 0) for topic in self._topics()}
            self._target = {topic: ranges[-1].last for topic, ranges in stored.items() if ranges}

    def _look_for_missing(self, start: Offset) -> None:
        """Look, with the first batch, whether the topics that were named are there, or were once.

        Raises:
            OptionError: one never was, and that is a failure; else it is waited for, with a
                warning.
        """
        if not self._is_to_look_for_missing:
            return
        self._is_to_look_for_missing = False
        segments = self._segments()
        for topic in self._options.named_topics:
            if topic in start or segments.partitions(topic) != [topic]:
                continue
            if self._stored(topic, 0) or segments.removed(topic, 0).extents:
                continue
            if segments.place(topic).topic:  # it was made, and has no message yet
                continue
            default = "error" if self._is_available_now else "wait"
            if (self._options.missing_topics or default) == "wait":
                _log.warning("topic %r is not there yet; the stream waits for it", topic)
                continue
            nearest = get_close_matches(topic, segments.topics(), n=1)
            hint = "".join(f"; did you mean {each!r}?" for each in nearest)
            allowed = "a topic that is there, or missingTopics=wait to read it once it is" + hint
            raise OptionError("topic" if self._options.topic else "topics", topic, allowed)

    def _topics(self) -> list[str]:
        return chosen_topics(self._options, self._segments())

    def _stored(self, topic: str, after: int) -> list[SegmentRange]:
        """Return the segments of a topic; none where it does not exist, not yet or not any more.

        One that was made anew may have other partitions: then the names of those before are told to
        be none of it.
        """
        with contextlib.suppress(UnknownTopic, PropertyMismatch):
            return self._segments().segments(topic, after)
        return []

    def _after(self, topic: str, start: Offset) -> int:
        """Return behind which pointer a topic is read."""
        starting = self._options.starting_pointer
        # What comes later is newer than all that was there at the latest.
        return start.get(topic, 0 if starting == POINTER_MAX else starting)

    def _backlog(self, topic: str, start: Offset) -> list[SegmentRange]:
        """Return what of a topic is still to be read."""
        after = self._after(topic, start)
        last = POINTER_MAX if self._target is None else self._target.get(topic, 0)
        segments = self._segments()
        is_known = self._caught_up.get(topic) == after
        # All segments are listed where the query begins, and when there is news.
        has_news = not is_known or segments.follows(topic, after)
        stored = self._stored(topic, after) if has_news else []
        self._check_kept(topic, start, POINTER_MAX, stored)
        if after >= last or not stored:
            return []
        backlog = within(stored, after, last, segments.span)
        if not backlog:
            self._caught_up[topic] = after
        return backlog

    def _check_kept(
        self, topic: str, start: Offset, until: int, stored: Sequence[SegmentRange]
    ) -> None:
        """Make sure that nothing behind an offset was removed before it was read.

        A topic that the query has not begun to read is read from its oldest message on.

        Args:
            topic: its name.
            start: up to where each topic was read.
            until: what lies behind it is of no interest.
            stored: what is there behind that, as it was listed before this is called.
        """
        after = start.get(topic, 0)
        if after == 0:
            return
        removed = self._segments().removed(topic, after)
        missed = self._missed.setdefault(topic, set())
        lost = [
            (first, last)
            for first, last in removed.extents
            if after < last and first <= until and last not in missed
            and not (_holds(stored, max(first, after + 1)) and _holds(stored, last))
        ]  # fmt: skip
        if lost:
            missed |= {last for _, last in lost}
            report_lost(self._options, DataLost(topic.encode(), after + 1, min(lost[-1][1], until)))
        elif not removed.is_known_behind(after) and self._caught_up.get(topic) != after:
            # The oldest segment's timestamp tells up to where anything can have been.
            oldest = stored[0].segment if stored else None
            if oldest is None or oldest > after + 1:
                behind = None if oldest is None else oldest - 1
                lost_perhaps = DataLost(topic.encode(), after + 1, behind, is_certain=False)
                report_lost(self._options, lost_perhaps)


def _holds(stored: Sequence[SegmentRange], pointer: int) -> bool:
    """Return whether a pointer lies in something that is stored, or archived."""
    return any(each.first <= pointer <= each.last for each in stored)


def _sorted(offset: Offset) -> Offset:
    return dict(sorted(offset.items()))
