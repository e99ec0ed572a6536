"""Looks for a file among the open files of all processes, and tells how far it could see."""

import contextlib
import os
from pathlib import Path

_PROCESSES = Path("/proc")
_INITIAL_NAMESPACE = 0xEFFFFFFC
"""The number of the namespace that all processes of a machine are in; the kernel's constant."""


def is_open_elsewhere(name: str, wanted: os.stat_result) -> bool | None:
    """Return whether another process of this machine has a file open.

    Args:
        name: the last part of its path.
        wanted: its owner and identity.

    Returns:
        None when it was not found, but a process may have it that cannot be looked at: one beside
        this container, or one of the file's owner, unless that is our user or we are root.
    """
    is_hidden = not _are_all_in_sight() or os.geteuid() not in {0, wanted.st_uid}
    try:
        processes = [each for each in _PROCESSES.iterdir() if each.name.isdigit()]
    except OSError:
        return None
    for process in processes:
        if process.name == str(os.getpid()):
            continue
        has_open = _has_open(process / "fd", name, wanted)
        if has_open:
            return True
        # The first process, which even root may be kept from looking at, does nothing but start
        # others, where /proc lists those of the whole machine.
        if has_open is None and process.name != "1" and _is_owned_by(wanted.st_uid, process):
            is_hidden = True
    return None if is_hidden else False


def _are_all_in_sight() -> bool:
    """Return whether /proc lists the processes of the whole machine: in a container it does not."""
    try:
        return (_PROCESSES / "self/ns/pid").stat().st_ino == _INITIAL_NAMESPACE
    except OSError:
        return False


def _has_open(descriptors: Path, name: str, wanted: os.stat_result) -> bool | None:
    """Return whether a process has the file open; None when it may not be looked at."""
    # A process that ends while we look refuses as well, but is not there when we look again.
    for _ in range(2):
        with contextlib.suppress(PermissionError):
            return _is_among(descriptors, name, wanted)
    return None


def _is_among(descriptors: Path, name: str, wanted: os.stat_result) -> bool:
    """Return whether a process has the file open.

    Raises:
        PermissionError: it may not be looked at, or has just ended.
    """
    try:
        for link in descriptors.iterdir():
            # The name first: a stat of an unknown descriptor may hang on a dead network mount.
            with contextlib.suppress(FileNotFoundError):  # closed meanwhile
                if link.readlink().name == name and os.path.samestat(link.stat(), wanted):
                    return True
    except PermissionError:
        raise
    except OSError:
        pass  # it has ended
    return False


def _is_owned_by(uid: int, process: Path) -> bool:
    try:
        return process.stat().st_uid == uid
    except OSError:
        return False
