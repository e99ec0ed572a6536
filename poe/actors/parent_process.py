"""The bond of a process with the one that started it: it ends when that one does."""

import ctypes
import os
import signal

_PR_SET_PDEATHSIG = 1


def end_with_parent(parent_pid: int) -> None:
    """Let the kernel kill this process as soon as the thread that started it ends.

    Does nothing where the kernel has no such service (it is Linux's).

    Args:
        parent_pid: who started this process; if that one is gone already, this one ends at once.
    """
    prctl = getattr(ctypes.CDLL(None), "prctl", None)
    if prctl is None:
        return
    prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent_pid:
        os.kill(os.getpid(), signal.SIGKILL)
