"""Reads a topic from its folder: its segments, their ordinals, and what of it is gone.

What is gone was removed, and is known to be, or it is lost, and noted as such.
"""

import contextlib
import logging
import os
from collections.abc import Iterable
from dataclasses import replace
from functools import partial
from itertools import pairwise

from poe.errors import StorageError
from poe.storage.failure import reading, writing
from poe.storage.files import Files, FolderEntry
from poe.storage.formats.store_meta import META_FILE, Event, Kind, StoreMeta
from poe.storage.segment.segment import Segment
from poe.storage.segment.segment_options import MESSAGE_LIMIT, SegmentOptions
from poe.storage.store.property_file import KnownTopics
from poe.storage.store.removals import Removals, RemovedExtent, base_of
from poe.storage.store.reserve import Reserve
from poe.storage.store.topic_folders import TOPICS_FOLDER, TopicFolders, segment_file
from poe.topic_name import topic_in
from poe.topic_properties import is_reserved

_log = logging.getLogger(__name__)


class TopicReader:
    """Reads topics from their folders; it holds no lock, and so may outlive its store."""

    __slots__ = (
        "_files",
        "_floor",
        "_folders",
        "_meta",
        "_options",
        "_options_by_topic",
        "_properties",
        "_removals",
        "_reserve",
    )

    def __init__(  # noqa: PLR0913, PLR0917 - parts of the store, which it must not refer to
        self,
        files: Files,
        folders: TopicFolders,
        options: SegmentOptions,
        meta: StoreMeta,
        reserve: Reserve,
        removals: Removals,
        properties: KnownTopics,
        floor: int,
    ) -> None:
        self._floor = floor
        self._properties = properties
        self._removals = removals
        self._files = files
        self._folders = folders
        self._options = options
        self._options_by_topic = options.by_topic()
        self._meta = meta
        self._reserve = reserve

    def read(self, topic: bytes, resting: Iterable[Event]) -> list[Segment]:
        """Recover the segments of a topic, oldest first.

        Those of which it is told that they rest, and that are not there, are noted as removed.

        Raises:
            StorageError: it cannot be read or repaired.
        """
        if not resting:  # else it was there at the start
            self._folders.sync()
        folder, options = self._folders.path_of(topic), self.options_of(topic)
        place = self._files, self._meta, folder, options
        segments = self._reserve.use(partial(recover_segments, *place, topic, self._removals))
        if segments:
            # Should the clock step back, it goes on behind what is gone: consumers have seen that,
            # of a segment, too, that a power cut has brought back shorter than it was.
            segments[-1].skip_to(max(self._removals.newest(topic) or 0, self._floor))
        there = {segment.timestamp for segment in segments}
        self._removals.settle(topic, there)
        for lost in resting:
            if lost.timestamp not in there:
                self._note_lost(topic, lost, segments)
        if segments:
            _keep_ordinals(self._removals, topic, segments, segments[-1].next_ordinal)
        else:
            # A kill came between a topic's folder and its first file.
            remove_folder(self._files, folder)
        return segments

    def _note_lost(self, topic: bytes, lost: Event, segments: list[Segment]) -> None:
        _log.error("segment %d of topic %r is gone with all its files", lost.timestamp, topic)
        now_us = 0
        with contextlib.suppress(OSError):
            now_us = self._files.modified_us(META_FILE) or 0
        # Of one that a server had left open, the start has seen the lock.
        note_lost(self._removals, lost, {topic: segments}, now_us, is_exact=True)

    def options_of(self, topic: bytes) -> SegmentOptions:
        """Return how the segments of a topic store messages."""
        options = self._options_by_topic.get(topic, self._options)
        if is_reserved(
            topic
        ):  # what they hold was admitted before, and is a part of their messages
            options = replace(options, message_max=MESSAGE_LIMIT)
        holder = self._properties.holder(topic)
        if holder is not None and holder.properties.is_replicated:
            # A majority has synced what is stored here, and agreed that it is to be.
            return replace(options, message_max=MESSAGE_LIMIT, ack="flushed")
        own = None if holder is None else holder.properties.ack
        return options if own in (None, options.ack) else replace(options, ack=own)


def note_lost(
    removals: Removals,
    lost: Event,
    topics: dict[bytes, list[Segment]],
    now_us: int,
    *,
    is_exact: bool,
) -> None:
    """Note that the files of a segment are gone, of which `lost` is the store's last event.

    `is_exact`: no server has died since, that may have put more onto it.
    """
    topic = topic_in(os.fsdecode(lost.topic))
    if topic is None:
        return
    first, last, count = lost.pointer_low, lost.pointer_high, lost.record_count
    segments = topics.get(topic, [])
    later = [each.timestamp for each in segments if each.timestamp > lost.timestamp]
    if lost.kind is not Kind.SEAL or not (is_exact or later):
        # It was written to, and nobody knows how much: as much as had room.
        first, last = lost.timestamp, max(min(later, default=now_us) - 1, lost.timestamp)
        count = last - first + 1
    if lost.kind is Kind.SEAL and lost.record_count:
        path = f"{TOPICS_FOLDER}/{os.fsdecode(lost.topic)}/{lost.timestamp}"
        for each in segments:
            each.come_behind((path, "all its files are gone"))
    is_newest = not later and lost.timestamp > removals.newest_maybe(topic)
    removals.note_lost(topic, [RemovedExtent(lost.timestamp, first, last)])
    if is_newest:
        bases = removals.bases(topic)
        behind = segments[-1].next_ordinal if segments else 0
        if lost.timestamp == bases.timestamp:
            behind = bases.ordinal
        ordinal = max(behind, bases.next_ordinal) + count
        _keep_ordinals(removals, topic, segments, ordinal)


def _keep_ordinals(removals: Removals, topic: bytes, segments: list[Segment], ordinal: int) -> None:
    """Have a topic go on with an ordinal, or a greater one, whatever its last messages were."""
    ordinal = max(ordinal, removals.next_ordinal(topic))
    bases = []
    if segments:
        segments[-1].skip_to(0, ordinal)
    if len(segments) > 1 and segments[-2].base + segments[-2].count != segments[-1].base:
        bases.append(base_of(segments[-1].timestamp, segments[-1].base))
    if not segments or segments[-1].has_gap_behind:
        bases.append(base_of(0, ordinal))
    if bases:
        removals.note_lost(topic, bases)
        with contextlib.suppress(StorageError):  # it is logged where it was not even written
            removals.sync()


def recover_segments(  # noqa: PLR0913, PLR0917 - a folder, and what is known of its topic
    files: Files,
    meta: StoreMeta,
    folder: str,
    options: SegmentOptions,
    topic: bytes,
    removals: Removals,
) -> list[Segment]:
    """Recover what the folder of a topic holds, oldest first.

    `removals` tell what of it may be gone, and where its ordinals begin.
    """
    bases, removed = removals.bases(topic), removals.highs(topic)
    found: dict[int, set[str]] = {}
    strays = []
    for name, is_folder in _entries_of(files, folder):
        found_file = segment_file(name)
        if found_file is None or is_folder:
            strays.append(name)
        elif found_file[1] in ("index_new", "sum_new", "seq_new"):
            with writing(folder):
                files.unlink(f"{folder}/{name}")
        else:
            found.setdefault(found_file[0], set()).add(found_file[1])
    if strays:
        _log.warning("%d names in %s are left alone, as %r", len(strays), folder, strays[0])
    segments: list[Segment] = []
    newest, newest_pointer = max(found, default=0), removals.newest_maybe(topic)
    for timestamp in sorted(found):
        base = bases.ordinal if timestamp == bases.timestamp else None
        if base is None and timestamp == newest and segments:
            # The others are told theirs by the one behind them.
            base = segments[-1].next_ordinal if segments[-1].base_maybe is not None else None
        place = files, folder, timestamp, options, meta
        segment = Segment.open(
            *place,
            is_locked=bool(found[timestamp] & {"lock", "lock_new"}),
            has_receipts="seq" in found[timestamp],
            before_pointer=newest_pointer,
            base=base,
            removed_high=removed.get(timestamp, 0),
        )
        if segment is None:
            continue
        if segments:
            segment.follow(segments[-1])
        segments.append(segment)
        newest_pointer = max(newest_pointer, segment.pointer_high or 0)
    if segments:
        _number(segments)
    return segments


def _entries_of(files: Files, folder: str) -> list[FolderEntry]:
    """Return what the folder of a topic holds: nothing, where somebody has taken it away."""
    with reading(folder):
        try:
            return files.list_folder(folder)
        except FileNotFoundError:
            if files.modified_us(TOPICS_FOLDER) is None:
                raise  # those of all topics are away, and may come back
            return []


def _number(segments: list[Segment]) -> None:
    """Tell segments their ordinals where nothing did, by those that are known.

    A segment whose sums are lost mostly has all its records, and the one behind it knows its own;
    more may be missing in front of it. Those of a folder of older programs begin at 0.
    """
    if all(segment.base_maybe is None for segment in segments):
        segments[0].begin_at(0)
    for segment, behind in reversed(list(pairwise(segments))):
        if segment.base_maybe is None and behind.base_maybe is not None:
            segment.begin_at(max(behind.base - segment.count - segment.lost_count, 0))
    for before, segment in pairwise(segments):
        if segment.base_maybe is None:
            segment.begin_at(before.next_ordinal)


def remove_folder(files: Files, folder: str) -> None:
    """Remove the folder of a topic that has no segment; files that are not ours keep it."""
    with contextlib.suppress(OSError):
        files.remove_folder(folder)
