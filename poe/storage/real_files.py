"""The file layer on a real disk: `os` calls, each relative to the descriptor of one base folder.

Strategy against names that lead elsewhere: no symbolic link is followed, see `open_beneath.py`, so
one put in the way of a topic is an error, never a door. Folders are made 0700, files
0600, and every descriptor is closed in programs that a process starts (O_CLOEXEC).

What root makes belongs to the owner of the base folder: a server that runs as that user could not
read what a repair by `sudo` leaves.
"""

import contextlib
import ctypes
import errno
import fcntl
import mmap
import os
import re
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Self

from poe.errors import NoDescriptors, OptionError
from poe.storage.failure import as_storage_error
from poe.storage.file_system import HOST_FILE_SYSTEMS, NETWORK_FILE_SYSTEMS
from poe.storage.files import FolderEntry, Mode, OpenFile
from poe.storage.open_beneath import FOLDER, WALK, open_beneath
from poe.storage.open_files import is_open_elsewhere

# Without O_NONBLOCK a pipe in the place of a file waits until somebody opens its other end.
_SAFE = os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
_FLAGS: dict[Mode, int] = {
    "r": os.O_RDONLY | _SAFE,
    "r+": os.O_RDWR | _SAFE,
    "x+": os.O_RDWR | os.O_CREAT | os.O_EXCL | _SAFE,
    "w+": os.O_RDWR | os.O_CREAT | os.O_TRUNC | _SAFE,
}
_UNLINK_THREADS = 4
"""With other load on ext4, several are faster by as much; alone, they wait for each other."""
_KEEP_SIZE = 1  # FALLOC_FL_KEEP_SIZE
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


def _find_fallocate() -> Callable[[int, int, int, int], int] | None:
    """Return Linux's fallocate, which Python offers only in the form that changes the size."""
    function = getattr(ctypes.CDLL(None, use_errno=True), "fallocate", None)
    if function is not None:
        function.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_long, ctypes.c_long)
    return function


_fallocate = _find_fallocate()


def _find_syncfs() -> Callable[[int], int] | None:
    """Return Linux's syncfs, where it tells of failures."""
    release = tuple(map(int, re.findall(r"\d+", os.uname().release)[:2]))
    if os.uname().sysname != "Linux" or release < _TELLING_RELEASE:
        return None
    function = getattr(ctypes.CDLL(None, use_errno=True), "syncfs", None)
    if function is not None:
        function.argtypes = (ctypes.c_int,)
    return function


_TELLING_RELEASE = (5, 17)
_TELLING_FILE_SYSTEMS = frozenset({"ext4", "xfs", "btrfs"})
_syncfs = _find_syncfs()


class RealFile:
    """An open file on disk; owns its descriptor and closes it when nobody refers to it any more."""

    __slots__ = ("__weakref__", "_fd")

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def __del__(self) -> None:
        os.close(self._fd)

    def write_at(self, data: bytes | bytearray | memoryview, offset: int) -> None:
        """Write all of `data`; when it raises, any part of it may have been written."""
        written = os.pwrite(self._fd, data, offset)
        # A short write is no error to the kernel: the next try tells the reason.
        while written < len(data):
            step = os.pwrite(self._fd, memoryview(data)[written:], offset + written)
            if step == 0:
                raise OSError(errno.EIO, "write accepted no bytes")
            written += step

    def read_at(self, length: int, offset: int) -> bytes:
        """Read up to `length` bytes; fewer at the end of the file."""
        try:
            return self._read_at(length, offset)
        except MemoryError as error:
            # A file may be that large by mistake, and then is no reason to end everything.
            raise OSError(errno.ENOMEM, os.strerror(errno.ENOMEM)) from error

    def _read_at(self, length: int, offset: int) -> bytes:
        data = os.pread(self._fd, length, offset)
        if len(data) == length:
            return data
        # One pread gives at most 2^31 - 4096 bytes, and may be interrupted.
        parts = [data]
        while data:
            offset += len(data)
            length -= len(data)
            data = os.pread(self._fd, length, offset)
            parts.append(data)
        return b"".join(parts)

    def size(self) -> int:
        """Return the size in bytes."""
        return os.fstat(self._fd).st_size

    def truncate(self, size: int) -> None:
        """Cut or extend the file to `size` bytes."""
        os.ftruncate(self._fd, size)

    def allocate(self, size: int) -> None:
        """Extend the file to `size` bytes, with disk blocks reserved for all of them."""
        os.posix_fallocate(self._fd, 0, size)

    def reserve(self, size: int) -> None:
        """Reserve disk blocks for the first `size` bytes, and leave the size of the file as it is.

        `truncate` gives blocks behind the end back. Where the system cannot, nothing happens.
        """
        if _fallocate is not None and _fallocate(self._fd, _KEEP_SIZE, 0, size) != 0:
            error_number = ctypes.get_errno()
            if error_number not in {errno.EOPNOTSUPP, errno.ENOSYS}:
                raise OSError(error_number, os.strerror(error_number))

    def sync(self) -> None:
        """Make what was written durable (fdatasync)."""
        os.fdatasync(self._fd)

    def map(self, length: int, *, is_writable: bool = False) -> mmap.mmap:
        """Map the first `length` bytes, 1 or more, into memory."""
        access = mmap.ACCESS_WRITE if is_writable else mmap.ACCESS_READ
        return mmap.mmap(self._fd, length, access=access)

    def fileno(self) -> int:
        """Return the descriptor, for `sendfile`; valid while the object is referenced."""
        return self._fd


class LockedFile(RealFile):
    """An open file under a lock, which ends with this object in the process that took it.

    The kernel would keep the lock as long as any copy of the descriptor is open, and a process that
    was forked this moment has not closed its own yet.
    """

    __slots__ = ("_pid",)

    def __init__(self, fd: int) -> None:
        super().__init__(fd)
        self._pid = os.getpid()

    def __del__(self) -> None:
        if self._pid == os.getpid():
            with contextlib.suppress(OSError):  # closing it is what remains to be done
                fcntl.flock(self._fd, fcntl.LOCK_UN)
        super().__del__()


class RealFiles:
    """The folder tree below `base`; owns one descriptor, that of the base folder."""

    __slots__ = ("_absolute", "_base_fd", "_owner", "base", "boot_id", "unlink_threads")

    def __init__(self, base: str, base_fd: int) -> None:
        self.base = base
        # The program may go to another folder.
        self._absolute = os.path.abspath(base)  # noqa: PTH100 - as the folder was opened, with its links
        self._base_fd = base_fd
        found = os.fstat(base_fd)
        is_of_another = os.geteuid() == 0 != found.st_uid
        self._owner = (found.st_uid, found.st_gid) if is_of_another else None
        self.boot_id = _read_boot_id()
        self.unlink_threads = _UNLINK_THREADS

    def __del__(self) -> None:
        os.close(self._base_fd)

    @property
    def process_id(self) -> int:
        """Of this process."""
        return os.getpid()

    @classmethod
    def at(cls, base: Path) -> Self:
        """Open the base folder, making it and its parents when missing.

        Raises:
            OptionError: it is no folder, or this user may not write it.
            NoDescriptors: the process may open no more files.
        """
        try:
            base.mkdir(mode=0o700, parents=True, exist_ok=True)
            base_fd = os.open(base, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError as error:
            failure = as_storage_error(error, str(base))
            if isinstance(failure, NoDescriptors):  # another folder would be no better
                raise failure from error
            reason = error.strerror or str(error)
            if isinstance(error, FileExistsError):
                reason = "it is a file" if base.exists() else "it is a link that leads nowhere"
            raise _unusable(base, reason) from error
        files = cls(str(base), base_fd)
        if not os.access(base, os.W_OK | os.X_OK):
            raise _unusable(base, "not writable")
        return files

    @classmethod
    def existing(cls, base: Path) -> Self:
        """Open a base folder that is there, be it for reading only.

        Raises:
            OSError: it is not there, no folder, or closed to this user.
        """
        return cls(str(base), os.open(base, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC))

    def open(self, path: str, mode: Mode) -> OpenFile:
        """Open a file; symbolic links are never followed."""
        file = RealFile(open_beneath(self._base_fd, _checked(path), _FLAGS[mode]))
        if mode != "x+":
            _regular(file, path)
        if _FLAGS[mode] & os.O_CREAT:
            self._hand_over(file.fileno())
        return file

    def size(self, path: str) -> int | None:
        """Return the size of a file in bytes; None when there is none."""
        try:
            with self._folder_of(path) as (folder_fd, name):
                return os.stat(name, dir_fd=folder_fd, follow_symlinks=False).st_size
        except FileNotFoundError:
            return None

    def modified_us(self, path: str) -> int | None:
        """Return when a file was last written, in microseconds since the epoch; None: no file."""
        try:
            with self._folder_of(path) as (folder_fd, name):
                entry = os.stat(name, dir_fd=folder_fd, follow_symlinks=False)
        except FileNotFoundError:
            return None
        return entry.st_mtime_ns // 1000

    def rename(self, path: str, new_path: str) -> None:
        """Give a file another name, replacing what had it."""
        with self._folder_of(path) as (old_fd, old), self._folder_of(new_path) as (new_fd, new):
            os.rename(old, new, src_dir_fd=old_fd, dst_dir_fd=new_fd)

    def unlink(self, path: str) -> None:
        """Remove a file; one that is not there is fine."""
        with contextlib.suppress(FileNotFoundError), self._folder_of(path) as (folder_fd, name):
            os.unlink(name, dir_fd=folder_fd)

    def list_folder(self, path: str) -> list[FolderEntry]:
        """List a folder, in no order."""
        fd = self._open_folder(path)
        try:
            with os.scandir(fd) as entries:
                return [FolderEntry(e.name, e.is_dir(follow_symlinks=False)) for e in entries]
        finally:
            os.close(fd)

    def make_folder(self, path: str) -> bool:
        """Make a folder; tell whether it was missing."""
        with self._folder_of(path) as (folder_fd, name):
            try:
                os.mkdir(name, 0o700, dir_fd=folder_fd)
            except FileExistsError:
                if not stat.S_ISDIR(os.stat(name, dir_fd=folder_fd, follow_symlinks=False).st_mode):
                    raise
                return False
            if self._owner is not None:
                fd = open_beneath(folder_fd, name, os.O_RDONLY | FOLDER)
                try:
                    self._hand_over(fd)
                finally:
                    os.close(fd)
            return True

    def remove_folder(self, path: str) -> None:
        """Remove an empty folder."""
        with self._folder_of(path) as (folder_fd, name):
            os.rmdir(name, dir_fd=folder_fd)

    def sync_folder(self, path: str) -> None:
        """Make the names in a folder durable; "" is the base folder."""
        fd = self._open_folder(path)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def sync_all(self) -> None:
        """Make all that was written to the file system durable, names and all, by whomever.

        Refused where the system does not tell of all failures: Linux does from 5.17 on, by the
        file systems named here.
        """
        if _syncfs is None or self.file_system() not in _TELLING_FILE_SYSTEMS:
            raise OSError(errno.EOPNOTSUPP, os.strerror(errno.EOPNOTSUPP))
        if _syncfs(self._base_fd) != 0:
            error_number = ctypes.get_errno()
            raise OSError(error_number, os.strerror(error_number))

    def lock(self, path: str) -> OpenFile:
        """Open a file, made when missing, under an exclusive lock; see `Files.lock`."""
        with self._folder_of(path) as (folder_fd, name):
            try:
                fd = os.open(name, os.O_RDWR | os.O_CREAT | _SAFE, 0o600, dir_fd=folder_fd)
            except OSError as error:
                if error.errno not in {errno.EROFS, errno.EACCES}:
                    raise
                # Who may only read can keep others away all the same.
                fd = os.open(name, os.O_RDONLY | _SAFE, dir_fd=folder_fd)
            file = LockedFile(fd)
            _regular(file, path)
            self._hand_over(fd)
        fcntl.flock(file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
        return file

    def is_open_elsewhere(self, path: str) -> bool | None:
        """Return whether another process has the file open; None when one may that is out of sight.

        Where other machines can write, too, who has a file open there cannot be seen.
        """
        with self._folder_of(path) as (folder_fd, name):
            wanted = os.stat(name, dir_fd=folder_fd, follow_symlinks=False)
        is_open = is_open_elsewhere(name, wanted)
        if is_open is False and self.file_system() in NETWORK_FILE_SYSTEMS | HOST_FILE_SYSTEMS:
            return None
        return is_open

    def is_in_place(self, path: str, file: OpenFile) -> bool:
        """Return whether a path, from the base folder's own on, still leads to an open file."""
        try:
            found = os.stat(f"{self._absolute}/{path}")  # noqa: PTH116 - it makes no object
        except (FileNotFoundError, NotADirectoryError):
            return False
        return os.path.samestat(found, os.fstat(file.fileno()))

    def free_bytes(self) -> int:
        """Return how many bytes may still be written to the disk; what is kept for root is not."""
        found = os.fstatvfs(self._base_fd)
        return found.f_bavail * found.f_frsize

    def file_system(self) -> str:
        """Return the type of the file system, as `mount` does; empty where that is not known.

        Not by the number that statfs gives: all of FUSE has the same one.
        """
        try:
            about_fd = Path(f"/proc/self/fdinfo/{self._base_fd}").read_bytes()
            mount_id = about_fd.partition(b"mnt_id:")[2].split()[0]
            for line in Path("/proc/self/mountinfo").read_bytes().splitlines():
                if line.split(maxsplit=1)[0] == mount_id:
                    return line.partition(b" - ")[2].split()[0].decode("ascii", "replace")
        except (OSError, IndexError):
            pass
        return ""

    @contextlib.contextmanager
    def _folder_of(self, path: str) -> Iterator[tuple[int, str]]:
        """Open the folder that holds the last name of a path, for the time of one operation."""
        folder, _, name = _checked(path).rpartition("/")
        if not folder:
            yield self._base_fd, name
            return
        fd = open_beneath(self._base_fd, folder, WALK)
        try:
            yield fd, name
        finally:
            os.close(fd)

    def _hand_over(self, fd: int) -> None:
        """Give what root has made to whom the base folder belongs, where root may do so."""
        if self._owner is None:
            return
        found = os.fstat(fd)
        # Only what is new, and so empty: what was there may be what its owner must not get.
        is_new = found.st_size == 0 and found.st_nlink == 1
        if stat.S_ISDIR(found.st_mode) or is_new:
            with contextlib.suppress(OSError):
                os.fchown(fd, *self._owner)

    def _open_folder(self, path: str) -> int:
        return open_beneath(self._base_fd, _checked(path) if path else ".", os.O_RDONLY | FOLDER)


def _checked(path: str) -> str:
    assert not {"", ".", ".."}.intersection(path.split("/")), path
    return path


def _regular(file: RealFile, path: str) -> RealFile:
    """Refuse what is no file, such as a pipe or a device, whatever it would do when it is read."""
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        raise OSError(errno.EINVAL, "not a regular file", path.rpartition("/")[2])
    return file


def _unusable(base: Path, reason: str) -> OptionError:
    return OptionError("dir", str(base), f"a folder that this user may write ({reason})")


def _read_boot_id() -> str:
    try:
        return _BOOT_ID.read_text("ascii").strip()
    except OSError:
        return ""
