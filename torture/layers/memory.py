"""A disk in memory: what `RealFiles` does, without a kernel, thousands of times a second.

It has no faults of its own; put a `WatchedFiles` around it.
"""

import errno
import mmap
import os

from poe.storage import FolderEntry, Mode, OpenFile

BLOCK_BYTES = 4096


class Inode:
    """The content of a file, which its names and its open files share."""

    __slots__ = ("_content", "_map", "behind")

    def __init__(self, content: bytes = b"", behind: bytes = b"") -> None:
        self._content = bytearray(content)
        self._map: mmap.mmap | None = None
        self.behind = behind
        """What lies on the disk behind the end, in the last block: written before a power cut that
        came before the size was. Whatever writes this block again writes zeros there."""

    @property
    def content(self) -> bytearray:
        """The bytes, with what was stored through a map."""
        if self._map is not None:
            length = min(len(self._map), len(self._content))
            self._content[:length] = self._map[:length]
        return self._content

    def copy(self) -> "Inode":
        """Copy what is on the disk."""
        return Inode(bytes(self.content), self.behind)

    def write(self, data: bytes | bytearray | memoryview, offset: int) -> None:
        """Write, filling a gap with zeros."""
        content = self.content
        if offset + len(data) > len(content) // BLOCK_BYTES * BLOCK_BYTES:
            self.behind = b""
        if offset > len(content):
            content.extend(bytes(offset - len(content)))
        content[offset : offset + len(data)] = data
        if self._map is not None:
            self._map[:] = bytes(content[: len(self._map)])

    def resize(self, size: int) -> None:
        """Cut, or extend with zeros."""
        content = self.content
        self.behind = b""
        del content[size:]
        content.extend(bytes(size - len(content)))

    def grow_alone(self, size: int) -> None:
        """Have the disk know that the file is larger, and not yet what was written there."""
        content = self.content
        grown_bytes = max(size - len(content), 0)
        content.extend(self.behind[:grown_bytes].ljust(grown_bytes, b"\0"))
        self.behind = self.behind[grown_bytes:]

    def forget_size(self, size: int) -> None:
        """Have the disk know of a smaller size only, with the rest of its last block behind it."""
        content = self.content
        self.behind = bytes(content[size : size + -size % BLOCK_BYTES])
        del content[size:]

    def map(self, length: int, *, is_writable: bool) -> mmap.mmap:
        """Map the beginning. A map for reading is a copy: what was mapped never changes."""
        content = self.content
        if length > len(content):
            raise ValueError("mmap length is greater than file size")
        if is_writable and self._map is not None and len(self._map) == length:
            return self._map
        mapped = mmap.mmap(-1, length)
        mapped[:] = bytes(content[:length])
        if is_writable:
            self._map = mapped
        return mapped


class MemoryFiles:
    """Files and folders in dictionaries; `inodes` and `folders` are public."""

    def __init__(self, boot_id: str = "boot") -> None:
        self.base = "memory"
        self.boot_id = boot_id
        self.process_id = 1
        self.unlink_threads = 1
        self.inodes: dict[str, Inode] = {}
        self.folders: set[str] = {""}
        self.locked: set[str] = set()
        self._changed_us: dict[str, int] = {}
        self._change_count = 0

    def copy(self, boot_id: str) -> "MemoryFiles":
        """Copy everything, as a kill leaves it: nothing is locked."""
        other = MemoryFiles(boot_id)
        other.folders = set(self.folders)
        other.inodes = {path: i.copy() for path, i in self.inodes.items()}
        other._changed_us = dict(self._changed_us)
        other._change_count = self._change_count
        return other

    def make(self, path: str) -> Inode:
        """Make a file."""
        self._note_change(path)
        inode = self.inodes[path] = Inode()
        return inode

    def _note_change(self, path: str) -> None:
        """Note when the names in a folder were changed last, by a clock that counts changes."""
        self._change_count += 1
        self._changed_us[path.rpartition("/")[0]] = self._change_count

    def snapshot(self) -> dict[str, bytes]:
        """Tell the content of all files."""
        return {path: bytes(inode.content) for path, inode in self.inodes.items()}

    def open(self, path: str, mode: Mode) -> OpenFile:
        self._check_folder(path)
        inode = self.inodes.get(path)
        if mode == "x+" and inode is not None:
            raise _error(errno.EEXIST)
        if mode in {"r", "r+"} and inode is None:
            raise _error(errno.EISDIR if path in self.folders else errno.ENOENT)
        if inode is None:
            inode = self.make(path)
        elif mode == "w+":
            inode.resize(0)
        return MemoryFile(inode)

    def size(self, path: str) -> int | None:
        inode = self.inodes.get(path)
        return None if inode is None else len(inode.content)

    def modified_us(self, path: str) -> int | None:
        if path in self.folders:
            return self._changed_us.get(path, 0)
        return None if path not in self.inodes else 0

    def rename(self, path: str, new_path: str) -> None:
        if path not in self.inodes:
            raise _error(errno.ENOENT)
        self.inodes[new_path] = self.inodes.pop(path)
        self._note_change(path)
        self._note_change(new_path)

    def unlink(self, path: str) -> None:
        if self.inodes.pop(path, None) is not None:
            self._note_change(path)

    def list_folder(self, path: str) -> list[FolderEntry]:
        if path not in self.folders:
            raise _error(errno.ENOENT)
        start = f"{path}/" if path else ""
        files = [name.removeprefix(start) for name in self.inodes if name.startswith(start)]
        folders = [name.removeprefix(start) for name in self.folders if name.startswith(start)]
        return [FolderEntry(name, False) for name in files if "/" not in name] + [
            FolderEntry(name, True) for name in folders if name and "/" not in name
        ]

    def make_folder(self, path: str) -> bool:
        self._check_folder(path)
        if path in self.inodes:
            raise _error(errno.EEXIST)
        is_new = path not in self.folders
        self.folders.add(path)
        return is_new

    def remove_folder(self, path: str) -> None:
        if self.list_folder(path):
            raise _error(errno.ENOTEMPTY)
        self.folders.remove(path)

    def sync_folder(self, path: str) -> None:
        if path not in self.folders:
            raise _error(errno.ENOENT)

    def sync_all(self) -> None:
        pass

    def lock(self, path: str) -> OpenFile:
        if path in self.locked:
            raise BlockingIOError(errno.EAGAIN, "locked")
        self.locked.add(path)
        return _LockFile(self, path, self.inodes.setdefault(path, Inode()))

    def is_open_elsewhere(self, path: str) -> bool:
        return path not in self.inodes

    def is_in_place(self, path: str, file: OpenFile) -> bool:
        return isinstance(file, MemoryFile) and self.inodes.get(path) is file.inode

    def free_bytes(self) -> int:
        return 1 << 40

    def file_system(self) -> str:
        return ""

    def _check_folder(self, path: str) -> None:
        if path.rpartition("/")[0] not in self.folders:
            raise _error(errno.ENOENT)


class MemoryFile:
    """An open file of `MemoryFiles`."""

    def __init__(self, inode: Inode) -> None:
        self.inode = inode

    def write_at(self, data: bytes | bytearray | memoryview, offset: int) -> None:
        self.inode.write(data, offset)

    def read_at(self, length: int, offset: int) -> bytes:
        return bytes(self.inode.content[offset : offset + length])

    def size(self) -> int:
        return len(self.inode.content)

    def truncate(self, size: int) -> None:
        self.inode.resize(size)

    def allocate(self, size: int) -> None:
        self.inode.resize(max(size, self.size()))

    def reserve(self, size: int) -> None:
        pass

    def sync(self) -> None:
        pass

    def map(self, length: int, *, is_writable: bool = False) -> mmap.mmap:
        return self.inode.map(length, is_writable=is_writable)

    def fileno(self) -> int:
        raise _error(errno.EOPNOTSUPP)


class _LockFile(MemoryFile):
    """Holds a lock as long as it lives."""

    def __init__(self, files: MemoryFiles, path: str, inode: Inode) -> None:
        super().__init__(inode)
        self._files = files
        self._path = path

    def __del__(self) -> None:
        self._files.locked.discard(self._path)


def _error(number: int) -> OSError:
    return OSError(number, os.strerror(number))
