"""Turn what the operating system reports about a file into Poe's errors."""

import errno

from poe.errors import NoDescriptors, ReadFailed, StorageError, StorageFull, WriteFailed

# EFBIG is a limit on the size of files, of the process or of the file system.
_NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
_NO_DESCRIPTORS = frozenset({errno.EMFILE, errno.ENFILE})


def as_storage_error(error: OSError, path: str) -> StorageError:
    """Name the failure of a write: no room or no descriptor, which passes, or anything else."""
    reason = _reason_of(error, path)
    if error.errno in _NO_DESCRIPTORS:
        return NoDescriptors(path, reason)
    if error.errno in _NO_ROOM:
        return StorageFull(path, reason)
    return WriteFailed(path, reason)


def as_read_failed(error: OSError, path: str) -> StorageError:
    """Name the failure to open or read a file."""
    if error.errno in _NO_DESCRIPTORS:
        return NoDescriptors(path, _reason_of(error, path))
    return ReadFailed(path, _reason_of(error, path))


def _reason_of(error: OSError, path: str) -> str:
    """Return what failed, and of which file where `path` stands for several."""
    reason = error.strerror or str(error)
    name = error.filename
    return reason if not isinstance(name, str) or path.endswith(name) else f"{reason}: {name}"


class writing:  # noqa: N801 - a statement: `with writing(path):`
    """Report failures of the block, which changes files at `path`.

    Raises:
        StorageFull: no room on the disk.
        NoDescriptors: the process may open no more files.
        WriteFailed: another failure.
    """

    # No generator: it would cost four times as much, and new topics enter thirty of these.
    __slots__ = ("_path",)

    def __init__(self, path: str) -> None:
        self._path = path

    def __enter__(self) -> None:
        """Begin the block."""

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        """End the block."""
        if isinstance(error, OSError):
            raise as_storage_error(error, self._path) from error


class reading:  # noqa: N801 - as `writing`
    """Report failures of the block, which opens or reads files at `path`.

    Raises:
        ReadFailed: the files cannot be opened or read.
        NoDescriptors: the process may open no more files.
    """

    __slots__ = ("_path",)

    def __init__(self, path: str) -> None:
        self._path = path

    def __enter__(self) -> None:
        """Begin the block."""

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        """End the block."""
        if isinstance(error, OSError):
            raise as_read_failed(error, self._path) from error
