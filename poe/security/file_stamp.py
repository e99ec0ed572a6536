"""What a file is known by, so that a change is seen without reading it."""

import errno
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Final, NamedTuple

_PASSING: Final = frozenset(
    {errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EIO, errno.EINTR, errno.ESTALE}
)


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


def may_pass(error: Exception) -> bool:
    """Return whether a file could not be read for the moment, though it may be as it should."""
    cause = error.__cause__
    return isinstance(cause, OSError) and cause.errno in _PASSING
