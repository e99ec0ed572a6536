"""Turn topics of a base folder into records, in programs that are not its server.

Nothing is written, locked or repaired, and a server may work on the folder meanwhile. Strategy: a
segment without a lock file is closed, so its index, its data and its sums must agree, and what is
read is compared with the sums. Of a segment that is being written, or was when its writer was
killed, as much counts as index and data both hold, and each record is compared with its entry.
A segment that is deleted meanwhile ends early, as if there had been no more in it.
"""

import mmap
from bisect import bisect_right
from collections.abc import Iterator
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np

from poe.errors import CorruptRecord, OptionError, ReadFailed
from poe.record import (
    ENTRY_BYTES,
    POINTER_MAX,
    RECORD_HEADER_BYTES,
    SIZE_BYTES,
    are_sound,
    decode_entries,
    decode_header,
)
from poe.storage.failure import reading
from poe.storage.files import Files, FileSlice, OpenFile
from poe.storage.formats.record import Numbers, decode_entry
from poe.storage.real_files import RealFiles
from poe.storage.recovery.recovery import NO_STORE, open_maybe, stored_base
from poe.storage.segment.record_reader import RecordReader
from poe.storage.segment.verification import Verification
from poe.storage.store.property_file import PROPERTY_FILE, KnownTopics, read_known_topics
from poe.storage.store.removals import REMOVED_FILE, read_removals
from poe.storage.store.topic_folders import TOPICS_FOLDER, segment_file
from poe.topic_name import original_topic_of, topic_in, topic_of
from poe.topic_properties import TopicDescription

COUNT_MAX = 2**32 - 1
"""Stands for no limit of records, or of bytes."""
_CHUNK_BYTES = 4 << 20
_CHUNK_COUNT = 1 << 18


class StoredSegment(NamedTuple):
    """What a segment holds; `last` is less than `first` where that is nothing."""

    timestamp: int
    first: int
    last: int
    record_count: int
    size_bytes: int


class StoredRecords(NamedTuple):
    """Records side by side, oldest first: message i is `data[starts[i] + 11 : starts[i + 1]]`."""

    pointers: Numbers
    starts: Numbers
    """One more than records."""

    data: memoryview
    """Empty where only pointers were asked for; then all starts are 0."""

    ordinal: int
    """Of the first record."""


class SharedFolder:
    """The topics below one base folder; opens files only while it is asked for them.

    Any number of processes may read a folder. An object is for one thread.
    """

    __slots__ = ("_files", "_folders")

    def __init__(self, files: Files) -> None:
        self._files = files
        self._folders: dict[bytes, str] = {}

    @classmethod
    def at(cls, base: Path) -> "SharedFolder":
        """Open the base folder of a server.

        Raises:
            OptionError: it is none, or closed to this user.
        """
        allowed = f"a server's folder, with {TOPICS_FOLDER}/ in it"
        try:
            folder = cls(RealFiles.existing(base))
            folder._files.list_folder(TOPICS_FOLDER)
        except OSError as error:
            allowed += f" ({error.strerror or error})"
            raise OptionError("path", str(base), allowed) from error
        return folder

    def topics(self) -> list[bytes]:
        """Return the names of all topics, sorted.

        Raises:
            ReadFailed: the folder cannot be listed.
        """
        with reading(TOPICS_FOLDER):
            names = [
                name for name, is_folder in self._files.list_folder(TOPICS_FOLDER) if is_folder
            ]
        self._folders = {}
        for find in (original_topic_of, topic_of):  # where there are both, ours counts
            self._folders |= {topic: name for name in names if (topic := find(name)) is not None}
        return sorted(self._folders)

    def partitions(self, topic: bytes) -> tuple[bytes, ...]:
        """Return the topics that hold the partitions of a topic: those that its server has noted.

        Raises:
            ReadFailed: the notes cannot be read.
            FormatNotSupported: a newer version has written them.
        """
        found = self.known_topics().described.get(topic)
        return (topic,) if found is None else found.partition_topics()

    def holder(self, topic: bytes) -> TopicDescription | None:
        """Return the topic of which this one is a partition, as its server has noted.

        Raises:
            ReadFailed, FormatNotSupported: as `partitions`.
        """
        return self.known_topics().holder(topic)

    def known_topics(self) -> KnownTopics:
        """Return all that the server has noted of topics by now.

        Raises:
            ReadFailed, FormatNotSupported: as `partitions`.
        """
        with reading(PROPERTY_FILE):
            return read_known_topics(self._files)

    def segments(
        self, topic: bytes, after: int = 0, *, has_damaged: bool = False
    ) -> list[StoredSegment]:
        """Return what the segments of a topic hold, oldest first; none where the topic is unknown.

        Those that cannot hold anything behind the pointer `after` are not looked at, and told as
        if they held nothing. With `has_damaged`, one that is damaged is told as one message at its
        beginning: who reads it learns more.

        Raises:
            CorruptRecord: a closed segment is damaged, so far as can be seen without reading it.
            ReadFailed: a file cannot be read.
        """
        if topic not in self._folders and topic not in self.topics():
            return []
        folder = f"{TOPICS_FOLDER}/{self._folders[topic]}"
        with reading(folder):
            try:
                names = {entry.name for entry in self._files.list_folder(folder)}
            except FileNotFoundError:
                return []
        found = {segment_file(name) for name in names}
        timestamps = sorted(each[0] for each in found if each is not None and each[1] == "data")
        segments = []
        for timestamp, next_timestamp in pairwise([*timestamps, POINTER_MAX + 1]):
            # Every pointer of a segment is less than the timestamp of the next.
            if next_timestamp <= after + 1:
                segments.append(StoredSegment(timestamp, timestamp, timestamp - 1, 0, 0))
                continue
            path = f"{folder}/{timestamp}"
            is_open = f"{timestamp}_lock" in names
            with reading(path):
                try:
                    extent = self._extent(path, is_open=is_open)
                except CorruptRecord:
                    if not has_damaged:
                        raise
                    size_bytes = self._files.size(path + "_data") or 0
                    extent = timestamp, timestamp, 1, size_bytes
            if extent is not None:
                segments.append(StoredSegment(timestamp, *extent))
        return segments

    def removed(self, topic: bytes, pointer: int) -> tuple[tuple[tuple[int, int], ...], int]:
        """Return what was removed of a topic from a pointer on, which need not exist any more.

        Returns:
            The first and last pointer of what each segment held, oldest first; and the pointer up
            to which nobody knows all of it.

        Raises:
            ReadFailed: the notes cannot be read.
        """
        with reading(REMOVED_FILE):
            notes = read_removals(self._files)
            if notes is None:
                return (), POINTER_MAX
            extents = notes.extents(topic, pointer)
            if extents and (topic in self._folders or topic in self.topics()):
                # A note comes before the files go.
                folder = f"{TOPICS_FOLDER}/{self._folders[topic]}"
                sizes = (self._files.size(f"{folder}/{each.timestamp}_data") for each in extents)
                pairs = zip(extents, sizes, strict=True)
                extents = [each for each, size_bytes in pairs if size_bytes is None]
        return tuple((each.first, each.last) for each in extents), notes.unknown_high

    def span(  # noqa: PLR0913, PLR0917 - a segment, a range of it, and two limits
        self, topic: bytes, timestamp: int, after: int, last: int, limit: int, bytes_max: int
    ) -> FileSlice | None:
        """Return what a read of one segment would cover, by its index.

        Args:
            topic: name of the topic.
            timestamp: of the segment.
            after: pointers greater than it are read.
            last: the greatest pointer that is.
            limit: records at most.
            bytes_max: bytes at most, though one record is covered however large it is.

        Returns:
            None where nothing is covered, or the segment is gone.

        Raises:
            CorruptRecord, ReadFailed: as `segments`.
        """
        opened = self._open(topic, timestamp)
        return None if opened is None else opened.find(after, last, limit, bytes_max)

    def read(
        self, topic: bytes, timestamp: int, after: int, last: int, *, with_data: bool = True
    ) -> Iterator[StoredRecords]:
        """Yield the records of one segment behind the pointer `after`, up to `last`.

        Raises:
            CorruptRecord: the next ones are not what was written; its pointer tells from where to
                go on.
            ReadFailed: a file cannot be read.
        """
        opened = self._open(topic, timestamp)
        if opened is not None:
            yield from opened.read(after, last, with_data=with_data)

    def _open(self, topic: bytes, timestamp: int) -> "_OpenSegment | None":
        """Open a segment; None where it is gone, or empty."""
        if topic not in self._folders and topic not in self.topics():
            return None
        path = f"{TOPICS_FOLDER}/{self._folders[topic]}/{timestamp}"
        with reading(path):
            is_open = self._is_open(path)
            extent = self._extent(path, is_open=is_open)
            if not is_open and self._is_open(path):  # a server has just begun to write to it
                is_open, extent = True, self._extent(path, is_open=True)
            if extent is None or extent[2] == 0:
                return None
            try:
                base = self._base(topic, timestamp)
                return _OpenSegment(self._files, path, *extent[2:], base, is_open=is_open)
            except FileNotFoundError:
                return None  # deleted at this moment

    def _base(self, topic: bytes, timestamp: int) -> int:
        """Return the ordinal of the first record of a segment.

        Where nothing tells it, as in a folder of the original, it is counted from the segments
        before.
        """
        folder = f"{TOPICS_FOLDER}/{self._folders[topic]}"
        names = (segment_file(entry.name) for entry in self._files.list_folder(folder))
        found = (each[0] for each in names if each is not None and each[1] == "data")
        counted = 0
        for each in sorted((each for each in found if each <= timestamp), reverse=True):
            path = f"{folder}/{each}"
            if each < timestamp:
                counted += (self._files.size(path + "_index") or 0) // ENTRY_BYTES
            base = stored_base(self._files, path)
            if base is not None:
                return base + counted
        return counted

    def _is_open(self, path: str) -> bool:
        return self._files.size(path + "_lock") is not None

    def _extent(self, path: str, *, is_open: bool) -> tuple[int, int, int, int] | None:
        """Return first and last pointer, records and bytes of a segment; None where it is gone.

        Raises:
            CorruptRecord: it is closed, and index and data cannot be of the same records.
            OSError: as reported by the file layer.
        """
        index = open_maybe(self._files, path + "_index")
        # In this order: data is written before its entries, and deleted after them.
        index_bytes = 0 if index is None else index.size()
        size_bytes = self._files.size(path + "_data")
        if size_bytes is None:
            return None
        count, surplus_bytes = divmod(index_bytes, ENTRY_BYTES)
        if is_open and index is not None:
            data = self._files.open(path + "_data", "r")
            count, size_bytes = _common_extent(index, data, count, size_bytes)
        elif (surplus_bytes or (count == 0) != (size_bytes == 0)) and not self._is_open(path):
            if index is None and self._is_going(path):
                return None
            raise CorruptRecord(path + "_index", count * ENTRY_BYTES)
        timestamp = int(path.rpartition("/")[2])
        if index is None or count == 0:
            return timestamp, timestamp - 1, 0, 0
        first, first_offset = decode_entry(index.read_at(ENTRY_BYTES, 0))
        last, last_offset = decode_entry(index.read_at(ENTRY_BYTES, (count - 1) * ENTRY_BYTES))
        is_rising = timestamp <= first <= last and first_offset == 0 and last_offset < size_bytes
        if not is_rising:
            raise CorruptRecord(path + "_index", 0)
        return first, last, count, size_bytes

    def _is_going(self, path: str) -> bool:
        """Return whether a segment is being deleted: that is noted before its first file goes."""
        notes = read_removals(self._files)
        folder, timestamp = path.split("/")[-2:]
        topic = topic_in(folder)
        return notes is not None and topic is not None and notes.has(topic, int(timestamp))


def _common_extent(index: OpenFile, data: OpenFile, count: int, size_bytes: int) -> tuple[int, int]:
    """Return how many records both files hold, and the bytes of those."""

    def entry(number: int) -> tuple[int, int]:
        return decode_entry(index.read_at(ENTRY_BYTES, number * ENTRY_BYTES))

    # All records but the last end where the next begins; the last tells its size itself.
    room_bytes = size_bytes - RECORD_HEADER_BYTES
    count = bisect_right(range(count), room_bytes, key=lambda number: entry(number)[1])
    if count == 0:
        return 0, 0
    pointer, offset = entry(count - 1)
    size, found_pointer = decode_header(data.read_at(RECORD_HEADER_BYTES, offset))
    end = offset + SIZE_BYTES + size
    if found_pointer != pointer or end > size_bytes:
        return count - 1, offset
    return count, end


class _OpenSegment:
    """The files of one segment, open for reading."""

    __slots__ = ("_base", "_content", "_count", "_path", "_reader", "_size_bytes", "_verification")

    def __init__(  # noqa: PLR0913 - a segment, made only here
        self, files: Files, path: str, count: int, size_bytes: int, base: int, *, is_open: bool
    ) -> None:
        """Open them.

        Raises:
            OSError: as reported by the file layer.
        """
        self._path = path
        self._base = base
        self._count = count
        self._size_bytes = size_bytes
        self._reader = RecordReader.open(files, path, "r", count)
        has_sums = not is_open and files.size(path + "_sum") is not None
        self._verification = Verification(files, path, NO_STORE, is_once=True) if has_sums else None
        # A writer may have to cut its data off, and what is mapped behind the end of a file must
        # not be touched. So what it writes to is read.
        self._content: mmap.mmap | None = None
        if not is_open:
            self._content = self._reader.file.map(size_bytes)

    def find(self, after: int, last: int, count: int, bytes_max: int) -> FileSlice | None:
        """Find records, see `SharedFolder.span`."""
        extent = self._reader.extent_up_to(last, self._count, self._size_bytes)
        return self._reader.find(after, count, bytes_max, *extent)

    def read(self, after: int, last: int, *, with_data: bool) -> Iterator[StoredRecords]:
        """Yield records, see `SharedFolder.read`."""
        extent = self._reader.extent_up_to(last, self._count, self._size_bytes)
        chunk_bytes = _CHUNK_BYTES if with_data else COUNT_MAX
        find = self._reader.find
        if self._verification is not None:
            self._verification.open()
            if with_data:
                find = partial(self._verification.find, self._reader)
        while (found := find(after, _CHUNK_COUNT, chunk_bytes, *extent)) is not None:
            yield self._records(found, with_data=with_data)
            after = found.last_pointer

    def _records(self, found: FileSlice, *, with_data: bool) -> StoredRecords:
        offset, end = found.offset, found.offset + found.length
        entries = self._reader.index.entries(found.number, found.number + found.record_count)
        pointers, offsets = decode_entries(entries)
        starts = np.append(offsets, np.uint64(end)) - np.uint64(offset)
        ordinal = self._base + found.number
        if not with_data:
            return StoredRecords(pointers, np.zeros_like(starts), memoryview(b""), ordinal)
        with reading(self._path):
            if self._content is not None:
                data = memoryview(self._content)[offset:end]
            else:
                data = memoryview(found.read())
        if len(data) != found.length:
            raise ReadFailed(self._path, "it is shorter than it was")
        if self._verification is None:
            self._compare(pointers, starts, data, offset)
        return StoredRecords(pointers, starts, data, ordinal)

    def _compare(self, pointers: Numbers, starts: Numbers, data: memoryview, offset: int) -> None:
        """Compare entries with the headers of their records.

        Raises:
            CorruptRecord: one is not what its entry says.
        """
        is_sound = are_sound(pointers, starts, data)
        if not is_sound.all():
            number = int(is_sound.argmin())
            raise CorruptRecord(self._path + "_data", offset + int(starts[number]))
