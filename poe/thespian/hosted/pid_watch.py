"""Which of the watched processes have ended: pids in, pids out.

A process that was killed tells nobody, and Thespian's queue base notices its end seconds late. The
kernel knows at once: a pidfd becomes readable when its process ends, reaped or not. Where there are
no pidfds a process counts as alive until it is reaped.
"""

import os
import select
import signal
import time
from contextlib import suppress

_POLL_S = 0.05


class PidWatch:
    """Owns one pidfd for each watched process; not for use from several threads."""

    def __init__(self) -> None:
        self._fds: dict[int, int] = {}

    def __len__(self) -> int:
        return len(self._fds)

    def add(self, pid: int) -> None:
        """Watch a process; one that has ended already is found by the next `take_ended`."""
        if pid not in self._fds:
            self._fds[pid] = _open(pid)

    def discard(self, pid: int) -> None:
        """Watch a process no longer."""
        fd = self._fds.pop(pid, -1)
        if fd >= 0:
            os.close(fd)

    def kill(self, pid: int) -> None:
        """Kill a watched process, and no stranger that has got its number since."""
        fd = self._fds.get(pid, -1)
        with suppress(ProcessLookupError):
            if fd >= 0:
                signal.pidfd_send_signal(fd, signal.SIGKILL)
            else:
                os.kill(pid, signal.SIGKILL)

    def close(self) -> None:
        """Watch nobody any longer."""
        for pid in list(self._fds):
            self.discard(pid)

    def take_ended(self) -> list[int]:
        """Return the pids of the processes that have ended, and watch them no longer."""
        ended = [pid for pid, fd in self._fds.items() if _has_ended(pid, fd)]
        for pid in ended:
            self.discard(pid)
        return ended


def is_gone(pid: int) -> bool:
    """Return whether a process has ended."""
    fd = _open(pid)
    try:
        return _has_ended(pid, fd)
    finally:
        if fd >= 0:
            os.close(fd)


def wait_for_end(pid: int) -> None:
    """Block until a process has ended."""
    fd = _open(pid)
    if fd >= 0:
        poll = select.poll()
        poll.register(fd, select.POLLIN)
        poll.poll()
        os.close(fd)
    else:
        while not _has_ended(pid, fd):
            time.sleep(_POLL_S)


def _open(pid: int) -> int:
    """Return a pidfd, or -1: the process has ended, or there are no pidfds, or no more of them."""
    try:
        return os.pidfd_open(pid)
    except (AttributeError, OSError):
        return -1


def _has_ended(pid: int, fd: int) -> bool:
    if fd >= 0:
        poll = select.poll()
        poll.register(fd, select.POLLIN)
        return bool(poll.poll(0))
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False
