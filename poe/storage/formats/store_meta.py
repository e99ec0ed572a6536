"""The events of a store, in one file beside the topics: what is sealed, what is being deleted.

It makes starts fast: a segment that is sealed, and whose files have the sizes that its event tells,
is not opened; of a topic that rests, not even the folder is. And it tells a deletion that was
interrupted from a file that was lost. Nothing depends on it: lost, or unreadable from some event
on, it costs time at the next start.

Strategy: events are only ever appended, each with a hash of its own; reading ends at the first that
is damaged. When little of it still counts, after deletions or at a start, the file is written anew.
They are synced when a store begins and when it is closed, so a power cut tears the last ones as
a rule.

Layout: the header of `hashed.py` with magic "poe-meta", timestamp 0 and the id of the store; then
events (big endian):
    kind        u16    see `Kind`
    size        u16    of the name of the topic
    timestamp   u64    of the segment; of REST, when the folder of the topic was changed last
    numbers     u64 ×5 of SEAL: bytes, records, first and last pointer, bytes of the sum file;
                       else 0
    chain       u64    of the last entry of the sums; of other events than SEAL 0, and of a damaged
                       segment, whose sum file has no bytes then: it is looked at anew
    topic       bytes
    hash        u64    of the bytes before and of the store id
"""

import contextlib
import logging
import struct
import threading
from collections.abc import Container, Iterator
from enum import IntEnum
from typing import NamedTuple, Self

from poe.storage.files import Files, OpenFile
from poe.storage.formats.hashed import FILE_HEADER_BYTES, HASH_BYTES, FileHeader, seal, unseal
from poe.storage.replacement import append_whole, replace_file

META_FILE = "store.meta"
META_MAGIC = b"poe-meta"

_EVENT = struct.Struct(">HHQ5QQ")
_OPEN_BYTES = _EVENT.size + HASH_BYTES
_COMPACT_BYTES_MIN = 64 * 1024

_log = logging.getLogger(__name__)


class Kind(IntEnum):
    """What has happened."""

    CREATE = 1
    SEAL = 2
    TOMBSTONE = 3
    """The segment is being deleted."""

    CLEAN = 4
    """The store was closed, in good order."""

    OPEN = 5
    """A server began to work on the store; `size_bytes` and `record_count`: see `OpenState`."""

    GONE = 6
    """The segment was deleted: files of its name that turn up later were put there by somebody."""

    REST = 7
    """All segments of the topic are sealed and durable; `timestamp` is when its folder was changed
    last, in microseconds. Whoever opens one for writing makes a lock there, and so changes it."""


_KINDS = {int(kind): kind for kind in Kind}


class Event(NamedTuple):
    """Something that has happened to a segment, or to the whole store where `topic` is empty."""

    kind: Kind
    topic: bytes = b""
    timestamp: int = 0
    size_bytes: int = 0
    record_count: int = 0
    pointer_low: int = 0
    pointer_high: int = 0
    sum_bytes: int = 0
    chain: int = 0


class OpenState(NamedTuple):
    """What a server found when it began to work, or left, as far as later ones have to know."""

    notes_removals: bool = False
    """Whether it notes what it removes, see `removals.py`, and all before is noted, or up to where
    nobody knows that."""

    has_notes: bool = False
    """Whether there were notes."""

    has_properties: bool = False
    """Whether there was a file of what topics have."""

    def as_event(self) -> Event:
        """Return the event that says so."""
        return Event(
            Kind.OPEN,
            size_bytes=self.notes_removals,
            record_count=self.has_notes,
            pointer_low=self.has_properties,
        )

    @classmethod
    def of(cls, event: Event) -> Self:
        """Return what an event says."""
        return cls(*map(bool, (event.size_bytes, event.record_count, event.pointer_low)))


def encode_event(event: Event, store_id: bytes) -> bytes:
    """Encode an event."""
    kind, topic, timestamp, *numbers = event
    return seal(_EVENT.pack(kind, len(topic), timestamp, *numbers) + topic, store_id)


def decode_events(content: bytes, store_id: bytes) -> Iterator[Event]:
    """Decode events up to the first that is damaged, or of a kind that is not known."""
    for piece in unseal(content, store_id, _EVENT, lambda fields: _EVENT.size + int(fields[1])):
        kind, _, timestamp, *numbers = _EVENT.unpack_from(piece)
        if kind not in _KINDS:
            return
        yield Event(_KINDS[kind], piece[_EVENT.size :], timestamp, *numbers)


def is_tail_torn(content: bytes, store_id: bytes) -> bool:
    """Return whether a power cut may have left events, the last of which are not what was written.

    When a store is closed, all are synced, and the last one tells of it: behind damage it says that
    all had been there.
    """
    closed = encode_event(Event(Kind.CLEAN), store_id)
    return not content.endswith(closed)


def read_store_id(files: Files) -> str | None:
    """Return the id of the store in a folder, in hexadecimal digits; None when nothing tells it.

    Raises:
        FormatNotSupported: a newer version has written it.
        OSError: it cannot be read.
    """
    try:
        content = files.open(META_FILE, "r").read_at(FILE_HEADER_BYTES, 0)
    except FileNotFoundError:
        return None
    header = FileHeader.decode(content, META_FILE, META_MAGIC)
    return None if header is None else header.store_id.hex()


def notes_removals(files: Files) -> bool:
    """Return whether the server that has written the events of a store anew notes what it removes.

    Raises:
        FormatNotSupported: a newer version has written them.
        OSError: they cannot be read.
    """
    try:
        content = files.open(META_FILE, "r").read_at(FILE_HEADER_BYTES + _OPEN_BYTES, 0)
    except FileNotFoundError:
        return False
    header = FileHeader.decode(content, META_FILE, META_MAGIC)
    events = [] if header is None else decode_events(content[FILE_HEADER_BYTES:], header.store_id)
    return any(event.kind is Kind.OPEN and event.size_bytes for event in events)


class StoreMeta:
    """The events of one store, whose lock is held; `live` has the last one of each segment.

    `resting` has of each topic that rests when its folder was changed last.

    `was_closed` tells whether the last server closed the store in good order, if there was one, and
    all its events are there; `is_damaged`, whether they are not, and no power cut explains it.
    `is_after_power_cut`, of a server's, tells whether it was not, and the machine has started anew
    since. `opened` is what the newest server found.

    A disk that takes no events is no reason to refuse anything: when it takes the next one, all are
    written, and else it is found out at the next start. Threads that sync segments may note events,
    too.
    """

    __slots__ = (
        "_compact_at_bytes",
        "_file",
        "_files",
        "_is_behind",
        "_lock",
        "_size_bytes",
        "_waiting",
        "is_after_power_cut",
        "is_damaged",
        "live",
        "opened",
        "resting",
        "store_id",
        "was_closed",
    )

    def __init__(
        self,
        files: Files,
        new_id: bytes,
        opened: OpenState | None = None,
        *,
        is_same_boot: bool = True,
    ) -> None:
        """Read the file, or begin one under `new_id`, for a server that has found `opened`.

        Where the last server did not work on it in this boot of the machine, `is_same_boot` is
        false, its end may be torn.

        Raises:
            FormatNotSupported: a newer version has written it.
        """
        self._files = files
        self._lock = threading.Lock()
        self._file: OpenFile | None = None
        self._waiting: bytearray | None = None
        self._is_behind = False  # an event is not in the file, which did not take it
        self.store_id = new_id
        self.live: dict[tuple[bytes, int], Event] = {}
        self.resting: dict[bytes, int] = {}
        self.was_closed = True
        self.is_damaged = False
        self.is_after_power_cut = False
        self.opened = OpenState()
        self._size_bytes = FILE_HEADER_BYTES
        self._compact_at_bytes = _COMPACT_BYTES_MIN
        content = self._read_file()
        header = FileHeader.decode(content, META_FILE, META_MAGIC)
        if header is not None:
            self.store_id = header.store_id
            self._read(content[FILE_HEADER_BYTES:], is_same_boot=is_same_boot)
        elif content:
            _log.error("%s is damaged and begun anew", META_FILE)
        elif opened is not None:
            self.opened = opened
        if header is None or self._size_bytes < len(content):
            self._compact()

    def add(self, event: Event) -> None:
        """Note an event."""
        with self._lock:
            self._append(event)
            is_large = self._size_bytes > self._compact_at_bytes and not self._is_behind
            if event.kind is Kind.GONE and is_large:
                self._compact()

    @contextlib.contextmanager
    def together(self) -> Iterator[None]:
        """Write the events that are noted in a block, by whatever threads, once at its end."""
        with self._lock:
            self._waiting = bytearray()
        try:
            yield
        finally:
            with self._lock:
                content, self._waiting = self._waiting, None
                if content:
                    self._write(content)

    def close(self, *, is_whole: bool = True) -> None:
        """Note durably that the store is closed, if all of it is; let go of the file.

        Not where an event is missing in it: the next start is to look what is there.
        """
        with self._lock:
            if self._is_behind:
                self._compact()
        self._sync()  # a power cut may not leave this one, and tear those before it
        if is_whole and not self._is_behind:
            self.add(Event(Kind.CLEAN))
            self._sync()
        self._file = None

    def begin(self, opened: OpenState, *, is_same_boot: bool) -> None:
        """Note that a server begins to work on the store; durably, where it was closed before.

        `is_same_boot`: the last server worked on it in this boot of the machine.
        """
        self.is_after_power_cut = not self.was_closed and not is_same_boot
        self.note_opened(opened)

    def note_opened(self, opened: OpenState) -> None:
        """Note what a server finds as it begins, or leaves; durably, where it was closed before."""
        if opened != self.opened:
            with self._lock:
                self.opened = opened
                self._compact()
        self.add(opened.as_event())
        if self.was_closed:  # else a power cut could leave what says so
            self._sync()

    def _sync(self) -> None:
        try:
            if self._file is not None:
                self._file.sync()
        except OSError as error:
            _log.warning("%s may not survive a power cut: %s", META_FILE, error)

    def _append(self, event: Event) -> None:
        self._take(event)
        content = encode_event(event, self.store_id)
        if self._waiting is None:
            self._write(content)
        else:
            self._waiting += content

    def _write(self, content: bytes | bytearray) -> None:
        try:
            if self._file is None:
                self._file = self._files.open(META_FILE, "r+")
            append_whole(self._file, content, self._size_bytes)
        except OSError as error:
            self._is_behind = True
            self._compact_at_bytes = 0  # as soon as it takes one
            _log.warning("%s takes no event: %s", META_FILE, error)
        else:
            self._size_bytes += len(content)
            if self._is_behind and self._size_bytes > self._compact_at_bytes:
                self._compact()

    def by_folder(self) -> dict[bytes, list[Event]]:
        """Return the events of the segments, by the folders of their topics."""
        found: dict[bytes, list[Event]] = {}
        for (folder, _), event in self.live.items():
            found.setdefault(folder, []).append(event)
        return found

    def keep_only(
        self, known: Container[tuple[bytes, int]], removed: Container[tuple[bytes, int]] = ()
    ) -> list[Event]:
        """Forget segments that are not known any more; report those that nobody deleted.

        Of those in `removed` it is known that they were deleted: a power cut took the event.
        """
        gone = {key: event for key, event in self.live.items() if key not in known}
        lost = [
            key
            for key, event in gone.items()
            if event.kind is not Kind.TOMBSTONE and key not in removed
        ]
        for topic, timestamp in lost:
            _log.error("segment %d of topic %r is gone with all its files", timestamp, topic)
        for topic, timestamp in gone.keys() - lost:
            self.add(Event(Kind.GONE, topic, timestamp))
        self.live = {key: event for key, event in self.live.items() if key in known}
        folders = {folder for folder, _ in self.live}
        self.resting = {each: us for each, us in self.resting.items() if each in folders}
        live_bytes = FILE_HEADER_BYTES + sum(map(len, self._encoded()))
        if lost or self._size_bytes > max(2 * live_bytes, _COMPACT_BYTES_MIN):
            self._compact()
        return [gone[key] for key in lost]

    def _read_file(self) -> bytes:
        try:
            file = self._files.open(META_FILE, "r")
            return file.read_at(file.size(), 0)
        except FileNotFoundError:
            return b""
        except OSError as error:
            _log.error("%s cannot be read: %s", META_FILE, error)
            return b""

    def _read(self, content: bytes, *, is_same_boot: bool) -> None:
        for event in decode_events(content, self.store_id):
            self._take(event)
            self.was_closed = event.kind is Kind.CLEAN
            if event.kind is Kind.OPEN:
                self.opened = OpenState.of(event)
            self._size_bytes += len(encode_event(event, self.store_id))
        torn_bytes = FILE_HEADER_BYTES + len(content) - self._size_bytes
        if torn_bytes and not is_same_boot and is_tail_torn(content, self.store_id):
            self.was_closed = False
            _log.warning(
                "the last %d bytes of %s were not on the disk when the power was cut, and are "
                "dropped; the segments that they told of are looked at instead",
                torn_bytes,
                META_FILE,
            )
        elif torn_bytes:
            self.was_closed = False
            self.is_damaged = True
            _log.error("%s is damaged from offset %d on", META_FILE, self._size_bytes)

    def _take(self, event: Event) -> None:
        if event.kind is Kind.REST:
            self.resting[event.topic] = event.timestamp
            return
        self.resting.pop(event.topic, None)
        if event.kind is Kind.GONE:
            self.live.pop((event.topic, event.timestamp), None)
        elif event.topic:
            self.live[event.topic, event.timestamp] = event

    def _encoded(self) -> list[bytes]:
        rests = [Event(Kind.REST, folder, us) for folder, us in self.resting.items()]
        return [encode_event(event, self.store_id) for event in [*self.live.values(), *rests]]

    def _compact(self) -> None:
        """Write what counts into a new file, and put that in place; the id survives power cuts."""
        content = FileHeader(self.store_id, 0).encode(META_MAGIC)
        content += encode_event(self.opened.as_event(), self.store_id) + b"".join(self._encoded())
        try:
            replace_file(self._files, META_FILE, content)
            # It is the new file now, whether or not its name is durable.
            self._file = None
            self._size_bytes = len(content)
            self._is_behind = False
            self._files.sync_folder("")
        except OSError as error:
            _log.warning("%s cannot be written: %s", META_FILE, error)
        self._compact_at_bytes = max(2 * self._size_bytes, _COMPACT_BYTES_MIN)
