"""A small file that somebody else has written: read whole, with a limit, and without waiting."""

import os
import stat

from poe.errors import SecurityFileError

_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH


def read_small(path: str, bytes_max: int) -> tuple[bytes, int]:
    """Return the content and the mode of a file of at most `bytes_max` bytes.

    Raises:
        SecurityFileError: there is none, it is no file, it is too large, or it cannot be read.
    """
    try:
        # Without waiting: somebody may have put a pipe there.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        mode = os.fstat(descriptor).st_mode
        if not stat.S_ISREG(mode):
            os.close(descriptor)  # of a folder no file can be made, which would close it
            raise SecurityFileError(path, None, "it is no file")
        with os.fdopen(descriptor, "rb") as file:
            data = file.read(bytes_max + 1)
    except (OSError, ValueError) as error:  # ValueError: a path with a null byte
        why = f"cannot be read ({getattr(error, 'strerror', None) or error})"
        raise SecurityFileError(path, None, why) from error
    if len(data) > bytes_max:
        raise SecurityFileError(
            path, None, f"it has more than {bytes_max} bytes, which is the limit"
        )
    return data, mode


def check_writers(path: str, mode: int, right: str = "600") -> None:
    """Refuse a file that says who gets in, where others may write it: they could let in anybody.

    Args:
        path: of the file.
        mode: as `read_small` has returned it.
        right: what the mode should be, in octal.

    Raises:
        SecurityFileError: others than its owner may write it.
    """
    if mode & _OTHERS_WRITE:
        why = f"others than its owner may write it; use `chmod {right} {path}`"
        raise SecurityFileError(path, None, why)
