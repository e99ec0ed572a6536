"""Turn a base folder into a report of what its files hold and what is wrong with them.

Nothing is changed and nothing repaired: every record header, every index entry and every byte that
has a checksum is read and compared. What a writer that was killed has left behind (a lock, an
unfinished batch, a short index) is no damage, since the next start repairs it without loss; it is
told as a note. Damage is what a server that closed cleanly, or a kill, cannot have left.
"""

import contextlib
import os
from collections.abc import Iterator
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from poe.errors import OptionError, SegmentLocked, StorageError, StoreLocked
from poe.record import ENTRY_BYTES
from poe.storage.failure import reading
from poe.storage.files import Files, OpenFile
from poe.storage.formats.hashed import FILE_HEADER_BYTES, FileHeader
from poe.storage.formats.receipt_file import read_receipts
from poe.storage.formats.record import encode_entries
from poe.storage.formats.segment_lock import FoundLock, find_lock
from poe.storage.formats.store_meta import (
    META_FILE,
    META_MAGIC,
    Event,
    Kind,
    OpenState,
    decode_events,
    encode_event,
    is_tail_torn,
)
from poe.storage.formats.sum_file import SUMS, Flag
from poe.storage.real_files import RealFiles
from poe.storage.recovery.quarantine import QUARANTINE_FOLDER, foreign_folders, foreign_text
from poe.storage.recovery.recovery import NO_STORE, FoundSums, foreign_owner, open_maybe, read_sums
from poe.storage.recovery.scan import RecordPlaces, scan_records
from poe.storage.recovery.survey import Survey
from poe.storage.store.folder_watch import LOCK_FILE
from poe.storage.store.property_file import (
    PROPERTY_FILE,
    PROPERTY_MAGIC,
    damage_text,
    find_notes,
)
from poe.storage.store.removals import REMOVED_FILE, REMOVED_MAGIC, decode_notes
from poe.storage.store.store_lock import is_same_boot, locked_by
from poe.storage.store.topic_folders import TOPICS_FOLDER, segment_file
from poe.topic_name import topic_in


@dataclass(slots=True)
class SegmentCheck:
    """What was found in the files of one segment."""

    path: str
    """Below the base folder, less `_data`."""

    count: int = 0
    size_bytes: int = 0
    """Bytes of whole records."""

    pointer_low: int = 0
    pointer_high: int = 0
    """0 where there is no record."""

    base: int | None = None
    """Ordinal of the first record; None where its sums do not tell it."""

    damage: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


@contextlib.contextmanager
def stopped_store(base: Path, *, for_repair: bool = False) -> Iterator[Files]:
    """Open a base folder and keep servers away from it during the block.

    Raises:
        OptionError: it is no base folder, or cannot be opened, or not be written, for a repair.
        StoreLocked: a server runs on it.
    """
    # Looked for first: the file layer makes what is missing, and checking must not.
    if not (base / TOPICS_FOLDER).is_dir():
        raise OptionError(
            key="dir", value=str(base), allowed=f"a server's folder, with {TOPICS_FOLDER}/ in it"
        )
    try:
        files = RealFiles.at(base) if for_repair else RealFiles.existing(base)
    except OSError as error:
        allowed = f"a folder that this user may read ({error.strerror or error})"
        raise OptionError(key="dir", value=str(base), allowed=allowed) from error
    lock = None
    # The original leaves no such file, and then there is no server of ours to keep away.
    if files.size(LOCK_FILE) is not None:
        try:
            lock = files.lock(LOCK_FILE)
        except BlockingIOError as error:
            raise StoreLocked(files.base, locked_by(files)) from error
    yield files
    del lock


def check_events(files: Files) -> Iterator[str]:
    """Yield what is wrong with the events of the store, and what is gone of segments they know.

    That a power cut has torn the last ones is not wrong: the next start drops them.

    Raises:
        FormatNotSupported: a newer version has written them.
        ReadFailed: the file cannot be read.
    """
    content, header = _read_meta(files)
    if content and header is None:
        yield f"{META_FILE} is damaged; the next start makes it anew"
    if header is None:
        return
    size_bytes = FILE_HEADER_BYTES
    live: dict[tuple[bytes, int], Event] = {}
    for event in decode_events(content[FILE_HEADER_BYTES:], header.store_id):
        if event.kind is not Kind.REST:
            live[event.topic, event.timestamp] = event
        size_bytes += len(encode_event(event, header.store_id))
    if size_bytes < len(content) and not _is_after_power_cut(files):
        yield f"{META_FILE} is damaged from offset {size_bytes} on; the next start makes it anew"
    unread: set[bytes] = set()
    for (topic, timestamp), event in live.items():
        path = f"{TOPICS_FOLDER}/{os.fsdecode(topic)}/{timestamp}"
        if event.kind not in {Kind.CREATE, Kind.SEAL}:
            continue
        try:
            with reading(path):
                yield from _what_is_gone(files, path, event.record_count)
        except StorageError as error:  # as of a link in the place of the topic's folder
            if topic not in unread:
                yield str(error)
            unread.add(topic)


def _read(files: Files, name: str, magic: bytes) -> tuple[bytes | None, FileHeader | None]:
    """Return a file of the store, None where there is none, and what its header says."""
    with reading(name):
        file = open_maybe(files, name)
        content = None if file is None else file.read_at(file.size(), 0)
    return content, FileHeader.decode(content or b"", name, magic)


def _read_meta(files: Files) -> tuple[bytes, FileHeader | None]:
    """Return the events of the store, b"" where there are none, and what their header says."""
    content, header = _read(files, META_FILE, META_MAGIC)
    return content or b"", header


def _events(files: Files) -> list[Event]:
    """Return the events of the store, up to the first that is damaged."""
    content, header = _read_meta(files)
    if header is None:
        return []
    return list(decode_events(content[FILE_HEADER_BYTES:], header.store_id))


def _is_after_power_cut(files: Files) -> bool:
    """Return whether the store was not closed before the machine started anew."""
    content, header = _read_meta(files)
    if header is None:
        return False
    return not is_same_boot(files) and is_tail_torn(content, header.store_id)


def _last_start(files: Files) -> OpenState:
    """Return what the newest server has found when it began, or left."""
    opened = [OpenState.of(event) for event in _events(files) if event.kind is Kind.OPEN]
    return opened[-1] if opened else OpenState()


def _what_is_gone(files: Files, path: str, count: int) -> Iterator[str]:
    """Yield which files are gone of a segment that had so many records.

    Raises:
        OSError: as reported by the file layer.
    """
    if files.size(path + "_data") is None:
        yield f"segment {path} is gone, {count} messages when it was closed last"
    elif files.size(path + "_sum") is None and files.size(path + "_lock") is None:
        yield f"{path}_sum is lost; the next start makes it from the data, whatever that is"


def check_properties(files: Files) -> Iterator[str]:
    """Yield what is wrong with what topics have, but for an end that a kill or power cut has torn.

    That it is lost is known where it was there at the last start or stop, unless the power was cut.

    Raises:
        FormatNotSupported: a newer version has written it.
        ReadFailed: the file cannot be read.
    """
    content, header = _read(files, PROPERTY_FILE, PROPERTY_MAGIC)
    if content is None:
        if _last_start(files).has_properties and not _is_after_power_cut(files):
            yield f"{PROPERTY_FILE} is lost, and with it the properties of all topics"
    elif header is None:
        yield f"the header of {PROPERTY_FILE} is damaged; the next start makes it anew"
    elif not _is_after_power_cut(files):
        for hole in find_notes(content[FILE_HEADER_BYTES:], header.store_id).holes:
            yield damage_text(*hole)


def check_removals(files: Files) -> Iterator[str]:
    """Yield what is wrong with the notes of what was removed, but for an end that a power cut tore.

    Raises:
        FormatNotSupported: a newer version has written them.
        ReadFailed: the file cannot be read.
    """
    content, header = _read(files, REMOVED_FILE, REMOVED_MAGIC)
    store = _read_meta(files)[1]
    loss = "what was deleted before is not known any more"
    if content is None:
        if _last_start(files).has_notes:
            yield f"{REMOVED_FILE} is lost: {loss}"
    elif header is None or store is None or header.store_id != store.store_id:
        yield f"{REMOVED_FILE} is damaged, or of another store: {loss}"
    else:
        notes = decode_notes(content[FILE_HEADER_BYTES:], header.store_id)
        end = FILE_HEADER_BYTES + max((end for *_, end in notes), default=0)
        if end < len(content) and not _is_after_power_cut(files):
            yield f"{REMOVED_FILE} is damaged from offset {end} on: {loss}"


def check_foreign(files: Files) -> Iterator[str]:
    """Yield files that were found where they do not belong, and are in quarantine.

    Raises:
        ReadFailed: a folder cannot be listed.
    """
    with reading(QUARANTINE_FOLDER):
        for found in foreign_folders(files):
            yield f"{foreign_text(*found)}; put them where they belong, or remove them"


def check_segments(files: Files) -> Iterator[SegmentCheck]:
    """Check all segments of all topics, oldest first within a topic.

    Raises:
        SegmentLocked: a live program that is not a server of ours writes to one.
        ReadFailed: a folder cannot be listed.
    """
    with reading(TOPICS_FOLDER):
        topics = sorted(files.list_folder(TOPICS_FOLDER))
    going = _being_deleted(files)
    for name, is_folder in topics:
        if is_folder and topic_in(name) is not None:
            yield from _check_topic(files, f"{TOPICS_FOLDER}/{name}", going)


def _check_topic(files: Files, folder: str, going: AbstractSet[str]) -> Iterator[SegmentCheck]:
    with reading(folder):
        names = [entry.name for entry in files.list_folder(folder) if not entry.is_folder]
    files_found = filter(None, map(segment_file, names))
    # What was about to be put in place, and has no segment beside it, the next start removes.
    timestamps = {timestamp for timestamp, kind in files_found if not kind.endswith("_new")}
    pointer_before = 0
    for timestamp in sorted(timestamps):
        segment = check_segment(files, f"{folder}/{timestamp}", going)
        pointer_before = judge_begin(segment, pointer_before)
        yield segment


def check_segment(files: Files, path: str, going: AbstractSet[str] = frozenset()) -> SegmentCheck:
    """Check one segment by itself; `path` is less `_data`, `going` are those of which files may go.

    Raises:
        SegmentLocked: a live program that is not a server of ours writes to it.
    """
    segment = SegmentCheck(path)
    try:
        with reading(path):
            _check_files(files, segment, is_going=path in going)
    except SegmentLocked:
        raise
    except StorageError as error:
        segment.damage.append(str(error))
    return segment


def judge_begin(segment: SegmentCheck, pointer_before: int) -> int:
    """Note whether a segment begins behind those in front of it; return where they all end."""
    # What damaged data says of its pointers says nothing about the segments behind it.
    end = pointer_before if segment.damage else max(pointer_before, segment.pointer_high)
    if segment.count and segment.pointer_low <= pointer_before:
        segment.damage.append(f"begins at pointer {segment.pointer_low}, before the segment "
                              f"in front of it ends ({pointer_before})")  # fmt: skip
    return end


def _check_files(files: Files, segment: SegmentCheck, *, is_going: bool) -> None:
    """Compare data and index of one segment.

    Raises:
        OSError: a file cannot be read.
    """
    lock = find_lock(files, segment.path + "_lock")
    if lock is not None and lock.is_out_of_sight:
        segment.notes.append("has the lock of another program, which may run out of sight of here")
    elif lock is not None:
        segment.notes.append("was not closed; the next start recovers it")
    data = open_maybe(files, segment.path + "_data")
    index = open_maybe(files, segment.path + "_index")
    if is_going and (data is None or index is None):
        segment.notes.append("was being deleted; the next start goes on with it")
        return
    if data is None:
        told = segment.notes if lock is not None else segment.damage
        told.append("the data file is missing")
        return
    sums = read_sums(files, segment.path, NO_STORE)
    if owner := foreign_owner(segment.path, sums, data):
        segment.damage.append(
            f"its files are those of {owner}; the next start, or `poe check --repair`, moves them "
            f"to {QUARANTINE_FOLDER}/"
        )
        return
    size_bytes = data.size()
    if not size_bytes and index is None and sums.file is None and lock is None:
        segment.notes.append("was being made; the next start goes on with it")
        return
    places = scan_records(data, 0, size_bytes, 0)
    segment.count = len(places.pointers)
    segment.size_bytes = places.end
    segment.pointer_low = places.pointers[0] if places.pointers else 0
    segment.pointer_high = places.last_pointer
    _judge_end(segment, size_bytes, lock)
    _judge_index(segment, index, places, lock)
    if sums.file is None:
        segment.notes.append(
            "there are no checksums; it gets them when it is written to, or by `poe check --repair`"
        )
        return
    segment.base = sums.header.base
    if not sums.has_header:
        is_new = lock is not None and not size_bytes
        told = segment.notes if is_new else segment.damage
        told.append("the header of the sums is damaged, or of another segment")
    survey = Survey(data, index, size_bytes, sums.seed)
    survey.walk(sums.entries, trusted_count=0, cut_from=len(sums.entries))
    segment.damage += survey.damage
    if lock is None:
        _judge_last_sums(segment, sums)
    _judge_receipts(files, segment, sums, lock)


def _being_deleted(files: Files) -> set[str]:
    """Return the paths of the segments that a server was about to delete."""
    last = {(event.topic, event.timestamp): event.kind for event in _events(files)}
    return {
        f"{TOPICS_FOLDER}/{os.fsdecode(topic)}/{timestamp}"
        for (topic, timestamp), kind in last.items()
        if kind is Kind.TOMBSTONE
    }


def _judge_last_sums(segment: SegmentCheck, sums: FoundSums) -> None:
    """Note whether the sums of a closed segment end as a clean close leaves them."""
    assert sums.file is not None
    entries_bytes = sums.file.size() - FILE_HEADER_BYTES
    last = sums.entries[-1].entry if sums.entries else None
    if last is None or entries_bytes % SUMS.size_bytes or not last.flags & Flag.CLEAN:
        segment.damage.append("the sums are cut off")
    elif last.end < segment.size_bytes:
        segment.notes.append(
            f"{segment.size_bytes - last.end} bytes of another program have no checksums"
        )


def _judge_receipts(
    files: Files, segment: SegmentCheck, sums: FoundSums, lock: FoundLock | None
) -> None:
    """Note whether the receipts of sequenced puts are what was written; at the end a kill tears."""
    found = read_receipts(files, segment.path, NO_STORE)
    if found is None:
        return
    if not found.has_header:
        segment.damage.append("the header of the receipts is damaged, or of another segment")
    if found.damaged_count:
        segment.damage.append(f"{found.damaged_count} receipts of puts are damaged")
    covered_bytes = sums.entries[-1].entry.end if sums.entries else 0
    if lock is None and (found.torn_bytes or found.reach < covered_bytes):
        segment.damage.append("the receipts of puts are cut off")


def _judge_end(segment: SegmentCheck, size_bytes: int, lock: FoundLock | None) -> None:
    """Note whether the bytes behind the last record may be there."""
    surplus_bytes = size_bytes - segment.size_bytes
    promised_bytes = lock.flushed_offset if lock is not None else size_bytes
    if promised_bytes is not None and segment.size_bytes < promised_bytes:
        segment.damage.append(
            f"no valid record at offset {segment.size_bytes} of the data file; "
            f"{promised_bytes - segment.size_bytes} bytes behind it should be records"
        )
    elif surplus_bytes:
        segment.notes.append(f"{surplus_bytes} bytes of an unfinished batch")


def _judge_index(
    segment: SegmentCheck, index: OpenFile | None, places: RecordPlaces, lock: FoundLock | None
) -> None:
    """Note whether the index names exactly the records; after a kill it may be short."""
    if index is None:
        told = segment.notes if lock is not None else segment.damage
        told.append("the index file is missing; it can be made from the data")
        return
    expected = encode_entries(
        np.array(places.pointers, np.uint64), np.array(places.offsets, np.uint64)
    )
    found = index.read_at(min(index.size(), len(expected) + ENTRY_BYTES), 0)
    if found == expected:
        return
    if lock is not None and expected.startswith(found):
        segment.notes.append("the index is short; it will be completed")
        return
    pairs = zip(memoryview(found), memoryview(expected), strict=False)
    same_bytes = next(
        (at for at, (a, b) in enumerate(pairs) if a != b), min(len(found), len(expected))
    )
    segment.damage.append(
        f"the index disagrees with the data from record {same_bytes // ENTRY_BYTES} on"
    )
