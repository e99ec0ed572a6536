"""What was removed of topics: which messages were there once, in one file beside the topics.

Whoever reads on behind a pointer learns from it whether something was deleted that he has not read.
It is written and synced before the files of a segment go, so that no removal is forgotten, whatever
happens; a note whose files are still there counts for nothing.

Of each topic the newest segments that were removed are known one by one. Of older ones it is only
known between which pointers they lay, so that a topic takes 768 bytes at most. What was removed
before the store began to take notes nobody knows: `unknown_high` is the greatest pointer of that.

What is gone keeps its ordinals, too: a note also tells at which one the newest segment that is left
begins, should its own files lose that, or the next new one. Such a base looks like an extent with
the first pointer 0, which is that of no message.

Layout: the header of `hashed.py` with magic "poe-gone", timestamp 0 and the id of the store; then
notes (big endian):
    size        u16    of the name of the topic; 0: what follows is `unknown_high`, as `last`
    count       u16    of segments
    topic       bytes
    segments    u64 ×3 for each: timestamp, first and last pointer; timestamp 0 stands for several.
                A base: timestamp, 0, and the ordinal of the first record of that segment; with
                timestamp 0 the ordinal that the next new segment begins at, or a greater one
    hash        u64    of the bytes before and of the store id
"""

import logging
import struct
from collections.abc import Container, Iterable, Iterator
from typing import Final, NamedTuple

from poe.errors import StorageError
from poe.record import POINTER_MAX
from poe.storage.failure import writing
from poe.storage.files import Files
from poe.storage.formats.hashed import FILE_HEADER_BYTES, HASH_BYTES, FileHeader, seal, unseal
from poe.storage.formats.store_meta import notes_removals
from poe.storage.replacement import append_whole, replace_file

REMOVED_FILE: Final = "store.removed"
REMOVED_MAGIC: Final = b"poe-gone"
EXTENTS_MAX: Final = 32
"""Of a topic; where there are more, the oldest two become one."""
GONE_TOPICS_MAX: Final = 10_000
"""Topics without a segment that are known; of the others `unknown_high` tells."""

_HEAD = struct.Struct(">HH")
_EXTENT = struct.Struct(">QQQ")
_NOTE_COUNT_MAX = 0xFFFF
"""Segments that one note can tell of."""
_COMPACT_BYTES_MIN = 64 * 1024

_log = logging.getLogger(__name__)


class RemovedExtent(NamedTuple):
    """Messages of a segment that was removed, or of several."""

    timestamp: int
    """Of the segment; 0 where it stands for several."""

    first: int
    last: int

    @property
    def is_base(self) -> bool:
        """Whether it is a base, and `last` an ordinal."""
        return not self.first


def base_of(timestamp: int, ordinal: int) -> RemovedExtent:
    """Return the note of what the ordinals of a segment begin at; 0 stands for the next new one."""
    return RemovedExtent(timestamp, 0, ordinal)


class Bases(NamedTuple):
    """Where ordinals of a topic begin, by notes."""

    next_ordinal: int = 0
    """Of the next new segment, or a greater one."""

    timestamp: int = 0
    """Of a segment that others were removed or lost in front of."""

    ordinal: int = 0
    """Of its first record."""

    def extents(self) -> list[RemovedExtent]:
        """Return them as notes tell them."""
        return [base_of(0, self.next_ordinal), base_of(self.timestamp, self.ordinal)]


def encode_note(topic: bytes, extents: bytes, store_id: bytes) -> bytes:
    """Encode a note; the extents come encoded."""
    head = _HEAD.pack(len(topic), len(extents) // _EXTENT.size)
    return seal(head + topic + extents, store_id)


def decode_notes(content: bytes, store_id: bytes) -> Iterator[tuple[bytes, bytes, int]]:
    """Decode notes up to the first that is damaged: topic, extents, and where the note ends."""
    at = 0
    for piece in unseal(content, store_id, _HEAD, _note_bytes):
        extents_at = _HEAD.size + _HEAD.unpack_from(piece)[0]
        at += len(piece) + HASH_BYTES
        yield piece[_HEAD.size : extents_at], piece[extents_at:], at


def _note_bytes(head: tuple[int, int]) -> int:
    topic_bytes, count = head
    return _HEAD.size + topic_bytes + count * _EXTENT.size


class RemovalNotes:
    """Notes as they were read, or are known; holds no file.

    Always: extents of a topic are sorted, `EXTENTS_MAX` at most; none of them is a base.
    """

    __slots__ = ("bases", "topics", "unknown_high")

    def __init__(self) -> None:
        self.bases: dict[bytes, bytes] = {}
        """Encoded `Bases`."""
        self.topics: dict[bytes, bytes] = {}
        """Encoded extents: of 100 000 topics, objects would take gigabytes."""
        self.unknown_high = 0
        """What was removed up to this pointer nobody knows, but for what is noted."""

    def take(self, topic: bytes, extents: bytes) -> None:
        """Add the extents of a note."""
        if topic:
            removed = self._take_bases(topic, extents)
            if removed:
                # As the newest, since those that were noted last are kept the longest.
                known = self.topics.pop(topic, b"")
                self.topics[topic] = _merged(known, removed) if known else removed
        else:
            unknown = _EXTENT.unpack_from(extents)[2] if extents else 0
            self.lift_unknown(unknown)

    def _take_bases(self, topic: bytes, extents: bytes) -> bytes:
        """Add the bases among the extents of a note; return the others."""
        told = list(map(RemovedExtent._make, _EXTENT.iter_unpack(extents)))
        bases = [each for each in told if each.is_base]
        for base in bases:
            self.note_base(topic, base.timestamp, base.last)
        if not bases:
            return extents
        return b"".join(_packed(each) for each in told if not each.is_base)

    def note_base(self, topic: bytes, timestamp: int, ordinal: int) -> None:
        """Add a base; of those of no segment, the greatest ordinal counts.

        One that no topic can reach, having more messages than there are pointers, is left out.
        """
        if ordinal > POINTER_MAX:
            return
        known = self.bases_of(topic)
        if timestamp:
            known = known._replace(timestamp=timestamp, ordinal=ordinal)
        else:
            known = known._replace(next_ordinal=max(ordinal, known.next_ordinal))
        self.bases[topic] = _EXTENT.pack(*known)

    def bases_of(self, topic: bytes) -> Bases:
        """Return what is known of where the ordinals of a topic begin."""
        known = self.bases.get(topic)
        return Bases() if known is None else Bases._make(_EXTENT.unpack(known))

    def lift_unknown(self, pointer: int) -> None:
        """Take it that nobody knows what was removed up to a pointer."""
        self.unknown_high = max(self.unknown_high, pointer)

    def extents(self, topic: bytes, pointer: int = 0) -> list[RemovedExtent]:
        """Return what was removed from a pointer on, oldest first."""
        known = map(RemovedExtent._make, _EXTENT.iter_unpack(self.topics.get(topic, b"")))
        return [each for each in known if each.last >= pointer]

    def has(self, topic: bytes, timestamp: int) -> bool:
        """Look whether a segment was removed, maybe among several."""
        return any(
            each.timestamp == timestamp or (not each.timestamp and each.first <= timestamp)
            for each in self.extents(topic, timestamp)
        )

    def newest(self, topic: bytes) -> int | None:
        """Return the newest pointer that was removed; 0: none, None: nobody knows."""
        known = self.topics.get(topic)
        if known is not None:
            return int(_EXTENT.unpack_from(known, len(known) - _EXTENT.size)[2])
        return None if self.unknown_high else 0

    def drop(self, topic: bytes, timestamps: Container[int]) -> None:
        """Forget that segments were removed; they are there."""
        kept = [each for each in self.extents(topic) if each.timestamp not in timestamps]
        if kept:
            self.topics[topic] = b"".join(_EXTENT.pack(*each) for each in kept)
        else:
            self.topics.pop(topic, None)


def read_removals(files: Files) -> RemovalNotes | None:
    """Read the notes of a store, of which a server may be taking more; None: nobody takes any.

    Raises:
        FormatNotSupported: a newer version has written them.
        OSError: they cannot be read.
    """
    try:
        file = files.open(REMOVED_FILE, "r")
    except FileNotFoundError:
        return RemovalNotes() if notes_removals(files) else None
    content = file.read_at(file.size(), 0)
    header = FileHeader.decode(content, REMOVED_FILE, REMOVED_MAGIC)
    if header is None:
        return None
    notes = RemovalNotes()
    for topic, extents, _ in decode_notes(content[FILE_HEADER_BYTES:], header.store_id):
        notes.take(topic, extents)
    return notes


class Removals:
    """The notes of one store, whose lock is held.

    A removal is noted, which writes it; synced; published once nobody can read the segment any
    more: what is asked here tells of published ones only; and finished when its files go. Who notes
    it again before that writes nothing, unless the segment has grown. `is_whole` tells whether all
    is there that should be in the file, which the first note makes.

    Always: topics without a segment that are known <= `GONE_TOPICS_MAX`.
    """

    __slots__ = (
        "_compact_at_bytes",
        "_files",
        "_gone",
        "_note_count",
        "_noted",
        "_notes",
        "_size_bytes",
        "_store_id",
        "_synced_count",
        "is_whole",
    )

    def __init__(self, files: Files, store_id: bytes, *, is_after_power_cut: bool) -> None:
        """Read the notes; after a power cut, one that was not synced yet may be torn.

        Raises:
            FormatNotSupported: a newer version has written them.
        """
        self._files = files
        self._store_id = store_id
        self._notes = RemovalNotes()
        self._noted: dict[tuple[bytes, int], RemovedExtent] = {}
        self._gone: dict[bytes, None] = {}
        self._note_count = self._synced_count = 0
        self._size_bytes = 0
        self._compact_at_bytes = _COMPACT_BYTES_MIN
        self.is_whole = self._read(is_after_power_cut=is_after_power_cut)

    @property
    def unknown_high(self) -> int:
        """What was removed up to this pointer nobody knows, but for what is noted."""
        return self._notes.unknown_high

    def extents(self, topic: bytes, pointer: int = 0) -> list[RemovedExtent]:
        """Return what was removed of a topic from a pointer on, oldest first."""
        return self._notes.extents(topic, pointer)

    def newest(self, topic: bytes) -> int | None:
        """Return the newest pointer that was removed of a topic; 0: none, None: nobody knows."""
        return self._notes.newest(topic)

    def newest_maybe(self, topic: bytes) -> int:
        """Return the newest pointer of a topic that may have been removed; 0: none was."""
        newest = self.newest(topic)
        return self.unknown_high if newest is None else newest

    def bases(self, topic: bytes) -> Bases:
        """Return where the ordinals of a topic begin, as far as notes tell."""
        return self._notes.bases_of(topic)

    def next_ordinal(self, topic: bytes) -> int:
        """Return what the ordinals of a new segment may not be less than."""
        return self.bases(topic).next_ordinal

    def has(self, topic: bytes, timestamp: int) -> bool:
        """Look whether it is noted that a segment was removed, maybe among several."""
        return self._notes.has(topic, timestamp)

    def highs(self, topic: bytes) -> dict[int, int]:
        """Return the last pointer of each segment that is noted to be removed, by its timestamp."""
        return {each.timestamp: each.last for each in self.extents(topic)}

    def begin(self, topics: Container[bytes], newest_pointer: int, *, is_known: bool) -> bool:
        """Begin to take notes for a store that has these topics; tell whether the disk took that.

        Unless `is_known`, anything up to `newest_pointer` may have been removed without a note.
        """
        unknown_high = 0 if is_known and self.is_whole else newest_pointer
        noted = {**self._notes.topics, **self._notes.bases}
        for topic in [each for each in noted if each not in topics]:
            self.note_gone(topic)
        self._notes.lift_unknown(unknown_high)
        if not unknown_high:
            return True
        _log.warning("what was removed in %s before now is not known", self._files.base)
        return self._compact_if_possible()

    def note(self, topic: bytes, extents: Iterable[RemovedExtent]) -> None:
        """Note that segments are about to be removed; see `sync`.

        Raises:
            StorageFull: no room for it; nothing is noted.
            WriteFailed: another failure; likewise.
        """
        new = [each for each in extents if not self._is_known(topic, each)]
        if not new:
            return
        starts = range(0, len(new), _NOTE_COUNT_MAX)
        parts = (b"".join(map(_packed, new[at : at + _NOTE_COUNT_MAX])) for at in starts)
        content = b"".join(encode_note(topic, part, self._store_id) for part in parts)
        with writing(REMOVED_FILE):
            if not self._size_bytes:
                self._compact()
            append_whole(self._files.open(REMOVED_FILE, "r+"), content, self._size_bytes)
        self._size_bytes += len(content)
        self._note_count += 1
        self._noted |= {(topic, each.timestamp): each for each in new if not each.is_base}
        for each in new:
            if each.is_base:
                self._notes.note_base(topic, each.timestamp, each.last)

    def _is_known(self, topic: bytes, extent: RemovedExtent) -> bool:
        """Return whether a note says the same already, or of the next ordinal a greater one."""
        if not extent.is_base:
            return self._noted.get((topic, extent.timestamp)) == extent
        known = self.bases(topic)
        if not extent.timestamp:
            return extent.last <= known.next_ordinal
        return (extent.timestamp, extent.last) == known[1:]

    def are_known(self, topic: bytes, extents: Iterable[RemovedExtent]) -> bool:
        """Return whether notes say all of this already."""
        return all(self._is_known(topic, each) for each in extents)

    def note_lost(self, topic: bytes, extents: Iterable[RemovedExtent]) -> None:
        """Note segments that somebody else has removed, and tell of them from now on."""
        lost = [each for each in extents if each.last]
        try:
            self.note(topic, lost)
        except StorageError as error:
            _log.error("what is gone of topic %r is not noted: %s", topic, error)
        for each in lost:
            self._notes.take(topic, _packed(each))
            self._noted.pop((topic, each.timestamp), None)

    def sync(self) -> None:
        """Make the notes so far survive a power cut; then files may be removed.

        Raises:
            StorageFull, WriteFailed: the disk did not take them.
        """
        count = self._note_count
        if self._synced_count < count:
            with writing(REMOVED_FILE):
                if not self._size_bytes:
                    self._compact()
                    return
                try:
                    self._files.open(REMOVED_FILE, "r+").sync()
                except OSError:
                    # The kernel may have dropped what it could not write: the file is made anew.
                    self._size_bytes = 0
                    raise
            self._synced_count = max(self._synced_count, count)

    def publish(self, topic: bytes, timestamp: int) -> None:
        """Tell of a removal that was noted, from now on."""
        extent = self._noted.get((topic, timestamp))
        if extent is not None:
            self._notes.take(topic, _packed(extent))
            if self._size_bytes > self._compact_at_bytes:
                self._compact_if_possible()

    def finish(self, topic: bytes, timestamp: int) -> None:
        """Tell of a removal; from now on the segment would be noted anew, should it come back."""
        self.publish(topic, timestamp)
        self._noted.pop((topic, timestamp), None)

    def is_going(self, topic: bytes, timestamp: int) -> bool:
        """Return whether the removal of a segment is noted, and its files are there still."""
        return (topic, timestamp) in self._noted

    def is_noted(self, topic: bytes, timestamps: Container[int]) -> bool:
        """Return whether there are notes that one of these segments was removed."""
        return any(each.timestamp in timestamps for each in self._notes.extents(topic))

    def settle(self, topic: bytes, timestamps: Container[int]) -> None:
        """Forget notes of segments that are there after all: a removal was interrupted."""
        if topic in self._notes.topics:
            self._notes.drop(topic, timestamps)

    def note_gone(self, topic: bytes) -> None:
        """Note that a topic has no segment any more; of too many, the oldest is forgotten."""
        self._gone.pop(topic, None)
        self._gone[topic] = None
        if len(self._gone) > GONE_TOPICS_MAX:
            oldest = next(iter(self._gone))
            del self._gone[oldest]
            # Not written until the next compaction: until then the note itself is in the file.
            self._notes.lift_unknown(self.newest(oldest) or 0)
            self._notes.topics.pop(oldest, None)
            self._notes.bases.pop(oldest, None)

    def note_back(self, topic: bytes) -> None:
        """Note that a topic has a segment."""
        self._gone.pop(topic, None)

    def _read(self, *, is_after_power_cut: bool) -> bool:
        try:
            file = self._files.open(REMOVED_FILE, "r")
            content = file.read_at(file.size(), 0)
        except FileNotFoundError:
            return True
        except OSError as error:
            _log.error("%s cannot be read: %s", REMOVED_FILE, error)
            return False
        header = FileHeader.decode(content, REMOVED_FILE, REMOVED_MAGIC)
        if header is None or header.store_id != self._store_id:
            _log.error("%s is damaged, or of another store, and begun anew", REMOVED_FILE)
            return False
        self._size_bytes = FILE_HEADER_BYTES
        for topic, extents, end in decode_notes(content[FILE_HEADER_BYTES:], self._store_id):
            self._notes.take(topic, extents)
            self._size_bytes = FILE_HEADER_BYTES + end
        self._compact_at_bytes = max(2 * self._size_bytes, _COMPACT_BYTES_MIN)
        if self._size_bytes == len(content):
            return True
        if is_after_power_cut:
            _log.info("a note in %s was not synced when the power failed", REMOVED_FILE)
            self._compact_if_possible()
            return True
        _log.error("%s is damaged from offset %d on", REMOVED_FILE, self._size_bytes)
        return False

    def _compact_if_possible(self) -> bool:
        try:
            self._compact()
        except OSError as error:
            _log.warning("%s cannot be written anew: %s", REMOVED_FILE, error)
            return False
        return True

    def _compact(self) -> None:
        """Write what counts into a new file, and put that in place, durably."""
        rows = [FileHeader(self._store_id, 0).encode(REMOVED_MAGIC)]
        if self.unknown_high:
            extent = _EXTENT.pack(0, 0, self.unknown_high)
            rows.append(encode_note(b"", extent, self._store_id))
        rows += [encode_note(*each, self._store_id) for each in self._notes.topics.items()]
        for topic in self._notes.bases:
            bases = b"".join(map(_packed, self._notes.bases_of(topic).extents()))
            rows.append(encode_note(topic, bases, self._store_id))
        rows += [
            encode_note(topic, _packed(extent), self._store_id)
            for (topic, _), extent in self._noted.items()
        ]
        content = b"".join(rows)
        replace_file(self._files, REMOVED_FILE, content)
        # It is the new file now. As long as its name is not durable, nothing behind that is, and
        # each note begins with another attempt.
        self._size_bytes = 0
        self._files.sync_folder("")
        self._size_bytes = len(content)
        self._compact_at_bytes = max(2 * self._size_bytes, _COMPACT_BYTES_MIN)
        self._synced_count = self._note_count


def _packed(extent: RemovedExtent) -> bytes:
    return _EXTENT.pack(*extent)


def _merged(known: bytes, new: bytes) -> bytes:
    """Return encoded extents, sorted; those that are told anew as they are told last."""
    found = map(RemovedExtent._make, _EXTENT.iter_unpack(known + new))
    # Those that stand for several have no timestamp that is theirs.
    by_key = {(each.timestamp or each.first, not each.timestamp): each for each in found}
    extents = sorted(by_key.values(), key=lambda each: each.first)
    if len(extents) > EXTENTS_MAX:
        surplus = extents[: len(extents) - EXTENTS_MAX + 1]
        last = max(each.last for each in surplus)
        extents[: len(surplus)] = [RemovedExtent(0, surplus[0].first, last)]
    return b"".join(map(_packed, extents))
