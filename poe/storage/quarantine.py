"""Where bytes go that recovery takes out of service: a folder beside the topics, of limited size.

For whoever can make sense of them; no program of ours reads them. Names tell where they come from,
and by their hash do not depend on how often a recovery was begun: `<timestamp>_<offset>_<hash of
the bytes>_<topic>` for what was cut off a data file, `<timestamp>_<file>_<topic>` for the file of a
segment that has no data.
"""

import contextlib
import logging
from collections.abc import Iterator

from xxhash import xxh3_64, xxh3_64_hexdigest

from poe.storage.files import Files, OpenFile
from poe.storage.topic_name import folder_bytes

QUARANTINE_FOLDER = "quarantine"
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
    kept = files.open(name, "w+")
    at = 0
    for chunk in _chunks(data, start, end):
        kept.write_at(chunk, at)
        at += len(chunk)
    # The cut is made durable next, and a power cut must not take both.
    kept.sync()
    files.sync_folder(QUARANTINE_FOLDER)
    _log.error("%d bytes that are cut off %s_data are kept in %s", end - start, path, name)


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
