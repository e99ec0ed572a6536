"""What a file is known by, so that a change is seen without reading it."""

import os
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple


class FileStamp(NamedTuple):
    """Differs once another file is there, or its content, its mode or its owner is another."""

    inode: int
    size_bytes: int
    modified_ns: int
    mode: int
    user: int
    group: int


Stamps = tuple[FileStamp | None, ...]


def stamps_of(paths: Iterable[str | os.PathLike[str] | None]) -> Stamps:
    """Return the stamp of each file; None of one that is not there, and of no path."""
    return tuple(None if path is None else _stamp(path) for path in paths)


def _stamp(path: str | os.PathLike[str]) -> FileStamp | None:
    try:
        found = Path(path).stat()
    except (OSError, ValueError):  # ValueError: a path with a null byte
        return None
    content = found.st_ino, found.st_size, found.st_mtime_ns
    return FileStamp(*content, found.st_mode, found.st_uid, found.st_gid)
