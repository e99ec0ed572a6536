"""Make the files of a stopped server agree again, as far as the data tells how.

An index, sums and events that are lost or wrong are made anew, a segment of an earlier version gets
its sums, and what a kill has left is recovered. Data that is not what was written stays as it is,
marked; what is no record at the end of a data file goes to quarantine.
"""

import os
from collections.abc import Iterator
from collections.abc import Set as AbstractSet

from poe.storage.failure import reading
from poe.storage.files import Files
from poe.storage.formats.store_meta import META_FILE, Kind, StoreMeta
from poe.storage.segment.segment import Segment
from poe.storage.segment.segment_files import SegmentFiles
from poe.storage.segment.segment_options import SegmentOptions
from poe.storage.store.check import (
    SegmentCheck,
    check_events,
    check_segment,
    check_segments,
    judge_begin,
)
from poe.storage.store.folder_watch import LOCK_FILE
from poe.storage.store.removals import REMOVED_FILE, Removals, base_of
from poe.storage.store.store_lock import is_same_boot
from poe.storage.store.topic_folders import TOPICS_FOLDER
from poe.storage.store.topic_reader import note_lost, recover_segments
from poe.topic_name import topic_in


def repair_segments(files: Files) -> Iterator[SegmentCheck]:
    """Check and repair all segments, oldest first within a topic.

    Of a segment that had to be repaired, `notes` tell what was found and `damage` what stays.

    Raises:
        SegmentLocked: a live program that is not a server of ours writes to one.
        FormatNotSupported: a newer version has written the folder.
        ReadFailed: a file cannot be read.
        StorageFull: no room to repair.
        WriteFailed: repairing failed for another reason.
    """
    with reading(LOCK_FILE):
        is_this_boot = is_same_boot(files)
        meta = StoreMeta(files, os.urandom(16), is_same_boot=is_this_boot)
    meta.is_after_power_cut = not (meta.was_closed or is_this_boot)
    removals = Removals(files, meta.store_id, is_after_power_cut=meta.is_after_power_cut)
    with reading(REMOVED_FILE):
        if meta.opened.has_notes and files.size(REMOVED_FILE) is None:
            removals.is_whole = False  # they are lost: made anew, the start would take them for all
    segments: set[tuple[bytes, int]] = set()
    ordinals: dict[bytes, int] = {}
    newest: dict[bytes, int] = {}
    # As a check sees them, for which it does not count what damaged data says of its pointers.
    ends: dict[bytes, int] = {}
    for found in check_segments(files):
        place = SegmentFiles(files, found.path, meta)
        segments.add((place.topic, place.timestamp))
        findings = found.damage + found.notes
        base = ordinals.pop(place.topic, None)
        before = newest.get(place.topic, 0)
        if not findings:
            newest[place.topic] = max(before, found.pointer_high)
            ends[place.topic] = max(ends.get(place.topic, 0), found.pointer_high)
            if found.base is not None:
                ordinals[place.topic] = found.base + found.count
            yield found
            continue
        repaired, pointer_high = _repaired(files, place, base, removals, before)
        ends[place.topic] = judge_begin(repaired, ends.get(place.topic, 0))
        if files.size(place.path + "_data") is None:  # it was put away, and is gone as a start sees
            segments.remove((place.topic, place.timestamp))
        newest[place.topic] = max(before, pointer_high)
        if repaired.base is not None and not repaired.damage:
            ordinals[place.topic] = repaired.base + repaired.count
        left = repaired.damage + repaired.notes
        repaired.notes += [f"repaired: {finding}" for finding in findings if finding not in left]
        yield repaired
    with reading(TOPICS_FOLDER):  # what cannot be looked into, behind a link, is not forgotten
        for folder, timestamp in meta.live.keys() - segments:
            files.size(f"{TOPICS_FOLDER}/{os.fsdecode(folder)}/{timestamp}_data")
    told = [f"forgotten: {finding}" for finding in check_events(files)]
    removed = _note_gone(files, meta, removals, segments)
    removals.sync()
    meta.keep_only(segments, removed)
    if told:
        yield SegmentCheck("store.meta", notes=told)


def _note_gone(
    files: Files, meta: StoreMeta, removals: Removals, segments: AbstractSet[tuple[bytes, int]]
) -> set[tuple[bytes, int]]:
    """Note what is gone with all its files, as a start does; return what was noted before.

    Notes that are damaged or lost are left to the start, which knows that they do not tell all.
    """
    removed: set[tuple[bytes, int]] = set()
    if not removals.is_whole:
        return removed
    there: dict[bytes, list[Segment]] = {}
    now_us = files.modified_us(META_FILE) or 0
    for key, lost in sorted(meta.live.items(), key=lambda each: each[1].timestamp):
        folder = os.fsdecode(key[0])
        topic = topic_in(folder)
        if key in segments or lost.kind is Kind.TOMBSTONE or topic is None:
            continue
        if removals.has(topic, lost.timestamp):
            removed.add(key)
            continue
        if topic not in there:
            place = files, meta, f"{TOPICS_FOLDER}/{folder}", SegmentOptions(), topic
            is_there = any(each == key[0] for each, _ in segments)
            there[topic] = recover_segments(*place, removals) if is_there else []
        note_lost(removals, lost, there, now_us, is_exact=meta.was_closed)
    return removed


def _repaired(
    files: Files, place: SegmentFiles, base: int | None, removals: Removals, before_pointer: int
) -> tuple[SegmentCheck, int]:
    """Repair a segment; return what is left to be found, and the pointer of its last message."""
    topic = topic_in(place.path.split("/")[-2])
    assert topic is not None  # no other folder is checked
    if place.is_being_removed():
        place.remove()
        return SegmentCheck(place.path), 0
    extent = place.recover(
        "point-in-time",
        is_thorough=True,
        before_pointer=max(before_pointer, removals.newest_maybe(topic)),
        base=base,
        removed_high=removals.highs(topic).get(place.timestamp, 0),
    )
    if extent is None:
        return SegmentCheck(place.path), 0
    if extent.sums is None:
        place.adopt(base)
    if removals.is_whole and extent.base is not None and extent.lost_count:
        # Their ordinals stay theirs; where there is a segment behind it, that knows its own.
        next_ordinal = extent.base + extent.count + extent.lost_count
        removals.note_lost(topic, [base_of(0, next_ordinal)])
    return check_segment(files, place.path), extent.pointer_high
