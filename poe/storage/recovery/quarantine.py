"""Where bytes go that recovery takes out of service: a folder beside the topics, of limited size.

For whoever can make sense of them; no program of ours reads them. Names tell where they come from,
and by their hash do not depend on how often a recovery was begun: `<timestamp>_<offset>_<hash of
the bytes>_<topic>` for what was cut off a data file, `<timestamp>_<file>_<topic>` for the file of a
segment that has no data.

Segments that belong elsewhere lie below `foreign/`, as they lay below `topics/`, whatever their
size, until somebody takes them away: they may be all that is left of what they hold.
"""

import contextlib
import logging
from collections.abc import Iterator
from itertools import count

from xxhash import xxh3_64, xxh3_64_hexdigest

from poe.storage.files import Files, OpenFile
from poe.topic_name import folder_bytes

QUARANTINE_FOLDER = "quarantine"
_FOREIGN = "foreign"
_BYTES_MAX = 256 << 20
_CHUNK_BYTES = 1 << 20
_TOPIC_BYTES_MAX = 200
"""Of the name of a topic's folder: that of a file has 255, and more to tell."""

_log = logging.getLogger(__name__)


def keep_bytes(files: Files, path: str, data: OpenFile, start: int, end: int) -> None:
    """Copy what is about to be cut off a data file, unless it is zeros, as a power cut leaves them.

    `path` is that of the segment. Of more than the folder may hold, the beginning is kept.

    Raises:
        OSError: as reported by the file layer.
    """
    end = min(end, start + _BYTES_MAX)
    hash_ = xxh3_64()
    are_zeros = True
    for chunk in _chunks(data, start, end):
        hash_.update(chunk)
        are_zeros = are_zeros and chunk.count(0) == len(chunk)
    if are_zeros:
        return
    name = _name_of(path, f"_{start}_{hash_.hexdigest()}")
    _make_room(files, end - start)
    try:
        kept = files.open(name, "w+")
        at = 0
        for chunk in _chunks(data, start, end):
            kept.write_at(chunk, at)
            at += len(chunk)
        # The cut is made durable next, and a power cut must not take both.
        kept.sync()
        files.sync_folder(QUARANTINE_FOLDER)
        files.sync_folder("")  # for the name of the folder itself
    except OSError:
        # Nothing is cut off then, and a part of it would take the room that others need.
        with contextlib.suppress(OSError):
            files.unlink(name)
        raise
    _log.warning("%d bytes that are cut off %s_data are kept in %s", end - start, path, name)


def keep_file(files: Files, path: str, suffix: str) -> None:
    """Move a file of a segment here; one that is not there is fine.

    Raises:
        OSError: as reported by the file layer.
    """
    size_bytes = files.size(path + suffix)
    if size_bytes is None:
        return
    _make_room(files, size_bytes)
    name = _name_of(path, suffix)
    files.rename(path + suffix, name)
    _log.error("%s%s belongs to no data and is moved to %s", path, suffix, name)


def keep_foreign(files: Files, path: str, owner: str) -> None:
    """Move all files of a segment that belongs elsewhere here.

    Raises:
        OSError: as reported by the file layer.
    """
    topic, timestamp = path.split("/")[-2:]
    folder = _foreign_folder(files, topic, timestamp)
    # The data first, and for good: the other files alone are no segment, and the data alone would
    # be taken for the original's.
    for suffix in ("_data", "_index", "_sum", "_seq", "_lock"):
        if files.size(path + suffix) is not None:
            files.rename(path + suffix, f"{folder}/{timestamp}{suffix}")
        if suffix == "_data":
            files.sync_folder(folder)
            files.sync_folder(path.rpartition("/")[0])
    _log.error("segment %s is not served: its files are those of %s, and now in %s",
               path, owner, folder)  # fmt: skip


def foreign_folders(files: Files) -> list[tuple[str, int]]:
    """Return the folders with segments that belong elsewhere, and how many are in each.

    Raises:
        OSError: as reported by the file layer.
    """
    found = []
    for place in _places(files):
        for topic, is_folder in sorted(files.list_folder(place)):
            names = files.list_folder(f"{place}/{topic}") if is_folder else []
            segments_count = sum(each.name.endswith("_data") for each in names)
            if segments_count:
                found.append((f"{place}/{topic}", segments_count))
    return found


def foreign_text(folder: str, segments_count: int) -> str:
    """Return a sentence about a folder with segments that belong elsewhere."""
    what = "a segment" if segments_count == 1 else f"{segments_count} segments"
    return f"{folder} holds {what} found under the name of another, and not served"


def _foreign_folder(files: Files, topic: str, timestamp: str) -> str:
    """Make the folder that a segment goes to, in which nothing has its name yet."""
    for number in count(1):
        place = _FOREIGN if number == 1 else f"{_FOREIGN}-{number}"
        folder = f"{QUARANTINE_FOLDER}/{place}/{topic}"
        if files.size(f"{folder}/{timestamp}_data") is None:
            break
    if files.make_folder(QUARANTINE_FOLDER):
        files.sync_folder("")
    if files.make_folder(f"{QUARANTINE_FOLDER}/{place}"):
        files.sync_folder(QUARANTINE_FOLDER)
    if files.make_folder(folder):
        files.sync_folder(f"{QUARANTINE_FOLDER}/{place}")
    return folder


def _places(files: Files) -> list[str]:
    """Return the folders of foreign segments, oldest first."""
    try:
        entries = files.list_folder(QUARANTINE_FOLDER)
    except FileNotFoundError:
        return []
    names = [name for name, is_folder in entries if is_folder and name.startswith(_FOREIGN)]
    return [
        f"{QUARANTINE_FOLDER}/{name}" for name in sorted(names, key=lambda name: (len(name), name))
    ]


def _name_of(path: str, what: str) -> str:
    """Name what is kept of a segment; of a topic with a long name the beginning, and a hash."""
    topic, timestamp = path.split("/")[-2:]
    whole = folder_bytes(topic)
    if len(whole) > _TOPIC_BYTES_MAX:
        topic = f"{topic[: _TOPIC_BYTES_MAX // 3]}~{xxh3_64_hexdigest(whole)}"
    return f"{QUARANTINE_FOLDER}/{timestamp}{what}_{topic}"


def _chunks(data: OpenFile, start: int, end: int) -> Iterator[bytes]:
    for offset in range(start, end, _CHUNK_BYTES):
        yield data.read_at(min(_CHUNK_BYTES, end - offset), offset)


def _make_room(files: Files, wanted_bytes: int) -> None:
    """Make the folder, and remove what came from the oldest segments until the rest fits."""
    files.make_folder(QUARANTINE_FOLDER)
    sizes = {
        entry.name: files.size(f"{QUARANTINE_FOLDER}/{entry.name}") or 0
        for entry in files.list_folder(QUARANTINE_FOLDER)
        if not entry.is_folder
    }
    used_bytes = sum(sizes.values())
    for name in sorted(sizes, key=_timestamp_in):
        if used_bytes + wanted_bytes <= _BYTES_MAX:
            break
        _log.error("%s is removed: the folder may hold %d bytes", name, _BYTES_MAX)
        files.unlink(f"{QUARANTINE_FOLDER}/{name}")
        used_bytes -= sizes[name]


def _timestamp_in(name: str) -> int:
    with contextlib.suppress(ValueError):
        return int(name.partition("_")[0])
    return 0
