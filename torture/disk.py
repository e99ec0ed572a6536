"""Disks of our own: one in a loop device whose power can be cut, and a small one in memory."""

import contextlib
import ctypes
import fcntl
import os
import struct
import subprocess
import time
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from random import Random
from typing import Literal

FileSystem = Literal["ext4", "xfs"]

_SHUTDOWN = 0x8004587D
"""The ioctl EXT4_IOC_SHUTDOWN, and XFS_IOC_GOINGDOWN: from then on nothing reaches the disk."""
_FLUSH_LOG, _DROP_LOG = 1, 2
_UMOUNT_TRIES = 200
_MAKE = {
    "ext4": ("mkfs.ext4", "-q", "-F", "-E", "lazy_itable_init=1"),
    "xfs": ("mkfs.xfs", "-q", "-f"),
}
_XFS_MIB_MIN = 320
"""It refuses to be made on less than 300 MB. The image is sparse."""
_PAGE_BYTES = 4096
_OWN_MOUNTS = 0x20000
"""CLONE_NEWNS of unshare."""


class PoweredDisk:
    """A mounted file system; `cut` takes its power, `restore` mounts what is left."""

    def __init__(self, image: Path, folder: Path) -> None:
        self.folder = folder
        self.boot = 1
        """Counts the boots of the machine that has this disk."""

        self._image = image

    def mount(self) -> None:
        """Mount it."""
        _run("mount", "-o", "loop", str(self._image), str(self.folder))

    def cut(self, *, has_flushed_log: bool = False) -> None:
        """Let nothing more reach the disk; what is written meets errors from now on.

        With `has_flushed_log`, the file system's own journal is written first.
        """
        kind = _FLUSH_LOG if has_flushed_log else _DROP_LOG
        folder = os.open(self.folder, os.O_RDONLY)
        try:
            fcntl.ioctl(folder, _SHUTDOWN, struct.pack("I", kind))
        finally:
            os.close(folder)

    def restore(self) -> None:
        """Mount the disk again, in another boot; nobody may have files of it open any more."""
        self.unmount()
        self.boot += 1
        self.mount()

    def unmount(self) -> None:
        """Unmount it, once the last file is closed: who was killed closes a bit later."""
        for attempt in range(_UMOUNT_TRIES):
            if _run("umount", str(self.folder), check=attempt == _UMOUNT_TRIES - 1) == 0:
                return
            time.sleep(0.01)

    @property
    def boot_id(self) -> str:
        """What the machine would tell as the identity of this boot."""
        return f"{self.boot:036}"


@contextlib.contextmanager
def powered_disk(
    folder: Path, size_mib: int = 64, kind: FileSystem = "ext4"
) -> Iterator[PoweredDisk]:
    """Make and mount a file system whose power can be cut."""
    _take_own_mounts()
    # In memory: it is the file system that is tested, and the image is written all the time.
    image = Path("/dev/shm") / f"{folder.name}-{os.getpid()}.{kind}"
    mounted = folder / "disk"
    mounted.mkdir(parents=True)
    disk = PoweredDisk(image, mounted)
    try:
        with image.open("wb") as file:
            file.truncate((max(size_mib, _XFS_MIB_MIN) if kind == "xfs" else size_mib) << 20)
        _run(*_MAKE[kind], str(image))
        disk.mount()
        yield disk
        disk.unmount()
    finally:
        _run("umount", "--lazy", str(mounted), check=False)
        image.unlink(missing_ok=True)


@cache
def _take_own_mounts() -> None:
    """Have this thread, and all that it starts, mount things for itself alone.

    Others who are given mounts of their own, with a network for instance, get what is mounted then:
    a disk that they have, too, is still without power when it is mounted again.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(_OWN_MOUNTS) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    _run("mount", "--make-rprivate", "/")


def write_back_parts(folder: Path, random: Random, *, synced_share: float = 0.0) -> None:
    """Have the kernel write some pages of each file, as it may at any time, and sync some files."""
    sync_file_range = ctypes.CDLL(None).sync_file_range
    sync_file_range.argtypes = (ctypes.c_int, ctypes.c_int64, ctypes.c_int64, ctypes.c_uint)
    paths = [path for path in folder.rglob("*") if path.is_file()]
    random.shuffle(paths)
    for path in paths:
        pages = path.stat().st_size // _PAGE_BYTES + 1
        with path.open("rb") as file:
            for _ in range(random.randrange(3)):
                first = random.randrange(pages)
                size_bytes = random.randint(1, pages - first) * _PAGE_BYTES
                # 7: wait for what is being written, write, wait again.
                sync_file_range(file.fileno(), first * _PAGE_BYTES, size_bytes, 7)
            if random.random() < synced_share:
                os.fdatasync(file.fileno())


class SmallDisk:
    """A mounted file system that can be filled to the last block."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._ballast = folder / "ballast"

    def fill(self) -> None:
        """Take all the room there is."""
        with self._ballast.open("ab", buffering=0) as file:
            for size in (1 << 16, 1 << 12, 1):
                with contextlib.suppress(OSError):
                    while True:
                        file.write(b"x" * size)

    def free(self) -> None:
        """Give it back."""
        self._ballast.unlink()


@contextlib.contextmanager
def small_disk(folder: Path, kind: str, size_mib: int = 16) -> Iterator[SmallDisk]:
    """Make and mount a small disk: `tmpfs` or `ext4`."""
    if kind == "ext4":
        with powered_disk(folder, size_mib) as disk:
            yield SmallDisk(disk.folder)
        return
    mounted = folder / "disk"
    mounted.mkdir(parents=True)
    _run("mount", "-t", "tmpfs", "-o", f"size={size_mib}m", "poe-torture", str(mounted))
    try:
        yield SmallDisk(mounted)
    finally:
        _run("umount", "--lazy", str(mounted))


def _run(*command: str, check: bool = True) -> int:
    return subprocess.run(command, check=check, capture_output=True).returncode
