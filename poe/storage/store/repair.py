"""Make the files of a stopped server agree again, as far as the data tells how.

An index, sums and events that are lost or wrong are made anew, a segment of an earlier version gets
its sums, and what a kill has left is recovered. Data that is not what was written stays as it is,
marked; what is no record at the end of a data file goes to quarantine.
"""

import os
from collections.abc import Iterator

from poe.storage.failure import reading
from poe.storage.files import Files
from poe.storage.formats.store_meta import StoreMeta
from poe.storage.segment.segment_files import SegmentFiles
from poe.storage.store.check import SegmentCheck, check_events, check_segments
from poe.storage.store.folder_watch import LOCK_FILE
from poe.storage.store.store import is_same_boot


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
        meta = StoreMeta(files, os.urandom(16), is_same_boot=is_same_boot(files))
    segments: set[tuple[bytes, int]] = set()
    ordinals: dict[bytes, int] = {}
    for found in check_segments(files):
        place = SegmentFiles(files, found.path, meta)
        segments.add((place.topic, place.timestamp))
        findings = found.damage + found.notes
        base = ordinals.pop(place.topic, None)
        if not findings:
            if found.base is not None:
                ordinals[place.topic] = found.base + found.count
            yield found
            continue
        repaired = _repaired(files, place, base)
        if repaired.base is not None and not repaired.damage:
            ordinals[place.topic] = repaired.base + repaired.count
        left = repaired.damage + repaired.notes
        repaired.notes += [f"repaired: {finding}" for finding in findings if finding not in left]
        yield repaired
    gone = list(check_events(files))
    meta.keep_only(segments)
    if gone:
        yield SegmentCheck("store.meta", notes=[f"forgotten: {finding}" for finding in gone])


def _repaired(files: Files, place: SegmentFiles, base: int | None) -> SegmentCheck:
    if place.is_being_removed():
        place.remove()
        return SegmentCheck(place.path)
    extent = place.recover("point-in-time", is_thorough=True, base=base)
    if extent is None:
        return SegmentCheck(place.path)
    if extent.sums is None:
        place.adopt(base)
    topic_folder = place.path.rpartition("/")[0]
    return next(each for each in check_segments(files, topic_folder) if each.path == place.path)
