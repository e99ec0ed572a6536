"""Tells whether a file was changed or replaced, without reading it."""

import os
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple


class FileMark(NamedTuple):
    """Differs from that of the same path once another file is there, or other content."""

    inode: int
    size_bytes: int
    modified_ns: int


Marks = tuple[FileMark | None, ...]


def marks_of(paths: Iterable[str | os.PathLike[str] | None]) -> Marks:
    """Return the mark of each file; None of one that is not there, and of no path."""
    return tuple(None if path is None else _mark(path) for path in paths)


def _mark(path: str | os.PathLike[str]) -> FileMark | None:
    try:
        found = Path(path).stat()
    except (OSError, ValueError):  # ValueError: a path with a null byte
        return None
    return FileMark(found.st_ino, found.st_size, found.st_mtime_ns)
