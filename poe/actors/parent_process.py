"""What a process says to the one that started it, and how it ends with it.

The other side of `OsProcess`. A program that cannot use this module does the same with a few system
calls: it writes `ready` and a newline to the descriptor that `OS_PROCESS_READY_FD` names. Nobody
reads what comes after that line, and a later write fails with EPIPE.
"""

import ctypes
import os
import signal

READY_FD_VARIABLE = "OS_PROCESS_READY_FD"
PARENT_VARIABLE = "OS_PROCESS_PARENT_PID"
READY = b"ready\n"

_PR_SET_PDEATHSIG = 1


def end_with_parent(parent_pid: int | None = None) -> None:
    """Have the kernel kill this process as soon as the thread that started it ends.

    Does nothing where the kernel has no such service (it is Linux's), or nobody is known to have
    started the process.

    Args:
        parent_pid: who started it; an `OsProcess` tells its process that, and that process alone.
    """
    parent_pid = parent_pid or int(os.environ.pop(PARENT_VARIABLE, "0"))
    prctl = getattr(ctypes.CDLL(None), "prctl", None)
    if prctl is None or not parent_pid:
        return
    prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    # It may have ended before.
    if os.getppid() != parent_pid:
        os.kill(os.getpid(), signal.SIGKILL)


def report_ready() -> None:
    """Tell the `OsProcess` that waits for it that the start is complete; else do nothing."""
    _report(READY)


def report_failure(sentence: str) -> None:
    """Tell it why there is no start; the process is to end now."""
    _report(sentence.encode("utf-8", "backslashreplace"))


def _report(report: bytes) -> None:
    descriptor = os.environ.pop(READY_FD_VARIABLE, None)
    if descriptor is not None:
        with open(int(descriptor), "wb") as pipe:  # noqa: PTH123 - no path
            pipe.write(report)
