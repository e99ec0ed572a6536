"""Reads topics from the files in a server's folder; the server may run, and is not asked."""

import os
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa

from poe.errors import UnknownTopic
from poe.protocol import Removed, Span
from poe.spark.arrow_batches import ArrowBatches, Place
from poe.spark.planning import SegmentRange, names_of
from poe.spark.read_options import ReadOptions
from poe.storage import SharedFolder
from poe.topic_properties import is_reserved


class FolderSegments:
    """The topics of one folder, see `Segments`."""

    def __init__(self, path: str, *, has_damaged: bool = False) -> None:
        """Open a folder; `has_damaged` lists damaged segments, too: see `SharedFolder.segments`."""
        self._folder = SharedFolder.at(Path(path))
        self._has_damaged = has_damaged

    def look(self, options: ReadOptions) -> None:
        """Do nothing: a folder is one of one server."""

    def expect(self, topic: str, pointer: int) -> None:
        """Do nothing: what is not there is not waited for."""

    def topics(self) -> list[str]:
        """Return the names of all topics but the node's own, as a node tells them."""
        return names_of(each for each in self._folder.topics() if not is_reserved(each))

    def partitions(self, topic: str) -> list[str]:
        """Return the topics that hold the partitions of a topic."""
        return [os.fsdecode(each) for each in self._folder.partitions(os.fsencode(topic))]

    def place(self, topic: str) -> Place:
        """Return which partition of its topic this one is, and whether that has envelopes."""
        name = os.fsencode(topic)
        found = self._folder.holder(name)
        if found is None:
            return Place()
        number = found.partition_topics().index(name)
        return Place(number, found.properties.envelope, os.fsdecode(found.name))

    def segments(self, topic: str, after: int = 0) -> list[SegmentRange]:
        """Return the segments of a topic."""
        name = os.fsencode(topic)
        segments = self._folder.segments(name, after, has_damaged=self._has_damaged)
        if not segments:
            raise UnknownTopic(name)
        return [SegmentRange(topic, *each) for each in segments]

    def removed(self, topic: str, pointer: int) -> Removed:
        """Return what was removed of a topic from a pointer on."""
        return Removed(*self._folder.removed(os.fsencode(topic), pointer))

    def follows(self, topic: str, after: int) -> bool:
        """Return whether something is stored behind a pointer."""
        return any(each.last > after for each in self._folder.segments(os.fsencode(topic), after))

    def span(self, whole: SegmentRange, count: int, bytes_max: int) -> Span | None:
        """Return what so much of a range covers."""
        topic = os.fsencode(whole.topic)
        found = self._folder.span(
            topic, whole.segment, whole.first - 1, whole.last, count, bytes_max
        )
        if found is None:
            return None
        return Span(found.last_pointer, found.record_count, found.length)

    def batches(
        self, whole: SegmentRange, batches: ArrowBatches
    ) -> Iterator[tuple[int, pa.RecordBatch]]:
        """Yield a range in batches."""
        for records in self._folder.read(
            os.fsencode(whole.topic),
            whole.segment,
            whole.first - 1,
            whole.last,
            with_data=batches.has_messages,
        ):
            yield int(records.pointers[-1]), batches.batch(whole.topic, whole.segment, *records)

    def close(self) -> None:
        """Let go of nothing: files are open only while they are read."""
