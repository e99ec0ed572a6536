"""A file layer around another one, which tells somebody of each operation before it is done.

Whoever is told may raise, do a part of a write first, or end the process: that is how the Nth
operation fails, and how a process is killed at the Nth.
"""

import errno
import mmap
import os
import signal
from collections.abc import Callable
from random import Random
from typing import Any, NamedTuple

from poe.storage import Files, FolderEntry, Mode, OpenFile


class Operation(NamedTuple):
    """One operation that is about to be done, or has been."""

    name: str
    """As the method of `Files` or `OpenFile` is called."""

    path: str
    arguments: tuple[Any, ...]
    do: Callable[..., Any]
    """Does it, with these or other arguments."""

    def do_in_part(self, share: float) -> None:
        """Write the first part of what is to be written; nothing for any other operation."""
        if self.name == "write_at":
            data, offset = self.arguments
            part = memoryview(data)[: int(len(data) * share)]
            if len(part):
                self.do(part, offset)


Before = Callable[[Operation], None]
After = Callable[[Operation, Any], None]


class WatchedFiles:
    """Passes everything on to `files`."""

    def __init__(self, files: Files, before: Before, after: After | None = None) -> None:
        self.base = files.base
        self.boot_id = files.boot_id
        self.process_id = files.process_id
        self.unlink_threads = 1
        self._files = files
        self._before = before
        self._after = after

    def run(self, name: str, path: str, do: Callable[..., Any], *arguments: object) -> Any:
        """Do one operation under supervision."""
        operation = Operation(name, path, arguments, do)
        self._before(operation)
        result = do(*arguments)
        if self._after is not None:
            self._after(operation, result)
        return result

    def open(self, path: str, mode: Mode) -> OpenFile:
        return WatchedFile(self, path, self.run("open", path, self._files.open, path, mode))

    def size(self, path: str) -> int | None:
        size: int | None = self.run("size", path, self._files.size, path)
        return size

    def modified_us(self, path: str) -> int | None:
        return self._files.modified_us(path)

    def rename(self, path: str, new_path: str) -> None:
        self.run("rename", path, self._files.rename, path, new_path)

    def unlink(self, path: str) -> None:
        self.run("unlink", path, self._files.unlink, path)

    def list_folder(self, path: str) -> list[FolderEntry]:
        entries: list[FolderEntry] = self.run("list_folder", path, self._files.list_folder, path)
        return entries

    def make_folder(self, path: str) -> bool:
        return bool(self.run("make_folder", path, self._files.make_folder, path))

    def remove_folder(self, path: str) -> None:
        self.run("remove_folder", path, self._files.remove_folder, path)

    def sync_folder(self, path: str) -> None:
        self.run("sync_folder", path, self._files.sync_folder, path)

    def sync_all(self) -> None:
        self.run("sync_all", "", self._files.sync_all)

    def lock(self, path: str) -> OpenFile:
        return WatchedFile(self, path, self.run("lock", path, self._files.lock, path))

    def is_open_elsewhere(self, path: str) -> bool | None:
        return self._files.is_open_elsewhere(path)

    def is_in_place(self, path: str, file: OpenFile) -> bool:
        return self._files.is_in_place(path, file.file if isinstance(file, WatchedFile) else file)

    def free_bytes(self) -> int:
        return self._files.free_bytes()

    def file_system(self) -> str:
        return self._files.file_system()


class WatchedFile:
    """An open file of `WatchedFiles`."""

    def __init__(self, files: WatchedFiles, path: str, file: OpenFile) -> None:
        self._files = files
        self._path = path
        self.file = file

    def write_at(self, data: bytes | bytearray | memoryview, offset: int) -> None:
        self._files.run("write_at", self._path, self.file.write_at, data, offset)

    def read_at(self, length: int, offset: int) -> bytes:
        data: bytes = self._files.run("read_at", self._path, self.file.read_at, length, offset)
        return data

    def size(self) -> int:
        return int(self._files.run("file_size", self._path, self.file.size))

    def truncate(self, size: int) -> None:
        self._files.run("truncate", self._path, self.file.truncate, size)

    def allocate(self, size: int) -> None:
        self._files.run("allocate", self._path, self.file.allocate, size)

    def reserve(self, size: int) -> None:
        self._files.run("reserve", self._path, self.file.reserve, size)

    def sync(self) -> None:
        self._files.run("sync", self._path, self.file.sync)

    def map(self, length: int, *, is_writable: bool = False) -> mmap.mmap:
        def do(length: int) -> mmap.mmap:
            return self.file.map(length, is_writable=is_writable)

        name = "map_writable" if is_writable else "map"
        mapped: mmap.mmap = self._files.run(name, self._path, do, length)
        return mapped

    def fileno(self) -> int:
        return self.file.fileno()


class Failing:
    """Makes the Nth operation fail, once or from then on; counts them."""

    def __init__(self) -> None:
        self.count = 0
        self.failed_count = 0
        self._nth: int | None = None
        self._error_number = 0
        self._is_for_ever = False

    def fail(self, nth: int, error_number: int, *, is_for_ever: bool) -> None:
        """Fail the operation that `nth` others go before, counted from now on."""
        self.count = 0
        self._nth, self._error_number, self._is_for_ever = nth, error_number, is_for_ever

    def heal(self) -> None:
        """Fail no more."""
        self._nth = None

    def __call__(self, operation: Operation) -> None:
        number, self.count = self.count, self.count + 1
        if self._nth is None or number < self._nth:
            return
        if not self._is_for_ever:
            self._nth = None
        self.failed_count += 1
        operation.do_in_part(0.5)
        raise OSError(self._error_number, os.strerror(self._error_number))


ERRORS = (errno.EIO, errno.ENOSPC, errno.EDQUOT, errno.EINTR, errno.EMFILE)


class Killing:
    """Ends this process at the Nth operation; a write is done in part before."""

    def __init__(self, nth: int, random: Random) -> None:
        self._left_count = nth
        self._share = random.choice([0.0, random.random(), 1.0])

    def __call__(self, operation: Operation) -> None:
        if self._left_count == 0:
            operation.do_in_part(self._share)
            os.kill(os.getpid(), signal.SIGKILL)
        self._left_count -= 1
