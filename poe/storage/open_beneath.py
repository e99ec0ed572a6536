"""Open what lies beneath a folder, and never follow a symbolic link on the way there.

Linux does it in one system call from 5.6 on. Elsewhere, and where a sandbox knows no such call, the
path is walked name by name, with a descriptor for each folder.
"""

import ctypes
import errno
import os
import struct
from collections.abc import Callable
from functools import cache

FOLDER = os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
"""Flags of what is a folder."""
# O_PATH takes no part in reading or writing, so it costs least and needs no read permission.
WALK = os.O_PATH | FOLDER
"""Flags of a folder that is only walked through."""
_FILE_MODE = 0o600

_OPENAT2 = 437  # on all processors
_AT_CWD = -100
_HOW = struct.Struct("=QQQ")
_NO_MAGIC_LINKS, _NO_SYMLINKS, _BENEATH = 0x02, 0x04, 0x08
_RESOLVE = _NO_MAGIC_LINKS | _NO_SYMLINKS | _BENEATH

_Open = Callable[[int, str, int], int]


def walk_to(base_fd: int, path: str, flags: int) -> int:
    """Open a path beneath a folder, name by name; see `open_beneath`."""
    names = path.split("/")
    fd = base_fd
    for number, name in enumerate(names, 1):
        is_last = number == len(names)
        try:
            next_fd = os.open(name, flags if is_last else WALK, _FILE_MODE, dir_fd=fd)
        finally:
            if fd != base_fd:
                os.close(fd)
        fd = next_fd
    return fd


def find_openat2() -> _Open | None:
    """Return Linux's openat2 with the parameters of `walk_to`, where it can be called."""
    syscall = getattr(ctypes.CDLL(None, use_errno=True), "syscall", None)
    if syscall is None or os.uname().sysname != "Linux":
        return None
    syscall.restype = ctypes.c_long
    syscall.argtypes = (
        ctypes.c_long, ctypes.c_int, ctypes.c_char_p, ctypes.c_char_p, ctypes.c_size_t
    )  # fmt: skip

    def openat2(base_fd: int, path: str, flags: int) -> int:
        fd = syscall(_OPENAT2, base_fd, os.fsencode(path), _how(flags), _HOW.size)
        if fd < 0:
            error_number = ctypes.get_errno()
            if error_number == errno.EINTR:
                return walk_to(base_fd, path, flags)  # Python begins again by itself there
            raise OSError(error_number, os.strerror(error_number), path)
        return int(fd)

    try:
        os.close(openat2(_AT_CWD, ".", WALK))
    except OSError:
        return None
    return openat2


@cache
def _how(flags: int) -> bytes:
    return _HOW.pack(flags, _FILE_MODE if flags & os.O_CREAT else 0, _RESOLVE)


open_beneath: _Open = find_openat2() or walk_to
"""Open a path beneath a folder by its descriptor; what is made gets the mode 0600.

Raises:
    OSError: as the system says it: which error it is for a link differs.
"""
