"""Which topics rest: what a stop notes of them, and whether the next start may believe it.

It is believed as long as nobody has changed a name in the folder: whoever opens a segment for
writing makes a lock there. After a power cut nobody knows which names are lost. The files are
looked at when somebody asks for the topic, as those of any other.
"""

import contextlib

from poe.storage.files import Files
from poe.storage.segment import Segment
from poe.storage.store_meta import Event, Kind, StoreMeta
from poe.storage.topic_name import folder_bytes


def resting_events(
    files: Files, meta: StoreMeta, path: str, events: dict[bytes, list[Event]]
) -> tuple[Event, ...] | None:
    """Tell the events of a topic that rests; None: its folder, `path`, has to be looked into."""
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


def note_rest(files: Files, meta: StoreMeta, segments: list[Segment]) -> None:
    """Note that a topic rests, if all its segments are closed in good order."""
    path = segments[0].path.rpartition("/")[0]
    folder = folder_bytes(path.rpartition("/")[2])
    for segment in segments:
        event = meta.live.get((folder, segment.timestamp))
        is_closed = event is not None and event.kind is Kind.SEAL and not segment.is_locked
        if not is_closed or segment.damage or segment.is_writer:
            return
    with contextlib.suppress(OSError):
        modified_us = files.modified_us(path)
        if modified_us is not None and meta.resting.get(folder) != modified_us:
            meta.add(Event(Kind.REST, folder, modified_us))
