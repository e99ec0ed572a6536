"""What topics know of themselves, in one file beside the topics: properties, and when they began.

Strategy: a topic that nobody has described takes no room. It was made when its oldest segment was,
which has that for a name; only when that segment is about to be removed is it noted. Notes are
appended, the last one of a topic counts, and the file is written anew when few of them still do. A
note that is damaged is left out, and those behind it are found all the same.

Layout: the header of `hashed.py` with magic "poe-prop", timestamp 0 and the id of the store; then
notes (big endian):
    kind        u16    1 described, 2 begun, 3 gone
    size        u16    of the name of the topic
    text size   u32
    created     u64    when the topic was made, microseconds since the epoch; 0 of one that is gone
    version     u32    of the properties; 0 where there are none
    flags       u16    1: partition 0 has the name of the topic
    reserved    u16    0
    topic       bytes
    text        bytes  JSON, the properties that are not as by default; empty where there are none
    hash        u64    of the bytes before and of the store id
"""

import contextlib
import json
import logging
import struct
from collections.abc import Iterator
from typing import Final, NamedTuple

from xxhash import xxh3_128_digest

from poe.errors import FormatNotSupported, OptionError, PropertyMismatch, StorageError
from poe.storage.failure import writing
from poe.storage.files import Files
from poe.storage.formats.hashed import FILE_HEADER_BYTES, HASH_BYTES, FileHeader, seal, unseal
from poe.storage.replacement import append_whole, replace_file
from poe.topic_name import topic_text
from poe.topic_properties import (
    TopicDescription,
    TopicProperties,
    partition_of,
    replicated_id,
)

PROPERTY_FILE: Final = "store.topics"
PROPERTY_MAGIC: Final = b"poe-prop"
DESCRIBED, BEGUN, GONE = 1, 2, 3
"""Kinds of notes."""

_HEAD = struct.Struct(">HHIQIHH")
_CREATED = struct.Struct(">Q")
_FIRST_IS_PLAIN = 1
_COMPACT_BYTES_MIN = 64 * 1024
_DEFAULTS = TopicProperties().as_map()

_log = logging.getLogger(__name__)


class PropertyNote(NamedTuple):
    """A note as it lies in the file."""

    kind: int
    topic: bytes
    created_us: int = 0
    version: int = 0
    properties: TopicProperties = TopicProperties()
    first_is_plain: bool = True

    def encode(self, store_id: bytes) -> bytes:
        """Encode it."""
        text = b""
        if self.kind == DESCRIBED:
            values = self.properties.as_map()
            own = {name: each for name, each in values.items() if each != _DEFAULTS[name]}
            text = json.dumps(own, separators=(",", ":")).encode()
        flags = _FIRST_IS_PLAIN if self.first_is_plain else 0
        sizes = len(self.topic), len(text)
        head = _HEAD.pack(self.kind, *sizes, self.created_us, self.version, flags, 0)
        return seal(head + self.topic + text, store_id)

    @classmethod
    def decode(cls, piece: bytes) -> "PropertyNote":
        """Decode one, less its hash.

        Raises:
            FormatNotSupported: it is of a newer version.
        """
        kind, size, _, created_us, version, flags, _ = _HEAD.unpack_from(piece)
        topic, text = piece[_HEAD.size : _HEAD.size + size], piece[_HEAD.size + size :]
        if kind not in {DESCRIBED, BEGUN, GONE}:
            raise FormatNotSupported(PROPERTY_FILE, f"a note of kind {kind}")
        try:
            properties = TopicProperties.from_map(json.loads(text or b"{}"))
        except (OptionError, ValueError) as error:
            raise FormatNotSupported(PROPERTY_FILE, str(error)) from error
        return cls(kind, topic, created_us, version, properties, bool(flags & _FIRST_IS_PLAIN))


class FoundNotes(NamedTuple):
    """What was found behind the header of the file."""

    notes: list[PropertyNote]
    end: int
    """Where the last of them ends."""

    holes: list[tuple[int, int]]
    """From where to where there is none; also at the end, unless a kill may have torn that."""


def find_notes(content: bytes, store_id: bytes) -> FoundNotes:
    """Find the notes that are whole; behind damage the next ones.

    Raises:
        FormatNotSupported: a newer version has written one.
    """
    found = FoundNotes([], 0, [])
    at = end = 0
    while at + _HEAD.size + HASH_BYTES <= len(content):
        for piece in unseal(content[at:], store_id, _HEAD, _note_bytes):
            if at > end:
                found.holes.append((end, at))
            found.notes.append(PropertyNote.decode(piece))
            at = end = at + len(piece) + HASH_BYTES
        at += 1
        while at + _HEAD.size + HASH_BYTES <= len(content) and not _begins_note(content, at):
            at += 1
    if end + _HEAD.size < len(content) and _begins_note(content, end):
        found.holes.append((end, len(content)))
    return found._replace(end=end)


def _begins_note(content: bytes, at: int) -> bool:
    """Return whether a note may begin there: hashes are looked at only where it does."""
    head = _HEAD.unpack_from(content, at)
    return head[0] in {DESCRIBED, BEGUN, GONE} and at + _note_bytes(head) + HASH_BYTES <= len(
        content
    )


def _note_bytes(head: tuple[int, ...]) -> int:
    return _HEAD.size + head[1] + head[2]


class KnownTopics:
    """What notes tell, as they were read or written; holds no file."""

    __slots__ = ("begun", "described", "store_id")

    def __init__(self, store_id: bytes) -> None:
        self.store_id = store_id
        self.described: dict[bytes, TopicDescription] = {}
        """Topics that somebody has made, altered or adopted."""
        self.begun: dict[bytes, int] = {}
        """When the others were made whose oldest segment is gone, in microseconds."""

    def take(self, note: PropertyNote) -> None:
        """Let a note count from now on."""
        self.described.pop(note.topic, None)
        self.begun.pop(note.topic, None)
        if note.kind == DESCRIBED:
            self.described[note.topic] = TopicDescription(
                note.topic,
                self.id_of(note.topic, note.created_us, note.properties),
                note.created_us,
                note.version,
                note.properties,
                note.first_is_plain,
            )
        elif note.kind == BEGUN:
            self.begun[note.topic] = note.created_us

    def notes(self) -> Iterator[PropertyNote]:
        """Yield what counts."""
        for each in self.described.values():
            yield note_of(each)
        for topic, created_us in self.begun.items():
            yield PropertyNote(BEGUN, topic, created_us)

    def id_of(
        self, topic: bytes, created_us: int, properties: TopicProperties | None = None
    ) -> bytes:
        """Return the id of a topic by what nobody can change of it.

        That of a replicated one is the same on all nodes.
        """
        if properties is not None and properties.is_replicated:
            return replicated_id(topic, created_us)
        return xxh3_128_digest(self.store_id + _CREATED.pack(created_us) + topic)

    def holder(self, topic: bytes) -> TopicDescription | None:
        """Return the topic that was described and of which this one is a partition, maybe itself.

        None: it is nobody's, or is that of no partition.
        """
        own = self.described.get(topic)
        if own is not None:
            return own if own.first_is_plain else None
        part = partition_of(topic)
        found = None if part is None else self.described.get(part[0])
        if part is None or found is None or part[1] >= found.properties.partitions:
            return None
        return None if part[1] == 0 and found.first_is_plain else found

    def check(self, topic: bytes) -> None:
        """Refuse what cannot be put onto, or be made: a partition that its topic has not got.

        Raises:
            PropertyMismatch: it names the topic.
        """
        if self.holder(topic) is not None:
            return
        own, part = self.described.get(topic), partition_of(topic)
        if own is not None:
            count, name = own.properties.partitions, topic_text(topic)
            # Who has read and put by its name with a client that knows partitions knows no other.
            asked = f"the topic itself, none of {name}-0 to {name}-{count - 1}"
            raise PropertyMismatch(topic, "partitions", asked, count)
        other = None if part is None else self.described.get(part[0])
        if part is not None and other is not None and other.properties.partitions > 1:
            asked = f"partition {part[1]}"
            raise PropertyMismatch(part[0], "partitions", asked, other.properties.partitions)

    def of(self, topic: bytes, first_us: int | None) -> TopicDescription | None:
        """Describe a topic; `first_us` names its oldest segment. None: nobody knows it."""
        own = self.described.get(topic)
        if own is not None:
            return own
        holder = self.holder(topic)
        if holder is not None:
            created_us = holder.created_us
            own_id = self.id_of(topic, created_us, holder.properties)
            properties = TopicProperties.from_map({**holder.properties.as_map(), "partitions": 1})
            return TopicDescription(topic, own_id, created_us, holder.version, properties)
        begun_us = self.begun.get(topic, first_us)
        if begun_us is None:
            return None
        return TopicDescription(topic, self.id_of(topic, begun_us), begun_us, version=0)


def note_of(description: TopicDescription) -> PropertyNote:
    """Return the note that tells of a description."""
    return PropertyNote(
        DESCRIBED,
        description.name,
        description.created_us,
        description.version,
        description.properties,
        description.first_is_plain,
    )


def read_known_topics(files: Files) -> KnownTopics:
    """Read the notes of a store, of which a server may be taking more.

    Raises:
        FormatNotSupported: a newer version has written them.
        OSError: they cannot be read.
    """
    try:
        file = files.open(PROPERTY_FILE, "r")
    except FileNotFoundError:
        return KnownTopics(b"")
    content = file.read_at(file.size(), 0)
    header = FileHeader.decode(content, PROPERTY_FILE, PROPERTY_MAGIC)
    known = KnownTopics(b"" if header is None else header.store_id)
    for note in find_notes(content[FILE_HEADER_BYTES:], known.store_id).notes:
        known.take(note)
    return known


def damage_text(begin: int, end: int) -> str:
    """Say that there is a hole between two places behind the header."""
    return (
        f"{PROPERTY_FILE} is damaged from offset {FILE_HEADER_BYTES + begin} to "
        f"{FILE_HEADER_BYTES + end}: a topic may have lost a change of its properties"
    )


class PropertyFile:
    """The notes of one store, whose lock is held; `known` is what they tell."""

    __slots__ = ("_compact_at_bytes", "_files", "_has_rest", "_is_synced", "_size_bytes", "known")

    def __init__(
        self,
        files: Files,
        store_id: bytes,
        *,
        was_closed: bool = True,
        is_after_power_cut: bool = False,
    ) -> None:
        """Read the notes; after a power cut, those that were not synced yet may be torn.

        Where the last server has not closed the store, they are written anew, since whoever reads
        them relies on them: the last of them may have been refused by the disk. So they are where
        something is damaged, which is told once.

        Notes of a store of another id count, too: the file that tells the store's may be lost.

        Raises:
            FormatNotSupported: a newer version has written them.
            OSError: they cannot be read.
        """
        self._files = files
        self._is_synced = True
        self._size_bytes = 0
        self._has_rest = False
        self._compact_at_bytes = _COMPACT_BYTES_MIN
        self.known = KnownTopics(store_id)
        is_sound = self._read(is_after_power_cut=is_after_power_cut)
        if is_sound is not None and not (is_sound and was_closed):
            self._size_bytes, self._is_synced = 0, False
            try:
                self.sync()
            except StorageError as error:  # each note begins with another attempt
                _log.warning("%s may not survive a power cut: %s", PROPERTY_FILE, error)

    def note(self, note: PropertyNote) -> None:
        """Write a note, which counts at once, and survives a power cut from the next `sync` on.

        Raises:
            StorageFull: no room for it; nothing is noted.
            WriteFailed: another failure; likewise.
        """
        self._write(note)
        self.known.take(note)

    def change(self, note: PropertyNote) -> None:
        """Write a note durably, which then counts.

        Raises:
            StorageFull, WriteFailed: as `note`.
        """
        begin = self._write(note)
        try:
            self.sync()
        except StorageError:
            with contextlib.suppress(OSError):  # else a start may find it
                self._files.open(PROPERTY_FILE, "r+").truncate(begin)
            raise
        self.known.take(note)

    def sync(self) -> None:
        """Make what was noted survive a power cut.

        Raises:
            StorageFull, WriteFailed: the disk did not take it.
        """
        if self._is_synced:
            return
        with writing(PROPERTY_FILE):
            if not self._size_bytes:
                self._compact()
                return
            try:
                self._files.open(PROPERTY_FILE, "r+").sync()
            except OSError:
                # The kernel may have dropped what it could not write: the file is made anew.
                self._size_bytes = 0
                raise
        self._is_synced = True

    def _write(self, note: PropertyNote) -> int:
        """Write a note, maybe into the file made anew; return where it begins."""
        content = note.encode(self.known.store_id)
        with writing(PROPERTY_FILE):
            if not self._size_bytes or self._size_bytes > self._compact_at_bytes:
                self._compact()
            begin = self._size_bytes
            self._append(content)
        self._is_synced = False
        return begin

    def _read(self, *, is_after_power_cut: bool) -> bool | None:
        """Read the file; return whether it is sound, None where there is none."""
        try:
            file = self._files.open(PROPERTY_FILE, "r")
        except FileNotFoundError:
            return None
        content = file.read_at(file.size(), 0)
        header = FileHeader.decode(content, PROPERTY_FILE, PROPERTY_MAGIC)
        if header is not None:
            self.known.store_id = header.store_id
        else:
            _log.error("the header of %s is damaged, and made anew", PROPERTY_FILE)
        found = find_notes(content[FILE_HEADER_BYTES:], self.known.store_id)
        for note in found.notes:
            self.known.take(note)
        for hole in () if is_after_power_cut else found.holes:
            _log.error("%s", damage_text(*hole))
        # What a kill or a power cut has torn nobody was told of.
        self._size_bytes = FILE_HEADER_BYTES + found.end
        self._has_rest = self._size_bytes < len(content)
        self._compact_at_bytes = max(2 * self._size_bytes, _COMPACT_BYTES_MIN)
        return header is not None and not found.holes

    def _append(self, content: bytes) -> None:
        file = self._files.open(PROPERTY_FILE, "r+")
        if self._has_rest:
            file.truncate(self._size_bytes)
            self._has_rest = False
        append_whole(file, content, self._size_bytes)
        self._size_bytes += len(content)

    def _compact(self) -> None:
        """Write what counts into a new file, and put that in place, durably."""
        store_id = self.known.store_id
        rows = [FileHeader(store_id, 0).encode(PROPERTY_MAGIC)]
        rows += [note.encode(store_id) for note in self.known.notes()]
        content = b"".join(rows)
        replace_file(self._files, PROPERTY_FILE, content)
        self._files.sync_folder("")
        self._size_bytes = len(content)
        self._has_rest = False
        self._compact_at_bytes = max(2 * self._size_bytes, _COMPACT_BYTES_MIN)
        self._is_synced = True
