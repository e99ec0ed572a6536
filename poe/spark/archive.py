"""Archives topics by Spark: each sealed segment becomes Parquet, by a task of its own.

What is archived already is passed over, and a segment that cannot be read is told and keeps no
other from being archived. So whatever was interrupted, or has failed in part, is repeated as it is.
"""

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, closing
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.types import BinaryType, LongType, StructField, StructType, TimestampType

from poe.errors import DataLost, PoeError, StorageError, UnknownTopic
from poe.spark.archive_writer import write_segment
from poe.spark.arrow_batches import ArrowBatches, Place
from poe.spark.planning import SegmentRange
from poe.spark.segments import Segments
from poe.storage import Archive, ArchivedPlace, Manifest

_COLUMNS = StructType(
    [
        StructField("pointer", LongType(), nullable=False),
        StructField("timestamp", TimestampType(), nullable=False),
        StructField("message", BinaryType(), nullable=False),
        StructField("ordinal", LongType(), nullable=True),
    ]
)
"""Without the topic, whose name need not be text."""

OpenSegments = Callable[[], Segments]
"""Opens the place to archive from, in the driver and in executors; to be pickled."""

CountDue = Callable[[str, Sequence[SegmentRange]], int]
"""Tells of a topic and all its segments, oldest first, how many are to be archived."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a segment, or of a topic that could not be looked at."""

    topic: str
    segment: int = 0
    """Timestamp of the segment."""

    count: int = 0
    """Messages that were archived."""

    failure: str = ""
    """Empty where there was none."""


def due(
    segments: Sequence[SegmentRange],
    is_archived: Callable[[SegmentRange], bool],
    count: int | None = None,
) -> list[SegmentRange]:
    """Return which segments of a topic are to be archived.

    Args:
        segments: all of them, oldest first: the newest is the writer, or may be one again.
        is_archived: whether the archive has all of a segment.
        count: how many of the oldest it is the turn of; None: of all.
    """
    sealed = segments[:-1][:count]
    return [each for each in sealed if each.count and not is_archived(each)]


def archive_topics(
    open_segments: OpenSegments,
    topics: Iterable[str],
    to: Path,
    start_spark: Callable[[], AbstractContextManager[SparkSession]],
    count_due: CountDue | None = None,
) -> list[Outcome]:
    """Archive what is due of some topics; Spark starts only where something is.

    Args:
        open_segments: where they are.
        topics: their names, with surrogates in place of what is no text.
        to: the archive's folder; made when missing. Executors must see it under the same path.
        start_spark: returns the session to work with; its context ends with the work.
        count_due: tells the `count` of `due`; None: all that is sealed is archived. Of a topic that
            was deleted meanwhile nothing is due.

    Raises:
        OptionError: the folder cannot be written, or another archiver works on it.
        WriteFailed: the archive cannot be written.
        UnknownTopic: there is no such topic, of which all was to be archived.
    """
    archive = Archive.at(to)
    lock = archive.begin()
    found: list[tuple[SegmentRange, bool]] = []
    outcomes: list[Outcome] = []
    with closing(open_segments()) as source:
        for topic in topics:
            try:
                segments = source.segments(topic)
                count = None if count_due is None else count_due(topic, segments)
                new = due(segments, partial(_is_archived, archive), count)
                if new:
                    place = source.place(topic)
                    _note_place(archive, topic, place)
                    found += [(each, place.has_envelopes) for each in new]
            except UnknownTopic:
                if count_due is None:
                    raise
            except StorageError as error:
                outcomes.append(Outcome(topic, failure=str(error)))
    if found:
        task = partial(_archive_segment, open_segments, str(to.absolute()))
        with start_spark() as spark:
            outcomes += spark.sparkContext.parallelize(found, len(found)).map(task).collect()
    del lock
    return outcomes


def _note_place(archive: Archive, topic: str, place: Place) -> None:
    """Have the archive know, too, what it is a partition of, where anybody does."""
    if place.topic:
        told = ArchivedPlace(os.fsencode(place.topic), place.partition, place.has_envelopes)
        archive.note_place(os.fsencode(topic), told)


def _is_archived(archive: Archive, segment: SegmentRange) -> bool:
    manifest = _manifest(archive, segment)
    return manifest is not None and manifest.covers(segment.first, segment.last, segment.count)


def _manifest(archive: Archive, segment: SegmentRange) -> Manifest | None:
    """Return what the archive has of a segment; None where nobody can tell: it is made anew."""
    try:
        return archive.manifest(os.fsencode(segment.topic), segment.segment)
    except StorageError:
        return None


def _archive_segment(
    open_segments: OpenSegments, to: str, told: tuple[SegmentRange, bool]
) -> Outcome:
    """Archive one segment, which is told with whether it has envelopes; runs in an executor."""
    segment, envelope = told
    topic, timestamp = segment.topic, segment.segment
    try:
        archive = Archive.existing(Path(to))
        before = _manifest(archive, segment)
        if before is not None and before.reaches_into(segment.first, segment.last):
            # The store may have lost what the archive has: that is kept as it is.
            segment = replace(segment, first=before.last + 1)
        else:
            before = None
        batches, place = _whole(open_segments(), segment), (os.fsencode(topic), timestamp)
        manifest = write_segment(archive, *place, batches, envelope=envelope, before=before)
    except (PoeError, OSError, pa.ArrowException) as error:
        return Outcome(topic, timestamp, failure=f"{type(error).__name__}: {error}")
    return Outcome(topic, timestamp, manifest.count - (0 if before is None else before.count))


def _whole(source: Segments, segment: SegmentRange) -> Iterator[pa.RecordBatch]:
    """Yield all messages of a segment.

    Raises:
        DataLost: some are gone; nothing is archived then.
    """
    reached = segment.first - 1
    with closing(source):
        for last, batch in source.batches(segment, ArrowBatches(_COLUMNS)):
            reached = last
            yield batch
    if reached < segment.last:
        raise DataLost(os.fsencode(segment.topic), reached + 1, segment.last)
