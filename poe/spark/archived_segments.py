"""Reads topics from an archive, alone or together with the store that is archived into it.

A segment may be archived and deleted at any moment. So what is stored is listed before what is
archived, and whoever does not find the rest of a range in one place looks into the other.
"""

import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq

from poe.errors import PoeError, PropertyMismatch, UnknownTopic
from poe.protocol import Removed, Span
from poe.record import RECORD_HEADER_BYTES
from poe.spark.archive_writer import SCHEMA
from poe.spark.arrow_batches import ArrowBatches, Place
from poe.spark.planning import SegmentRange, names_of
from poe.spark.read_options import ReadOptions
from poe.spark.segments import Segments
from poe.storage import POINTER_MAX, Archive, ArchivedFile, Manifest, RowGroup
from poe.storage.archive import topic_folder
from poe.storage.failure import reading


class ArchivedSegments:
    """The topics of an archive and, where there is one, of its store; see `Segments`.

    What a manifest covers is read from the archive, and what no manifest covers from the store.
    """

    def __init__(self, folder: str, stored: Segments | None = None) -> None:
        """Open an archive.

        Raises:
            ReadFailed: there is none, or it is closed to this user.
        """
        self._archive = Archive.existing(Path(folder))
        self._stored = stored
        self._looked_at: tuple[bytes, int] | None = None
        self._manifest_there: Manifest | None = None

    def look(self, options: ReadOptions) -> None:
        """Find out how far the topics of a read go, beside the archive."""
        if self._stored is not None:
            self._stored.look(options)

    def expect(self, topic: str, pointer: int) -> None:
        """Take that a topic has a pointer, or had it."""
        if self._stored is not None:
            self._stored.expect(topic, pointer)

    def topics(self) -> list[str]:
        """Return the names of all topics."""
        stored = [] if self._stored is None else self._stored.topics()
        return sorted({*stored, *names_of(self._archive.topics())})

    def partitions(self, topic: str) -> list[str]:
        """Return the topics that hold the partitions of a topic, or have held some of those."""
        name = os.fsencode(topic)
        archived = [os.fsdecode(each) for each in self._archive.partitions(name)]
        if self._stored is None:
            return archived
        stored = self._stored.partitions(topic)
        # One of the two that does not know the topic takes that for its own partition. A server is
        # asked for all its topics only where it could be so: a stream comes by at each look.
        if archived == [topic] and name not in self._archive.topics():
            return stored
        if stored == [topic] != archived and topic not in self._stored.topics():
            return archived
        return sorted({*archived, *stored})

    def place(self, topic: str) -> Place:
        """Return which partition of its topic this one is; of the store, whether it has envelopes.

        What is archived tells that itself: it may be of a topic that was made before this one.
        """
        stored = Place() if self._stored is None else self._stored.place(topic)
        # A topic that was deleted the archive alone knows.
        found = None if stored.topic else self._archive.place(os.fsencode(topic))
        if found is None:
            return stored
        return Place(found.partition, stored.has_envelopes, os.fsdecode(found.topic))

    def segments(self, topic: str, after: int = 0) -> list[SegmentRange]:
        """Return the segments of a topic; two parts of one that has grown since."""
        stored = []
        unknown: PoeError = UnknownTopic(os.fsencode(topic))
        if self._stored is not None:
            try:
                stored = self._stored.segments(topic, after)
            except (UnknownTopic, PropertyMismatch) as error:  # made anew, with other partitions
                unknown = error
        archived = dict(self._archive.manifests(os.fsencode(topic)))
        if not stored and not archived:
            raise unknown
        found = [_range_of(topic, *each) for each in archived.items()]
        found += not_archived(stored, archived)
        return sorted(found, key=lambda each: (each.segment, each.first))

    def removed(self, topic: str, pointer: int) -> Removed:
        """Return what was removed of the store from a pointer on; of the archive nobody knows."""
        if self._stored is None:
            return Removed((), POINTER_MAX)
        return self._stored.removed(topic, pointer)

    def follows(self, topic: str, after: int) -> bool:
        """Return whether something lies behind a pointer."""
        return any(each.last > after for each in self.segments(topic, after))

    def span(self, whole: SegmentRange, count: int, bytes_max: int) -> Span | None:
        """Return what so much of a range covers; of what is archived it is a row group or more."""
        found = span_of(self._groups(whole), count, bytes_max)
        if found is None and self._stored is not None:
            found = self._stored.span(whole, count, bytes_max)
        # It may have been moved in between.
        return found or span_of(self._groups(whole), count, bytes_max)

    def batches(
        self, whole: SegmentRange, batches: ArrowBatches
    ) -> Iterator[tuple[int, pa.RecordBatch]]:
        """Yield a range in batches."""
        reached = whole.first - 1
        for read in (self._archived_batches, self._stored_batches, self._archived_batches):
            if reached < whole.last:
                for reached, batch in read(replace(whole, first=reached + 1), batches):  # noqa: B020
                    yield reached, batch

    def close(self) -> None:
        """Let go of the store's connection."""
        if self._stored is not None:
            self._stored.close()

    def _stored_batches(
        self, whole: SegmentRange, batches: ArrowBatches
    ) -> Iterator[tuple[int, pa.RecordBatch]]:
        if self._stored is not None:
            yield from self._stored.batches(whole, batches)

    def _archived_batches(
        self, whole: SegmentRange, batches: ArrowBatches
    ) -> Iterator[tuple[int, pa.RecordBatch]]:
        paths = [path for path, file in self._files(whole) if _overlaps(file.groups, whole)]
        if not paths:
            return
        batches = self._as_put(whole, batches)
        columns = ["pointer", "ordinal"] + ["message"] * batches.has_messages
        pointer = ds.field("pointer")
        is_wanted = (pointer >= whole.first) & (pointer <= whole.last)
        with reading(paths[0]):
            # Statistics tell which row groups need not be read.
            scanned = ds.dataset(paths, SCHEMA, format="parquet").scanner(
                columns=columns, filter=is_wanted, use_threads=False
            )
            for found in scanned.to_batches():
                if found.num_rows:
                    pointers = found.column(0)
                    batch = batches.from_columns(whole.topic, whole.segment, *found.columns)
                    yield pointers[-1].as_py(), batch

    def _as_put(self, whole: SegmentRange, batches: ArrowBatches) -> ArrowBatches:
        """Return what makes batches of what is archived of a range, in envelopes or not."""
        manifest = self._manifest(whole)
        has_envelopes = None if manifest is None else manifest.envelope
        if has_envelopes is None:  # an older version has archived it
            place = self._archive.place(os.fsencode(whole.topic))
            has_envelopes = None if place is None else place.envelope
        return batches if has_envelopes is None else batches.with_envelopes(has_envelopes)

    def _files(self, whole: SegmentRange) -> list[tuple[str, ArchivedFile]]:
        """Return the files of a segment with their paths; none where it is not archived."""
        manifest = self._manifest(whole)
        if manifest is None:
            return []
        folder = f"{self._archive.files.base}/{topic_folder(os.fsencode(whole.topic))}"
        return [(f"{folder}/{file.path}", file) for file in manifest.files]

    def _manifest(self, whole: SegmentRange) -> Manifest | None:
        """Return what is archived of the segment of a range; None where it is not."""
        key = os.fsencode(whole.topic), whole.segment
        if key != self._looked_at or self._manifest_there is None:
            # A plan asks several times, one segment after the other.
            self._looked_at, self._manifest_there = key, self._archive.manifest(*key)
        return self._manifest_there

    def _groups(self, whole: SegmentRange) -> Iterator[RowGroup]:
        """Yield the row groups of a range; one that it cuts is looked into."""
        for path, file in self._files(whole):
            for number, group in enumerate(file.groups):
                if whole.first <= group.first and group.last <= whole.last:
                    yield group
                elif _overlaps([group], whole):
                    with reading(path):
                        found = pq.ParquetFile(path).read_row_group(number, columns=["pointer"])
                    yield from cut(group, found.column(0).to_numpy(), whole.first, whole.last)


def not_archived(
    stored: Iterable[SegmentRange], archived: Mapping[int, Manifest]
) -> Iterator[SegmentRange]:
    """Yield what of some segments no manifest covers.

    Args:
        stored: segments of one topic.
        archived: manifests of the topic, by the timestamps of their segments.
    """
    for each in stored:
        manifest = archived.get(each.segment)
        if manifest is None:
            yield each
        elif each.last > manifest.last:
            # A power cut may take a new segment away, and then the one before it goes on.
            yield replace(
                each,
                first=manifest.last + 1,
                count=max(each.count - manifest.count, 1),
                bytes=max(each.bytes - _record_bytes(manifest), 1),
            )


def span_of(groups: Iterable[RowGroup], count: int, bytes_max: int) -> Span | None:
    """Sum up the first row groups that hold so much at most; one always, None of none."""
    found = None
    for group in groups:
        before = found or Span(0, 0, 0)
        both_count = before.record_count + group.count
        both_bytes = before.size_bytes + _record_bytes(group)
        if found is not None and (both_count > count or both_bytes > bytes_max):
            break
        found = Span(group.last, both_count, both_bytes)
    return found


def cut(
    group: RowGroup, pointers: npt.NDArray[np.int64], first: int, last: int
) -> Iterator[RowGroup]:
    """Yield what a row group of these pointers has of a range, if there is something."""
    start, end = np.searchsorted(pointers, [first, last + 1])
    if start < end:
        count = int(end - start)
        size_bytes = group.size_bytes * count // group.count
        yield RowGroup(int(pointers[start]), int(pointers[end - 1]), count, size_bytes)


def _range_of(topic: str, timestamp: int, manifest: Manifest) -> SegmentRange:
    extent = manifest.first, manifest.last, manifest.count, _record_bytes(manifest)
    return SegmentRange(topic, timestamp, *extent)


def _record_bytes(archived: Manifest | RowGroup) -> int:
    """Return the bytes of messages as records, as others count them."""
    return archived.size_bytes + RECORD_HEADER_BYTES * archived.count


def _overlaps(groups: Iterable[RowGroup], whole: SegmentRange) -> bool:
    return any(each.first <= whole.last and each.last >= whole.first for each in groups)
