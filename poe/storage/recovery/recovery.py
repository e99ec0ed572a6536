"""Turn the files of a segment, as its last writer left them, into a segment that can be trusted.

The data file is the truth about what is stored, the sums about what it should be; the index is
derived. Strategy, from cheap to thorough:

- no lock, and the last entries of index and sums fit the end of the data: closed cleanly, nothing
  is read but these and the first record.
- lock of a writer that died in this boot of the machine: what the kernel had is there, so the last
  entries are compared. Behind them, records are taken in up to the offset that the lock tells.
- lock from before a reboot: all is compared. Behind the last entry that fits, nothing can be
  trusted, and it is cut off; but what was durable before is damaged then, and stays.
- no lock, or an empty one, and sums that say nothing of a close, or less than a note of the
  segment's removal: ours, whose lock a power cut has taken; likewise. So is a lock whose content is
  no lock's: it was torn.
- likewise, and what was put before it is lost: all of it is cut off, unless some of it was durable.
- else (damage, the original has appended, a segment without sums): all is compared, what has no
  sums is taken in as far as it looks like records; behind sums, those that are in the index, too.

Files of another segment or topic, which somebody has put there, are never served, but go to
quarantine whole. What is cut off is kept there, too. Data that is not what was written is marked,
and kept where it is. Dying on the way is harmless: each step leads to the same bytes when done
again, and the lock goes last.
"""

import logging
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

from poe.errors import SegmentLocked
from poe.record import (
    ENTRY_BYTES,
    POINTER_BYTES,
    RECORD_HEADER_BYTES,
    SIZE_BYTES,
    decode_entries,
    decode_header,
)
from poe.storage.failure import reading, writing
from poe.storage.files import Files, Mode, OpenFile
from poe.storage.formats.hashed import FILE_HEADER_BYTES, FileHeader
from poe.storage.formats.receipt_file import cover, read_receipts, settle, trust
from poe.storage.formats.record import decode_entry
from poe.storage.formats.segment_lock import FoundLock, find_lock
from poe.storage.formats.store_meta import Kind
from poe.storage.formats.sum_file import (
    SUM_MAGIC,
    SUMS,
    Flag,
    FoundSum,
    SumState,
    closing_entry,
    seed_of,
)
from poe.storage.recovery.quarantine import keep_bytes, keep_file, keep_foreign
from poe.storage.recovery.segment_owner import owner_of
from poe.storage.recovery.survey import Survey, sums_of
from poe.storage.replacement import replace_file

NO_STORE = bytes(16)
"""The id of no store: of segments that stand alone."""

RecoveryMode: TypeAlias = Literal["point-in-time", "strict", "salvage"]

_COMPARED_COUNT = 16
"""After a crash of the process alone, so many of the last entries are compared."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Extent:
    """What a segment holds."""

    count: int
    size_bytes: int
    pointer_low: int
    """Pointer of the first record; 0 when there is none."""

    pointer_high: int
    """Pointer of the last record; 0 when there is none."""

    sums: SumState | None = None
    """None for a segment of another program, closed cleanly, that has no sums yet."""

    damage: tuple[str, ...] = ()
    """What was found to be lost or changed, and is not repaired by this."""

    base: int | None = None
    """Ordinal of the first record; None where nothing tells it."""

    lost_count: int = 0
    """Records that were there behind the last one, and durable; their ordinals stay theirs."""


def recover(  # noqa: PLR0913 - what is known of a segment from elsewhere
    files: Files,
    path: str,
    store_id: bytes = NO_STORE,
    *,
    mode: RecoveryMode = "point-in-time",
    is_thorough: bool = False,
    noted: Kind | None = None,
    is_after_power_cut: bool = False,
    before_pointer: int | None = None,
    base: int | None = None,
    removed_high: int = 0,
) -> Extent | None:
    """Make a segment trustworthy and unlocked; `path` is its path less `_data`.

    Args:
        files: the file layer.
        path: below the base folder.
        store_id: of the store that the segment belongs to.
        mode: see `SegmentOptions`.
        is_thorough: compare all data, however the segment was left.
        noted: what the store has noted of it last.
        is_after_power_cut: whether the store was not closed before the machine started anew.
        before_pointer: of the last message before the segment in its topic, 0 where there is none;
            None where nobody knows.
        base: ordinal of the first record, where the sums do not tell; None where nobody knows.
        removed_high: pointer of its last message when it was noted that it is removed; 0 where that
            was not, or it was closed since.

    Returns:
        What it holds, or None when there is no data file, or the files belong elsewhere; what else
        there was is put away then.

    Raises:
        SegmentLocked: a live program writes to it, or one out of sight may.
        FormatNotSupported: a newer version has written it.
        ReadFailed: a file cannot be opened or read.
        StorageFull: no room to repair.
        WriteFailed: repairing failed for another reason.
    """
    with reading(path):
        lock = find_lock(files, path + "_lock")
        data = open_maybe(files, path + "_data")
        index = open_maybe(files, path + "_index")
        sums = read_sums(files, path, store_id, base)
        owner = foreign_owner(path, sums, data)
        if noted is not None and sums.file is None and data is not None:
            _log.error("%s_sum is lost; it is made from the data as that is", path)
            is_thorough = True
        # Names go one by one in a power cut; who closes a segment leaves an index.
        is_left_open = is_after_power_cut or index is None
        is_left_open = is_left_open or files.size(path + "_lock_new") is not None
        if not is_after_power_cut:
            removed_high = 0  # somebody has put a copy there
        if _is_lock_torn(lock, sums, noted, removed_high, is_left_open=is_left_open):
            lock = FoundLock(None, is_ours=True)
        if data is not None and index is not None and lock is None and not (is_thorough or owner):
            extent = _closed(data, index, sums)
            if extent is not None:
                files.unlink(path + "_lock_new")
                return extent
    if lock is not None and lock.is_out_of_sight:
        raise _locked_out_of_sight(files, path)
    if lock is not None and not lock.is_ours:
        _log.warning("segment %s has the lock of a program that is gone, and is taken over", path)
    with writing(path):
        if owner:
            keep_foreign(files, path, owner)
            extent = None
        elif data is None:
            _put_away(files, path)
            extent = None
        else:
            recovery = _Recovery(files, path, lock, index, sums, store_id, mode, before_pointer)
            extent = recovery.run(is_thorough=is_thorough)
        files.unlink(path + "_lock")
        files.unlink(path + "_lock_new")
    return extent


def adopt(files: Files, path: str, store_id: bytes, base: int | None = None) -> SumState:
    """Make the sums of a closed segment that has none; `base` is the ordinal of its first record.

    Raises:
        ReadFailed: a file cannot be opened or read.
        StorageFull: no room for it.
        WriteFailed: another failure.
    """
    with reading(path):
        data = files.open(path + "_data", "r")
        index = files.open(path + "_index", "r")
        pointers, offsets = decode_entries(index.read_at(index.size(), 0))
        entries = [entry for entry, _ in sums_of(data, pointers, offsets, data.size())]
    last_pointer = entries[-1].last_pointer if entries else 0
    entries.append(closing_entry(data.size(), last_pointer, Flag.CLEAN | Flag.ADOPTED))
    content, chain = SUMS.encode(entries, seed_of(path, store_id))
    with writing(path + "_sum"):
        header = FileHeader.of_segment(path, store_id, base)
        replace_file(files, path + "_sum", header.encode(SUM_MAGIC) + content)
    return SumState(FILE_HEADER_BYTES + len(content), chain, entries[-1].flags)


@dataclass(frozen=True, slots=True)
class FoundSums:
    """What lies in a sum file."""

    file: OpenFile | None
    header: FileHeader
    """The one that it should have, with the base that it has or was told."""

    has_header: bool
    seed: int
    entries: list[FoundSum]


def read_sums(files: Files, path: str, store_id: bytes, base: int | None = None) -> FoundSums:
    """Read the sums of a segment; `base` is that of a header which does not tell it.

    Raises:
        FormatNotSupported: a newer version has written them.
        OSError: as reported by the file layer.
    """
    file = open_maybe(files, path + "_sum")
    content = b"" if file is None else file.read_at(file.size(), 0)
    header, has_header = FileHeader.of_segment(path, store_id).or_found(
        content, path + "_sum", SUM_MAGIC
    )
    if header.base is None:
        header = replace(header, base=base)
    seed = seed_of(path, header.store_id)
    entries = SUMS.decode(content[FILE_HEADER_BYTES:], seed)
    return FoundSums(file, header, has_header, seed, entries)


def stored_base(files: Files, path: str) -> int | None:
    """Return the ordinal of the first record of a segment, as its sums tell it; None: they do not.

    Raises:
        FormatNotSupported, OSError: as `read_sums`.
    """
    file = open_maybe(files, path + "_sum")
    if file is None:
        return None
    header = FileHeader.decode(file.read_at(FILE_HEADER_BYTES, 0), path + "_sum", SUM_MAGIC)
    return None if header is None else header.base


def foreign_owner(path: str, sums: FoundSums, data: OpenFile | None) -> str:
    """Return whose files a segment has, in words; empty where they are its own.

    Raises:
        FormatNotSupported: a newer version has written the sums.
        OSError: as reported by the file layer.
    """
    if data is None or sums.file is None:
        return ""
    return owner_of(path, sums.file, sums.entries, data)


def open_maybe(files: Files, path: str, mode: Mode = "r") -> OpenFile | None:
    """Open a file; None when there is none."""
    try:
        return files.open(path, mode)
    except FileNotFoundError:
        return None


def _is_lock_torn(
    lock: FoundLock | None,
    sums: FoundSums,
    noted: Kind | None,
    removed_high: int,
    *,
    is_left_open: bool,
) -> bool:
    """Return whether a power cut has taken the lock of a writer of ours, its name, or what it said.

    The lock of a new segment is not synced; of one that is opened again, it is. The end of the sums
    and the event of a close are written behind a sync, so with them the lock was not torn, but
    removed. `is_left_open` says that something else than the lock tells of a writer that never
    closed the segment; so does a removal that was noted, with more than was there at its close.
    """
    if sums.file is None or (lock is not None and lock.is_ours):
        return False
    last = next((each.entry for each in reversed(sums.entries) if each.is_chained), None)
    is_whole = last is not None and last.last_pointer >= removed_high
    flags = last.flags if last is not None and is_whole else 0
    # Recovery after a kill writes the end together with what it has found.
    if flags & Flag.CLEAN and (flags & Flag.EARLIER_SYNCED or noted is not Kind.CREATE):
        return False
    if noted is Kind.CREATE or removed_high:
        return True
    return noted is None and (lock is not None or is_left_open)


def _put_away(files: Files, path: str) -> None:
    """Move what is left of a segment without data out of the way."""
    _log.warning("segment %s has no data file; its other files are put away", path)
    for suffix in ("_index", "_sum", "_seq"):
        keep_file(files, path, suffix)


def _locked_out_of_sight(files: Files, path: str) -> SegmentLocked:
    owner = "a program that may run in another container, on another host or for another user"
    way_out = f"stop it, or if it has ended run `poe unlock --force {files.base}`"
    return SegmentLocked(f"{files.base}/{path}", owner, way_out)


def _closed(data: OpenFile, index: OpenFile, sums: FoundSums) -> Extent | None:
    """Return what a segment holds if it was closed cleanly, by the ends of its files."""
    data_size, index_size = data.size(), index.size()
    covered = _covered(data, index, data_size)
    is_exact = covered.size_bytes == data_size and covered.count * ENTRY_BYTES == index_size
    if not is_exact or sums.file is None:
        return replace(covered, base=sums.header.base) if is_exact else None
    if not sums.has_header or not sums.entries or not all(e.is_chained for e in sums.entries):
        return None
    last = sums.entries[-1].entry
    size_bytes = FILE_HEADER_BYTES + len(sums.entries) * SUMS.size_bytes
    is_clean = last.flags & Flag.CLEAN and sums.file.size() == size_bytes
    if not is_clean or (last.end, last.last_pointer) != (data_size, covered.pointer_high):
        return None
    state = SumState(size_bytes, sums.entries[-1].chain, last.flags)
    damage = tuple(
        f"bytes up to {each.entry.end} of the data are marked as changed"
        for each in sums.entries
        if each.entry.flags & Flag.CORRUPT
    )
    return replace(covered, sums=state, damage=damage, base=sums.header.base)


def _covered(data: OpenFile, index: OpenFile, end: int) -> Extent:
    """Return what the index covers of the data before `end`.

    Its first and its last whole entry must be true, else it covers nothing.
    """
    count = index.size() // ENTRY_BYTES
    if count:
        first = decode_entry(index.read_at(ENTRY_BYTES, 0))
        last = decode_entry(index.read_at(ENTRY_BYTES, (count - 1) * ENTRY_BYTES))
        first_end, last_end = _record_end(data, first), _record_end(data, last)
        # A torn entry may by chance name an earlier record; that has no room for `count` of them.
        has_room = last[1] >= (count - 1) * RECORD_HEADER_BYTES and last[0] >= first[0] + count - 1
        if first[1] == 0 and first_end and last_end and last_end <= end and has_room:
            return Extent(count, last_end, first[0], last[0])
    return Extent(0, 0, 0, 0)


def _record_end(data: OpenFile, entry: tuple[int, int]) -> int | None:
    """Return where the record of an entry ends; None when there is no such record."""
    pointer, offset = entry
    header = data.read_at(RECORD_HEADER_BYTES, offset)
    size, found_pointer = decode_header(header)
    if len(header) < RECORD_HEADER_BYTES or size < POINTER_BYTES or found_pointer != pointer:
        return None
    return offset + SIZE_BYTES + size


class _Recovery:
    """One thorough recovery of a segment that has a data file."""

    def __init__(  # noqa: PLR0913, PLR0917 - what was found, made only here
        self,
        files: Files,
        path: str,
        lock: FoundLock | None,
        index: OpenFile | None,
        sums: FoundSums,
        store_id: bytes,
        mode: RecoveryMode,
        before_pointer: int | None,
    ) -> None:
        self._before_pointer = before_pointer
        self._is_cut_off = False
        self._files = files
        self._path = path
        self._lock = lock
        self._index = index
        self._sums = sums
        self._mode = mode
        self._data = files.open(path + "_data", "r+")
        self._receipts = read_receipts(files, path, store_id)
        self._is_same_boot = lock is not None and lock.flushed_offset is not None
        self._is_rebooted = lock is not None and lock.is_ours and not self._is_same_boot

    def run(self, *, is_thorough: bool) -> Extent:
        """Find out what can be trusted, and make the files say so.

        Raises:
            OSError: as reported by the file layer.
        """
        survey = self._survey(0 if is_thorough else self._trusted_count())
        data, data_size = self._data, self._data.size()
        if survey.end < data_size:
            keep_bytes(self._files, self._path, data, survey.end, data_size)
            _log.warning("%d bytes are cut off %s_data", data_size - survey.end, self._path)
        # In any case: blocks may be reserved behind the end.
        data.truncate(survey.end)
        complete_index(
            self._files,
            self._path + "_index",
            self._index,
            survey.kept_count * ENTRY_BYTES,
            bytes(survey.index_bytes),
        )
        # As long as it is locked, a power cut is known to have torn what was not durable.
        data.sync()
        self._settle_receipts(survey)
        state = self._complete_sums(survey)
        self._files.open(self._path + "_sum", "r+").sync()
        self._files.sync_folder(self._path.rpartition("/")[0])
        for finding in survey.damage:
            _log.error("segment %s is damaged: %s", self._path, finding)
        pointer_low = 0
        if survey.count:
            first = self._files.open(self._path + "_index", "r").read_at(ENTRY_BYTES, 0)
            pointer_low, _ = decode_entry(first)
        damage = tuple(survey.damage)
        last_pointer = survey.last_pointer if survey.count else 0
        return Extent(
            survey.count,
            survey.end,
            pointer_low,
            last_pointer,
            state,
            damage,
            self._sums.header.base,
            max(survey.told_count - survey.count, 0),
        )

    def _survey(self, trusted_count: int) -> Survey:
        sums, size_bytes = self._sums, self._data.size()
        survey = Survey(self._data, self._index, size_bytes, sums.seed)
        cut_from = len(sums.entries)
        entries, reach = sums.entries, size_bytes
        if self._is_rebooted and self._mode != "salvage":
            cut_from = _synced_count(sums.entries)
            reach = min(reach, self._reach())
            self._is_cut_off = not cut_from and not self._is_continued()
            if self._is_cut_off:
                reach = 0
            behind = (n for n, each in enumerate(entries[cut_from:]) if each.entry.end > reach)
            entries = entries[: cut_from + next(behind, len(entries))]
        survey.walk(entries, trusted_count=trusted_count, cut_from=cut_from)
        end = min(self._adopted_end(survey), reach)
        # What the original has appended and closed is in the index; what it left locked may not be.
        is_closed = self._lock is None and self._mode != "salvage"
        survey.adopt(end, is_index_needed=is_closed and bool(sums.entries))
        is_promised = self._lock is None or self._is_same_boot
        if survey.end < end and is_promised:
            survey.damage.append(f"no valid record at offset {survey.end}, of {end} bytes")
        promised = self._lock.flushed_offset if self._lock is not None else None
        if promised is not None and promised > size_bytes:
            survey.damage.append(f"data ends at {size_bytes}, of {promised} bytes")
        return survey

    def _is_continued(self) -> bool:
        """Return whether the messages before the segment are there that it comes behind.

        Sums that do not tell, since their beginning never reached the disk, are of a segment that
        was never synced.
        """
        sums, before_pointer = self._sums, self._before_pointer
        if sums.file is None or before_pointer is None:
            return True
        if not sums.has_header or sums.header.after_pointer <= before_pointer:
            return sums.has_header
        _log.warning("%s is cut off: messages before it went with the power", self._path)
        return False

    def _synced_end(self) -> int | None:
        """Return what of the data was synced; None where the power was not cut."""
        if not self._is_rebooted:
            return None
        count = _synced_count(self._sums.entries)
        return self._sums.entries[count - 1].entry.end if count else 0

    def _reach(self) -> int:
        """Return up to where, after a power cut, no message can be there without its receipt."""
        if self._receipts is None:
            return self._data.size()
        return trust(self._receipts, self._data, None, self._synced_end()).reach

    def _settle_receipts(self, survey: Survey) -> None:
        """Make the receipts be those of the data that is left."""
        if self._receipts is not None:
            trusted = trust(self._receipts, self._data, survey.end, self._synced_end())
            if trusted.damaged_count:
                survey.damage.append(f"{trusted.damaged_count} receipts of puts are damaged")
            kept = trusted.receipts
            # What was put without a sequence, or by others, is durable by now.
            if survey.end != (kept[-1].end if kept else 0):
                kept.append(cover(survey.end))
            settle(self._files, self._path, self._receipts, kept)

    def _trusted_count(self) -> int:
        """Return how many entries at the beginning need not be compared now."""
        sums = self._sums
        if not self._is_same_boot or self._index is None:
            return 0
        if not all(each.is_chained for each in sums.entries):
            return 0
        count = sum(each.entry.record_count for each in sums.entries)
        if self._index.size() < count * ENTRY_BYTES:
            return 0
        return max(len(sums.entries) - _COMPARED_COUNT, 0)

    def _adopted_end(self, survey: Survey) -> int:
        """Return up to where records without sums may be taken in."""
        if survey.is_short and self._mode != "salvage":
            return survey.end
        if self._lock is not None and self._lock.flushed_offset is not None:
            return min(survey.size_bytes, max(self._lock.flushed_offset, survey.end))
        if self._is_rebooted and self._sums.file is not None and self._mode != "salvage":
            return survey.end
        return survey.size_bytes

    def _complete_sums(self, survey: Survey) -> SumState:
        """Make the sum file hold what stays, what is new, and an end."""
        path, sums = self._path + "_sum", self._sums
        entries = list(survey.entries)
        if entries or not survey.last_flags & Flag.CLEAN:
            flags = Flag.CLEAN | (Flag.EARLIER_SYNCED if self._is_rebooted else 0)
            entries.append(closing_entry(survey.end, survey.last_pointer, flags))
        content, chain = SUMS.encode(entries, survey.chain)
        kept_bytes = FILE_HEADER_BYTES + survey.kept_entries_count * SUMS.size_bytes
        is_whole = sums.has_header and survey.kept_entries_count == len(sums.entries)
        if self._is_cut_off or not is_whole:
            kept = b"" if sums.file is None else sums.file.read_at(kept_bytes, 0)
            _log.warning("%s is written anew", path)
            # What is put onto it from now on comes behind what is there.
            header = replace(sums.header, after_pointer=0) if self._is_cut_off else sums.header
            new = header.encode(SUM_MAGIC) + kept[FILE_HEADER_BYTES:] + content
            replace_file(self._files, path, new)
        else:
            file = self._files.open(path, "r+")
            if content:
                file.write_at(content, kept_bytes)
            file.truncate(kept_bytes + len(content))
        flags = entries[-1].flags if entries else survey.last_flags
        return SumState(kept_bytes + len(content), chain, flags)


def _synced_count(entries: list[FoundSum]) -> int:
    """Return how many entries at the beginning were durable, with their data."""
    counts = [
        number
        for number, each in enumerate(entries)
        if each.is_chained and each.entry.flags & Flag.EARLIER_SYNCED
    ]
    return counts[-1] if counts else 0


def complete_index(
    files: Files, path: str, index: OpenFile | None, kept_bytes: int, entries: bytes
) -> None:
    """Make the index file hold its first `kept_bytes`, then `entries`, then nothing; durably.

    Who finds a segment that was closed looks at no more than the ends of its index.

    Raises:
        OSError: as reported by the file layer.
    """
    if index is not None:
        found_bytes = index.size() - kept_bytes
        # No more than can be right: by mistake it may be larger than the memory.
        wanted_bytes = min(found_bytes - found_bytes % ENTRY_BYTES, len(entries))
        found = index.read_at(wanted_bytes, kept_bytes)
        if entries.startswith(found):
            file = files.open(path, "r+")
            if len(found) < len(entries):
                file.write_at(entries[len(found) :], kept_bytes + len(found))
            file.truncate(kept_bytes + len(entries))
            file.sync()
            return
    _log.warning("%s is written anew from the data", path)
    kept = index.read_at(kept_bytes, 0) if index is not None else b""
    replace_file(files, path, kept + entries)
