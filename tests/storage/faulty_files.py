"""A file layer that does what a real one does, until a chosen call fails.

Operations are counted through the layer and all files it opened. `fail(nth, error_number)` makes
the Nth call from now on raise; a failing write has written half of its bytes before, as a full disk
does. With `is_for_ever`, all calls after it fail, too. `free` is what the disk says to have left,
`kind` what file system it says to be. While it `is_read_only`, no file can be opened to be written.
"""

import errno
import os

from poe.storage import Files, FolderEntry, Mode, OpenFile


class FaultyFiles:
    def __init__(self, files: Files, boot_id: str | None = None):
        self.base = files.base
        self.process_id = files.process_id
        self.unlink_threads = 1
        self.boot_id = files.boot_id if boot_id is None else boot_id
        self.real = files
        self.countdown = -1
        self.error_number = 0
        self.is_for_ever = False
        self.operations: tuple[str, ...] = ()
        self.failed_count = 0
        self.free: int | None = None
        self.kind: str | None = None
        self.is_read_only = False

    def fail(self, nth, error_number, *operations, is_for_ever=False):
        self.countdown = nth
        self.error_number = error_number
        self.is_for_ever = is_for_ever
        self.operations = operations
        self.failed_count = 0

    def heal(self):
        self.countdown = -1

    def must_fail(self, operation):
        if self.countdown < 0 or (self.operations and operation not in self.operations):
            return False
        if self.countdown > 0:
            self.countdown -= 1
            return False
        self.countdown = 0 if self.is_for_ever else -1
        self.failed_count += 1
        return True

    def check(self, operation):
        if self.must_fail(operation):
            raise self.error()

    def error(self):
        return OSError(self.error_number, os.strerror(self.error_number))

    def open(self, path: str, mode: Mode) -> OpenFile:
        self.check("open")
        if self.is_read_only and mode != "r":
            raise OSError(errno.EROFS, os.strerror(errno.EROFS))
        return FaultyFile(self, self.real.open(path, mode))

    def size(self, path: str) -> int | None:
        self.check("size")
        return self.real.size(path)

    def modified_us(self, path: str) -> int | None:
        self.check("modified_us")
        return self.real.modified_us(path)

    def rename(self, path: str, new_path: str) -> None:
        self.check("rename")
        self.real.rename(path, new_path)

    def unlink(self, path: str) -> None:
        self.check("unlink")
        self.real.unlink(path)

    def list_folder(self, path: str) -> list[FolderEntry]:
        self.check("list_folder")
        return self.real.list_folder(path)

    def make_folder(self, path: str) -> bool:
        self.check("make_folder")
        return self.real.make_folder(path)

    def remove_folder(self, path: str) -> None:
        self.check("remove_folder")
        self.real.remove_folder(path)

    def sync_folder(self, path: str) -> None:
        self.check("sync_folder")
        self.real.sync_folder(path)

    def sync_all(self) -> None:
        self.check("sync_all")
        self.real.sync_all()

    def lock(self, path: str) -> OpenFile:
        self.check("lock")
        return FaultyFile(self, self.real.lock(path))

    def is_open_elsewhere(self, path: str) -> bool | None:
        return self.real.is_open_elsewhere(path)

    def file_system(self) -> str:
        return self.real.file_system() if self.kind is None else self.kind

    def is_in_place(self, path: str, file: OpenFile) -> bool:
        return self.real.is_in_place(path, file.file if isinstance(file, FaultyFile) else file)

    def free_bytes(self) -> int:
        if "free_bytes" in self.operations:  # a look, which is no operation on files
            self.check("free_bytes")
        return self.real.free_bytes() if self.free is None else self.free


class FaultyFile:
    def __init__(self, layer: FaultyFiles, file: OpenFile):
        self.layer = layer
        self.file = file

    def write_at(self, data, offset):
        if self.layer.must_fail("write_at"):
            half = memoryview(data)[: len(data) // 2]
            if len(half):
                self.file.write_at(half, offset)
            raise self.layer.error()
        self.file.write_at(data, offset)

    def read_at(self, length, offset):
        self.layer.check("read_at")
        return self.file.read_at(length, offset)

    def size(self):
        self.layer.check("size")
        return self.file.size()

    def truncate(self, size):
        self.layer.check("truncate")
        self.file.truncate(size)

    def allocate(self, size):
        self.layer.check("allocate")
        self.file.allocate(size)

    def reserve(self, size):
        self.layer.check("reserve")
        self.file.reserve(size)

    def sync(self):
        self.layer.check("sync")
        self.file.sync()

    def map(self, length, *, is_writable=False):
        self.layer.check("map")
        return self.file.map(length, is_writable=is_writable)

    def fileno(self):
        return self.file.fileno()
