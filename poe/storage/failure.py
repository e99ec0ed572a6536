"""Turn what the operating system reports about a file into Poe's errors."""

import contextlib
import errno
from collections.abc import Iterator

from poe.errors import ReadFailed, StorageFull, WriteFailed

# EFBIG is a limit on the size of files, of the process or of the file system.
_NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


def as_storage_error(error: OSError, path: str) -> StorageFull | WriteFailed:
    """Name the failure of a write: no room, which passes, or anything else."""
    reason = error.strerror or str(error)
    if error.errno in _NO_ROOM:
        return StorageFull(path, reason)
    return WriteFailed(path, reason)


def as_read_failed(error: OSError, path: str) -> ReadFailed:
    """Name the failure to open or read a file."""
    return ReadFailed(path, error.strerror or str(error))


@contextlib.contextmanager
def writing(path: str) -> Iterator[None]:
    """Report failures of the block, which changes files at `path`.

    Raises:
        StorageFull: no room on the disk.
        WriteFailed: another failure.
    """
    try:
        yield
    except OSError as error:
        raise as_storage_error(error, path) from error


@contextlib.contextmanager
def reading(path: str) -> Iterator[None]:
    """Report failures of the block, which opens or reads files at `path`.

    Raises:
        ReadFailed: the files cannot be opened or read.
    """
    try:
        yield
    except OSError as error:
        raise as_read_failed(error, path) from error
