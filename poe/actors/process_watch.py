"""One child process, watched in the event loop for the actor that owns it.

It turns what the process says (the ready pipe) and its end (a pidfd, else a thread that waits) into
a change that the actor awaits, or into a message to it.
"""

import contextlib
import os
import signal
import subprocess
import threading
from collections.abc import Sequence
from functools import partial

from poe.actors.call import Wait
from poe.actors.gen_server import GenServer
from poe.actors.parent_process import PARENT_VARIABLE, READY, READY_FD_VARIABLE
from poe.actors.reason import NORMAL, Reason
from poe.actors.server_cell import cell_of_actor
from poe.errors import ProcessStartFailed

PROCESS_ENDED = object()
"""Tells the actor that its process has ended by itself."""

_REPORT_BYTES_MAX = 65_536
_COMMAND_SHOWN_MAX = 80
_REAP_S = 1.0
_SIGNAL_NAMES = {number.value: number.name for number in signal.Signals}
"""Real-time signals have none, but for the first and the last."""


class ProcessWatch:
    """Starts a process for an actor, tells it of the end, and kills it when the actor ends.

    `end` is None while the process runs, then its exit reason. `report` is what it has said so far.
    Everything happens in the loop's thread.

    Raises:
        ProcessStartFailed: on construction, when the program cannot be run.
    """

    def __init__(
        self, actor: GenServer, command: Sequence[str], descriptors: Sequence[int]
    ) -> None:
        self._cell = cell_of_actor(actor)
        self._event_loop = self._cell.run_queue.event_loop()
        self._wait: Wait | None = None
        self._pidfd: int | None = None
        self.end: Reason | None = None
        self.report = b""
        reading, writing = os.pipe()
        os.set_blocking(reading, False)
        self._pipe: int | None = reading
        told = {READY_FD_VARIABLE: str(writing), PARENT_VARIABLE: str(os.getpid())}
        try:
            self._process = subprocess.Popen(  # noqa: S603 - the command is its owner's
                _words(command),
                stdin=subprocess.DEVNULL,
                pass_fds=(writing, *descriptors),
                process_group=0,
                env={**os.environ, **told},
            )
        except OSError as error:
            os.close(reading)
            raise ProcessStartFailed(command[0], error.strerror or str(error)) from error
        except Exception as error:
            # What cannot be passed to a process at all: a NUL, a number, a negative descriptor.
            os.close(reading)
            why = f"{error}; use a list of str, and descriptors that are open"
            raise ProcessStartFailed(str(command)[:_COMMAND_SHOWN_MAX], why) from error
        finally:
            os.close(writing)
        self.pid = self._process.pid
        self._cell.on_end = partial(self._event_loop.wake, self.close)
        self._event_loop.loop.add_reader(reading, self._on_report)
        self._watch_end()

    @property
    def is_ready(self) -> bool:
        """Whether the process has said that it is."""
        return self.report.startswith(READY)

    async def wait_change(self, timeout_s: float) -> None:
        """Wait until the process is ready or has ended, or the time is over."""
        if self.end is None:
            self._wait = Wait(self._cell)
            self._wait.timer = self._cell.own().add_timer(timeout_s, self._wait.expire)
            await self._wait
            self._wait = None

    def terminate(self) -> None:
        """Ask the process to end; from now on nothing but its end is a change."""
        self._close_pipe()
        self._send(signal.SIGTERM)

    def close(self) -> None:
        """Kill the process, if it still runs, and let go of everything; twice is harmless."""
        self._cell.on_end = None
        if self.end is None:
            self._send(signal.SIGKILL)
            # It is gone within microseconds, unless a disk keeps it.
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._take_end(timeout_s=_REAP_S)
        self._close_pipe()

    # ---- in the loop ----------------------------------------------------------------------------

    def _send(self, number: signal.Signals) -> None:
        # Popen would look first whether it has ended, and reap it. Until `_take_end` does that, the
        # pid cannot be anybody else's.
        os.kill(self.pid, number)

    def _watch_end(self) -> None:
        try:
            self._pidfd = os.pidfd_open(self.pid)
        except (AttributeError, OSError):  # not Linux, or older than 5.3
            threading.Thread(target=self._wait_end, name="poe-process", daemon=True).start()
        else:
            self._event_loop.loop.add_reader(self._pidfd, self._on_end)

    def _wait_end(self) -> None:
        """Wait in a thread; the process stays a zombie until the loop's thread takes its end."""
        with contextlib.suppress(ChildProcessError):
            os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT)
            self._event_loop.wake(self._on_end)

    def _on_report(self) -> None:
        """Take what the process says; at the end of the file nothing more can come."""
        if self._pipe is None:
            return
        with contextlib.suppress(BlockingIOError):
            part = os.read(self._pipe, _REPORT_BYTES_MAX)
            self.report += part
            if self.is_ready or not part or len(self.report) >= _REPORT_BYTES_MAX:
                self._close_pipe()
            if self.is_ready:
                self._tell()

    def _on_end(self) -> None:
        """Learn how the process ended, and tell the actor."""
        if self.end is None:
            self._on_report()
            self._take_end()
            self._tell()

    def _take_end(self, timeout_s: float | None = None) -> None:
        if self._pidfd is not None:
            self._event_loop.loop.remove_reader(self._pidfd)
            os.close(self._pidfd)
            self._pidfd = None
        # Before it is reaped: until then nobody else can have its number.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)
        self.end = _reason_of(self._process.wait(timeout_s))

    def _tell(self) -> None:
        run_queue, wait = self._cell.run_queue, self._wait
        if wait is not None and not wait.is_done:
            run_queue.run_outside(lambda: wait.finish(None))
        elif self.end is not None:
            run_queue.post_from_outside(self._cell, PROCESS_ENDED, None)

    def _close_pipe(self) -> None:
        if self._pipe is not None:
            self._event_loop.loop.remove_reader(self._pipe)
            os.close(self._pipe)
            self._pipe = None


def _words(command: Sequence[str]) -> list[str]:
    if isinstance(command, str) or not command:
        msg = f"the command is {command!r}, no list of words"
        raise TypeError(msg)
    return list(command)


def _reason_of(status: int) -> Reason:
    if status < 0:
        return ("signal", _SIGNAL_NAMES.get(-status, str(-status)))
    return NORMAL if status == 0 else ("exit_status", status)
