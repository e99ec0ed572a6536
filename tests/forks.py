"""Forks of the process of a test, which end whatever becomes of them."""

import os
import signal
import traceback
import warnings
from collections.abc import Callable

_LIMIT_S = 30.0


def fork(action: Callable[[], object]) -> int:
    """Call `action` in a fork of this process; return the pid of that.

    It ends with 0 when `action` has returned, with another code after an error, and by a signal
    when it takes too long.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # since 3.12, with threads
        pid = os.fork()
    if pid == 0:
        code = 1
        try:
            signal.signal(signal.SIGALRM, signal.SIG_DFL)  # which ends the process
            signal.setitimer(signal.ITIMER_REAL, _LIMIT_S)
            action()
            code = 0
        except BaseException:  # noqa: BLE001 - of a process that is not to go on with the tests
            traceback.print_exc()
        finally:
            os._exit(code)
    return pid


def exit_code_of(pid: int) -> int:
    """Wait for the end of a fork."""
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
