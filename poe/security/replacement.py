"""Put a file in place of another, anywhere on the disk.

The files of a store have a layer of their own; what is here lies outside of stores.
"""

import fcntl
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Final, Protocol

from poe.errors import SecurityFileError

SUFFIX: Final = ".new"
"""Of the file that is written, and then gets the name."""

_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_LOCK_S: Final = 30.0
"""Others who change a file take part of a second each, for a chosen password."""
_LOCK_PAUSE_S: Final = 0.02


class Calls(Protocol):
    """What is asked of the system: the module `os`, or in tests what dies at one of the calls."""

    def open(self, path: str, flags: int, mode: int = ...) -> int:
        """Open a file or a folder."""
        ...

    def write(self, fd: int, data: bytes, /) -> int:
        """Write some of the data; return how much."""
        ...

    def fchmod(self, fd: int, mode: int) -> None:
        """Give a file a mode."""
        ...

    def fchown(self, fd: int, uid: int, gid: int) -> None:
        """Give a file an owner and a group."""
        ...

    def fsync(self, fd: int) -> None:
        """Make a file, or the names in a folder, durable."""
        ...

    def rename(self, src: str, dst: str) -> None:
        """Give a file another name, replacing what had it."""
        ...

    def unlink(self, path: str) -> None:
        """Remove a file."""
        ...


def replace_file(path: str, content: bytes, calls: Calls = os) -> None:
    """Give a file this content, so that at any time the old one is there, or the new one whole.

    Mode and owner stay; a file that was not there is for its owner alone. A symbolic link stays,
    and leads to the new file. Who is killed meanwhile may leave a file behind that ends with
    `SUFFIX`, which the next to replace it removes; two at a time are kept apart by the caller.

    Raises:
        OSError: as reported by the system; nothing was replaced, unless the folder could not be
            synced.
    """
    with _replaced(os.path.realpath(path), content, calls):
        pass


def replace_files(files: Mapping[str, tuple[bytes, int]]) -> None:
    """Give several files new content, each as `replace_file` does; one that is new gets the mode.

    All are written before the first one gets its name: a disk that is full leaves no certificate
    beside the key of another.

    Raises:
        OSError: as `replace_file`.
    """
    with ExitStack() as written:
        for path, (content, mode) in files.items():
            written.enter_context(_replaced(os.path.realpath(path), content, os, mode=mode))


def replace_secret(path: str, content: bytes) -> None:
    """Likewise, for its owner alone whatever was there before; a link is replaced, not followed.

    Raises:
        OSError: as `replace_file`.
    """
    with _replaced(path, content, os, is_like_before=False):
        pass


@contextmanager
def locked_folder(path: str) -> Iterator[None]:
    """Keep others who change a file there waiting; a lock that ends with its process.

    Whoever may read the folder can have it, too, and keep it: nobody waits for that without end.

    Raises:
        SecurityFileError: it is no folder, cannot be locked, or somebody keeps it locked.
    """
    try:
        folder = os.open(path, _FOLDER)
    except OSError as error:
        raise SecurityFileError(path, None, f"it is no folder ({error.strerror})") from error
    try:
        until_s = time.monotonic() + _LOCK_S
        while not _is_locked(folder, path):
            if time.monotonic() >= until_s:
                why = "another process has it locked (flock); nothing was changed, try again"
                raise SecurityFileError(path, None, why)
            time.sleep(_LOCK_PAUSE_S)
        yield
    finally:
        os.close(folder)


def _is_locked(folder: int, path: str) -> bool:
    """Return whether a folder is ours now.

    Raises:
        SecurityFileError: nobody can lock it.
    """
    try:
        fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:  # as of a file system of a network
        raise SecurityFileError(path, None, f"it cannot be locked ({error.strerror})") from error
    return True


@contextmanager
def _replaced(
    path: str, content: bytes, calls: Calls, *, is_like_before: bool = True, mode: int = 0o600
) -> Iterator[None]:
    """Write a file that gets its name at the end of the block; none is left where that raises."""
    with suppress(FileNotFoundError):
        calls.unlink(path + SUFFIX)
    fd = calls.open(path + SUFFIX, _NEW, mode)
    try:
        try:
            if is_like_before:
                _be_like(fd, path, calls)
            while content:
                content = content[calls.write(fd, content) :]
            calls.fsync(fd)
        finally:
            os.close(fd)  # of many files that are written together none stays open
        yield
        calls.rename(path + SUFFIX, path)
    except OSError:
        calls.unlink(path + SUFFIX)
        raise
    folder = calls.open(str(Path(path).parent), _FOLDER)
    try:
        calls.fsync(folder)
    finally:
        os.close(folder)


def _be_like(fd: int, path: str, calls: Calls) -> None:
    """Give a new file the owner and the mode of the one in whose place it comes."""
    with suppress(FileNotFoundError):
        old = Path(path).stat()
        if (old.st_uid, old.st_gid) != (os.geteuid(), os.getegid()):
            calls.fchown(fd, old.st_uid, old.st_gid)
        calls.fchmod(fd, old.st_mode & 0o777)
