"""Which topics rest: a start does not look into their files, and somebody who asks for one does.

A stop notes so of those that it has closed. That is believed as long as nobody has changed a name
in the folder: whoever opens a segment for writing makes a lock there. A topic that a killed server
left rests, too, since the kernel has all that was written: of one that it left open nobody knows
how much that is until it is recovered. After a power cut nobody knows which names are lost, and all
is looked into.
"""

import contextlib
from collections.abc import Iterable, Mapping

from poe.storage.files import Files
from poe.storage.formats.segment_lock import LOCK_BYTES
from poe.storage.formats.store_meta import Event, Kind, StoreMeta
from poe.storage.segment.segment import Segment
from poe.storage.store.topic_folders import segment_file
from poe.topic_name import folder_bytes

_FILES = {"data", "index", "sum"}
_FILES_MAYBE = {"seq", "lock"}


def resting_events(
    files: Files, meta: StoreMeta, path: str, events: Mapping[bytes, list[Event]]
) -> tuple[Event, ...] | None:
    """Return the events of a topic that was closed and rests; None: look into the folder `path`."""
    folder = folder_bytes(path.rpartition("/")[2])
    noted_us = meta.resting.get(folder)
    if noted_us is None or meta.is_after_power_cut:
        return None
    with contextlib.suppress(OSError):
        if files.modified_us(path) == noted_us:
            found = sorted(events.get(folder, ()), key=lambda event: event.timestamp)
            if found and all(event.kind is Kind.SEAL for event in found):
                return tuple(found)
    return None


def left_behind_events(
    files: Files, meta: StoreMeta, path: str, events: Mapping[bytes, list[Event]]
) -> tuple[Event, ...] | None:
    """Return the events of a topic as a server left it that was killed in this boot.

    Of a segment with a lock of ours it is CREATE, which tells nothing of what it holds. Where there
    is none, the server was killed in its stop, and it is noted that the topic rests. None: names in
    the folder, `path`, are not those that the events lead to expect, or were changed since it was
    noted to rest.
    """
    if meta.was_closed or meta.is_after_power_cut:
        return None
    folder = folder_bytes(path.rpartition("/")[2])
    with contextlib.suppress(OSError):
        # Before the names are read: who changes them meanwhile is noticed by the next start.
        modified_us = files.modified_us(path)
        told = _as_named(files, path, events.get(folder, ()))
        if not told or is_left_open(told):
            return told
        if modified_us is not None and folder not in meta.resting and not meta.is_damaged:
            meta.add(Event(Kind.REST, folder, modified_us))
            return told
    return None


def _as_named(files: Files, path: str, events: Iterable[Event]) -> tuple[Event, ...] | None:
    """Return events as the names in a folder have them; None: these are others than expected."""
    known = {event.timestamp: event for event in events}
    found: dict[int, set[str]] = {}
    for name, is_folder in files.list_folder(path):
        timestamp, kind = segment_file(name) or (0, "")
        if is_folder or timestamp not in known:
            return None
        found.setdefault(timestamp, set()).add(kind)
    for timestamp, kinds in found.items():
        if not _FILES <= kinds <= _FILES | _FILES_MAYBE:
            return None
        if "lock" not in kinds:
            if known[timestamp].kind is not Kind.SEAL:
                return None
        elif files.size(f"{path}/{timestamp}_lock") == LOCK_BYTES:
            known[timestamp] = Event(Kind.CREATE, known[timestamp].topic, timestamp)
        else:
            return None
    told = tuple(known[timestamp] for timestamp in sorted(found))
    return told if len(told) == len(known) else None


def is_left_open(events: Iterable[Event]) -> bool:
    """Return whether a topic that rests was left open, by its events, and is to be recovered."""
    return any(event.kind is Kind.CREATE for event in events)


def note_rest(files: Files, meta: StoreMeta, segments: list[Segment]) -> tuple[Event, ...] | None:
    """Note that a topic rests, and return its events, if all its segments are in good order."""
    path = segments[0].path.rpartition("/")[0]
    folder = folder_bytes(path.rpartition("/")[2])
    events = []
    for segment in segments:
        event = meta.live.get((folder, segment.timestamp))
        if event is None or event.kind is not Kind.SEAL:
            return None
        if segment.durability.is_locked or segment.damage or segment.is_writer:
            return None
        events.append(event)
    with contextlib.suppress(OSError):
        modified_us = files.modified_us(path)
        if modified_us is not None and meta.resting.get(folder) != modified_us:
            meta.add(Event(Kind.REST, folder, modified_us))
    return tuple(events)
